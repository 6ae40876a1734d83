#pragma once
#include <array>
#include <span>
#include <vector>

#include "core/graph/observer.h"
#include "core/graph/program.h"
#include "core/system.h"
#include "runtime/mpi/session.h"

namespace stepcast::studies {

/// Seconds of the matrix product and of the sum of vectors that probe a core, and of the exchange
/// with the other ranks (runtime/calibration/core_probe.h); 0 where ranks exchange nothing or share
/// cores.
using ProbeTimes = std::array<Seconds, 3>;

/// Probes the cores of all ranks, together as they compute together; by rank, the same on every
/// rank. All ranks call it.
std::vector<ProbeTimes> probe_cores(runtime::MpiSession& session);

/// The mean of two probes of the same ranks.
std::vector<ProbeTimes> mean_of(std::span<const ProbeTimes> before,
                                std::span<const ProbeTimes> after);

/// How much longer work takes on a core than on one that the reference was probed on: the geometric
/// mean of what both its probes say. 1 where either is not known.
double pace_of(const ProbeTimes& probe, const ProbeTimes& reference);

/// How much longer ranks take to exchange than those the reference was probed on. 1 where either is
/// not known.
double exchange_pace_of(const ProbeTimes& probe, const ProbeTimes& reference);

/// Whether a collective of so many bytes goes from core to core, at the exchange's pace. One that
/// does not fit in a core's own cache comes from further away, however far apart the cores are:
/// between two states of a machine that probed 3.1 and 7.4 us, those up to 1 MB took 1.4 to 2 times
/// as long, longer ones 0.95 to 1.1 times (472 jobs, 2026-11-22).
bool from_core_to_core(Bytes bytes, const System& system);

/// The probes of the cores a system was calibrated on, as it stands in its models ("pace"): a step
/// predicted for the system takes `pace_of(now, reference)` times as long on cores that probe
/// otherwise. Zeros where a system holds none.
ProbeTimes reference_probe(const System& system);
FittedModel reference_model(const ProbeTimes& reference, double exchange_power,
                            std::int64_t samples, const std::string& source);

/// Between which paces a calibration's jobs ran, over the median job's: the 5 and 95 % quantiles. A
/// wide range says that the machine changed while it was measured.
struct PaceRange {
  double low = 1, high = 1;
};
struct PacesMet {
  PaceRange core, exchange;
};
PaceRange range_of(const std::vector<double>& paces);
void note_paces_met(FittedModel& pace, const PacesMet& met);
PacesMet paces_met(const System& system);

/// Transfers take the exchange's pace to this power; 1 where calibration saw only one pace.
double exchange_power(const System& system);

/// What the probes of a run say a step takes, over what was predicted for the reference.
struct StepPace {
  double core = 1;       ///< of the slowest core, because the others wait for it
  double exchange = 1;   ///< how much longer transfers take
  double transfers = 0;  ///< the share of those from core to core in the predicted step
  [[nodiscard]] double of_step() const { return core + (exchange - core) * transfers; }
};

/// `probes` of the run's ranks against the system's; `transfers` is StepPace::transfers. 1 where
/// the system was calibrated without probes.
StepPace step_pace(std::span<const ProbeTimes> probes, const System& system, double transfers);

/// Time of a rank's transfers from core to core, of the ops of a predicted step.
Seconds transfers_from_core_to_core(std::span<const OpSpan> ops, const Program& program,
                                    std::int32_t rank, const System& system);

}  // namespace stepcast::studies
