#include <array>
#include <vector>

#include "core/graph/length_law.h"
#include "runtime/calibration/cuda/case_body.h"
#include "runtime/cuda/kernels/jagged_attention.h"

namespace stepcast::runtime::calibration {
namespace {

namespace kernels = cuda::kernels;
using kernels::MatrixView;
using kernels::Workspace;

cuda::AttentionShape shape_of(const DeviceCase& c) {
  cuda::AttentionShape shape;
  shape.batch = c.op.shape[0];
  shape.heads = c.op.shape[1];
  shape.kv_heads = c.op.shape[2];
  shape.query_length = c.op.shape[3];
  shape.kv_length = c.op.shape[4];
  shape.head_dim = c.op.shape[5];
  shape.causal = (c.op.flags & op_flags::kCausal) != 0;
  return shape;
}

/// Those of the forward, then of the backward, where the arena has room for them next.
cuda::AttentionTensors tensors_of(const DeviceCase& c, Arena& arena) {
  const cuda::AttentionShape shape = shape_of(c);
  const std::int64_t rows = shape.batch * shape.query_length;
  const std::int64_t q_width = shape.heads * shape.head_dim;
  const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
  // One matrix of query, key and value columns, as the fused product writes it.
  const auto blocks = [&](const MatrixView& all) {
    return std::array{all.block(0, q_width), all.block(q_width, kv_width),
                      all.block(q_width + kv_width, kv_width)};
  };
  const auto [q, k, v] = blocks(arena.matrix(c.op.format, rows, q_width + 2 * kv_width));
  cuda::AttentionTensors t;
  t.q = q;
  t.k = k;
  t.v = v;
  t.out = arena.matrix(c.op.format, rows, q_width);
  t.log_sum_exp =
      static_cast<float*>(arena.take(static_cast<std::size_t>(rows * shape.heads) * sizeof(float)));
  if (c.op.kind == OpKind::kAttentionBackward) {
    t.d_out = arena.matrix(c.op.format, rows, q_width);
    const auto [d_q, d_k, d_v] = blocks(arena.matrix(c.op.format, rows, q_width + 2 * kv_width));
    t.d_q = d_q;
    t.d_k = d_k;
    t.d_v = d_v;
  }
  return t;
}

CaseBody attention_body(const DeviceCase& c, const Bench& b) {
  const cuda::AttentionShape shape = shape_of(c);
  const cuda::AttentionTensors t = tensors_of(c, b.arena);
  const auto pass = [&](bool backward) -> CaseBody {
    const cuda::AttentionProblem problem = cuda::attention_problem(shape, t, backward);
    b.attention->prepare({&problem, 1});
    const Workspace workspace = b.arena.workspace(b.attention->workspace_bytes(problem));
    return [=, attention = b.attention](std::int64_t, cudaStream_t stream) {
      attention->run(problem, t, workspace, stream);
    };
  };
  const CaseBody forward = pass(false);
  if (c.op.kind == OpKind::kAttentionForward) {
    return forward;
  }
  forward(0, nullptr);  // a log-sum-exp that belongs to the scores
  return pass(true);
}

/// Sequences of the case's law, drawn as a first step does.
CaseBody jagged_body(const DeviceCase& c, const Bench& b) {
  Arena& arena = b.arena;
  const auto [batch, heads, kv_heads, rows, pairs, dim] = c.op.shape;
  std::vector<std::int32_t> begins, ends;
  const auto offsets = draw_offsets(c.op.as<JaggedAttributes>().lengths, rows, 0, 0, batch);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const auto sample = static_cast<std::int32_t>(offsets[i] / rows * rows);
    const auto length = static_cast<std::size_t>(offsets[i + 1] - offsets[i]);
    begins.insert(begins.end(), length, offsets[i] - sample);
    ends.insert(ends.end(), length, offsets[i + 1] - sample);
  }
  const kernels::JaggedShape s{batch,
                               heads,
                               kv_heads,
                               rows,
                               dim,
                               (c.op.flags & op_flags::kCausal) != 0,
                               arena.upload(begins),
                               arena.upload(ends)};
  const std::int64_t wide = heads * dim;
  const std::int64_t narrow = kv_heads * dim;
  const MatrixView qkv = arena.matrix(c.op.format, batch * rows, wide + 2 * narrow);
  const MatrixView q = qkv.block(0, wide);
  const MatrixView k = qkv.block(wide, narrow);
  const MatrixView v = qkv.block(wide + narrow, narrow);
  const MatrixView out = arena.matrix(c.op.format, batch * rows, wide);
  auto* sums = static_cast<float*>(arena.matrix(Format::kFp32, batch * rows, heads).data);
  const CaseBody forward = [=](std::int64_t, cudaStream_t stream) {
    kernels::jagged_attention_forward(s, q, k, v, out, sums, stream);
  };
  if (c.op.kind == OpKind::kJaggedAttentionForward) {
    return forward;
  }
  forward(0, nullptr);  // a log-sum-exp that belongs to the scores
  const MatrixView d_out = arena.matrix(c.op.format, batch * rows, wide);
  const MatrixView d_qkv = arena.matrix(c.op.format, batch * rows, wide + 2 * narrow);
  const Workspace workspace = arena.workspace(kernels::jagged_attention_backward_workspace(s));
  return [=](std::int64_t, cudaStream_t stream) {
    kernels::jagged_attention_backward(
        s,
        {q, k, v, out, d_out, sums, d_qkv.block(0, wide), d_qkv.block(wide, narrow),
         d_qkv.block(wide + narrow, narrow)},
        workspace, stream);
  };
}

constexpr std::pair<OpKind, MakeBody> kAttentionBodies[]{
    {OpKind::kAttentionForward, attention_body},
    {OpKind::kAttentionBackward, attention_body},
    {OpKind::kJaggedAttentionForward, jagged_body},
    {OpKind::kJaggedAttentionBackward, jagged_body}};

}  // namespace

CaseBodies attention_bodies() { return kAttentionBodies; }

std::vector<cuda::AttentionProblem> attention_problems(const DeviceCase& c, Arena& arena) {
  if (!std::holds_alternative<AttentionAttributes>(c.op.attributes)) {
    return {};
  }
  arena.reset();
  const cuda::AttentionShape shape = shape_of(c);
  const cuda::AttentionTensors t = tensors_of(c, arena);
  std::vector<cuda::AttentionProblem> problems{cuda::attention_problem(shape, t, false)};
  if (c.op.kind == OpKind::kAttentionBackward) {
    problems.push_back(cuda::attention_problem(shape, t, true));
  }
  return problems;
}

}  // namespace stepcast::runtime::calibration
