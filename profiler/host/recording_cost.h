#pragma once
#include "core/units.h"

namespace stepcast::profiler {

/// Cost that recording adds to the run that is recorded, per op. One of the two clock readings of
/// an op falls into its duration, the other and the store into the gap after it.
struct RecordingCost {
  Seconds clock;  ///< reading the clock once
  Seconds store;  ///< keeping the record
};

/// Measured on the calling thread: the median over blocks of readings and of records written one
/// after the other into fresh memory. Takes about 2 ms.
RecordingCost recording_cost();

}  // namespace stepcast::profiler
