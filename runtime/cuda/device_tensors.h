#pragma once
#include <memory>
#include <span>
#include <vector>

#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/tensor_layout.h"

namespace stepcast::runtime::cuda {

/// The tensors of one rank's program in device memory, each in its own format, all in one
/// allocation; those of slower tiers in page-locked memory of the host. Parameters start from their
/// pieces, fp32 master copies of narrow weights from the same values before rounding, everything
/// else from zero. Errors: InputError for a format the backend does not store, or for rows in files
/// (tier ssd); RunError with the ledger when the device does not have the memory.
class DeviceTensors {
 public:
  DeviceTensors(const Program& program, std::int32_t rank, const Mesh& mesh, Ledger& ledger);

  [[nodiscard]] kernels::MatrixView view(TensorId id, std::int32_t microbatch) const;
  [[nodiscard]] Bytes allocated() const { return allocated_; }
  /// In slower tiers, by tier of the program.
  [[nodiscard]] const std::vector<double>& allocated_in_tiers() const { return in_tiers_; }
  void begin_next_batch() { table_->begin_next_batch(program_); }

  /// Numbers of a tensor as fp32, and putting others in their place.
  [[nodiscard]] std::vector<float> read(TensorId id, std::int32_t microbatch) const;
  void write(TensorId id, std::int32_t microbatch, std::span<const float> values);

 private:
  void initialise(const TensorLayout& layout, std::int32_t rank, const Mesh& mesh);
  void fill_rows(const Tensor& tensor, const std::vector<ParameterPiece>& pieces, std::int32_t rank,
                 std::byte* target);
  void store(TensorId id, std::span<const float> values, std::int32_t data_coordinate);
  void fill_bucket(TensorId bucket, std::int32_t rank, const Mesh& mesh);

  const Program& program_;
  Buffer arena_;
  std::vector<Buffer> tier_memory_;  ///< a region of a slower tier each
  std::vector<double> in_tiers_;
  std::unique_ptr<TensorTable> table_;
  Bytes allocated_;
};

}  // namespace stepcast::runtime::cuda
