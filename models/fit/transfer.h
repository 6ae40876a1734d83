#pragma once
#include "core/system.h"

namespace stepcast::models {

/// Collective models for a system that was never measured, from one that was.
///
/// Shares, factors and byte thresholds are carried over as they are; bandwidths and latencies come
/// from the facts of the new system. Times (start, peer, ramp) and the innermost level's hop
/// latencies (facts times the factors latency and bulk) are multiplied by
///
///   bandwidth_from / bandwidth_to of the innermost level, kept within [2/3, 3/2]
///
/// so that a protocol's cost stays equal to the same number of bytes: from one generation of links
/// to the next, links and clocks grow together. The bound is the one step on which that was tested;
/// further away (PCIe from NVLink) the rule is a guess. Latencies of outer levels follow their
/// facts alone. The models have no samples, ranges or points, so they are never in range;
/// `log_sigma` grows by `transfer_sigma`, the measured spread of such a transfer. Keys of single
/// formats are dropped. Valid:   "collective.fabric" models; others are left out. Checked: A100 ->
/// H100 and back on one node, tests/models/collective_accuracy_test.cpp.
FittedModels transferred(const FittedModels& models, const System& from, const System& to,
                         double transfer_sigma = 0);

}  // namespace stepcast::models
