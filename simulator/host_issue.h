#pragma once
#include <vector>

#include "core/graph/program.h"
#include "models/cost_model.h"

namespace stepcast::simulator {

/// The host's seconds before each op of a program; empty: HostCost::issue for all. With graphs of
/// layers (Graphs::kLayer) every norm launches a graph that holds the ops up to the next norm, of
/// attention or of a feed-forward block; experts, exchanges and updates are launched one by one.
/// The router takes HostCost::expert_layer in addition.
std::vector<double> issue_seconds(const Program& program, const models::HostCost& host);

}  // namespace stepcast::simulator
