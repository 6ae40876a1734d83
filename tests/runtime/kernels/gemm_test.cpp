#include "runtime/cpu/kernels/gemm.h"

#include "runtime/cpu/kernels/data_movement.h"
#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {
namespace {

struct Operands {
  Gemm shape;
  Floats a, b, c;
};

/// Random operands with row strides three wider than needed.
Operands random_operands(Index m, Index n, Index k, bool transpose_a, bool transpose_b) {
  Operands o;
  o.shape = {m,
             n,
             k,
             transpose_a,
             transpose_b,
             1,
             0,
             (transpose_a ? m : k) + 3,
             (transpose_b ? k : n) + 3,
             n + 3};
  o.a = random_floats((transpose_a ? k : m) * o.shape.stride_a, 1);
  o.b = random_floats((transpose_b ? n : k) * o.shape.stride_b, 2);
  o.c = random_floats(m * o.shape.stride_c, 3);
  return o;
}

Floats naive(const Operands& o) {
  const Gemm& s = o.shape;
  Floats c = o.c;
  for (Index i = 0; i < s.m; ++i) {
    for (Index j = 0; j < s.n; ++j) {
      double sum = 0;
      for (Index p = 0; p < s.k; ++p) {
        const float a =
            o.a[static_cast<std::size_t>(s.transpose_a ? p * s.stride_a + i : i * s.stride_a + p)];
        const float b =
            o.b[static_cast<std::size_t>(s.transpose_b ? j * s.stride_b + p : p * s.stride_b + j)];
        sum += static_cast<double>(a) * static_cast<double>(b);
      }
      float& out = c[static_cast<std::size_t>(i * s.stride_c + j)];
      out = static_cast<float>(static_cast<double>(s.alpha) * sum +
                               (s.beta == 0 ? 0.0 : static_cast<double>(s.beta * out)));
    }
  }
  return c;
}

}  // namespace

TEST_CASE("a matrix product equals the triple loop", "[runtime][kernels][gemm]") {
  use_one_thread();
  const auto [m, n, k] = GENERATE(
      std::tuple<Index, Index, Index>{1, 1, 1}, std::tuple<Index, Index, Index>{5, 7, 3},
      std::tuple<Index, Index, Index>{33, 1, 65}, std::tuple<Index, Index, Index>{1, 40, 17},
      std::tuple<Index, Index, Index>{64, 48, 100});
  const bool transpose_a = GENERATE(false, true);
  const bool transpose_b = GENERATE(false, true);
  const auto [alpha, beta] =
      GENERATE(std::pair{1.0F, 0.0F}, std::pair{0.5F, 1.0F}, std::pair{-2.0F, 0.25F});
  CAPTURE(m, n, k, transpose_a, transpose_b, alpha, beta);
  Operands o = random_operands(m, n, k, transpose_a, transpose_b);
  o.shape.alpha = alpha;
  o.shape.beta = beta;
  const Floats expected = naive(o);
  gemm(o.shape, o.a.data(), o.b.data(), o.c.data());
  check_close(o.c, expected);
}

TEST_CASE("empty dimensions of a product", "[runtime][kernels][gemm]") {
  Floats a(8, 1), b(8, 1), c{1, 2, 3, 4};
  gemm({0, 2, 2}, a.data(), b.data(), c.data());
  gemm({2, 0, 2}, a.data(), b.data(), c.data());
  CHECK(c == Floats{1, 2, 3, 4});
  gemm({2, 2, 0, false, false, 1, 0.5F}, a.data(), b.data(), c.data());  // no terms: C = beta C
  CHECK(c == Floats{0.5F, 1, 1.5F, 2});
  gemm({2, 2, 0}, a.data(), b.data(), c.data());
  CHECK(c == Floats{0, 0, 0, 0});
}

TEST_CASE("beta = 0 never reads C", "[runtime][kernels][gemm]") {
  Floats a{2}, b{3}, c{std::nanf("")};
  gemm({1, 1, 1}, a.data(), b.data(), c.data());
  CHECK(c[0] == 6);
}

TEST_CASE("a batched product is a product per item; a step of 0 shares the operand",
          "[runtime][kernels][gemm]") {
  const Floats a = random_floats(3 * 4 * 5, 1), b = random_floats(5 * 6, 2);
  Floats c(3 * 4 * 6), expected(3 * 4 * 6);
  batched_gemm({4, 6, 5}, 3, a.data(), 20, b.data(), 0, c.data(), 24);
  gemm({12, 6, 5}, a.data(), b.data(), expected.data());  // shared B: one tall product
  check_close(c, expected);
}

TEST_CASE("bfloat16 conversion rounds to nearest even", "[runtime][kernels][gemm]") {
  // bfloat16 keeps 7 mantissa bits: the spacing above 1 is 2^-7. Ties: 1 + 2^-8 -> 1 (even), 1 + 3
  // * 2^-8 -> 1 + 2^-6.
  const Floats x{1, 1 + 0.00390625F, 1 + 3 * 0.00390625F, -1.00390625F * 1.0001F, 0, std::nanf("")};
  std::vector<std::uint16_t> bits(x.size());
  Floats back(x.size());
  to_bfloat16(x.data(), bits.data(), 6);
  from_bfloat16(bits.data(), back.data(), 6);
  CHECK(back[0] == 1);
  CHECK(back[1] == 1);
  CHECK(back[2] == 1.015625F);
  CHECK(back[3] == -1.0078125F);
  CHECK(back[4] == 0);
  CHECK(std::isnan(back[5]));
}

}  // namespace stepcast::runtime::kernels
