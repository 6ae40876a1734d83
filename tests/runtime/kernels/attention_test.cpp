#include "runtime/cpu/kernels/attention.h"

#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {
namespace {

/// One fused [tokens, (heads + 2 kv_heads) * head_dim] buffer when query and key lengths agree.
struct Problem {
  AttentionShape shape;
  Floats q, k, v, out, lse, scratch;

  explicit Problem(const AttentionShape& s) : shape(s) {
    q = random_floats(s.batch * s.query_length * s.heads * s.head_dim, 1);
    k = random_floats(s.batch * s.kv_length * s.kv_heads * s.head_dim, 2);
    v = random_floats(s.batch * s.kv_length * s.kv_heads * s.head_dim, 3);
    out.resize(q.size());
    lse.resize(static_cast<std::size_t>(s.batch * s.heads * s.query_length));
    scratch.resize(static_cast<std::size_t>(2 * s.scratch_floats()));
  }
  MatrixView queries(Floats& x) const {
    return view(x, shape.batch * shape.query_length, shape.heads * shape.head_dim);
  }
  MatrixView keys(Floats& x) const {
    return view(x, shape.batch * shape.kv_length, shape.kv_heads * shape.head_dim);
  }
  void forward() {
    attention_forward(shape, queries(q), keys(k), keys(v), queries(out), lse.data(),
                      scratch.data());
  }
};

/// The definition, in double.
Floats reference(const Problem& p) {
  const AttentionShape& s = p.shape;
  Floats out(p.out.size());
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.heads; ++h) {
      const Index kv = h / (s.heads / s.kv_heads);
      for (Index i = 0; i < s.query_length; ++i) {
        const Index visible = s.causal ? i + s.kv_length - s.query_length + 1 : s.kv_length;
        const Index hidden = s.window > 0 ? std::max<Index>(0, visible - s.window) : 0;
        const auto query =
            static_cast<std::size_t>(((b * s.query_length + i) * s.heads + h) * s.head_dim);
        std::vector<double> weights;
        double sum = 0;
        for (Index j = 0; j < visible; ++j) {
          const auto key =
              static_cast<std::size_t>(((b * s.kv_length + j) * s.kv_heads + kv) * s.head_dim);
          double score = 0;
          for (std::size_t d = 0; d < static_cast<std::size_t>(s.head_dim); ++d) {
            score += static_cast<double>(p.q[query + d]) * static_cast<double>(p.k[key + d]);
          }
          weights.push_back(
              j < hidden ? 0 : std::exp(score / std::sqrt(static_cast<double>(s.head_dim))));
          sum += weights.back();
        }
        for (std::size_t d = 0; d < static_cast<std::size_t>(s.head_dim); ++d) {
          double value = 0;
          for (Index j = 0; j < visible; ++j) {
            const auto key =
                static_cast<std::size_t>(((b * s.kv_length + j) * s.kv_heads + kv) * s.head_dim);
            value += weights[static_cast<std::size_t>(j)] / sum * static_cast<double>(p.v[key + d]);
          }
          out[query + d] = static_cast<float>(value);
        }
      }
    }
  }
  return out;
}

AttentionShape shape_of(Index batch, Index heads, Index kv_heads, Index queries, Index keys,
                        Index dim, bool causal, Index block, Index window = 0) {
  return {batch, heads, kv_heads, queries, keys, dim, causal, block, window};
}

}  // namespace

TEST_CASE("attention equals its definition", "[runtime][kernels][attention]") {
  const bool causal = GENERATE(true, false);
  const auto shape = GENERATE_COPY(
      shape_of(1, 1, 1, 1, 1, 4, causal, 64), shape_of(2, 4, 4, 9, 9, 8, causal, 4),
      shape_of(2, 4, 2, 7, 7, 5, causal, 64), shape_of(1, 6, 1, 70, 70, 16, causal, 32),
      shape_of(1, 2, 2, 3, 11, 8, causal, 2));
  Problem p(shape);
  p.forward();
  check_close(p.out, reference(p));
}

TEST_CASE("attention over a window equals its definition", "[runtime][kernels][attention]") {
  const Index window = GENERATE(1, 2, 5, 64);
  const auto shape = GENERATE_COPY(shape_of(2, 4, 2, 9, 9, 8, true, 4, window),
                                   shape_of(1, 2, 1, 70, 70, 16, true, 32, window),
                                   shape_of(1, 2, 2, 3, 11, 8, true, 2, window));
  Problem p(shape);
  p.forward();
  check_close(p.out, reference(p));
}

