#pragma once
#include <vector>

#include "core/units.h"

namespace stepcast::runtime::calibration {

/// How long two fixed pieces of work of a core take.
struct CoreProbe {
  Seconds multiply;  ///< a matrix product of 128^3, operands in the nearest caches
  Seconds stream;    ///< a sum of two vectors of 256 KB
};

/// How fast a core is at this moment. A virtual machine's cores slow down and recover by tens of
/// percent with what its neighbours do, over seconds to minutes: a time is worth what the core was
/// when it was taken. Ranks of a run probe together, as they compute together.
///
/// In:      the core to run on, -1: any; the calling thread's affinity is left as it was.
/// Out:     the medians over 24 blocks, about 1 ms in all, after one block that does not count.
CoreProbe probe_core(int core);

}  // namespace stepcast::runtime::calibration
