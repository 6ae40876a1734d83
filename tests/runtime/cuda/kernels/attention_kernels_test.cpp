// Attention within sequences against softmax in double: head widths and lengths around its tiles,
// grouped heads, matrices that are column blocks of wider ones; and the softmax of rows.
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/jagged_attention.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

std::size_t at(Index row, Index columns, Index column) {
  return static_cast<std::size_t>(row * columns + column);
}

struct Exact {
  Numbers out, log_sum_exp, d_q, d_k, d_v;
};

/// Exact results of one sequence.
Exact exact(const JaggedShape& s, const Numbers& q, const Numbers& k, const Numbers& v,
            const Numbers& d_out) {
  const Index wide = s.heads * s.head_dim, narrow = s.kv_heads * s.head_dim;
  Exact e;
  e.out.assign(q.size(), 0);
  e.d_q.assign(q.size(), 0);
  e.d_k.assign(k.size(), 0);
  e.d_v.assign(v.size(), 0);
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  for (Index h = 0; h < s.heads; ++h) {
    const Index g = h / (s.heads / s.kv_heads);
    for (Index i = 0; i < s.rows; ++i) {
      const Index keys = s.causal ? i + 1 : s.rows;
      Numbers p(static_cast<std::size_t>(keys));
      double sum = 0;
      for (Index j = 0; j < keys; ++j) {
        double dot = 0;
        for (Index d = 0; d < s.head_dim; ++d) {
          dot += q[at(i, wide, h * s.head_dim + d)] * k[at(j, narrow, g * s.head_dim + d)];
        }
        sum += p[static_cast<std::size_t>(j)] = std::exp(scale * dot);
      }
      e.log_sum_exp.push_back(std::log(sum));
      double inner = 0;
      Numbers dp(p.size(), 0);
      for (Index j = 0; j < keys; ++j) {
        p[static_cast<std::size_t>(j)] /= sum;
        for (Index d = 0; d < s.head_dim; ++d) {
          const std::size_t o = at(i, wide, h * s.head_dim + d);
          const std::size_t w = at(j, narrow, g * s.head_dim + d);
          e.out[o] += p[static_cast<std::size_t>(j)] * v[w];
          dp[static_cast<std::size_t>(j)] += d_out[o] * v[w];
          e.d_v[w] += p[static_cast<std::size_t>(j)] * d_out[o];
        }
        inner += p[static_cast<std::size_t>(j)] * dp[static_cast<std::size_t>(j)];
      }
      for (Index j = 0; j < keys; ++j) {
        const double ds =
            scale * p[static_cast<std::size_t>(j)] * (dp[static_cast<std::size_t>(j)] - inner);
        for (Index d = 0; d < s.head_dim; ++d) {
          const std::size_t o = at(i, wide, h * s.head_dim + d);
          const std::size_t w = at(j, narrow, g * s.head_dim + d);
          e.d_q[o] += ds * k[w];
          e.d_k[w] += ds * q[o];
        }
      }
    }
  }
  return e;
}

