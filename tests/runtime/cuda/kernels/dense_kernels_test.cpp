// Dense device kernels one by one against sums in double: odd shapes, gaps between rows, poisoned
// outputs. On a GPU, and over the stand-in, where it is the tests that are tested.
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/interaction.h"
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/cuda/kernels/optimizer.h"
#include "runtime/cuda/kernels/position.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

/// f(i, j) for all of a shape.
template <class F>
Numbers each(Index rows, Index columns, F f) {
  Numbers v;
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      v.push_back(f(i, j));
    }
  }
  return v;
}

template <class F>
Numbers column_sums(const Numbers& first, Index rows, Index columns, F f) {
  Numbers sums = first;
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      sums[static_cast<std::size_t>(j)] += f(i, j);
    }
  }
  return sums;
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double silu(double x) { return x / (1 + std::exp(-x)); }
double plain(Activation a, double x) {
  switch (a) {
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSquaredRelu:
      return std::pow(std::max(x, 0.0), 2);
    case Activation::kGelu:
    case Activation::kGeGlu:
      return gelu(x);
    case Activation::kSwiGlu:
    case Activation::kSilu:
      return silu(x);
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kNone:
      break;
  }
  return x;
}
/// By central differences of the smooth parts; exact at the kinks' sides, which no draw hits but 0.
double slope(Activation a, double x) {
  if (a == Activation::kRelu || a == Activation::kNone) {
    return a == Activation::kNone || x > 0 ? 1 : 0;
  }
  constexpr double h = 1e-5;
  return (plain(a, x + h) - plain(a, x - h)) / (2 * h);
}
bool gated(Activation a) { return a == Activation::kSwiGlu || a == Activation::kGeGlu; }

}  // namespace

TEST_CASE("kernels: maps and column sums", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
  Draw draw(1);
  for (const Format f : stored_formats()) {
    for (const auto& [r, c, gap] : odd_shapes()) {
      CAPTURE(name_of(f), r, c, gap);
      const double tolerance = tolerance_of(f);
      const Numbers a = draw.values(r * c), b = draw.values(r * c), row = draw.values(c),
                    factors = draw.values(r);
      const Matrix da(f, r, c, a, gap), db(f, r, c, b), drow(f, 1, c, row);
      const std::size_t columns = static_cast<std::size_t>(c);
      const auto at = [columns](const Numbers& v, std::size_t k) { return v[k]; };
      const auto map = [&](auto value) {
        Numbers v(a.size());
        for (std::size_t k = 0; k < v.size(); ++k) {
          v[k] = value(k);
        }
        return v;
      };
      {
        const Matrix out(f, r, c, gap);
        fill(out.view(), 0.5F, nullptr);
        check_near(out.read(), map([](std::size_t) { return 0.5; }), 0);
        scale(da.view(), -0.5F, out.view(), nullptr);
        check_near(out.read(), map([&](std::size_t k) { return -0.5 * at(a, k); }), tolerance);
        add(da.view(), db.view(), out.view(), nullptr);
        check_near(out.read(), map([&](std::size_t k) { return at(a, k) + at(b, k); }), tolerance);
        axpy(0.25F, db.view(), out.view(), nullptr);
        check_near(out.read(), map([&](std::size_t k) { return at(a, k) + 1.25 * at(b, k); }),
                   tolerance);
        add_with_row(da.view(), db.view(), drow.vector(), out.view(), nullptr);
        check_near(out.read(),
                   map([&](std::size_t k) { return at(a, k) + at(b, k) + row[k % columns]; }),
                   tolerance);
        out.write(a);
        Array<float> on_device(std::vector<float>(factors.begin(), factors.end()));
        scale_rows(out.view(), on_device.data(), nullptr);
        check_near(out.read(), map([&](std::size_t k) { return a[k] * factors[k / columns]; }),
                   tolerance);
      }
      for (const Format to : stored_formats()) {
        const Matrix out(to, r, c, gap + 1);
        copy_block(da.view(), out.view(), nullptr);
        check_near(out.read(), a, 0);  // exact in all
      }
      {
        Numbers fine = a;
        for (double& x : fine) {
          x += 1.0 / 1024;
        }
        const Matrix from(Format::kFp32, r, c, fine, gap), out(Format::kFp32, r, c);
        copy_rounded(from.view(), Format::kBf16, out.view(), nullptr);
        Numbers rounded = fine;
        for (double& x : rounded) {
          float narrow = 0;
          standin::store(&narrow, Format::kBf16, 0, static_cast<float>(x));
          x = standin::load(&narrow, Format::kBf16, 0);
        }
        check_near(out.read(), rounded, 0);
      }
      {
        Memory workspace(column_sums_workspace(r, c));
        const Matrix sums(Format::kFp32, 1, c, row);
        add_column_sums(da.view(), sums.vector(), workspace.workspace(), nullptr);
        check_near(
            sums.read(),
            column_sums(row, r, c,
                        [&](Index i, Index j) { return a[static_cast<std::size_t>(i * c + j)]; }),
            2e-5);
      }
    }
  }
}

