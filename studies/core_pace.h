#pragma once
#include <array>
#include <span>
#include <vector>

#include "core/system.h"
#include "runtime/mpi/session.h"

namespace stepcast::studies {

/// Seconds of the matrix product and of the sum of vectors that probe a core
/// (runtime/calibration/core_probe.h).
using ProbeTimes = std::array<Seconds, 2>;

/// Probes the cores of all ranks, together as they compute together; by rank, the same on every
/// rank. All ranks call it.
std::vector<ProbeTimes> probe_cores(runtime::MpiSession& session);

/// The mean of two probes of the same ranks.
std::vector<ProbeTimes> mean_of(std::span<const ProbeTimes> before,
                                std::span<const ProbeTimes> after);

/// How much longer work takes on a core than on one that the reference was probed on: the geometric
/// mean of what both probes say. 1 where either is not known.
double pace_of(const ProbeTimes& probe, const ProbeTimes& reference);

/// The probes of the cores a system was calibrated on, as it stands in its models ("pace"): a step
/// predicted for the system takes `pace_of(now, reference)` times as long on cores that probe
/// otherwise. Zeros where a system holds none.
ProbeTimes reference_probe(const System& system);
FittedModel reference_model(const ProbeTimes& reference, std::int64_t samples,
                            const std::string& source);

}  // namespace stepcast::studies
