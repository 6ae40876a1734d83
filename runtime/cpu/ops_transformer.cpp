#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "runtime/cpu/kernels/activation.h"
#include "runtime/cpu/kernels/attention.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/gemm.h"
#include "runtime/cpu/kernels/loss.h"
#include "runtime/cpu/kernels/norm.h"
#include "runtime/cpu/kernels/position.h"
#include "runtime/cpu/kernels/token.h"
#include "runtime/cpu/op_context.h"

namespace stepcast::runtime::cpu {
namespace {

using kernels::ConstMatrixView;
using kernels::MatrixView;

constexpr float kEpsilon = 1e-5F;

/// Rows of a block that stays in the first-level cache.
std::int64_t block_rows(std::int64_t width) {
  constexpr std::int64_t kBlockFloats = 4096;
  return std::max<std::int64_t>(1, kBlockFloats / std::max<std::int64_t>(1, width));
}

std::int64_t tensor_coordinate(const OpContext& c) { return c.rank % c.graph.mesh.tensor; }

/// Angles of rotary positions, by head width: made once.
struct TransformerState : OpState {
  std::vector<std::int32_t> own_rows;
  std::map<std::int64_t, kernels::RotaryTable> rotary;
};

const kernels::RotaryTable& rotary_table(OpContext& c) {
  auto& tables = static_cast<TransformerState&>(*c.state).rotary;
  const std::int64_t head_dim = c.op.shape[2];
  const auto found = tables.find(head_dim);
  if (found != tables.end()) {
    return found->second;
  }
  return tables.emplace(head_dim, kernels::RotaryTable(c.graph.inputs.batch.sequence, head_dim))
      .first->second;
}

// Attention.

kernels::AttentionShape attention_shape(const Op& op) {
  kernels::AttentionShape s;
  s.batch = op.shape[0];
  s.heads = op.shape[1];
  s.kv_heads = op.shape[2];
  s.query_length = op.shape[3];
  s.kv_length = op.shape[4];
  s.head_dim = op.shape[5];
  s.window = op.as<AttentionAttributes>().window;
  s.causal = (op.flags & op_flags::kCausal) != 0;
  return s;
}

/// Query, key and value columns of one fused matrix.
struct HeadColumns {
  MatrixView query, key, value;
  HeadColumns(MatrixView qkv, const kernels::AttentionShape& s)
      : query(qkv.block(0, s.heads * s.head_dim)),
        key(qkv.block(s.heads * s.head_dim, s.kv_heads * s.head_dim)),
        value(qkv.block((s.heads + s.kv_heads) * s.head_dim, s.kv_heads * s.head_dim)) {}
};

/// One head of one sample: `length` rows, `head_dim` columns.
MatrixView head_of(const MatrixView& all, std::int64_t sample, std::int64_t head,
                   const kernels::AttentionShape& s) {
  return all.slice(sample * s.query_length, s.query_length).block(head * s.head_dim, s.head_dim);
}

void multiply(MatrixView a, bool transpose_a, MatrixView b, bool transpose_b, float alpha,
              float beta, MatrixView c) {
  kernels::Gemm g;
  g.m = c.rows;
  g.n = c.columns;
  g.k = transpose_a ? a.rows : a.columns;
  g.transpose_a = transpose_a;
  g.transpose_b = transpose_b;
  g.alpha = alpha;
  g.beta = beta;
  g.stride_a = a.stride;
  g.stride_b = b.stride;
  g.stride_c = c.stride;
  kernels::gemm(g, a.data, b.data, c.data);
}

MatrixView probabilities_of(const Matrix& all, std::int64_t sample, std::int64_t head,
                            const kernels::AttentionShape& s) {
  return view(all).slice((sample * s.heads + head) * s.query_length, s.query_length);
}

/// Keeps the whole softmax(q k^T) of every head.
void unfused_attention_forward(OpContext& c) {
  const kernels::AttentionShape s = attention_shape(c.op);
  const HeadColumns x(view(c.input(0)), s);
  const MatrixView out = view(c.output(0));
  const float scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
  for (std::int64_t sample = 0; sample < s.batch; ++sample) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t shared = head / (s.heads / s.kv_heads);
      const MatrixView p = probabilities_of(c.output(1), sample, head, s);
      multiply(head_of(x.query, sample, head, s), false, head_of(x.key, sample, shared, s), true,
               scale, 0, p);
      kernels::softmax_rows(p, 0, nullptr, s.window);
      multiply(p, false, head_of(x.value, sample, shared, s), false, 1, 0,
               head_of(out, sample, head, s));
    }
  }
}

