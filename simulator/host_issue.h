#pragma once
#include <vector>

#include "core/graph/program.h"
#include "models/cost_model.h"

namespace stepcast::simulator {

/// The host's seconds before each op of a program; empty: HostCost::issue for all. Of a graph for
/// each layer and pass (Graphs::kLayer) the first or last norm takes the launch, the other ops of
/// the layer nothing, those of experts theirs, as shapes change with the routing. The router takes
/// HostCost::expert_layer in addition.
std::vector<double> issue_seconds(const Program& program, const models::HostCost& host);

}  // namespace stepcast::simulator
