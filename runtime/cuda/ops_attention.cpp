#include "runtime/cuda/ops_attention.h"

#include "core/error.h"
#include "core/graph/op_traits.h"
#include "runtime/cuda/kernels/attention.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::ConstMatrixView;
using kernels::MatrixView;

AttentionShape shape_of(const Op& op) {
  AttentionShape s;
  s.batch = op.shape[0];
  s.heads = op.shape[1];
  s.kv_heads = op.shape[2];
  s.query_length = op.shape[3];
  s.kv_length = op.shape[4];
  s.head_dim = op.shape[5];
  s.causal = (op.flags & op_flags::kCausal) != 0;
  s.window = op.as<AttentionAttributes>().window;
  return s;
}

/// Query, key and value columns of one fused matrix.
struct HeadColumns {
  MatrixView query, key, value;
  HeadColumns(MatrixView qkv, const AttentionShape& s)
      : query(qkv.block(0, s.heads * s.head_dim)),
        key(qkv.block(s.heads * s.head_dim, s.kv_heads * s.head_dim)),
        value(qkv.block((s.heads + s.kv_heads) * s.head_dim, s.kv_heads * s.head_dim)) {}
};

/// One matrix of each key/value head of a sample: the first, and elements to the next.
struct PerHead {
  void* data = nullptr;
  Format format = Format::kFp32;
  std::int64_t rows = 0, columns = 0, stride = 0, step = 0;
};

/// Products of all key/value heads of one sample with the `g`-th query head of each group.
class HeadProducts {
 public:
  HeadProducts(OpContext& c, const AttentionShape& s, kernels::Workspace workspace)
      : c_(c), s_(s), group_(s.heads / s.kv_heads), workspace_(workspace) {}

  [[nodiscard]] PerHead of_queries(const MatrixView& all, std::int64_t sample,
                                   std::int64_t g) const {
    return {all.at(sample * s_.query_length, g * s_.head_dim),
            all.format,
            s_.query_length,
            s_.head_dim,
            all.stride,
            group_ * s_.head_dim};
  }
  [[nodiscard]] PerHead of_keys(const MatrixView& all, std::int64_t sample) const {
    return {all.at(sample * s_.kv_length, 0),
            all.format,
            s_.kv_length,
            s_.head_dim,
            all.stride,
            s_.head_dim};
  }
  /// `scores` [heads of a sample * query_length, kv_length].
  [[nodiscard]] PerHead of_scores(const MatrixView& scores, std::int64_t g) const {
    return {scores.at(g * s_.query_length, 0),
            scores.format,
            s_.query_length,
            s_.kv_length,
            s_.kv_length,
            group_ * s_.query_length * s_.kv_length};
  }

  void operator()(const PerHead& a, bool transpose_a, const PerHead& b, bool transpose_b,
                  float alpha, float beta, const PerHead& out) const {
    Product p;
    p.m = out.rows;
    p.n = out.columns;
    p.k = transpose_a ? a.rows : a.columns;
    p.transpose_a = transpose_a;
    p.transpose_b = transpose_b;
    p.alpha = alpha;
    p.beta = beta;
    p.batch = s_.kv_heads;
    p.stride_a = a.stride;
    p.stride_b = b.stride;
    p.stride_c = out.stride;
    p.step_a = a.step;
    p.step_b = b.step;
    p.step_c = out.step;
    p.a = a.format;
    p.b = b.format;
    p.c = out.format;
    p.compute = c_.op.format;
    c_.multiply(p, a.data, b.data, out.data, workspace_, c_.stream);
  }

  [[nodiscard]] std::int64_t group() const { return group_; }

 private:
  OpContext& c_;
  const AttentionShape& s_;
  std::int64_t group_;
  kernels::Workspace workspace_;
};

MatrixView scores_of(const MatrixView& all, std::int64_t sample, const AttentionShape& s) {
  return all.slice(sample * s.heads * s.query_length, s.heads * s.query_length);
}

void unfused_forward(OpContext& c) {
  const AttentionShape s = shape_of(c.op);
  const HeadColumns x(c.input(0), s);
  const MatrixView out = c.output(0);
  const MatrixView all = c.output(1);
  const HeadProducts multiply(c, s, c.workspace(Matmul::library_workspace()));
  for (std::int64_t sample = 0; sample < s.batch; ++sample) {
    const MatrixView scores = scores_of(all, sample, s);
    for (std::int64_t g = 0; g < multiply.group(); ++g) {
      multiply(multiply.of_queries(x.query, sample, g), false, multiply.of_keys(x.key, sample),
               true, 1, 0, multiply.of_scores(scores, g));
    }
    kernels::softmax_rows(scores, s.scale(), s.query_length, s.kv_length - s.query_length, s.window,
                          scores, c.stream);
    for (std::int64_t g = 0; g < multiply.group(); ++g) {
      multiply(multiply.of_scores(scores, g), false, multiply.of_keys(x.value, sample), false, 1, 0,
               multiply.of_queries(out, sample, g));
    }
  }
}

