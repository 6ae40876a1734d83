#include "simulator/host_issue.h"

#include <algorithm>

#include "core/graph/op_traits.h"

namespace stepcast::simulator {
namespace {

bool routes(OpKind kind) { return kind == OpKind::kRouteForward || kind == OpKind::kRouteBackward; }
bool begins_graph(OpKind kind) {
  return kind == OpKind::kNormForward || kind == OpKind::kNormBackward;
}
/// Shapes of experts' ops change with the routing, and sums over replicas belong to no pass.
bool outside_graphs(const Op& op) {
  return op.routing >= 0 || is_exchange(op.kind) || op.phase == Phase::kGradientSync ||
         op.phase == Phase::kOptimizer || op.phase == Phase::kInput;
}

}  // namespace

std::vector<double> issue_seconds(const Program& program, const models::HostCost& host) {
  const bool layers = host.graphs == Graphs::kLayer;
  const bool experts =
      host.expert_layer.base() > 0 && std::any_of(program.ops.begin(), program.ops.end(),
                                                  [](const Op& op) { return routes(op.kind); });
  if (!layers && !experts) {
    return {};
  }
  std::vector<double> seconds;
  seconds.reserve(program.ops.size());
  bool in_graph = false;
  for (const Op& op : program.ops) {
    const bool begins = begins_graph(op.kind);
    const bool launched = !layers || outside_graphs(op) || begins || !in_graph;
    in_graph = in_graph || begins;
    seconds.push_back((launched ? host.issue.base() : 0) +
                      (experts && routes(op.kind) ? host.expert_layer.base() : 0));
  }
  return seconds;
}

}  // namespace stepcast::simulator