/// dS = P * (dP - rowsum(dP * P)), in place of dP.
void softmax_gradient(MatrixView p, MatrixView dp) {
  for (std::int64_t i = 0; i < p.rows; ++i) {
    const float* pi = p.row(i);
    float* di = dp.row(i);
    float sum = 0;
    for (std::int64_t j = 0; j < p.columns; ++j) {
      sum += pi[j] * di[j];
    }
    for (std::int64_t j = 0; j < p.columns; ++j) {
      di[j] = pi[j] * (di[j] - sum);
    }
  }
}

void unfused_attention_backward(OpContext& c) {
  const kernels::AttentionShape s = attention_shape(c.op);
  const HeadColumns x(view(c.input(0)), s);
  const MatrixView d_out = view(c.input(3));
  const HeadColumns dx(view(c.output(0)), s);
  const float scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
  const MatrixView dp(c.scratch_floats(static_cast<std::size_t>(s.query_length * s.kv_length)),
                      s.query_length, s.kv_length);
  const std::int64_t group = s.heads / s.kv_heads;
  for (std::int64_t sample = 0; sample < s.batch; ++sample) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t shared = head / group;
      const float more =
          head % group == 0 ? 0.0F : 1.0F;  // heads of a group add to one key and value
      const MatrixView p = probabilities_of(c.input(2), sample, head, s);
      const MatrixView dy = head_of(d_out, sample, head, s);
      multiply(p, true, dy, false, 1, more, head_of(dx.value, sample, shared, s));
      multiply(dy, false, head_of(x.value, sample, shared, s), true, 1, 0, dp);
      softmax_gradient(p, dp);
      multiply(dp, false, head_of(x.key, sample, shared, s), false, scale, 0,
               head_of(dx.query, sample, head, s));
      multiply(dp, true, head_of(x.query, sample, head, s), false, scale, more,
               head_of(dx.key, sample, shared, s));
    }
  }
}

void attention_forward(OpContext& c) {
  if ((c.op.flags & op_flags::kUnfused) != 0) {
    unfused_attention_forward(c);
    return;
  }
  const kernels::AttentionShape s = attention_shape(c.op);
  const HeadColumns x(view(c.input(0)), s);
  kernels::attention_forward(s, x.query, x.key, x.value, view(c.output(0)), c.output(1).data,
                             c.scratch_floats(static_cast<std::size_t>(s.scratch_floats())));
}

void attention_backward(OpContext& c) {
  if ((c.op.flags & op_flags::kUnfused) != 0) {
    unfused_attention_backward(c);
    return;
  }
  const kernels::AttentionShape s = attention_shape(c.op);
  const HeadColumns x(view(c.input(0)), s);
  const HeadColumns dx(view(c.output(0)), s);
  kernels::AttentionBackward t;
  t.q = x.query;
  t.k = x.key;
  t.v = x.value;
  t.out = view(c.input(1));
  t.log_sum_exp = c.input(2).data;
  t.d_out = view(c.input(3));
  t.d_q = dx.query;
  t.d_k = dx.key;
  t.d_v = dx.value;
  kernels::attention_backward(s, t,
                              c.scratch_floats(2 * static_cast<std::size_t>(s.scratch_floats())));
}

// Activations and norms: blocks of rows, so that each op is one pass over memory.

void activation_forward(OpContext& c) {
  const auto activation = c.op.as<ActivationAttributes>().activation;
  const MatrixView x = view(c.input(0));
  const MatrixView y = view(c.output(0));
  if (c.op.inputs == 1) {
    kernels::activation_forward(activation, x, y);
    return;
  }
  const float* bias = c.input(1).data;
  const std::int64_t step = block_rows(x.columns);
  float* biased = c.scratch_floats(static_cast<std::size_t>(step * x.columns));
  for (std::int64_t i = 0; i < x.rows; i += step) {
    const std::int64_t n = std::min(step, x.rows - i);
    const MatrixView block(biased, n, x.columns);
    kernels::bias_activation_forward(x.slice(i, n), bias, Activation::kNone, block);
    kernels::activation_forward(activation, block, y.slice(i, n));
  }
}

