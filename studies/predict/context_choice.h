#pragma once
#include "core/job/job.h"

namespace stepcast::studies {

/// A job whose `parallel.context_algorithm` is `auto` with the legal algorithm under which its
/// simulated step is shortest, of equal ones the plainest; any other job as it is.
/// Cost: a simulated step for each of two to four algorithms.
Job settled(Job job);

}  // namespace stepcast::studies
