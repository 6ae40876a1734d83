#include "runtime/cpu/kernels/data_movement.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/internal/exponential.h"
#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {

TEST_CASE("column blocks join and split", "[runtime][kernels][movement]") {
  Floats a{1, 2, 3, 4}, b{5, 6}, joined(6), back(4);
  copy_block(view(a, 2, 2), view(joined, 2, 3).block(0, 2));
  copy_block(view(b, 2, 1), view(joined, 2, 3).block(2, 1));
  CHECK(joined == Floats{1, 2, 5, 3, 4, 6});
  copy_block(view(joined, 2, 3).block(0, 2), view(back, 2, 2));
  CHECK(back == a);
  CHECK_THROWS(copy_block(view(a, 2, 2), view(b, 2, 1)));
  copy_block(view(a, 0, 2), view(back, 0, 2));  // nothing
}

TEST_CASE("streaming kernels do what their formula says, at any length",
          "[runtime][kernels][movement]") {
  const Index n = GENERATE(0, 1, 15, 16, 67);
  const auto size = static_cast<std::size_t>(n);
  const Floats a = random_floats(n, 1), b = random_floats(n, 2);
  Floats sum(size), product(size), scaled(size), y = b, copied(size), filled(size),
                                                 expected(5 * size);
  add(a.data(), b.data(), sum.data(), n);
  multiply(a.data(), b.data(), product.data(), n);
  scale(a.data(), 3, scaled.data(), n);
  axpy(-2, a.data(), y.data(), n);
  copy(a.data(), copied.data(), n);
  fill(filled.data(), 4, n);
  double squares_expected = 0;
  for (std::size_t i = 0; i < size; ++i) {
    CHECK(sum[i] == a[i] + b[i]);
    CHECK(product[i] == a[i] * b[i]);
    CHECK(scaled[i] == 3 * a[i]);
    CHECK(y[i] == Approx(b[i] - 2 * a[i]));
    CHECK(filled[i] == 4);
    squares_expected += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  CHECK(copied == a);
  CHECK(sum_of_squares(a.data(), n) == Approx(squares_expected));
  fill(filled.data(), 0, n);
  CHECK(filled == Floats(size, 0));
}

TEST_CASE("column sums and row factors", "[runtime][kernels][movement]") {
  Floats x{1, 2, 3, 4, 5, 6}, sums{10, 20, 30};
  add_column_sums(view(x, 2, 3), sums.data());
  CHECK(sums == Floats{15, 27, 39});
  const Floats factors{2, 0.5F};
  scale_rows(view(x, 2, 3), factors.data());
  CHECK(x == Floats{2, 4, 6, 2, 2.5F, 3});
}

TEST_CASE("the exponential is within 3e-7 of the library's",
          "[runtime][kernels][movement][property]") {
  // Below 2^-23 = 1.2e-7 of rounding per operation; the last two of the series dominate.
  for (float x = -86.9F; x < 88; x += 0.0137F) {
    const double expected = std::exp(static_cast<double>(x));
    REQUIRE(std::abs(static_cast<double>(internal::exponential(x)) - expected) <= 3e-7 * expected);
  }
  CHECK(internal::exponential(-1000) == 0);
  CHECK(internal::exponential(0) == 1);
  CHECK(std::isnan(internal::exponential(std::nanf(""))));
}

}  // namespace stepcast::runtime::kernels
