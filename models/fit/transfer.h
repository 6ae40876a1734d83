#pragma once
#include "core/system.h"

namespace stepcast::models {

/// Collective models for a system that was never measured, from one that was.
///
/// Shares, factors and byte thresholds are carried over as they are; bandwidths and latencies come
/// from the facts of the new system. Times (start, peer, ramp) and the factors on hop latencies are
/// multiplied by
///
///   (bandwidth_from / bandwidth_to) of the innermost level * (its latency_to / latency_from for
///   the factors), the ratio kept within [1/2, 2]
///
/// so that within a family of links a protocol's cost stays equal to the same number of bytes: from
/// one generation to the next links and clocks grow together. Between links more than a factor of
/// two apart (PCIe and NVLink) that is no longer so, and the bound holds. The models have no
/// samples, ranges or points, so they are never in range; `log_sigma` grows by `transfer_sigma`,
/// the measured spread of such a transfer. Keys of single formats are dropped. Valid:
/// "collective.fabric" models; others are left out. Checked: A100 -> H100 and back on one node,
/// tests/models/collective_accuracy_test.cpp.
FittedModels transferred(const FittedModels& models, const System& from, const System& to,
                         double transfer_sigma = 0);

}  // namespace stepcast::models
