#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/system.h"
#include "simulator/step_costs.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// Change to a recorded step before it is simulated again.
struct ReplayChange {
  /// Factors on times, applied in order. "host" is the host's own time between launches; all other
  /// names are of device times. The name is an op kind ("gemm", "all_reduce"), a
  /// class ("embedding", "memory_bound", "comm" = collectives, "compute" = everything else, "all"),
  /// or the name of an op, "*" standing for any text.
  std::vector<std::pair<std::string, double>> scales;
  std::vector<std::string> drops;  ///< what has these names (as above) costs nothing
  /// CUDA graphs: the launches between two synchronising calls, or up to the end of a step, are one
  /// launch; the host's time between them and their launch latencies are gone.
  bool graphs = false;
  const System* network = nullptr;  ///< collectives as on it (move_collectives)
  const Device* device = nullptr;   ///< kernels as on this device (move_kernels)
  [[nodiscard]] bool empty() const {
    return scales.empty() && drops.empty() && network == nullptr && device == nullptr && !graphs;
  }
};

/// Costs of a graph as recorded: by op template the median over `steps` (which ran this graph) of
/// device time and host gap; symmetric collectives the least over the members, as each rank's own
/// record still holds some wait (reference: profiling-and-traces, section 2). Every rank is
/// simulated.
simulator::StepCosts measured_costs(const traces::MeasuredRun& run,
                                    std::span<const traces::MeasuredStep> steps);

/// Scales, drops and graphs. Errors: InputError naming a scale or drop that matches nothing that
/// takes time, with the nearest name that does.
void apply(const ReplayChange& change, const ExecutionGraph& graph, simulator::StepCosts& costs);

/// Share of the recorded times of a graph that a change changed.
struct ChangedShare {
  double device = 0, host = 0;  ///< shares of device time, and of host time between launches
  /// Device work that stayed as recorded, with its share of all device time; longest first.
  std::vector<std::pair<std::string, double>> stayed;
};
ChangedShare changed_share(const ExecutionGraph& graph, const simulator::StepCosts& before,
                           const simulator::StepCosts& after);

/// Multiplies every device time, collectives included: the controls of rule R1.
void scale_device_times(simulator::StepCosts& costs, double factor);

/// Carries recorded costs over to the same job on another number of ranks: an op of the new graph
/// takes the time of the recorded op of its name and kind, times the ratio of what the models of
/// `system` say of both; an op without a counterpart takes what they say times the median of those
/// ratios' corrections. The same for collectives, each with its own group.
simulator::StepCosts carried_costs(const ExecutionGraph& recorded,
                                   const simulator::StepCosts& recorded_costs,
                                   const ExecutionGraph& graph, const System& system,
                                   const Calibration& calibration);

/// Collectives as the models of `to` say. Where the trace lacks members of one
/// (traces::MeasuredRank::partial of `ranks`), a rank's record is wait and transfer: the shortest of
/// the same kind and group that carries at least as much bounds the transfer, which alone is priced
/// anew; returns how many. Errors: InputError where no collective's size and members are known, and
/// where `to` joins fewer devices than the run has ranks.
std::int64_t move_collectives(std::span<const traces::MeasuredRank> ranks,
                              const ExecutionGraph& graph, const System& to,
                              simulator::StepCosts& costs);

/// Kernels as on another device: the recorded time of each, times what the models say of it on `to`
/// over what they say of it on `from`, where it was recorded. Needs the shapes of the step's graph:
/// the job's own, or those a capture recorded. Work that is no op of ours moves by the ratio of its
/// rooflines, max(FLOPs / peak, bytes / bandwidth), where its operator tells them
/// (traces/events/operator_traffic.h). What has neither, collectives, and the host, stay as
/// recorded. Returns how many kernels moved.
std::int64_t move_kernels(const traces::MeasuredStep& step, const System& from, const Device& to,
                          const Calibration& calibration, simulator::StepCosts& costs);

}  // namespace stepcast::studies