TEST_CASE("attention gradients are derivatives", "[runtime][kernels][attention][gradient]") {
  const bool causal = GENERATE(true, false);
  const auto shape =
      GENERATE_COPY(shape_of(2, 2, 2, 5, 5, 4, causal, 2), shape_of(1, 4, 2, 6, 6, 3, causal, 64),
                    shape_of(1, 3, 1, 4, 7, 2, causal, 3), shape_of(2, 4, 2, 7, 7, 3, true, 2, 3),
                    shape_of(1, 2, 1, 4, 7, 2, true, 3, 2));
  Problem p(shape);
  const Floats d_out = random_floats(static_cast<Index>(p.out.size()), 9);
  Floats gradient_out = d_out, dq(p.q.size(), 9), dk(p.k.size(), 9), dv(p.v.size(), 9);
  const auto loss = [&] {
    p.forward();
    return dot(p.out, d_out);
  };
  loss();
  attention_backward(shape,
                     {p.queries(p.q), p.keys(p.k), p.keys(p.v), p.queries(p.out),
                      p.queries(gradient_out), p.lse.data(), p.queries(dq), p.keys(dk), p.keys(dv)},
                     p.scratch.data());
  check_gradient(p.q, dq, loss);
  check_gradient(p.k, dk, loss);
  check_gradient(p.v, dv, loss);
}

TEST_CASE("a fused qkv buffer and any query block give the same attention",
          "[runtime][kernels][attention][property]") {
  const AttentionShape shape = shape_of(2, 4, 2, 10, 10, 8, true, 3);
  Problem p(shape);
  p.forward();
  const Index width = (4 + 2 + 2) * 8;
  Floats fused(static_cast<std::size_t>(20 * width)), out(p.out.size()), d_fused(fused.size());
  for (Index t = 0; t < 20; ++t) {
    std::copy_n(p.q.data() + t * 32, 32, fused.data() + t * width);
    std::copy_n(p.k.data() + t * 16, 16, fused.data() + t * width + 32);
    std::copy_n(p.v.data() + t * 16, 16, fused.data() + t * width + 48);
  }
  AttentionShape unfused = shape;
  unfused.query_block = 10;
  Floats scratch(static_cast<std::size_t>(2 * unfused.scratch_floats())), lse(p.lse.size());
  const MatrixView qkv = view(fused, 20, width), d_qkv = view(d_fused, 20, width);
  attention_forward(unfused, qkv.block(0, 32), qkv.block(32, 16), qkv.block(48, 16),
                    view(out, 20, 32), lse.data(), scratch.data());
  check_close(out, p.out);
  check_close(lse, p.lse);
  Floats d_out = random_floats(20 * 32, 4), dq(p.q.size()), dk(p.k.size()), dv(p.v.size());
  attention_backward(shape,
                     {p.queries(p.q), p.keys(p.k), p.keys(p.v), p.queries(p.out), p.queries(d_out),
                      p.lse.data(), p.queries(dq), p.keys(dk), p.keys(dv)},
                     p.scratch.data());
  attention_backward(unfused,
                     {qkv.block(0, 32), qkv.block(32, 16), qkv.block(48, 16), view(out, 20, 32),
                      view(d_out, 20, 32), lse.data(), d_qkv.block(0, 32), d_qkv.block(32, 16),
                      d_qkv.block(48, 16)},
                     scratch.data());
  for (Index t = 0; t < 20; ++t) {
    const float* row = d_fused.data() + t * width;
    check_close({row, row + 32}, {dq.begin() + t * 32, dq.begin() + (t + 1) * 32});
    check_close({row + 32, row + 48}, {dk.begin() + t * 16, dk.begin() + (t + 1) * 16});
    check_close({row + 48, row + 64}, {dv.begin() + t * 16, dv.begin() + (t + 1) * 16});
  }
}

TEST_CASE("attention refuses shapes that do not divide", "[runtime][kernels][attention]") {
  Problem p(shape_of(1, 3, 2, 2, 2, 4, true, 2));
  CHECK_THROWS(p.forward());
}

TEST_CASE("softmax of large scores stays finite and sums to 1", "[runtime][kernels][attention]") {
  Floats x{1e4F, 1e4F, -1e4F, 0, 5, 6}, lse(2);
  softmax_rows(view(x, 2, 3), 1, lse.data());  // row 0 sees 2 columns, row 1 all
  // Row 1: e^0 + e^5 + e^6 = 1 + 148.41316 + 403.42879 = 552.84195.
  check_close(x, {0.5F, 0.5F, 0, 0.0018088F, 0.2684549F, 0.7297362F}, 1e-6);
  CHECK(lse[0] == Approx(1e4 + std::log(2.0)));
}

}  // namespace stepcast::runtime::kernels