TEST_CASE("kernels: copies of many blocks at once", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
  Draw draw(2);
  constexpr Index kRows = 13;
  std::vector<std::unique_ptr<Matrix>> from;
  std::vector<Numbers> values;
  std::vector<Index> widths;
  Index whole = 0;
  for (Index i = 0; i < 71; ++i) {  // more than one launch
    widths.push_back(1 + draw.below(40));
    values.push_back(draw.values(kRows * widths.back()));
    from.push_back(std::make_unique<Matrix>(i % 2 == 0 ? Format::kBf16 : Format::kFp32, kRows,
                                            widths.back(), values.back(), i % 3));
    whole += widths.back();
  }
  const Matrix out(Format::kBf16, kRows, whole, 3);
  std::vector<BlockCopy> copies;
  Index column = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    copies.push_back({from[i]->view(), out.view().block(column, widths[i])});
    column += widths[i];
  }
  copy_blocks(copies.data(), static_cast<Index>(copies.size()), nullptr);
  const Numbers found = out.read();
  column = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    for (Index r = 0; r < kRows; ++r) {
      for (Index j = 0; j < widths[i]; ++j) {
        if (found[static_cast<std::size_t>(r * whole + column + j)] !=
            values[i][static_cast<std::size_t>(r * widths[i] + j)]) {
          FAIL("block " << i << " row " << r << " column " << j);
        }
      }
    }
    column += widths[i];
  }
}

TEST_CASE("kernels: activations and their gradients", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
  const auto a = GENERATE(Activation::kNone, Activation::kRelu, Activation::kGelu,
                          Activation::kSquaredRelu, Activation::kSwiGlu, Activation::kGeGlu,
                          Activation::kSilu, Activation::kTanh, Activation::kSigmoid);
  const bool biased = GENERATE(true, false);
  Draw draw(3);
  for (const Format f : stored_formats()) {
    for (const auto& [r, c, gap] : odd_shapes()) {
      CAPTURE(int(a), biased, name_of(f), r, c, gap);
      const Index wide = gated(a) ? 2 * c : c;
      Numbers x = draw.values(r * wide), dy = draw.values(r * c), bias = draw.values(wide);
      for (double& v : x) {
        v += 1.0 / 128;  // off the kinks; exact in bf16 below 1
      }
      const Matrix dx_in(f, r, wide, x, gap), dbias(f, 1, wide, bias), y(f, r, c, gap),
          ddy(f, r, c, dy), dx(f, r, wide, gap), sums(Format::kFp32, 1, wide, bias);
      x = dx_in.read();
      const auto pre = [&](Index i, Index j) {
        return x[static_cast<std::size_t>(i * wide + j)] +
               (biased ? bias[static_cast<std::size_t>(j)] : 0.0);
      };
      const auto grad = [&](Index i, Index j) { return dy[static_cast<std::size_t>(i * c + j)]; };
      const ConstVector with = biased ? ConstVector(dbias.vector()) : ConstVector();
      activation_forward(a, dx_in.view(), with, y.view(), nullptr);
      check_near(y.read(),
                 each(r, c,
                      [&](Index i, Index j) {
                        return gated(a) ? plain(a, pre(i, j)) * pre(i, j + c) : plain(a, pre(i, j));
                      }),
                 tolerance_of(f));
      const auto expected = [&](Index i, Index j) {
        if (!gated(a)) {
          return grad(i, j) * slope(a, pre(i, j));
        }
        return j < c ? grad(i, j) * slope(a, pre(i, j)) * pre(i, j + c)
                     : grad(i, j - c) * plain(a, pre(i, j - c));
      };
      Memory workspace(activation_backward_workspace(r, wide));
      activation_backward(a, dx_in.view(), with, ddy.view(), dx.view(),
                          biased ? sums.vector() : Vector(), workspace.workspace(), nullptr);
      check_near(dx.read(), each(r, wide, expected), std::max(tolerance_of(f), 1e-4));
      if (biased) {  // sums of what was rounded when it was stored, or before
        check_near(sums.read(), column_sums(bias, r, wide, expected),
                   std::max(tolerance_of(f), 1e-4) * std::sqrt(static_cast<double>(r)));
      }
    }
  }
}

