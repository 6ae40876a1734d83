#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

using Floats = std::vector<float>;

inline Floats random_floats(Index count, unsigned seed, float low = -1, float high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(low, high);
  Floats out(static_cast<std::size_t>(count));
  std::generate(out.begin(), out.end(), [&] { return draw(engine); });
  return out;
}

inline double dot(const Floats& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

inline void check_close(const Floats& actual, const Floats& expected, double tolerance = 2e-5) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double scale = std::max(1.0, std::abs(static_cast<double>(expected[i])));
    const double error =
        std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    if (!(error <= tolerance * scale)) {  // written so that a NaN fails
      CAPTURE(i, actual[i], expected[i]);
      REQUIRE(error <= tolerance * scale);
    }
  }
}

/// Compares `gradient` with the numerical derivative of `loss` in every element of `parameter`,
/// which `loss` reads by reference. Five-point central differences: truncation h^4 f'''''/30 ~ 1e-6
/// at h = 0.05 for smooth f of scale 1, fp32 rounding of a loss of scale 10 about 1e-6 / h = 2e-5;
/// the tolerance of 1e-3 leaves room for both and for none of the usual mistakes (a missing term,
/// factor or transposition is of order 1).
inline void check_gradient(Floats& parameter, const Floats& gradient,
                           const std::function<double()>& loss, double tolerance = 1e-3,
                           float h = 0.05F) {
  REQUIRE(parameter.size() == gradient.size());
  for (std::size_t i = 0; i < parameter.size(); ++i) {
    const float original = parameter[i];
    const auto at = [&](float shift) {
      parameter[i] = original + shift;
      return loss();
    };
    const double numerical =
        (at(-2 * h) - 8 * at(-h) + 8 * at(h) - at(2 * h)) / (12.0 * static_cast<double>(h));
    parameter[i] = original;
    const double scale = std::max(1.0, std::abs(numerical));
    CAPTURE(i, numerical, gradient[i]);
    REQUIRE(std::abs(static_cast<double>(gradient[i]) - numerical) <= tolerance * scale);
  }
}

inline MatrixView view(Floats& x, Index rows, Index columns) { return {x.data(), rows, columns}; }

}  // namespace stepcast::runtime::kernels
