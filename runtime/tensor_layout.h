#pragma once
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/graph/program.h"
#include "core/units.h"

namespace stepcast::runtime {

/// How a backend stores tensors.
struct StorageRules {
  std::size_t (*element_bytes)(Format) = nullptr;
  std::size_t alignment = 64;  ///< of each tensor, in bytes; a power of two
};

/// Places of the tensors of one rank's program. Memory is a list of regions; large tensors have
/// one of their own, small ones share one.
///
/// The instances of a per-microbatch tensor share memory where their lives within a step do not
/// overlap (so 1F1B really needs less than GPipe), provided that only one stream uses the tensor
/// and no send does. Temporaries share memory likewise (core/graph/temporaries.h). Operands that one
/// collective treats as one buffer lie side by side.
struct TensorLayout {
  struct Place {
    std::size_t region = 0;
    std::size_t offset = 0;  ///< bytes
  };
  std::vector<std::size_t> regions;                ///< bytes of each
  std::vector<std::uint8_t> tier_of;               ///< of each region (Tensor::tier)
  std::vector<std::vector<Place>> instances;       ///< [tensor][slot]
  std::vector<std::vector<std::int32_t>> slot_of;  ///< [tensor][microbatch]; empty: slot 0
  std::array<double, static_cast<std::size_t>(TensorRole::kCount)> by_role{};  ///< bytes
  /// All regions in the device's own memory, or in a slower tier.
  [[nodiscard]] Bytes bytes(std::uint8_t tier = 0) const;
};
/// The shard of a sharded tensor, or view, that a rank has.
std::int64_t part_of(const Tensor& tensor, std::int32_t data_coordinate);
/// First element of a view in what it is a view of.
std::int64_t view_begin(const Tensor& view, std::int32_t data_coordinate);
/// `data_coordinate` of the rank decides where some views begin.
TensorLayout tensor_layout(const Program& program, std::int32_t data_coordinate,
                           const StorageRules& rules);

/// Addresses of all tensors, looked up by every operand of every op.
class TensorTable {
 public:
  TensorTable(const Program& program, const TensorLayout& layout,
              const std::vector<std::byte*>& regions);
  TensorTable(const TensorTable&) = delete;
  TensorTable& operator=(const TensorTable&) = delete;

  [[nodiscard]] std::byte* at(TensorId id, std::int32_t microbatch) const {
    return tables_[id][per_microbatch_[id] ? microbatch : 0];
  }
  /// The tensors `next_of` names trade places with those that replace them.
  void begin_next_batch(const Program& program);

 private:
  std::vector<std::vector<std::byte*>> by_microbatch_;
  std::vector<std::byte* const*> tables_;
  std::vector<bool> per_microbatch_;
};

/// Rows of a parameter in the order in which a block holds them.
struct RowSequence {
  std::int64_t first = 0, stride = 1;
  std::int64_t group = 0, group_step = 0;  ///< as ParameterPiece::row_group
  const RowOrder* row_order = nullptr;     ///< rows are places in one of these
  const Access* order = nullptr;
  [[nodiscard]] std::int64_t at(std::int64_t i) const;
  /// Whether row i is first + i * stride.
  [[nodiscard]] bool is_even() const {
    return group == 0 && row_order == nullptr && order == nullptr;
  }
  auto operator<=>(const RowSequence&) const = default;
};
/// The piece's rows on a rank.
RowSequence rows_of(const ParameterPiece& piece, std::int32_t rank);
/// The piece's row i on a rank, hashed with the parameter's key.
std::uint64_t row_hash(const ParameterPiece& piece, std::int32_t rank, std::int64_t i);

/// Writes rows x piece.columns initial values of one piece into a row-major matrix with `pitch`
/// elements per row. Element (i, j) depends only on (piece.key, global row, global column):
/// uniform in [-scale, scale] by a counter-based hash, or `constant`. About 1 ns per element.
void fill_piece(const ParameterPiece& piece, std::int32_t rank, std::int64_t rows,
                std::int64_t pitch, float* matrix);

/// Properties of a rank that decide which values it holds.
struct RankPlace {
  std::int32_t rank = 0;
  std::int32_t tensor = 0, data = 0;  ///< coordinates
  std::int32_t expert = 0;            ///< place in the expert group
};
RankPlace place_of(const Program& program, std::int32_t rank, const Mesh& mesh);

/// The tensor's piece as a rank holds it. Errors: InternalError when it does not fit the tensor.
ParameterPiece piece_on(const Tensor& tensor, ParameterPiece piece, const RankPlace& place);

/// Initial values of a shard (Tensor::sources) on a rank: its elements of the parameters it is cut
/// from, which have no memory of their own.
std::vector<float> shard_values(const Program& program, const Tensor& shard,
                                const RankPlace& place);

}  // namespace stepcast::runtime
