// Device kernels of norms and losses one by one against sums in double: odd shapes, gaps between
// rows, poisoned outputs. On a GPU, and over the stand-in, where it is the tests that are tested.
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/kernels/norm.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {

DEVICE_TEST_CASE("kernels: norms and their gradients", "[cuda][kernels][gpu]") {
  const auto norm = GENERATE(Norm::kLayerNorm, Norm::kRmsNorm);
  constexpr double kEpsilon = 1e-5;
  Draw draw(5);
  std::vector<Shape> shapes{{1, 2, 0},    {3, 7, 0},    {5, 32, 8},   {33, 64, 8},
                            {129, 33, 5}, {7, 1030, 2}, {2, 8192, 0}, {2, 5000, 1}};
  for (const Format f : stored_formats()) {
    for (const auto& [r, c, gap] : shapes) {
      CAPTURE(int(norm), name_of(f), r, c, gap);
      const bool layer = norm == Norm::kLayerNorm;
      const auto columns = static_cast<double>(c);
      const Numbers x = draw.values(r * c), w = draw.values(c), b = draw.values(c),
                    dy = draw.values(r * c), residual = draw.values(r * c);
      const Matrix dx_in(f, r, c, x, gap), dw(Format::kFp32, 1, c, w), db(Format::kFp32, 1, c, b),
          y(f, r, c, gap), ddy(f, r, c, dy), dres(f, r, c, residual), dx(f, r, c, gap),
          sum_w(Format::kFp32, 1, c, w), sum_b(Format::kFp32, 1, c, b);
      Array<float> statistics(static_cast<std::size_t>(2 * r));
      norm_forward(norm, dx_in.view(), dw.vector(),
                   layer ? ConstVector(db.vector()) : ConstVector(), static_cast<float>(kEpsilon),
                   y.view(), statistics.data(), nullptr);
      Numbers mean(static_cast<std::size_t>(r)), rate(mean.size());
      for (Index i = 0; i < r; ++i) {
        double sum = 0, squares = 0;
        for (Index j = 0; j < c; ++j) {
          sum += x[static_cast<std::size_t>(i * c + j)];
        }
        const double m = layer ? sum / columns : 0;
        for (Index j = 0; j < c; ++j) {
          squares += std::pow(x[static_cast<std::size_t>(i * c + j)] - m, 2);
        }
        mean[static_cast<std::size_t>(i)] = m;
        rate[static_cast<std::size_t>(i)] = 1 / std::sqrt(squares / columns + kEpsilon);
      }
      const auto n = [&](Index i, Index j) {
        return (x[static_cast<std::size_t>(i * c + j)] - mean[static_cast<std::size_t>(i)]) *
               rate[static_cast<std::size_t>(i)];
      };
      check_near(y.read(),
                 each(r, c,
                      [&](Index i, Index j) {
                        const auto k = static_cast<std::size_t>(j);
                        return n(i, j) * w[k] + (layer ? b[k] : 0);
                      }),
                 std::max(tolerance_of(f), 1e-4));
      Memory workspace(norm_backward_workspace(r, c));
      norm_backward(norm, ddy.view(), dx_in.view(), dw.vector(), statistics.data(), dres.view(),
                    dx.view(), sum_w.vector(), layer ? sum_b.vector() : Vector(),
                    workspace.workspace(), nullptr);
      const auto g = [&](Index i, Index j) {
        return dy[static_cast<std::size_t>(i * c + j)] * w[static_cast<std::size_t>(j)];
      };
      Numbers expected;
      for (Index i = 0; i < r; ++i) {
        double mean_g = 0, mean_gn = 0;
        for (Index j = 0; j < c; ++j) {
          mean_g += g(i, j) / columns;
          mean_gn += g(i, j) * n(i, j) / columns;
        }
        for (Index j = 0; j < c; ++j) {
          expected.push_back(rate[static_cast<std::size_t>(i)] *
                                 (g(i, j) - (layer ? mean_g : 0) - n(i, j) * mean_gn) +
                             residual[static_cast<std::size_t>(i * c + j)]);
        }
      }
      const double loose = std::max(tolerance_of(f), 2e-4);
      if (c > 2) {  // of two columns the gradient is a difference of nearly equal numbers
        check_near(dx.read(), expected, loose);
      }
      check_near(sum_w.read(),
                 column_sums(w, r, c,
                             [&](Index i, Index j) {
                               return dy[static_cast<std::size_t>(i * c + j)] * n(i, j);
                             }),
                 2e-4);
      if (layer) {
        check_near(
            sum_b.read(),
            column_sums(b, r, c,
                        [&](Index i, Index j) { return dy[static_cast<std::size_t>(i * c + j)]; }),
            2e-5);
      }
    }
  }
}

DEVICE_TEST_CASE("kernels: cross entropy over a split vocabulary", "[cuda][kernels][gpu]") {
  Draw draw(6);
  for (const Format f : stored_formats()) {
    for (const auto& [r, c, gap] : odd_shapes()) {
      CAPTURE(name_of(f), r, c, gap);
      if (r > 200) {
        continue;  // a block a row: nothing that fewer rows do not show
      }
      const Index whole = 2 * c;  // two shards
      Numbers logits = draw.values(r * whole);
      for (double& x : logits) {
        x *= 8;
      }
      std::vector<std::int32_t> targets;
      for (Index i = 0; i < r; ++i) {
        targets.push_back(i % 5 == 3 ? -1 : static_cast<std::int32_t>(draw.below(whole)));
      }
      Array<std::int32_t> tokens(targets);
      const TokenRows rows{tokens.data(), 1, 1};
      const double factor = 0.125;
      std::vector<std::unique_ptr<Matrix>> shards;
      for (Index s = 0; s < 2; ++s) {
        Numbers part;
        for (Index i = 0; i < r; ++i) {
          for (Index j = 0; j < c; ++j) {
            part.push_back(logits[static_cast<std::size_t>(i * whole + s * c + j)]);
          }
        }
        shards.push_back(std::make_unique<Matrix>(f, r, c, part, gap));
      }
      const auto n = static_cast<std::size_t>(r);
      Array<float> m0(n), m1(n), s0(n), s1(n), t0(n), t1(n);
      cross_entropy_maximum(shards[0]->view(), m0.data(), nullptr);
      cross_entropy_maximum(shards[1]->view(), m1.data(), nullptr);
      std::vector<float> m = m0.read();
      const std::vector<float> other = m1.read();
      for (std::size_t i = 0; i < n; ++i) {
        m[i] = std::max(m[i], other[i]);
      }
      m0.write(m);
      cross_entropy_sum(shards[0]->view(), 0, rows, m0.data(), s0.data(), t0.data(), nullptr);
      cross_entropy_sum(shards[1]->view(), c, rows, m0.data(), s1.data(), t1.data(), nullptr);
      const auto added = [](const Array<float>& a, const Array<float>& b) {
        std::vector<float> sum = a.read();
        const std::vector<float> more = b.read();
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] += more[i];
        }
        a.write(sum);
      };
      added(s0, s1);
      added(t0, t1);
      Memory workspace(loss_workspace(r));
      Array<double> loss(std::vector<double>{2.0});
      const Matrix gradient(f, r, c, gap);
      cross_entropy_loss(shards[1]->view(), c, rows, m0.data(), s0.data(), t0.data(),
                         static_cast<float>(factor), gradient.view(), loss.data(),
                         workspace.workspace(), nullptr);
      double expected = 2.0;
      Numbers d;
      for (Index i = 0; i < r; ++i) {
        const std::int32_t target = targets[static_cast<std::size_t>(i)];
        double sum = 0;
        for (Index j = 0; j < whole; ++j) {
          sum += std::exp(logits[static_cast<std::size_t>(i * whole + j)]);
        }
        if (target >= 0) {
          expected +=
              factor * (std::log(sum) - logits[static_cast<std::size_t>(i * whole + target)]);
        }
        for (Index j = c; j < whole; ++j) {
          const double p = std::exp(logits[static_cast<std::size_t>(i * whole + j)]) / sum;
          d.push_back(target < 0 ? 0 : factor * (p - (j == target ? 1 : 0)));
        }
      }
      CHECK(loss.read()[0] == Approx(expected).epsilon(1e-5));
      check_near(gradient.read(), d, std::max(tolerance_of(f), 1e-4));
    }
  }
}

