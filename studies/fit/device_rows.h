#pragma once
#include "core/system.h"
#include "runtime/calibration/device_sweep.h"
#include "studies/fit_rows.h"

namespace stepcast::studies {

/// Adds the samples of a device sweep to the rows of recorded steps: each op in a program of its
/// own that gives its operands the reuse distance they had (cold: everything the flush wrote lies
/// between; warm: the op itself), and the cost of launches as host samples. `flushed`: bytes
/// between two cold runs.
void add_device_sweep(FitRows& rows, const runtime::calibration::DeviceSweep& sweep, Bytes flushed);

/// System of a device: what it says of itself and what the sweep measured at best: memory, caches,
/// multiprocessors, copy bandwidth, the highest rate of products by format, the launch. Constants
/// are fitted apart (fit_steps).
System measured_system(const runtime::calibration::DeviceSweep& sweep, int ranks, int local_ranks);

}  // namespace stepcast::studies
