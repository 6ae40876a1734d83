#pragma once
#include <vector>

#include "core/graph/program.h"
#include "models/cost_model.h"

namespace stepcast::simulator {

/// Seconds of the host before each op of a program; empty: HostCost::issue for all. With a graph
/// for each layer and pass (Graphs::kLayer) the first or last norm takes the launch and the other
/// ops of the layer nothing, but those of experts keep theirs: their shapes change with the
/// routing. The router takes HostCost::expert_layer in addition.
std::vector<double> issue_seconds(const Program& program, const models::HostCost& host);

}  // namespace stepcast::simulator
