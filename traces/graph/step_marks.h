#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "traces/events/recording.h"

namespace stepcast::traces {

/// Places of the steps of a recording on the host, by rank, and what marks them.
struct StepMarks {
  std::vector<std::vector<StepRange>> ranks;
  std::string by;  ///< in words; empty: nothing marks steps, and the whole recording is one
};

/// With a name: the ranges of that name, a number after it left aside. Ranges that lie over most of
/// their distance are the steps; shorter ones end them, and a step begins where the one before
/// ended.
///
/// Without: what the profiler marked (ProfilerStep#, NVTX ranges of a capture); else the fewest
/// repeated ranges of the program that lie over most of the device work; else the ends of
/// Optimizer.step#; else a sequence of launches that repeats three times or more, over all but 2 %
/// of the launches.
///
/// Errors: InputError for a name that no range of some rank has.
StepMarks step_marks(const Recording& recording, std::string_view name);

}  // namespace stepcast::traces
