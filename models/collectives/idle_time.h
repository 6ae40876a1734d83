#pragma once
#include <span>
#include <vector>

#include "core/graph/program_fwd.h"
#include "core/units.h"

namespace stepcast::models {

/// Time that the ops of a step take by themselves between two uses of a communicator: the time in
/// which its buffers and code leave the caches of a CPU.
///
/// In:      one step of one rank; the time of each op template (those of collectives do not count).
/// Out:     by op template: for a collective the mean over its calls of the time since the
///          communicator's last collective, in issue order over all streams; the first one of a
///          step counts from the last one of the step before. 0 for other ops.
/// Cost:    one pass over the executed ops.
std::vector<Seconds> since_last_use(const Program& program, std::span<const Seconds> op_time);

}  // namespace stepcast::models
