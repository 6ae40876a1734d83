#include "runtime/cpu/kernels/optimizer.h"

#include "runtime/cpu/kernels/muon.h"

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

TEST_CASE("Muon brings singular values near one", "[runtime][kernels][optimizer][muon]") {
  // diag(3, 4): divided by its norm 5 the singular values are 0.6 and 0.8; each iteration takes x
  // to 3.4445 x - 4.775 x^3 + 2.0315 x^5. The step is 0.2 sqrt(2) times as long.
  const auto iterated = [](double x) {
    for (int i = 0; i < 5; ++i) {
      x = 3.4445 * x - 4.775 * x * x * x + 2.0315 * x * x * x * x * x;
    }
    return 0.2 * std::sqrt(2.0) * x;
  };
  Floats x{3, 0, 0, 4}, iterates(8), squares(8);
  orthogonalize({x.data(), 2, 2}, 5, iterates.data(), squares.data());
  CHECK(x[0] == Approx(iterated(0.6)).epsilon(1e-4));
  CHECK(x[3] == Approx(iterated(0.8)).epsilon(1e-4));
  CHECK(std::abs(x[1]) + std::abs(x[2]) < 1e-6F);
  // By hand for one iteration: 0.6 -> 2.0667 - 1.0314 + 0.15797 = 1.19327.
  Floats one{3, 0, 0, 4};
  orthogonalize({one.data(), 2, 2}, 1, iterates.data(), squares.data());
  CHECK(one[0] == Approx(0.2 * std::sqrt(2.0) * 1.19327).epsilon(1e-4));
}

TEST_CASE("Muon of a tall matrix is that of its transpose", "[runtime][kernels][optimizer][muon]") {
  const Floats wide = random_floats(6 * 17, 4);
  Floats a = wide, b(6 * 17), iterates(2 * 6 * 17), squares(2 * 6 * 6);
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 17; ++j) {
      b[j * 6 + i] = wide[i * 17 + j];
    }
  }
  orthogonalize({a.data(), 6, 17}, 5, iterates.data(), squares.data());
  orthogonalize({b.data(), 17, 6}, 5, iterates.data(), squares.data());
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 17; ++j) {
      CHECK(b[j * 6 + i] == a[i * 17 + j]);
    }
  }
  // Momentum 0.95 from nothing: m = 0.05 g, and 0.95 m + 0.05 g = 0.0975 g.
  Floats g{2}, m{0};
  muon_momentum(g.data(), m.data(), 1);
  CHECK(m[0] == Approx(0.1));
  CHECK(g[0] == Approx(0.195));
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
