// Device kernels of maps and activations one by one against sums in double: odd shapes, gaps
// between rows, poisoned outputs. On a GPU, and over the stand-in, where it is the tests that are
// tested.
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

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

DEVICE_TEST_CASE("kernels: maps and column sums", "[cuda][kernels][gpu]") {
  Draw draw(1);
  for (const Format f : stored_formats()) {
    for (const auto& [r, c, gap] : odd_shapes()) {
      CAPTURE(name_of(f), r, c, gap);
      const double tolerance = tolerance_of(f);
      const Numbers a = draw.values(r * c), b = draw.values(r * c), row = draw.values(c);
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

DEVICE_TEST_CASE("kernels: copies of many blocks at once", "[cuda][kernels][gpu]") {
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

DEVICE_TEST_CASE("kernels: activations and their gradients", "[cuda][kernels][gpu]") {
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

DEVICE_TEST_CASE("kernels: bias and ReLU backward from the output", "[cuda][kernels][gpu]") {
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

}  // namespace stepcast::runtime::cuda::kernels::test