DEVICE_TEST_CASE("kernels: binary cross entropy", "[cuda][kernels][gpu]") {
  Draw draw(7);
  for (const Format f : stored_formats()) {
    for (const Index n : {1, 31, 257, 5000}) {
      CAPTURE(name_of(f), n);
      Numbers z = draw.values(n), y = draw.values(n);
      for (double& x : z) {
        x *= 16;
      }
      for (double& x : y) {
        x = x > 0 ? 1 : 0;
      }
      const Matrix logits(f, n, 1, z, 2), labels(Format::kFp32, n, 1, y, 1), d(f, n, 1, 3);
      Memory workspace(loss_workspace(n));
      Array<double> loss(std::vector<double>{-1.0});
      binary_cross_entropy(logits.view(), labels.view(), 0.5F, d.view(), loss.data(),
                           workspace.workspace(), nullptr);
      double expected = -1;
      Numbers gradient;
      for (std::size_t i = 0; i < z.size(); ++i) {
        expected +=
            0.5 * (std::max(z[i], 0.0) - z[i] * y[i] + std::log1p(std::exp(-std::abs(z[i]))));
        gradient.push_back(0.5 * (1 / (1 + std::exp(-z[i])) - y[i]));
      }
      CHECK(loss.read()[0] == Approx(expected).epsilon(1e-5));
      check_near(d.read(), gradient, tolerance_of(f));
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::test
