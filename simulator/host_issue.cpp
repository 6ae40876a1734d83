#include "simulator/host_issue.h"

#include <algorithm>

namespace stepcast::simulator {
namespace {

bool routes(OpKind kind) { return kind == OpKind::kRouteForward || kind == OpKind::kRouteBackward; }

/// Whether a graph of a layer holds the op without being launched for it.
bool inside_graph(std::string_view name) {
  const bool of_layer = name.starts_with("layer.") || name.starts_with("lora.");
  return of_layer && !name.starts_with("layer.moe.") && name != "layer.norm1" &&
         name != "layer.norm1_gradient";
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
  for (const Op& op : program.ops) {
    const bool launched = !layers || !inside_graph(program.name(op));
    seconds.push_back((launched ? host.issue.base() : 0) +
                      (experts && routes(op.kind) ? host.expert_layer.base() : 0));
  }
  return seconds;
}

}  // namespace stepcast::simulator
