// Device kernels of optimizers, positions and interactions one by one against sums in double: odd
// shapes, gaps between rows, poisoned outputs. On a GPU, and over the stand-in, where it is the
// tests that are tested.
#include "runtime/cuda/kernels/interaction.h"
#include "runtime/cuda/kernels/optimizer.h"
#include "runtime/cuda/kernels/position.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {

DEVICE_TEST_CASE("kernels: dense optimizers", "[cuda][kernels][gpu]") {
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
            case OptimizerKind::kMuon:  // products of matrices, no kernel
              FAIL("not drawn");
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

/// Cosines of all angles of a position, then their sines.
Numbers rotations(Index length, Index half) {
  Numbers table;
  for (Index p = 0; p < length; ++p) {
    for (Index i = 0; i < 2 * half; ++i) {
      const double angle = 0.1 * static_cast<double>((p + 1) * (i % half + 1) % 64);
      table.push_back(i < half ? std::cos(angle) : std::sin(angle));
    }
  }
  return table;
}

void check_rotation(Format f, Index head_dim, Index length, Index tokens, Index heads,
                    const Numbers& x) {
  const Index width = heads * head_dim, half = head_dim / 2;
  const Numbers table = rotations(length, half);
  const Array<float> on_device(std::vector<float>(table.begin(), table.end()));
  for (const int direction : {1, -1}) {
    const Matrix m(f, tokens, width, x, 8);
    rotate(on_device.data(), length, head_dim, direction, m.view(), nullptr);
    check_near(m.read(),
               each(tokens, width,
                    [&](Index t, Index j) {
                      const Index i = j % head_dim;
                      const auto at = static_cast<std::size_t>(t % length * head_dim + i % half);
                      const auto h = static_cast<std::size_t>(half);
                      const double co = table[at], si = direction * table[at + h];
                      const auto k = static_cast<std::size_t>(t * width + j);
                      return i < half ? x[k] * co - x[k + h] * si : x[k] * co + x[k - h] * si;
                    }),
               tolerance_of(f));
  }
}

DEVICE_TEST_CASE("kernels: more positions than a grid has blocks in a direction",
                 "[cuda][kernels][gpu]") {
  constexpr Index kLength = 65541;
  check_rotation(Format::kFp32, 2, kLength, kLength, 1, Draw(9).values(2 * kLength));
}

DEVICE_TEST_CASE("kernels: positions", "[cuda][kernels][gpu]") {
  Draw draw(9);
  for (const Format f : stored_formats()) {
    for (const Index head_dim : {2, 6, 64, 128}) {
      CAPTURE(name_of(f), head_dim);
      constexpr Index kLength = 5, kSamples = 3, kHeads = 3;
      const Index tokens = kLength * kSamples, width = kHeads * head_dim;
      const Numbers x = draw.values(tokens * width);
      check_rotation(f, head_dim, kLength, tokens, kHeads, x);
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

DEVICE_TEST_CASE("kernels: dot interaction and cross layers", "[cuda][kernels][gpu]") {
  Draw draw(10);
  for (const Format f : stored_formats()) {
    // 16-bit features of 32 columns or a multiple of them, 16 bytes at a time: tensor cores. fp32
    // features, 16 bytes at a time: 4 x 4 results a thread.
    for (const auto& [features, dim, gap] : std::vector<std::array<Index, 3>>{{2, 1, 3},
                                                                              {3, 7, 3},
                                                                              {9, 16, 0},
                                                                              {27, 64, 3},
                                                                              {27, 64, 8},
                                                                              {27, 128, 0},
                                                                              {2, 32, 0},
                                                                              {16, 32, 0},
                                                                              {33, 96, 8},
                                                                              {5, 33, 3},
                                                                              {6, 20, 4},
                                                                              {41, 12, 0}}) {
      CAPTURE(name_of(f), features, dim, gap);
      constexpr Index kBatch = 11;
      const DotInteraction shape{features, dim};
      const Index width = features * dim, out_width = shape.output_width();
      const Numbers x = draw.values(kBatch * width), dy = draw.values(kBatch * out_width);
      const Matrix dx_in(f, kBatch, width, x, gap), out(f, kBatch, out_width, 1),
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
