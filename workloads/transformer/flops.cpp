#include "workloads/transformer/transformer.h"

#include <algorithm>

#include "core/graph/op_traits.h"
#include "workloads/transformer/shape.h"

namespace stepcast::workloads {
namespace {

/// Matrix products and attention cores of one stage's step on one rank.
struct StageFlops {
  double products = 0;          ///< of the model, forward and backward
  double executed = 0;          ///< those that run once
  double attention = 0;         ///< full score matrix, four products in the backward pass
  double attention_causal = 0;  ///< what the causal mask leaves of it
  double recomputed =
      0;  ///< products of recompute ops and scores repeated by the fused backward pass
};

/// Which part of an op's FLOPs a convention counts.
struct Share {
  double model = 1, hardware = 1;
};

/// Products of experts are written for the most loaded rank: hardware counts a rank's mean, the
/// model all tokens, dropped ones too. A router that all tensor ranks run on the same tokens counts
/// once.
Share share_of(const Op& op, const TransformerShape& shape) {
  if (op.routing >= 0) {
    return {shape.experts->nominal, shape.experts->average};
  }
  switch (op.as<GemmAttributes>().repeated) {
    case Repeated::kKeysAndValues: {
      const auto heads = static_cast<double>(shape.heads);
      const auto held = static_cast<double>(2 * shape.kv_heads);
      return {(heads + held / static_cast<double>(shape.kv_copies)) / (heads + held), 1};
    }
    case Repeated::kAll: {
      const double once = 1 / static_cast<double>(shape.tensor);
      return {once, once};
    }
    case Repeated::kNothing:
      break;
  }
  return {};
}

void add_attention(const Op& op, double flops, const TransformerShape& shape, StageFlops& sum) {
  // Unfused kernels make the scores that no query of a window sees, too.
  const std::int32_t window = op.as<AttentionAttributes>().window;
  const auto positions = static_cast<double>(shape.positions);
  const double seen = window > 0 ? std::min(1.0, window / positions) : 1;
  const double share = shape.causal_share(window);
  const bool fused = (op.flags & op_flags::kUnfused) == 0;
  const bool masked = (op.flags & op_flags::kCausal) != 0;
  const double full = flops * (masked ? 1 / share : seen);
  const bool backward = is_backward(op.kind);
  if (!backward && op.phase == Phase::kRecompute) {
    sum.recomputed += full;
    return;
  }
  // The backward pass is twice the forward's two products; a fused kernel executes a fifth.
  const double own = backward && fused ? 0.8 : 1.0;
  sum.attention += full * own;
  sum.attention_causal += full * own * share;
  sum.recomputed += full * (1 - own);
}

/// The backward pass makes scores and states again before its own products, two for each of the
/// forward pass.
void add_scan(const Op& op, double calls, StageFlops& sum) {
  const double all = op.flops.base() * calls;
  if (op.phase == Phase::kRecompute) {
    sum.recomputed += all;
    return;
  }
  Op forward = op;
  forward.kind = OpKind::kScanForward;
  fill_work(forward);
  const double own = forward.flops.base() * calls * (is_backward(op.kind) ? 2 : 1);
  sum.products += own;
  sum.executed += own;
  sum.recomputed += all - own;
}

void add_op(const Op& op, double calls, const TransformerShape& shape, StageFlops& sum) {
  const Share share = share_of(op, shape);
  const double flops = op.flops.base() * calls;
  if (op.kind == OpKind::kGemm) {
    const bool again = op.phase == Phase::kRecompute;
    sum.products += again ? 0 : flops * share.model;
    sum.executed += again ? 0 : flops * share.hardware;
    sum.recomputed += again ? flops * share.hardware : 0;
  } else if (class_of(op.kind) == OpClass::kScan) {
    add_scan(op, calls, sum);
  } else if (class_of(op.kind) == OpClass::kAttention) {
    add_attention(op, flops, shape, sum);
  }
}

StageFlops stage_flops(const Program& program, const TransformerShape& shape) {
  std::vector<double> calls(program.segments.size(), 0.0);
  for (const Call& c : program.calls) {
    calls[c.segment] += 1;
  }
  StageFlops sum;
  for (std::size_t s = 0; s < program.segments.size(); ++s) {
    for (const Op& op : program.ops_of(program.segments[s])) {
      add_op(op, calls[s], shape, sum);
    }
  }
  return sum;
}

}  // namespace

StepFlops transformer_flops(const Job& job, const ExecutionGraph* graph) {
  ExecutionGraph unfused;
  if (graph == nullptr || job.fused_epilogues) {
    Job plain = job;
    plain.fused_epilogues = false;
    unfused = build_graph(plain);
    graph = &unfused;
  }
  const TransformerShape shape = transformer_shape(job);
  StepFlops total;
  for (const RankClass& c : graph->classes) {
    const StageFlops s = stage_flops(graph->programs[static_cast<std::size_t>(c.program)], shape);
    const double ranks = static_cast<double>(c.ranks.size());
    total.model += Flops(ranks * (s.products + s.attention));
    total.model_causal += Flops(ranks * (s.products + s.attention_causal));
    total.hardware += Flops(ranks * (s.executed + s.attention + s.recomputed));
  }
  return total;
}

}  // namespace stepcast::workloads