TEST_CASE("kernels: bias and ReLU backward from the output", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
  const auto a = GENERATE(Activation::kNone, Activation::kRelu);
  Draw draw(4);
  for (const Format f : stored_formats()) {
    for (const auto& [r, c, gap] : odd_shapes()) {
      CAPTURE(int(a), name_of(f), r, c, gap);
      const Numbers y = draw.values(r * c), dy = draw.values(r * c), first = draw.values(c);
      const Matrix dy_in(f, r, c, dy, gap), y_in(f, r, c, y), dx(f, r, c, gap),
          sums(Format::kFp32, 1, c, first);
      Memory workspace(activation_backward_workspace(r, c));
      bias_activation_backward(a, dy_in.view(), y_in.view(), dx.view(), sums.vector(),
                               workspace.workspace(), nullptr);
      const auto expected = [&](Index i, Index j) {
        const auto k = static_cast<std::size_t>(i * c + j);
        return a == Activation::kNone || y[k] > 0 ? dy[k] : 0.0;
      };
      check_near(dx.read(), each(r, c, expected), 0);
      check_near(sums.read(), column_sums(first, r, c, expected), 2e-5);
    }
  }
}

TEST_CASE("kernels: norms and their gradients", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
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

TEST_CASE("kernels: cross entropy over a split vocabulary", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
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

TEST_CASE("kernels: binary cross entropy", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
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

TEST_CASE("kernels: dense optimizers", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
  const auto kind = GENERATE(OptimizerKind::kSgd, OptimizerKind::kAdam,
                             OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdagrad);
  const bool mastered = GENERATE(false, true);
  Draw draw(8);
  OptimizerSettings s;
  s.kind = kind;
  s.step = 3;
  s.learning_rate = 0.0625F;
  s.epsilon = 1e-3F;
  for (const Format f : stored_formats()) {
    CAPTURE(int(kind), mastered, name_of(f));
    struct One {
      Index rows, columns;
      Numbers g, w, first, second;
      std::unique_ptr<Matrix> dg, dw;
      std::unique_ptr<Array<float>> master, dfirst, dsecond;
    };
    std::vector<One> all;
    std::vector<Parameter> parameters;
    for (const auto& [r, c, gap] : odd_shapes()) {
      One one{r,
              c,
              draw.values(r * c),
              draw.values(r * c),
              draw.positive(r * c),
              draw.positive(r * c),
              nullptr,
              nullptr,
              nullptr,
              nullptr,
              nullptr};
      const auto floats = [](const Numbers& v, std::size_t n) {
        return std::vector<float>(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n));
      };
      const std::size_t n = one.g.size();
      one.dg = std::make_unique<Matrix>(f, r, c, one.g);
      one.dw = std::make_unique<Matrix>(f, r, c, one.w);
      one.master = std::make_unique<Array<float>>(floats(one.w, n));
      const bool by_row = kind == OptimizerKind::kRowwiseAdagrad;
      one.dfirst = std::make_unique<Array<float>>(
          floats(one.first, by_row ? static_cast<std::size_t>(r) : n));
      one.dsecond = std::make_unique<Array<float>>(floats(one.second, n));
      all.push_back(std::move(one));
    }
    for (const One& o : all) {
      parameters.push_back({o.dg->view(), o.dw->view(), mastered ? o.master->data() : nullptr,
                            o.dfirst->data(), o.dsecond->data()});
    }
    optimizer_update(s, parameters.data(), static_cast<Index>(parameters.size()), false, nullptr,
                     nullptr);
    for (One& o : all) {
      Numbers w = o.w;
      for (Index i = 0; i < o.rows; ++i) {
        double squares = 0;
        for (Index j = 0; j < o.columns; ++j) {
          squares += std::pow(o.g[static_cast<std::size_t>(i * o.columns + j)], 2);
        }
        for (Index j = 0; j < o.columns; ++j) {
          const auto k = static_cast<std::size_t>(i * o.columns + j);
          const double g = o.g[k], lr = s.learning_rate, e = s.epsilon;
          switch (kind) {
            case OptimizerKind::kSgd:
              w[k] -= lr * g;
              break;
            case OptimizerKind::kRowwiseAdagrad: {
              const double state =
                  o.first[static_cast<std::size_t>(i)] + squares / static_cast<double>(o.columns);
              w[k] -= lr * g / (std::sqrt(state) + e);
              break;
            }
            case OptimizerKind::kAdagrad:
              w[k] -= lr * g / (std::sqrt(o.first[k] + g * g) + e);
              break;
            case OptimizerKind::kAdam: {
              const double m = 0.9 * o.first[k] + 0.1 * g;
              const double v = 0.999 * o.second[k] + 0.001 * g * g;
              w[k] -=
                  lr * (m / (1 - std::pow(0.9, 3))) / (std::sqrt(v / (1 - std::pow(0.999, 3))) + e);
              break;
            }
          }
        }
      }
      CAPTURE(o.rows, o.columns);
      check_near(o.dw->read(), w, tolerance_of(f));
      if (mastered) {
        const std::vector<float> exact = o.master->read();
        check_near(Numbers(exact.begin(), exact.end()), w, 2e-5);
      }
    }
  }
}

TEST_CASE("kernels: positions", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
  Draw draw(9);
  for (const Format f : stored_formats()) {
    for (const Index head_dim : {2, 6, 64, 128}) {
      CAPTURE(name_of(f), head_dim);
      constexpr Index kLength = 5, kSamples = 3, kHeads = 3;
      const Index tokens = kLength * kSamples, width = kHeads * head_dim, half = head_dim / 2;
      Numbers table;
      for (Index p = 0; p < kLength; ++p) {
        for (Index i = 0; i < head_dim; ++i) {
          const double angle = 0.1 * static_cast<double>((p + 1) * (i % half + 1));
          table.push_back(i < half ? std::cos(angle) : std::sin(angle));
        }
      }
      Array<float> on_device(std::vector<float>(table.begin(), table.end()));
      const Numbers x = draw.values(tokens * width);
      for (const int direction : {1, -1}) {
        const Matrix m(f, tokens, width, x, 8);
        rotate(on_device.data(), kLength, head_dim, direction, m.view(), nullptr);
        check_near(
            m.read(),
            each(tokens, width,
                 [&](Index t, Index j) {
                   const Index i = j % head_dim;
                   const Index p = t % kLength;
                   const double co = table[static_cast<std::size_t>(p * head_dim + i % half)];
                   const double si =
                       direction * table[static_cast<std::size_t>(p * head_dim + half + i % half)];
                   const auto k = static_cast<std::size_t>(t * width + j);
                   const auto h = static_cast<std::size_t>(half);
                   return i < half ? x[k] * co - x[k + h] * si : x[k] * co + x[k - h] * si;
                 }),
            tolerance_of(f));
      }
      const Numbers positions = draw.values(kLength * width);
      const Matrix table_of(f, kLength, width, positions), sum(f, tokens, width, x, 3),
          gradient(Format::kFp32, kLength, width, positions), dx(f, tokens, width, x);
      add_positions(table_of.view(), sum.view(), nullptr);
      check_near(sum.read(),
                 each(tokens, width,
                      [&](Index t, Index j) {
                        return x[static_cast<std::size_t>(t * width + j)] +
                               positions[static_cast<std::size_t>(t % kLength * width + j)];
                      }),
                 tolerance_of(f));
      add_positions_backward(dx.view(), gradient.view(), nullptr);
      check_near(gradient.read(),
                 each(kLength, width,
                      [&](Index p, Index j) {
                        double g = positions[static_cast<std::size_t>(p * width + j)];
                        for (Index t = p; t < tokens; t += kLength) {
                          g += x[static_cast<std::size_t>(t * width + j)];
                        }
                        return g;
                      }),
                 2e-5);
    }
  }
}

TEST_CASE("kernels: dot interaction and cross layers", "[cuda][kernels][gpu]") {
  if (!has_device()) {
    return;
  }
  Draw draw(10);
  for (const Format f : stored_formats()) {
    for (const auto& [features, dim] : std::vector<std::pair<Index, Index>>{
             {2, 1}, {3, 7}, {9, 16}, {27, 64}, {27, 128}, {5, 33}}) {
      CAPTURE(name_of(f), features, dim);
      constexpr Index kBatch = 11;
      const DotInteraction shape{features, dim};
      const Index width = features * dim, out_width = shape.output_width();
      const Numbers x = draw.values(kBatch * width), dy = draw.values(kBatch * out_width);
      const Matrix dx_in(f, kBatch, width, x, 3), out(f, kBatch, out_width, 1),
          ddy(f, kBatch, out_width, dy), dx(f, kBatch, width, 2);
      const auto value = [&](Index b, Index i, Index d) {
        return x[static_cast<std::size_t>(b * width + i * dim + d)];
      };
      Numbers expected, gradient(x.size(), 0.0);
      for (Index b = 0; b < kBatch; ++b) {
        const auto given = [&](Index j) { return dy[static_cast<std::size_t>(b * out_width + j)]; };
        Index pair = dim;
        for (Index d = 0; d < dim; ++d) {
          expected.push_back(value(b, 0, d));
          gradient[static_cast<std::size_t>(b * width + d)] += given(d);
        }
        for (Index i = 1; i < features; ++i) {
          for (Index j = 0; j < i; ++j, ++pair) {
            double dot = 0;
            for (Index d = 0; d < dim; ++d) {
              dot += value(b, i, d) * value(b, j, d);
              gradient[static_cast<std::size_t>(b * width + i * dim + d)] +=
                  given(pair) * value(b, j, d);
              gradient[static_cast<std::size_t>(b * width + j * dim + d)] +=
                  given(pair) * value(b, i, d);
            }
            expected.push_back(dot);
          }
        }
      }
      dot_interaction_forward(shape, dx_in.view(), out.view(), nullptr);
      check_near(out.read(), expected, tolerance_of(f));
      dot_interaction_backward(shape, ddy.view(), dx_in.view(), dx.view(), nullptr);
      check_near(dx.read(), gradient, tolerance_of(f));
    }
    for (const auto& [r, c, gap] : odd_shapes()) {
      for (const bool accumulate : {false, true}) {
        CAPTURE(name_of(f), r, c, gap, accumulate);
        const Numbers x0 = draw.values(r * c), u = draw.values(r * c), x = draw.values(r * c),
                      dy = draw.values(r * c), bias = draw.values(c), before = draw.values(r * c);
        const Matrix dx0(f, r, c, x0, gap), du_in(f, r, c, u), dx_in(f, r, c, x), ddy(f, r, c, dy),
            dbias(Format::kFp32, 1, c, bias), out(f, r, c, gap), du(f, r, c, gap),
            sums(Format::kFp32, 1, c, bias), grad0(f, r, c, gap);
        if (accumulate) {
          grad0.write(before);
        }
        const auto k = [&](Index i, Index j) { return static_cast<std::size_t>(i * c + j); };
        const auto b = [&](Index j) { return bias[static_cast<std::size_t>(j)]; };
        cross_forward(dx0.view(), du_in.view(), dbias.vector(), dx_in.view(), out.view(), nullptr);
        check_near(
            out.read(),
            each(r, c,
                 [&](Index i, Index j) { return x0[k(i, j)] * (u[k(i, j)] + b(j)) + x[k(i, j)]; }),
            tolerance_of(f));
        Memory workspace(cross_backward_workspace(r, c));
        cross_backward(ddy.view(), dx0.view(), du_in.view(), dbias.vector(), du.view(),
                       sums.vector(), grad0.view(), accumulate, workspace.workspace(), nullptr);
        const auto d = [&](Index i, Index j) { return dy[k(i, j)] * x0[k(i, j)]; };
        check_near(du.read(), each(r, c, d), tolerance_of(f));
        check_near(sums.read(), column_sums(bias, r, c, d),
                   tolerance_of(f) * std::sqrt(static_cast<double>(r)));
        check_near(grad0.read(),
                   each(r, c,
                        [&](Index i, Index j) {
                          return dy[k(i, j)] * (u[k(i, j)] + b(j)) +
                                 (accumulate ? before[k(i, j)] : 0);
                        }),
                   tolerance_of(f));
      }
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::test
