#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/program.h"
#include "core/units.h"

namespace stepcast::runtime::cpu {

/// Writes rows x piece.columns initial values of one piece into a row-major matrix with `pitch`
/// elements per row. Element (i, j) depends only on (piece.key, global row, global column):
/// uniform in [-scale, scale] by a counter-based hash, or `constant`. About 1 ns per element.
void fill_piece(const ParameterPiece& piece, std::int32_t rank, std::int64_t rows,
                std::int64_t pitch, float* matrix);

/// The memory behind the tensors of one rank's program, all fp32. Allocated, initialised and
/// touched once: parameters by their pieces, everything else zero.
///
/// The instances of a per-microbatch tensor share memory where their lives within a step do not
/// overlap (so 1F1B really needs less than GPipe), provided that only one stream uses the tensor
/// and no send does. Operands that one collective treats as one buffer lie side by side.
/// Errors: RunError when the machine does not have the memory.
class TensorStorage {
 public:
  TensorStorage(const Program& program, std::int32_t rank, const Mesh& mesh = {});
  ~TensorStorage();
  TensorStorage(const TensorStorage&) = delete;
  TensorStorage& operator=(const TensorStorage&) = delete;

  [[nodiscard]] float* const* const* pointers() const { return tables_.data(); }
  [[nodiscard]] float* at(TensorId id, std::int32_t microbatch) const;
  /// The tensors `next_of` names trade places with those that replace them.
  void begin_next_batch(const Program& program);
  [[nodiscard]] Bytes allocated() const { return Bytes(static_cast<double>(allocated_)); }

 private:
  void plan_instances(const Program& program);
  void place(const Program& program);
  void place_views(const Program& program, std::int32_t data_coordinate);
  void initialise(const Program& program, std::int32_t rank, std::int32_t tensor_coordinate);
  float* allocate(std::size_t elements);

  std::vector<std::int32_t> slots_;                 ///< distinct instances of each tensor
  std::vector<std::vector<std::int32_t>> slot_of_;  ///< [tensor][microbatch], empty: slot 0
  std::vector<std::vector<float*>> instances_;      ///< [tensor][slot]
  std::vector<std::vector<float*>> by_microbatch_;
  std::vector<float* const*> tables_;
  std::vector<bool> per_microbatch_;
  std::vector<std::pair<void*, std::size_t>> regions_;
  std::size_t allocated_ = 0;
};

/// Bytes TensorStorage will allocate for a program: to refuse before the machine runs out.
Bytes storage_bytes(const Program& program);

}  // namespace stepcast::runtime::cpu
