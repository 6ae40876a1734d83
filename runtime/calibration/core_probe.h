#pragma once
#include "core/units.h"

namespace stepcast::runtime::calibration {

/// How long fixed work takes on a core at this moment: the geometric mean of a matrix product of
/// 128^3, operands in the nearest caches, and a sum of two vectors of 256 KB. A virtual machine's
/// cores slow down and recover by tens of percent with what its neighbours do, over seconds to
/// minutes: a time is worth what the core was when it was taken.
///
/// In:      the core to run on, -1: any; the calling thread's affinity is left as it was.
/// Out:     of the medians over 24 blocks, under 1 ms in all, after one block that does not count.
Seconds probe_core(int core);

}  // namespace stepcast::runtime::calibration
