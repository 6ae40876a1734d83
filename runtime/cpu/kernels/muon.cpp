#include "runtime/cpu/kernels/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/gemm.h"

namespace stepcast::runtime::kernels {
namespace {

constexpr float kMomentum = 0.95F;
constexpr float kLinear = 3.4445F, kCubic = -4.7750F, kQuintic = 2.0315F;
constexpr double kLikeAdam = 0.2;
constexpr double kSmallest = 1e-7;  // norm that a matrix is divided by

}  // namespace

void muon_momentum(float* gradient, float* momentum, Index n) {
  for (Index i = 0; i < n; ++i) {
    momentum[i] = kMomentum * momentum[i] + (1 - kMomentum) * gradient[i];
    gradient[i] = kMomentum * momentum[i] + (1 - kMomentum) * gradient[i];
  }
}

void orthogonalize(const MatrixView& x, Index iterations, float* iterates, float* squares) {
  double squared = 0;
  for (Index i = 0; i < x.rows; ++i) {
    squared += sum_of_squares(x.row(i), x.columns);
  }
  const auto norm = static_cast<float>(1 / (std::sqrt(squared) + kSmallest));
  const bool tall = x.rows > x.columns;  // its transpose is worked on
  const Index m = std::min(x.rows, x.columns);
  const Index n = std::max(x.rows, x.columns);
  float* now = iterates;
  float* next = iterates + m * n;
  float* a = squares;
  float* b = squares + m * m;
  const auto at = [&](float* of, Index i, Index j) -> float& {
    return tall ? of[j * n + i] : of[i * n + j];
  };
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < x.columns; ++j) {
      at(now, i, j) = norm * x.row(i)[j];
    }
  }
  for (Index k = 0; k < iterations; ++k) {
    gemm({.m = m, .n = m, .k = n, .transpose_b = true}, now, now, a);
    std::copy_n(a, m * m, b);
    gemm({.m = m, .n = m, .k = m, .alpha = kQuintic, .beta = kCubic}, a, a, b);
    std::copy_n(now, m * n, next);
    gemm({.m = m, .n = n, .k = m, .beta = kLinear}, b, now, next);
    std::swap(now, next);
  }
  const auto scale = static_cast<float>(kLikeAdam * std::sqrt(static_cast<double>(n)));
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < x.columns; ++j) {
      x.row(i)[j] = scale * at(now, i, j);
    }
  }
}

}  // namespace stepcast::runtime::kernels
