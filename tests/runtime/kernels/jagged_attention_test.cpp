#include "runtime/cpu/kernels/jagged_attention.h"

#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {
namespace {

/// Samples of `sample_rows` rows, each of the sequences that `offsets` cut it into.
struct Jagged {
  std::vector<std::int32_t> offsets;
  Index sample_rows, heads, kv_heads, dim;
  bool causal;
  Floats q, k, v, out, lse, scratch;

  Jagged(std::vector<std::int32_t> cuts, Index rows, Index head_count, Index kv, Index head_dim,
         bool masked)
      : offsets(std::move(cuts)),
        sample_rows(rows),
        heads(head_count),
        kv_heads(kv),
        dim(head_dim),
        causal(masked) {
    q = random_floats(total() * heads * dim, 1);
    k = random_floats(total() * kv_heads * dim, 2);
    v = random_floats(total() * kv_heads * dim, 3);
    out.resize(q.size());
    lse.resize(static_cast<std::size_t>(total() * heads));
    scratch.resize(static_cast<std::size_t>(shape().scratch_floats()));
  }
  [[nodiscard]] Index total() const { return offsets.back(); }
  [[nodiscard]] JaggedShape shape() const {
    return {offsets, sample_rows, heads, kv_heads, dim, causal};
  }
  MatrixView queries(Floats& x) const { return view(x, total(), heads * dim); }
  MatrixView keys(Floats& x) const { return view(x, total(), kv_heads * dim); }
  void forward() {
    jagged_attention_forward(shape(), queries(q), keys(k), keys(v), queries(out), lse.data(),
                             scratch.data());
  }
};

/// The definition, in double: each row against the rows of its own sequence.
void check_definition(const Jagged& j) {
  const auto at = [&](const Floats& x, Index row, Index columns, Index column) {
    return static_cast<double>(x[static_cast<std::size_t>(row * columns + column)]);
  };
  Floats out(j.out.size()), lse(j.lse.size());
  for (std::size_t s = 0; s + 1 < j.offsets.size(); ++s) {
    for (Index i = j.offsets[s]; i < j.offsets[s + 1]; ++i) {
      for (Index h = 0; h < j.heads; ++h) {
        const Index kv = h / (j.heads / j.kv_heads);
        const Index end = j.causal ? i + 1 : j.offsets[s + 1];
        std::vector<double> weights;
        double sum = 0;
        for (Index key = j.offsets[s]; key < end; ++key) {
          double score = 0;
          for (Index d = 0; d < j.dim; ++d) {
            score += at(j.q, i, j.heads * j.dim, h * j.dim + d) *
                     at(j.k, key, j.kv_heads * j.dim, kv * j.dim + d);
          }
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(j.dim))));
          sum += weights.back();
        }
        for (Index d = 0; d < j.dim; ++d) {
          double value = 0;
          for (Index key = j.offsets[s]; key < end; ++key) {
            value += weights[static_cast<std::size_t>(key - j.offsets[s])] / sum *
                     at(j.v, key, j.kv_heads * j.dim, kv * j.dim + d);
          }
          out[static_cast<std::size_t>(i * j.heads * j.dim + h * j.dim + d)] =
              static_cast<float>(value);
        }
        const Index sample = i / j.sample_rows;
        lse[static_cast<std::size_t>((sample * j.heads + h) * j.sample_rows + i % j.sample_rows)] =
            static_cast<float>(std::log(sum));
      }
    }
  }
  check_close(j.out, out);
  check_close(j.lse, lse);
}

}  // namespace

TEST_CASE("jagged attention equals its definition", "[runtime][kernels][jagged]") {
  const bool causal = GENERATE(true, false);
  // Sequences of one row, of a tile and one more, of more than one block of keys; two samples.
  auto j = GENERATE_COPY(Jagged({0, 1}, 1, 1, 1, 4, causal),
                         Jagged({0, 1, 4, 9, 10, 18}, 9, 4, 2, 5, causal),
                         Jagged({0, 33, 34, 100, 170, 200}, 100, 2, 2, 16, causal),
                         Jagged({0, 200, 231}, 231, 3, 1, 20, causal),
                         Jagged({0, 64, 96, 224}, 224, 4, 2, 64, causal));
  j.forward();
  check_definition(j);
}

