#pragma once
#include "core/units.h"
#include "runtime/collectives.h"

namespace stepcast::runtime::calibration {

/// How long fixed pieces of work of a core take.
struct CoreProbe {
  Seconds multiply;  ///< a matrix product of 128^3, operands in the nearest caches
  Seconds stream;    ///< a sum of two vectors of 256 KB
  Seconds exchange;  ///< an all-gather of 16 KB a rank after four all-reduces of 64 bytes
};

/// How fast a core is at this moment. A virtual machine's cores slow down and recover by tens of
/// percent with what its neighbours do, over seconds to minutes: a time is worth what the core was
/// when it was taken. How far cores are from each other changes too: where the hypervisor moves two
/// of them to different last-level caches, everything one core reads of what the other wrote takes
/// two to three times as long, while products take the same. Ranks of a run probe together, as they
/// compute together.
///
/// In:      the core to run on, -1: any; the calling thread's affinity is left as it was. The ranks
///          to exchange with, which all call this; null: `exchange` stays 0.
/// Out:     the medians over 24 blocks, about 1 ms in all, after one block that does not count.
CoreProbe probe_core(int core, Collectives* among);

}  // namespace stepcast::runtime::calibration