void unfused_backward(OpContext& c) {
  const AttentionShape s = shape_of(c.op);
  const HeadColumns x(c.input(0), s);
  const HeadColumns dx(c.output(0), s);
  const MatrixView d_out = c.input(3);
  const MatrixView all = c.input(2);
  // dP in fp32, and dS in the format it is multiplied in.
  const kernels::Index rows = s.heads * s.query_length;
  const auto elements = static_cast<std::size_t>(rows * s.kv_length);
  const auto rounded = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const std::size_t wide = rounded(elements * sizeof(float));
  const std::size_t narrow = rounded(elements * stored_bytes(all.format));
  const kernels::Workspace work = c.workspace(wide + narrow + Matmul::library_workspace());
  auto* first = static_cast<char*>(work.data);
  const MatrixView dp(first, Format::kFp32, rows, s.kv_length);
  const MatrixView ds(first + wide, all.format, rows, s.kv_length);
  const HeadProducts multiply(c, s, {first + wide + narrow, work.bytes - wide - narrow});
  for (std::int64_t sample = 0; sample < s.batch; ++sample) {
    const MatrixView p = scores_of(all, sample, s);
    for (std::int64_t g = 0; g < multiply.group(); ++g) {
      const PerHead dy = multiply.of_queries(d_out, sample, g);
      const float more = g == 0 ? 0.0F : 1.0F;  // heads of a group add to one value
      multiply(multiply.of_scores(p, g), true, dy, false, 1, more,
               multiply.of_keys(dx.value, sample));
      multiply(dy, false, multiply.of_keys(x.value, sample), true, 1, 0, multiply.of_scores(dp, g));
    }
    kernels::softmax_rows_backward(p, dp, s.scale(), ds, c.stream);
    for (std::int64_t g = 0; g < multiply.group(); ++g) {
      const float more = g == 0 ? 0.0F : 1.0F;
      multiply(multiply.of_scores(ds, g), false, multiply.of_keys(x.key, sample), false, 1, 0,
               multiply.of_queries(dx.query, sample, g));
      multiply(multiply.of_scores(ds, g), true, multiply.of_queries(x.query, sample, g), false, 1,
               more, multiply.of_keys(dx.key, sample));
    }
  }
}

/// The operands of a fused attention op, given its tensors by id.
template <class View>
AttentionTensors tensors_of(const Program& program, const Op& op, const View& view) {
  const AttentionShape s = shape_of(op);
  const auto inputs = program.inputs(op);
  const auto outputs = program.outputs(op);
  const HeadColumns x(view(inputs[0]), s);
  AttentionTensors t;
  t.q = x.query;
  t.k = x.key;
  t.v = x.value;
  const bool backward = is_backward(op.kind);
  t.out = view(backward ? inputs[1] : outputs[0]);
  const MatrixView log_sum_exp = view(backward ? inputs[2] : outputs[1]);
  STEPCAST_CHECK(log_sum_exp.format == Format::kFp32, "log-sum-exp of '{}' is not fp32",
                 program.name(op));
  t.log_sum_exp = static_cast<float*>(log_sum_exp.data);
  if (backward) {
    const HeadColumns dx(view(outputs[0]), s);
    t.d_out = view(inputs[3]);
    t.d_q = dx.query;
    t.d_k = dx.key;
    t.d_v = dx.value;
  }
  return t;
}

void fused(OpContext& c) {
  const AttentionTensors t = tensors_of(c.program, c.op, [&](TensorId id) { return c.tensor(id); });
  const AttentionProblem problem = attention_problem(shape_of(c.op), t, is_backward(c.op.kind));
  c.attention->run(problem, t, c.workspace(c.attention->workspace_bytes(problem)), c.stream);
}

}  // namespace

bool is_fused_attention(const Op& op) {
  return std::holds_alternative<AttentionAttributes>(op.attributes) &&
         (op.flags & op_flags::kUnfused) == 0;
}

AttentionProblem attention_problem(const Program& program, const Op& op,
                                   const DeviceTensors& tensors, std::int32_t microbatch) {
  const AttentionTensors t =
      tensors_of(program, op, [&](TensorId id) { return tensors.view(id, microbatch); });
  return attention_problem(shape_of(op), t, is_backward(op.kind));
}

void attention_forward(OpContext& c) { c.has(op_flags::kUnfused) ? unfused_forward(c) : fused(c); }

void attention_backward(OpContext& c) {
  c.has(op_flags::kUnfused) ? unfused_backward(c) : fused(c);
}

}  // namespace stepcast::runtime::cuda
