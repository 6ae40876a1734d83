#include "runtime/cpu/kernels/optimizer.h"

#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {

TEST_CASE("Adam's first step moves every weight by the learning rate",
          "[runtime][kernels][optimizer]") {
  // m' = g, v' = g^2 after bias correction, so the step is lr * g / (|g| + epsilon) = lr * sign(g).
  Floats weights(33, 1), gradient = random_floats(33, 1), m(33), v(33);
  const OptimizerSettings settings{OptimizerKind::kAdam, 0.01F};
  optimizer_update(settings, gradient.data(), weights.data(), m.data(), v.data(), 33);
  for (std::size_t i = 0; i < 33; ++i) {
    CHECK(weights[i] == Approx(1 - (gradient[i] > 0 ? 0.01 : -0.01)).epsilon(1e-5));
  }
}

TEST_CASE("Adam's second step", "[runtime][kernels][optimizer]") {
  // g = 1 then 0, b1 = 0.9, b2 = 0.99: m = 0.09, v = 0.0099; corrected 0.09 / 0.19 = 0.473684,
  // 0.0099 / 0.0199 = 0.497487; step = 0.1 * 0.473684 / 0.705328 = 0.0671579 on top of the first
  // step of 0.1.
  Floats weight{0}, gradient{1}, m(1), v(1);
  OptimizerSettings settings{OptimizerKind::kAdam, 0.1F, 0.9F, 0.99F, 0, 1};
  optimizer_update(settings, gradient.data(), weight.data(), m.data(), v.data(), 1);
  CHECK(weight[0] == Approx(-0.1));
  gradient[0] = 0;
  settings.step = 2;
  optimizer_update(settings, gradient.data(), weight.data(), m.data(), v.data(), 1);
  CHECK(weight[0] == Approx(-0.1671579));
}

TEST_CASE("SGD and Adagrad on flat arrays", "[runtime][kernels][optimizer]") {
  Floats weights{1, 2}, gradient{3, -4}, state{16, 0};
  optimizer_update({OptimizerKind::kSgd, 0.5F}, gradient.data(), weights.data(), nullptr, nullptr,
                   2);
  CHECK(weights == Floats{-0.5F, 4});
  // sqrt(16 + 9) = 5, sqrt(0 + 16) = 4: steps 0.5 * 3 / 5 and 0.5 * -4 / 4
  optimizer_update({OptimizerKind::kAdagrad, 0.5F, 0, 0, 0}, gradient.data(), weights.data(),
                   state.data(), nullptr, 2);
  check_close(weights, {-0.8F, 4.5F});
  CHECK(state == Floats{25, 16});
  // One row: s = (9 + 16) / 2 = 12.5, sqrt = 3.535534; steps 0.5 * g / 3.535534
  Floats row{0, 0}, square{0};
  optimizer_update({OptimizerKind::kRowwiseAdagrad, 0.5F, 0, 0, 0}, gradient.data(), row.data(),
                   square.data(), nullptr, 2);
  check_close(row, {-0.4242641F, 0.5656854F});
  optimizer_update({OptimizerKind::kRowwiseAdagrad}, nullptr, nullptr, nullptr, nullptr, 0);
}

TEST_CASE("split updates equal one update", "[runtime][kernels][optimizer][property]") {
  const auto kind = GENERATE(OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdagrad);
  const OptimizerSettings settings{kind, 0.1F, 0.9F, 0.999F, 1e-8F, 7};
  Floats gradient = random_floats(64, 1), whole = random_floats(64, 2),
         m = random_floats(64, 3, 0, 1), v = m;
  Floats parts = whole, m2 = m, v2 = v;
  optimizer_update(settings, gradient.data(), whole.data(), m.data(), v.data(), 64);
  for (const std::size_t first : {0U, 32U}) {
    optimizer_update(settings, gradient.data() + first, parts.data() + first, m2.data() + first,
                     v2.data() + first, 32);
  }
  CHECK(parts == whole);
}

}  // namespace stepcast::runtime::kernels
