#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/reports/breakdown.h"
#include "studies/traces/step_times.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// One rank in one step.
struct RankView {
  std::int64_t begin = 0, end = 0;
  std::vector<OpSpan> ran;       ///< between the two, whoever launched it
  std::vector<OpSpan> launched;  ///< by the step, wherever it ran
  std::vector<HostSpan> host;
  std::optional<Seconds> issuing;  ///< of the host of a capture: its own time between calls
};

struct StepView {
  std::int32_t number = 0;
  std::int64_t wall = 0;
  const ExecutionGraph* graph = nullptr;
  std::vector<RankView> ranks;
};

/// The steps of a recorded run, as every command counts them. Those of our own runtime are apart:
/// each is what its rank's marks hold. Those of a capture run into each other and are those of
/// StepTimes that count: each has what runs from the end of the one before to its own, whoever
/// launched it. After the last work of such a step the host is at work until it has launched the
/// next, or to the end.
std::vector<StepView> step_views(const traces::MeasuredRun& run);

/// Parts of a rank's step. The recorded host thread issues on the rank's own core: whatever it does
/// while nothing else runs is host time.
simulator::Breakdown parts_of(const StepView& step, std::size_t rank);

/// The rank that computes, transfers and works on the host longest.
std::int32_t critical_rank(const std::vector<StepView>& steps);

}  // namespace stepcast::studies
