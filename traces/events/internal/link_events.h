#pragma once
#include "traces/events/recording.h"

namespace stepcast::traces::internal {

/// Fills `link` from correlation ids; counts orphans, launches without work, work before its launch
/// and correlation ids used twice.
void link_launches(RankRecording& rank, const Names& names);
/// Fills what collectives do not say of themselves from the host ranges around their launch
/// (record_param_comms, nccl:...); counts those that stay unsized or unknown.
void describe_collectives(RankRecording& rank, Names& names);
/// Cuts durations that run over several that follow on their stream, where that is rare: a stream
/// does one thing at a time, but for the next (programmatic launches) and branches of a CUDA graph.
void cut_overruns(RankRecording& rank, const Names& names);
/// Counts overlapping work per stream and host ranges that cross.
void count_overlaps(RankRecording& rank, const Names& names);
/// Steps by "ProfilerStep#N" ranges; where their numbers come again, numbered by order.
void find_steps(RankRecording& rank, const Names& names);

}  // namespace stepcast::traces::internal
