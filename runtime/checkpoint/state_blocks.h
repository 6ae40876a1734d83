#pragma once
#include <compare>
#include <cstdint>
#include <vector>

#include "core/graph/program.h"
#include "runtime/tensor_layout.h"

namespace stepcast::runtime {

/// Numbers of one parameter that say the same on every plan: rows and columns of it, and what part
/// of its state they are: 0 the parameter, from 1 on what its optimizer keeps.
struct StateId {
  std::uint64_t key = 0;  ///< ParameterPiece::key
  std::int64_t part = 0;
  RowSequence rows;
  std::int64_t first = 0, count = 0;  ///< of the sequence
  std::int64_t column = 0, columns = 0;
  std::int64_t width = 0;  ///< numbers of a row: columns, or 1 where a row has one for all of them
  auto operator<=>(const StateId&) const = default;
};

/// Their place on a rank.
struct StateBlock {
  StateId id;
  TensorId tensor = 0;
  std::int64_t offset = 0, pitch = 0;  ///< elements of the tensor; from row to row
};

/// Memory of weights that are narrower than fp32 and have fp32 masters: as wide as all others, and
/// masters are not used (the CPU), or narrow, and the masters say what they are.
enum class NarrowWeights : std::uint8_t { kWide, kOfMasters };

/// State of a rank's program that steps change: once for each number it holds.
std::vector<StateBlock> updated_state(const ExecutionGraph& graph, std::int32_t rank,
                                      NarrowWeights weights = NarrowWeights::kWide);
/// The places of a rank's program that state is put into: its parameters, whole, besides.
std::vector<StateBlock> held_state(const ExecutionGraph& graph, std::int32_t rank,
                                   NarrowWeights weights = NarrowWeights::kWide);
/// The part of `updated_state` that a rank writes, so that all ranks write every number once:
/// holders of equal blocks share their rows.
std::vector<StateBlock> written_state(const ExecutionGraph& graph, std::int32_t rank,
                                      NarrowWeights weights = NarrowWeights::kWide);

}  // namespace stepcast::runtime