/// Rows of two samples cut into sequences, against each sequence by itself in double.
void check_sequences(bool causal, Index head_dim, Index rows,
                     const std::vector<std::int32_t>& cuts) {
  Draw draw(33);
  constexpr Index kHeads = 2, kKeyHeads = 1, kSamples = 2;
  JaggedShape s{kSamples, kHeads, kKeyHeads, rows, head_dim, causal};
  const Index wide = kHeads * head_dim, narrow = kKeyHeads * head_dim, all = kSamples * rows;
  const Numbers q = draw.values(all * wide), k = draw.values(all * narrow),
                v = draw.values(all * narrow), d_out = draw.values(all * wide);
  std::vector<std::int32_t> begins, ends;
  Exact e;
  e.log_sum_exp.resize(static_cast<std::size_t>(all * kHeads));
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Index first = cuts[i], length = cuts[i + 1] - first, sample = first / rows;
    begins.insert(begins.end(), static_cast<std::size_t>(length),
                  static_cast<std::int32_t>(first - sample * rows));
    ends.insert(ends.end(), static_cast<std::size_t>(length),
                static_cast<std::int32_t>(first + length - sample * rows));
    const auto part = [&](const Numbers& x, Index columns) {
      return Numbers(x.begin() + first * columns, x.begin() + (first + length) * columns);
    };
    const Exact own = exact({1, kHeads, kKeyHeads, length, head_dim, causal}, part(q, wide),
                            part(k, narrow), part(v, narrow), part(d_out, wide));
    const auto join = [](Numbers& to, const Numbers& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    join(e.out, own.out), join(e.d_q, own.d_q), join(e.d_k, own.d_k), join(e.d_v, own.d_v);
    for (Index h = 0; h < kHeads; ++h) {
      std::copy_n(own.log_sum_exp.begin() + h * length, length,
                  e.log_sum_exp.begin() + (sample * kHeads + h) * rows + first - sample * rows);
    }
  }
  const Array<std::int32_t> begins_in(begins), ends_in(ends);
  s.begins = begins_in.data();
  s.ends = ends_in.data();
  for (const Format f : stored_formats()) {
    CAPTURE(name_of(f), causal, head_dim, rows);
    const Matrix q_in(f, all, wide, q, 2 * narrow), k_in(f, all, narrow, k, wide + narrow),
        v_in(f, all, narrow, v, wide + narrow), out(f, all, wide, 8), d_out_in(f, all, wide, d_out),
        d_q(f, all, wide, 8), d_k(f, all, narrow, 8), d_v(f, all, narrow, 8);
    const Array<float> log_sum_exp(e.log_sum_exp.size());
    jagged_attention_forward(s, q_in.view(), k_in.view(), v_in.view(), out.view(),
                             log_sum_exp.data(), nullptr);
    const double tolerance = f == Format::kFp32 ? 1e-4 : 2 * tolerance_of(f);
    check_near(out.read(), e.out, tolerance);
    const std::vector<float> logs = log_sum_exp.read();
    check_near(Numbers(logs.begin(), logs.end()), e.log_sum_exp, 1e-3);
    const Memory workspace(jagged_attention_backward_workspace(s));
    const auto backward = [&] {
      jagged_attention_backward(s,
                                {q_in.view(), k_in.view(), v_in.view(), out.view(), d_out_in.view(),
                                 log_sum_exp.data(), d_q.view(), d_k.view(), d_v.view()},
                                workspace.workspace(), nullptr);
    };
    backward();
    check_near(d_q.read(), e.d_q, 2 * tolerance);
    check_near(d_k.read(), e.d_k, 2 * tolerance);
    check_near(d_v.read(), e.d_v, 2 * tolerance);
    const Numbers first = d_k.read();
    backward();
    CHECK(d_k.read() == first);  // bit for bit
  }
}

}  // namespace

DEVICE_TEST_CASE("kernels: attention within sequences of different lengths and its gradient",
                 "[cuda][kernels][gpu][products]") {
  const bool causal = GENERATE(true, false);
  // One row, within a tile, across tiles; a tile that holds the end of one and whole others.
  check_sequences(causal, 40, 50, {0, 1, 7, 40, 50, 83, 100});
  check_sequences(causal, 64, 150, {0, 3, 70, 71, 150, 300});
  check_sequences(causal, 200, 33, {0, 33, 34, 66});
}

