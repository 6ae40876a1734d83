#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::calibration {

/// Device memory of the sweep, allocated once and filled with random numbers that are finite in
/// every format: each 16-bit half is a bf16 number of magnitude up to 1 (products of zeros would be
/// faster than real ones). A case takes what it needs from the front; what earlier cases computed
/// stays behind. Errors: RunError when CUDA fails.
class Arena {
 public:
  /// The given share of the memory that is free now, at most `most` bytes.
  Arena(double share, std::size_t most, std::uint64_t seed);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void reset() { next_ = 0; }
  [[nodiscard]] void* at_front() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// 256-byte aligned. Errors: InputError when the rest is too small: the case does not fit this
  /// device.
  void* take(std::size_t bytes);
  cuda::kernels::MatrixView matrix(Format format, std::int64_t rows, std::int64_t columns) {
    return {take(static_cast<std::size_t>(rows * columns) * cuda::kernels::element_bytes(format)),
            format, rows, columns};
  }
  template <class T>
  T* upload(const std::vector<T>& values) {
    auto* to = static_cast<T*>(take(values.size() * sizeof(T)));
    copy_in(to, values.data(), values.size() * sizeof(T));
    return to;
  }
  cuda::kernels::Workspace workspace(std::size_t bytes) { return {take(bytes), bytes}; }
  /// Fills all of it with random numbers again: weights that were trained on noise drift.
  void refill(std::uint64_t seed);

 private:
  static void copy_in(void* to, const void* from, std::size_t bytes);

  char* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t next_ = 0;
};

}  // namespace stepcast::runtime::calibration
