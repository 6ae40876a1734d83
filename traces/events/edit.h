#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "traces/events/recording.h"

namespace stepcast::traces {

/// Losses of a conversion, for the user to read: "flow arrows", 17.
struct Loss {
  std::string what;
  std::uint64_t count = 0;
};
using Losses = std::vector<Loss>;
/// Adds when there is something to report.
void add_loss(Losses& losses, std::string what, std::uint64_t count);

/// Keeps steps `first` up to, not including, `last`, counted from 0 in order of begin: host events
/// that begin within (a step reaches to the begin of the next), and device events whose launch
/// does; orphans by their own begin. Steps are those of graph/step_marks.h. Events of before and
/// after go, also from graphs of dependencies. Runs of our own: the steps of these numbers.
/// Errors: InputError when nothing marks steps, or there are too few.
void cut_steps(Recording& recording, std::int64_t first, std::int64_t last);

/// Replaces every name that identifies a program, a machine or a person by a number of its kind
/// ("cpu_op 17", equal names alike), and drops shapes, values, metadata, paths and the job.
/// Structure, times, sizes of collectives and copies, names of runtime calls, of steps and of
/// communication kernels stay: they are the API's words, not the user's. For events alone.
void anonymize(Recording& recording);

}  // namespace stepcast::traces