TEST_CASE("jagged attention of one sequence a sample is attention",
          "[runtime][kernels][jagged][property]") {
  const bool causal = GENERATE(true, false);
  Jagged j({0, 150, 300}, 150, 4, 2, 24, causal);
  j.forward();
  AttentionShape dense{2, 4, 2, 150, 150, 24, causal};
  Floats out(j.out.size()), lse(j.lse.size());
  Floats scratch(static_cast<std::size_t>(2 * dense.scratch_floats()));
  attention_forward(dense, j.queries(j.q), j.keys(j.k), j.keys(j.v), j.queries(out), lse.data(),
                    scratch.data());
  check_close(j.out, out);
  check_close(j.lse, lse);
  Floats d_out = random_floats(static_cast<Index>(out.size()), 9);
  Floats dq(j.q.size(), 7), dk(j.k.size(), 7), dv(j.v.size(), 7);
  Floats dq2(dq), dk2(dk), dv2(dv);
  jagged_attention_backward(j.shape(),
                            {j.queries(j.q), j.keys(j.k), j.keys(j.v), j.queries(j.out),
                             j.queries(d_out), j.lse.data(), j.queries(dq), j.keys(dk), j.keys(dv)},
                            j.scratch.data());
  attention_backward(dense,
                     {j.queries(j.q), j.keys(j.k), j.keys(j.v), j.queries(out), j.queries(d_out),
                      lse.data(), j.queries(dq2), j.keys(dk2), j.keys(dv2)},
                     scratch.data());
  check_close(dq, dq2, 1e-4);
  check_close(dk, dk2, 1e-4);
  check_close(dv, dv2, 1e-4);
}

TEST_CASE("jagged attention gradients are derivatives", "[runtime][kernels][jagged][gradient]") {
  const bool causal = GENERATE(true, false);
  auto j = GENERATE_COPY(Jagged({0, 1, 3, 7, 10, 14}, 7, 2, 2, 3, causal),
                         Jagged({0, 5, 6, 12}, 6, 4, 2, 4, causal),
                         Jagged({0, 2, 42}, 42, 1, 1, 2, causal));
  const Floats d_out = random_floats(static_cast<Index>(j.out.size()), 9);
  Floats gradient_out = d_out, dq(j.q.size(), 9), dk(j.k.size(), 9), dv(j.v.size(), 9);
  const auto loss = [&] {
    j.forward();
    return dot(j.out, d_out);
  };
  loss();
  jagged_attention_backward(
      j.shape(),
      {j.queries(j.q), j.keys(j.k), j.keys(j.v), j.queries(j.out), j.queries(gradient_out),
       j.lse.data(), j.queries(dq), j.keys(dk), j.keys(dv)},
      j.scratch.data());
  check_gradient(j.q, dq, loss);
  check_gradient(j.k, dk, loss);
  check_gradient(j.v, dv, loss);
}

TEST_CASE("what stands in one sequence does not reach another", "[runtime][kernels][jagged]") {
  Jagged j({0, 40, 70}, 70, 2, 1, 8, false);
  j.forward();
  const Floats before = j.out;
  std::fill(j.k.begin() + 40 * 8, j.k.end(), 1e3F);  // keys of the second sequence
  j.forward();
  CHECK(std::equal(before.begin(), before.begin() + 40 * 16, j.out.begin()));
  CHECK_FALSE(std::equal(before.begin() + 40 * 16, before.end(), j.out.begin() + 40 * 16));
}

TEST_CASE("jagged attention refuses sequences that do not cover its rows",
          "[runtime][kernels][jagged]") {
  Jagged j({0, 3, 9}, 9, 2, 2, 4, true);
  j.offsets.back() = 8;
  CHECK_THROWS(jagged_attention_forward(j.shape(), view(j.q, 9, 8), view(j.k, 9, 8),
                                        view(j.v, 9, 8), view(j.out, 9, 8), j.lse.data(),
                                        j.scratch.data()));
}

}  // namespace stepcast::runtime::kernels
