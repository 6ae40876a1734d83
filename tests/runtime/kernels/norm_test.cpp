#include "runtime/cpu/kernels/norm.h"

#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {

TEST_CASE("layer norm of 1, 2, 3, 4", "[runtime][kernels][norm]") {
  // mean 2.5, variance (2.25 + 0.25 + 0.25 + 2.25) / 4 = 1.25, r = 0.894427; y = (x - 2.5) * r * 2
  // + 1
  Floats x{1, 2, 3, 4}, y(4), statistics(2);
  const Floats weight(4, 2), bias(4, 1);
  norm_forward(Norm::kLayerNorm, view(x, 1, 4), weight.data(), bias.data(), 0, view(y, 1, 4),
               statistics.data());
  check_close(statistics, {2.5F, 0.8944272F});
  check_close(y, {-1.6832816F, 0.1055728F, 1.8944272F, 3.6832816F});
}

TEST_CASE("RMS norm of 3, 4", "[runtime][kernels][norm]") {
  // mean square 12.5, r = 0.2828427; y = (0.8485281, 1.1313708)
  Floats x{3, 4}, y(2), statistics(2);
  const Floats weight(2, 1);
  norm_forward(Norm::kRmsNorm, view(x, 1, 2), weight.data(), nullptr, 0, view(y, 1, 2),
               statistics.data());
  check_close(y, {0.8485281F, 1.1313708F});
  CHECK(statistics[0] == 0);
}

TEST_CASE("norm gradients are derivatives", "[runtime][kernels][norm][gradient]") {
  const auto norm = GENERATE(Norm::kLayerNorm, Norm::kRmsNorm);
  const Index rows = GENERATE(1, 5), width = GENERATE(4, 16, 37);
  const bool with_bias = GENERATE(true, false);
  Floats x = random_floats(rows * width, 1, -2, 2), weight = random_floats(width, 2, 0.5F, 1.5F);
  Floats bias = random_floats(width, 3);
  const Floats weights = random_floats(rows * width, 4);
  Floats y(x.size()), statistics(static_cast<std::size_t>(2 * rows)), dx(x.size()), dy = weights;
  Floats d_weight(weight.size(), 5), d_bias(bias.size(), 5);
  const auto loss = [&] {
    norm_forward(norm, view(x, rows, width), weight.data(), with_bias ? bias.data() : nullptr,
                 1e-5F, view(y, rows, width), statistics.data());
    return dot(y, weights);
  };
  loss();
  norm_backward(norm, view(dy, rows, width), view(x, rows, width), weight.data(), statistics.data(),
                view(dx, rows, width), d_weight.data(), with_bias ? d_bias.data() : nullptr);
  for (std::size_t j = 0; j < weight.size(); ++j) {
    d_weight[j] -= 5;
    d_bias[j] -= 5;
  }
  check_gradient(x, dx, loss, 1e-3, 0.01F);
  check_gradient(weight, d_weight, loss);
  if (with_bias) {
    check_gradient(bias, d_bias, loss);
  }
  norm_backward(norm, view(dy, rows, width), view(x, rows, width), weight.data(), statistics.data(),
                view(dy, rows, width), d_weight.data(), nullptr);
  CHECK(dy == dx);  // in place
}

}  // namespace stepcast::runtime::kernels
