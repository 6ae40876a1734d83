#pragma once
#include <vector>

#include "runtime/cpu/kernels/matrix_view.h"
#include "runtime/cuda/kernels/matrix_view.h"
#include "tests/runtime/cuda/standin/numbers.h"

namespace stepcast::standin {

namespace device = runtime::cuda::kernels;
namespace host = runtime::kernels;
using device::Index;

/// A device matrix as the CPU kernels see it: fp32 without gaps. Writable ones go back, rounded, at
/// the end of their scope.
class Widened {
 public:
  explicit Widened(device::ConstMatrixView m)
      : rows_(m.rows), columns_(m.columns), values_(static_cast<std::size_t>(m.elements())) {
    for (Index i = 0; m.data != nullptr && i < rows_; ++i) {
      for (Index j = 0; j < columns_; ++j) {
        values_[static_cast<std::size_t>(i * columns_ + j)] =
            load(m.data, m.format, i * m.stride + j);
      }
    }
  }
  /// A vector of `count` numbers; none where it has no data.
  Widened(device::ConstVector v, Index count)
      : Widened(device::ConstMatrixView(v.data, v.format, v.data == nullptr ? 0 : 1, count)) {}
  [[nodiscard]] host::MatrixView view() { return {values_.data(), rows_, columns_}; }
  [[nodiscard]] float* data() { return values_.empty() ? nullptr : values_.data(); }

 private:
  Index rows_, columns_;
  std::vector<float> values_;
};

class Written : public Widened {
 public:
  explicit Written(device::MatrixView m) : Widened(m), target_(m) {}
  Written(device::Vector v, Index count)
      : Written(device::MatrixView(v.data, v.format, v.data == nullptr ? 0 : 1, count)) {}
  ~Written() {
    const host::MatrixView from = view();
    for (Index i = 0; target_.data != nullptr && i < target_.rows; ++i) {
      for (Index j = 0; j < target_.columns; ++j) {
        store(target_.data, target_.format, i * target_.stride + j, from.row(i)[j]);
      }
    }
  }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

 private:
  device::MatrixView target_;
};

}  // namespace stepcast::standin
