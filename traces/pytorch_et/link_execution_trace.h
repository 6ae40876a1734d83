#pragma once
#include "traces/events/recording.h"

namespace stepcast::traces {

/// Gives the operators of a timeline (Kineto) the data dependencies that the execution trace of the
/// same step knows by its tensors (RankRecording::dependencies, added).
///
/// A node is the operator of its record function id; where the timeline has none (before 2024), the
/// n-th of its name on its thread, for names that both have as often there; threads are paired by
/// the names they share. Errors: InputError when less than nine tenths of the nodes are found: it
/// is no trace of the same step.
void link_execution_trace(RankRecording& timeline, const RankRecording& graph);

}  // namespace stepcast::traces
