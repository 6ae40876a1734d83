#include "workloads/transformer.h"

namespace stepcast::workloads {
namespace {

/// Matrix products and attention cores of one stage's step on one rank.
struct StageFlops {
  double products = 0;   ///< forward and backward
  double attention = 0;  ///< likewise, full score matrix, four products in the backward pass
  double recomputed =
      0;  ///< products of recompute ops and scores repeated by the fused backward pass
};

void add_op(const Op& op, double calls, StageFlops& sum) {
  const double full = (op.flags & op_flags::kCausal) != 0 ? 2 : 1;
  const double flops = op.flops.base() * calls;
  if (op.kind == OpKind::kGemm) {
    (op.phase == Phase::kRecompute ? sum.recomputed : sum.products) += flops;
  } else if (op.kind == OpKind::kAttentionForward) {
    (op.phase == Phase::kRecompute ? sum.recomputed : sum.attention) += full * flops;
  } else if (op.kind == OpKind::kAttentionBackward) {
    // Twice the forward's two products; a fused kernel executes a fifth.
    const bool fused = (op.flags & op_flags::kUnfused) == 0;
    sum.attention += full * flops * (fused ? 0.8 : 1.0);
    sum.recomputed += full * flops * (fused ? 0.2 : 0.0);
  }
}

StageFlops stage_flops(const Program& program) {
  std::vector<double> calls(program.segments.size(), 0.0);
  for (const Call& c : program.calls) {
    calls[c.segment] += 1;
  }
  StageFlops sum;
  for (std::size_t s = 0; s < program.segments.size(); ++s) {
    for (const Op& op : program.ops_of(program.segments[s])) {
      add_op(op, calls[s], sum);
    }
  }
  return sum;
}

}  // namespace

StepFlops transformer_flops(const Job& job) {
  const ExecutionGraph graph = build_transformer(job);
  StepFlops total;
  for (const RankClass& c : graph.classes) {
    const StageFlops s = stage_flops(graph.programs[static_cast<std::size_t>(c.program)]);
    const double ranks = static_cast<double>(c.ranks.size());
    total.model += Flops(ranks * (s.products + s.attention));
    total.model_causal += Flops(ranks * (s.products + s.attention / 2));
    total.hardware += Flops(ranks * (s.products + s.attention + s.recomputed));
  }
  return total;
}

}  // namespace stepcast::workloads
