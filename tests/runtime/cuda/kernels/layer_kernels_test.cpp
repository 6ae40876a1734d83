// Layers of listed models on the device against loops in double.
#include "runtime/cuda/kernels/layers.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

std::size_t at(Index row, Index columns, Index column) {
  return static_cast<std::size_t>(row * columns + column);
}

}  // namespace

DEVICE_TEST_CASE("kernels: transposed matrices", "[cuda][kernels][gpu]") {
  Draw draw(51);
  // Below, at and beyond a tile of 32 x 32; small ones; vectors as elements.
  for (const Transpose& s : std::vector<Transpose>{{1, 1, 1, 1},
                                                   {2, 16, 31, 1},
                                                   {1, 32, 32, 1},
                                                   {3, 33, 65, 1},
                                                   {5, 3, 40, 1},
                                                   {4, 7, 5, 3},
                                                   {2, 40, 20, 8}}) {
    for (const Format f : stored_formats()) {
      CAPTURE(name_of(f), s.matrices, s.rows, s.columns, s.inner);
      const Index width = s.rows * s.columns * s.inner;
      const Numbers x = draw.values(s.matrices * width);
      const Matrix in(f, s.matrices, width, x), out(f, s.matrices, width);
      transpose(s, in.view().data, f, out.view().data, nullptr);
      check_near(out.read(),
                 each(s.matrices, width,
                      [&](Index m, Index e) {
                        const Index row = e / s.inner % s.rows;
                        const Index column = e / s.inner / s.rows;
                        return x[at(m, width, (row * s.columns + column) * s.inner + e % s.inner)];
                      }),
                 0);
    }
  }
}

DEVICE_TEST_CASE("kernels: products and group-wise vectors with their gradients",
                 "[cuda][kernels][gpu]") {
  Draw draw(52);
  for (const auto& [groups, group, columns, gap] : std::vector<std::array<Index, 4>>{
           {1, 1, 1, 0}, {3, 4, 7, 1}, {5, 1, 64, 8}, {2, 33, 257, 0}}) {
    for (const Format f : stored_formats()) {
      CAPTURE(name_of(f), groups, group, columns);
      const Index rows = groups * group, n = columns, g = group;
      const Numbers x = draw.values(rows * n), y = draw.values(rows * n),
                    v = draw.values(groups * n), w = draw.values(groups * n);
      const Matrix a(f, rows, n, x, gap), b(f, rows, n, y), first(f, groups, n, v, 3),
          second(f, groups, n, w, 3), out(f, rows, n, gap), other(f, rows, n),
          mean(f, groups, n, 3);
      const double tolerance = tolerance_of(f);
      const auto check = [&](const Matrix& found, auto expected) {
        check_near(found.read(), each(rows, n, expected), tolerance);
      };
      // Sums over a group, on top of `was`.
      const auto check_sums = [&](const Matrix& found, const Numbers& was, auto term) {
        check_near(found.read(),
                   each(groups, n,
                        [&](Index i, Index j) {
                          double sum = was[at(i, n, j)];
                          for (Index r = i * g; r < (i + 1) * g; ++r) {
                            sum += term(at(r, n, j));
                          }
                          return sum;
                        }),
                   tolerance);
      };
      multiply_forward(a.view(), b.view(), out.view(), nullptr);
      check(out, [&](Index i, Index j) { return x[at(i, n, j)] * y[at(i, n, j)]; });
      multiply_backward(a.view(), b.view(), a.view(), out.view(), other.view(), nullptr);
      check(out, [&](Index i, Index j) { return x[at(i, n, j)] * x[at(i, n, j)]; });
      check(other, [&](Index i, Index j) { return x[at(i, n, j)] * y[at(i, n, j)]; });

      mean_rows_forward(a.view(), g, mean.view(), nullptr);
      check_sums(mean, Numbers(v.size(), 0),
                 [&](std::size_t e) { return x[e] / static_cast<double>(g); });
      mean_rows_backward(first.view(), g, out.view(), nullptr);
      check(out, [&](Index i, Index j) { return v[at(i / g, n, j)] / static_cast<double>(g); });

      modulate_forward(a.view(), first.view(), second.view(), g, out.view(), nullptr);
      check(out, [&](Index i, Index j) {
        return x[at(i, n, j)] * (1 + w[at(i / g, n, j)]) + v[at(i / g, n, j)];
      });
      const Matrix d_shift(f, groups, n, v, 2), d_scale(f, groups, n, w, 2);
      modulate_backward(b.view(), a.view(), second.view(), g, out.view(), d_shift.view(),
                        d_scale.view(), nullptr);
      check(out, [&](Index i, Index j) { return y[at(i, n, j)] * (1 + w[at(i / g, n, j)]); });
      check_sums(d_shift, v, [&](std::size_t e) { return y[e]; });
      check_sums(d_scale, w, [&](std::size_t e) { return y[e] * x[e]; });

      gate_forward(a.view(), b.view(), first.view(), g, out.view(), nullptr);
      check(out,
            [&](Index i, Index j) { return x[at(i, n, j)] + v[at(i / g, n, j)] * y[at(i, n, j)]; });
      const Matrix d_gate(f, groups, n, w, 2);
      gate_backward(a.view(), b.view(), first.view(), g, out.view(), d_gate.view(), nullptr);
      check(out, [&](Index i, Index j) { return x[at(i, n, j)] * v[at(i / g, n, j)]; });
      check_sums(d_gate, w, [&](std::size_t e) { return x[e] * y[e]; });
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::test
