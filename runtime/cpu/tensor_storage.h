#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "runtime/tensor_layout.h"

namespace stepcast::runtime::cpu {

/// The memory behind the tensors of one rank's program, all fp32. Allocated, initialised and
/// touched once: parameters by their pieces, everything else zero. Tensors of the tier "ssd" are in
/// temporary files, mapped into memory; those of other slower tiers in memory of their own.
/// Errors: RunError when the machine does not have the memory.
class TensorStorage {
 public:
  TensorStorage(const Program& program, std::int32_t rank, const Mesh& mesh = {});
  ~TensorStorage();
  TensorStorage(const TensorStorage&) = delete;
  TensorStorage& operator=(const TensorStorage&) = delete;

  [[nodiscard]] const TensorTable& table() const { return *table_; }
  [[nodiscard]] float* at(TensorId id, std::int32_t microbatch) const {
    return reinterpret_cast<float*>(table_->at(id, microbatch));
  }
  void begin_next_batch(const Program& program) { table_->begin_next_batch(program); }
  /// For tensors in the device's own memory.
  [[nodiscard]] Bytes allocated() const { return allocated_; }
  /// By tier of the program.
  [[nodiscard]] const std::vector<double>& allocated_in_tiers() const { return in_tiers_; }

 private:
  void initialise(const Program& program, const TensorLayout& layout, std::int32_t rank,
                  const Mesh& mesh);

  std::vector<std::pair<std::byte*, std::size_t>> regions_;
  std::unique_ptr<TensorTable> table_;
  Bytes allocated_;
  std::vector<double> in_tiers_;
};

/// Bytes TensorStorage will take from this machine's memory for a program: to reject before the
/// machine runs out.
Bytes storage_bytes(const Program& program);

}  // namespace stepcast::runtime::cpu