DEVICE_TEST_CASE("kernels: attention in more samples than a grid has blocks in a direction",
                 "[.][cuda][kernels][gpu][sequences]") {
  // One row a sample: out = v, the denominator is exp(q k / sqrt(d)), dv = d_out.
  constexpr Index kSequences = 65537, kWidth = 4;
  const Array<std::int32_t> begins(std::vector<std::int32_t>(kSequences, 0)),
      ends(std::vector<std::int32_t>(kSequences, 1));
  const JaggedShape s{kSequences, 1, 1, 1, kWidth, true, begins.data(), ends.data()};
  Draw draw(7);
  const Numbers q = draw.values(kSequences * kWidth), k = draw.values(kSequences * kWidth),
                v = draw.values(kSequences * kWidth), d = draw.values(kSequences * kWidth);
  constexpr Format kF = Format::kFp32;
  const Matrix q_in(kF, kSequences, kWidth, q), k_in(kF, kSequences, kWidth, k),
      v_in(kF, kSequences, kWidth, v), d_out(kF, kSequences, kWidth, d),
      out(kF, kSequences, kWidth), d_q(kF, kSequences, kWidth), d_k(kF, kSequences, kWidth),
      d_v(kF, kSequences, kWidth);
  const Array<float> log_sum_exp(kSequences);
  jagged_attention_forward(s, q_in.view(), k_in.view(), v_in.view(), out.view(), log_sum_exp.data(),
                           nullptr);
  check_near(out.read(), v, 1e-6);
  const std::vector<float> logarithms = log_sum_exp.read();
  const Memory workspace(jagged_attention_backward_workspace(s));
  jagged_attention_backward(s,
                            {q_in.view(), k_in.view(), v_in.view(), out.view(), d_out.view(),
                             log_sum_exp.data(), d_q.view(), d_k.view(), d_v.view()},
                            workspace.workspace(), nullptr);
  const Numbers found = d_v.read();
  for (const Index i : {Index{0}, Index{65534}, Index{65535}, kSequences - 1}) {
    double dot = 0;
    for (Index c = 0; c < kWidth; ++c) {
      dot += q[at(i, kWidth, c)] * k[at(i, kWidth, c)];
      CHECK(found[at(i, kWidth, c)] == Approx(d[at(i, kWidth, c)]));
    }
    CHECK(logarithms[static_cast<std::size_t>(i)] == Approx(dot / 2).margin(1e-6));
  }
}

DEVICE_TEST_CASE("kernels: softmax of rows and its gradient", "[cuda][kernels][gpu]") {
  Draw draw(32);
  for (const Format f : stored_formats()) {
    for (const auto& [queries, columns] : std::vector<std::pair<Index, Index>>{
             {1, 1}, {3, 7}, {33, 33}, {64, 100}, {7, 1025}, {5, 4096}}) {
      for (const Index window : {Index{-1}, Index{0}, Index{3}}) {  // -1: not causal
        const bool causal = window >= 0;
        CAPTURE(name_of(f), queries, columns, window);
        const Index rows = 3 * queries;
        const Index diagonal = causal ? columns - queries : columns;
        const Numbers x = draw.values(rows * columns), dp = draw.values(rows * columns);
        const Matrix in(Format::kFp32, rows, columns, x, 1), out(f, rows, columns, 2);
        softmax_rows(in.view(), 2.0F, queries, diagonal, std::max<Index>(0, window), out.view(),
                     nullptr);
        Numbers p;
        for (Index i = 0; i < rows; ++i) {
          const Index seen = std::min(columns, i % queries + diagonal + 1);
          const Index first = window > 0 ? std::max<Index>(0, seen - window) : 0;
          double sum = 0;
          for (Index j = first; j < seen; ++j) {
            sum += std::exp(2 * x[at(i, columns, j)]);
          }
          for (Index j = 0; j < columns; ++j) {
            p.push_back(j >= first && j < seen ? std::exp(2 * x[at(i, columns, j)]) / sum : 0);
          }
        }
        check_near(out.read(), p, tolerance_of(f));
        const Matrix probabilities(f, rows, columns, p), given(Format::kFp32, rows, columns, dp),
            dx(f, rows, columns, 1);
        const Numbers rounded = probabilities.read();
        softmax_rows_backward(probabilities.view(), given.view(), 2.0F, dx.view(), nullptr);
        Numbers expected;
        for (Index i = 0; i < rows; ++i) {
          double inner = 0;
          for (Index j = 0; j < columns; ++j) {
            inner += rounded[at(i, columns, j)] * dp[at(i, columns, j)];
          }
          for (Index j = 0; j < columns; ++j) {
            expected.push_back(2 * rounded[at(i, columns, j)] * (dp[at(i, columns, j)] - inner));
          }
        }
        check_near(dx.read(), expected, std::max(tolerance_of(f), 1e-4));
      }
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::test
