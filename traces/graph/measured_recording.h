#pragma once
#include <string_view>

#include "traces/events/recording.h"
#include "traces/measured_step.h"

namespace stepcast::traces {

/// Of a captured trace of any program (traces/graph/step_graph.h says how a rank's step is
/// rebuilt). Steps are what traces/graph/step_marks.h finds; all of them together are the run's `chain`, what
/// a replay runs.
///
/// Collectives meet across ranks by communicator and order. Clocks of ranks are aligned by the ends
/// of symmetric collectives (all-reduce, all-gather, reduce-scatter, barrier), when a rank has at
/// least ten of them; transfer is what is left of a collective after its last member came. Where
/// the trace lacks some members of a communicator, or members disagree on what they ran, a
/// collective is an op of its own rank, its wait included, and a warning says so.
///
/// Errors: InputError for execution graphs without times, and when no step has device work.
MeasuredRun measured_run(const Recording& recording, std::string_view mark = {});

}  // namespace stepcast::traces