void activation_backward(OpContext& c) {
  const auto activation = c.op.as<ActivationAttributes>().activation;
  const MatrixView dy = view(c.input(0));
  const MatrixView x = view(c.input(1));
  const MatrixView dx = view(c.output(0));
  if (c.op.inputs == 2) {
    kernels::activation_backward(activation, x, dy, dx);
    return;
  }
  const float* bias = c.input(2).data;
  float* bias_gradient = c.output(1).data;
  const std::int64_t step = block_rows(x.columns);
  float* biased = c.scratch_floats(static_cast<std::size_t>(step * x.columns));
  for (std::int64_t i = 0; i < x.rows; i += step) {
    const std::int64_t n = std::min(step, x.rows - i);
    const MatrixView block(biased, n, x.columns);
    kernels::bias_activation_forward(x.slice(i, n), bias, Activation::kNone, block);
    kernels::activation_backward(activation, block, dy.slice(i, n), dx.slice(i, n));
    kernels::add_column_sums(dx.slice(i, n), bias_gradient);
  }
}

void norm_forward(OpContext& c) {
  const float* beta = c.op.inputs > 2 ? c.input(2).data : nullptr;
  kernels::norm_forward(c.op.as<NormAttributes>().norm, view(c.input(0)), c.input(1).data, beta,
                        kEpsilon, view(c.output(0)), c.output(1).data);
}

void norm_backward(OpContext& c) {
  const auto norm = c.op.as<NormAttributes>().norm;
  const MatrixView dy = view(c.input(0));
  const MatrixView x = view(c.input(1));
  const float* gamma = c.input(2).data;
  const float* statistics = c.input(3).data;
  const MatrixView dx = view(c.output(0));
  float* d_gamma = c.output(1).data;
  float* d_beta = c.op.outputs > 2 ? c.output(2).data : nullptr;
  if (c.op.inputs == 4) {
    kernels::norm_backward(norm, dy, x, gamma, statistics, dx, d_gamma, d_beta);
    return;
  }
  const MatrixView residual = view(c.input(4));
  const std::int64_t step = block_rows(x.columns);
  for (std::int64_t i = 0; i < x.rows; i += step) {
    const std::int64_t n = std::min(step, x.rows - i);
    const MatrixView block = dy.slice(i, n);
    kernels::norm_backward(norm, block, x.slice(i, n), gamma, statistics + 2 * i, block, d_gamma,
                           d_beta);
    kernels::add(block.data, residual.row(i), dx.row(i), n * x.columns);
  }
}

void rope_forward(OpContext& c) {
  kernels::rotary_forward(rotary_table(c),
                          view(c.output(0)).block(0, c.op.shape[1] * c.op.shape[2]));
}

void rope_backward(OpContext& c) {
  kernels::rotary_backward(rotary_table(c),
                           view(c.output(0)).block(0, c.op.shape[1] * c.op.shape[2]));
}

// Tokens: sample i of a micro-batch is `sequence + 1` tokens; inputs are the first `sequence`,
// targets the last.

struct Samples {
  std::int64_t count, sequence;
  const std::int32_t* first;
  [[nodiscard]] const std::int32_t* inputs(std::int64_t sample) const {
    return first + sample * (sequence + 1);
  }
  [[nodiscard]] const std::int32_t* targets(std::int64_t sample) const {
    return inputs(sample) + 1;
  }
};

Samples samples_of(const OpContext& c) {
  const std::int64_t count = c.graph.inputs.batch.micro;
  const std::int64_t sequence = c.graph.inputs.batch.sequence;
  const std::int64_t from = c.microbatch * count * (sequence + 1);
  STEPCAST_CHECK(static_cast<std::int64_t>(c.batch.tokens.size()) >= from + count * (sequence + 1),
                 "a batch of {} tokens has no micro-batch {}", c.batch.tokens.size(), c.microbatch);
  return {count, sequence, c.batch.tokens.data() + from};
}

