#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "traces/events/recording.h"

namespace stepcast::traces {

/// Places of the steps of a recording on the host, by rank, and what marks them.
struct StepMarks {
  std::vector<std::vector<StepRange>> ranks;
  std::string by;          ///< in words; empty: nothing marks steps, and the whole recording is one
  bool guessed = false;    ///< nobody said that these are steps
  std::string empty_ones;  ///< marks that were found and launched no device work, in words
  /// Doubts about them, a sentence each.
  [[nodiscard]] std::vector<std::string> warnings() const;
};

/// With a name: the ranges of that name, a number after it left aside; * stands for any text.
/// Ranges that lie over most of their distance are the steps; shorter ones end them, and a step
/// begins where the one before ended.
///
/// Without: what the profiler marked (ProfilerStep#, NVTX ranges of a capture). Else guesses: the
/// fewest repeated ranges of the program that lie over most of the device work, hold more than a
/// kernel each and about as much as each other; the ends of Optimizer.step#; a sequence of launches
/// that repeats three times or more, from the first launch to the last but for 2 %, and is not held
/// by one range of the host. Else, and where none of them launched device work, the whole recording
/// is one: all that each host did, or all there is where it launched nothing.
///
/// Errors: InputError for a name that no range of some rank has.
StepMarks step_marks(const Recording& recording, std::string_view name);

}  // namespace stepcast::traces