void token_embedding_forward(OpContext& c) {
  const Samples samples = samples_of(c);
  const MatrixView table = view(c.input(0));
  const MatrixView out = view(c.output(0));
  const std::int64_t first = tensor_coordinate(c) * table.rows;
  for (std::int64_t i = 0; i < samples.count; ++i) {
    kernels::token_embedding_forward(table, first, samples.inputs(i),
                                     out.slice(i * samples.sequence, samples.sequence));
  }
  if (c.op.inputs > 1) {
    const MatrixView positions = view(c.input(1));
    kernels::add_positions(positions,
                           out.block(tensor_coordinate(c) * positions.columns, positions.columns));
  }
}

void token_embedding_backward(OpContext& c) {
  const Samples samples = samples_of(c);
  const MatrixView gradient = view(c.input(0));
  const MatrixView table = view(c.output(0));
  const std::int64_t first = tensor_coordinate(c) * table.rows;
  for (std::int64_t i = 0; i < samples.count; ++i) {
    kernels::token_embedding_backward(gradient.slice(i * samples.sequence, samples.sequence), first,
                                      samples.inputs(i), table);
  }
  if (c.op.outputs > 1) {
    const MatrixView positions = view(c.output(1));
    kernels::add_positions_backward(
        gradient.block(tensor_coordinate(c) * positions.columns, positions.columns), positions);
  }
}

// Cross-entropy over a vocabulary split by tensor ranks, or over the rows of all data ranks.

/// Targets of the logits' rows: tokens, or without these the row itself among those of all ranks.
Samples targets_of(const OpContext& c, std::int64_t rows) {
  if (!c.batch.tokens.empty()) {
    return samples_of(c);
  }
  const std::int64_t count = c.graph.inputs.batch.global / c.graph.mesh.data;
  const std::int64_t sequence = rows / count;
  auto& own = static_cast<TransformerState&>(*c.state).own_rows;
  own.assign(static_cast<std::size_t>(count * (sequence + 1)), 0);
  std::int64_t next = rows * c.graph.mesh.coordinate(c.rank, Axis::kData);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = own.begin() + i * (sequence + 1) + 1;
    std::iota(first, first + sequence, static_cast<std::int32_t>(next));
    next += sequence;
  }
  return {count, sequence, own.data()};
}

void cross_entropy_max(OpContext& c) {
  kernels::cross_entropy_maximum(view(c.input(0)), c.output(0).data);
}

void cross_entropy_sum(OpContext& c) {
  const MatrixView logits = view(c.input(0));
  const Samples samples = targets_of(c, logits.rows);
  const MatrixView sums = view(c.output(0));
  const std::int64_t first = tensor_coordinate(c) * logits.columns;
  for (std::int64_t i = 0; i < samples.count; ++i) {
    const std::int64_t row = i * samples.sequence;
    kernels::cross_entropy_sum(logits.slice(row, samples.sequence), first, samples.targets(i),
                               c.input(1).data + row, sums.row(0) + row, sums.row(1) + row);
  }
}

void cross_entropy_loss(OpContext& c) {
  const MatrixView logits = view(c.output(0));
  const Samples samples = targets_of(c, logits.rows);
  const MatrixView sums = view(c.input(2));
  const std::int64_t first = tensor_coordinate(c) * logits.columns;
  const float factor = 1.0F / (static_cast<float>(c.graph.inputs.batch.global) *
                               static_cast<float>(samples.sequence));
  double loss = 0;
  for (std::int64_t i = 0; i < samples.count; ++i) {
    const std::int64_t row = i * samples.sequence;
    const MatrixView block = logits.slice(row, samples.sequence);
    loss += kernels::cross_entropy_loss(block, first, samples.targets(i), c.input(1).data + row,
                                        sums.row(0) + row, sums.row(1) + row, factor, block);
  }
  if (c.loss != nullptr && tensor_coordinate(c) == 0) {  // every tensor rank sees the whole loss
    *c.loss += loss;
  }
}

}  // namespace

OpFamily transformer_ops() {
  return {{STEPCAST_TRANSFORMER_OPS(STEPCAST_OP)},
          [](const ExecutionGraph&, const Program&, std::int32_t) -> std::unique_ptr<OpState> {
            return std::make_unique<TransformerState>();
          }};
}

}  // namespace stepcast::runtime::cpu
