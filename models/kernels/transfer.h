#pragma once
#include "core/system.h"

namespace stepcast::models {

/// Constants for a device that was not measured, from one that was. Every form states for each of
/// its constants the value that hardware facts alone give (Constant::ideal); what calibration adds
/// is the distance from it, and that is what is carried over:
///
///   c(to) = c(from) * ideal(to) / ideal(from)
///
/// so efficiencies (ideal 1) stay, launch costs scale with the launch of the device, rates and
/// capacities with its bandwidth, peak and cache. Constants without such a fact (ideal 0: shares,
/// sizes of tiles, times of blocks) stay. All are kept within the bounds of the form. On the same
/// chip under another power limit, rates that products and attention sustain go with the cube root
/// of the limits, up to the peak: dynamic power is C f V^2 and the voltage follows the clock. From
/// B200 (1000 W) to GB200 (1200 W) that is 6 % more, and 7 % were measured.
///
/// Dropped: ranges, sample counts and errors, so nothing is ever inside the calibrated range;
/// residual points, unless it is the same chip (as many multiprocessors, the same peak of fp16 over
/// fp32), whose tiles and waves fall alike; formats ("gemm.fp8") the target has no peak for. Where
/// the source fitted formats only, the one of most samples also answers for the kind ("gemm").
/// log_sigma grows by the rule; sources begin with "transferred from". Models of forms without
/// constants of their own (host, straggler) are carried over unchanged but for that. Valid: devices
/// of one kind (GPU to GPU). Source: own; tests/models/transfer_test.cpp scores it
///          from one GPU generation to the next.
FittedModels transferred(const Device& from, const Device& to);
/// Constants of collectives in use. "collective.fabric": shares, factors and byte
/// thresholds stay; times (start, peer, ramp) and the innermost level's hop latencies (its fact
/// times the factors latency and bulk) are multiplied by
///
///   bandwidth_from / bandwidth_to of the innermost level, kept within [2/3, 3/2]
///
/// so that a protocol's cost stays equal to the same number of bytes: from one generation of links
/// to the next, links and clocks grow together. The bound is the one step on which that was tested
/// (A100 to H100 and back: 10 % median against 36 and 25 % with times as they are); further away
/// (PCIe from NVLink) it is a guess. Latencies of outer levels follow their facts alone. Residual
/// points stay where the links inside a machine are alike, but the residual is always taken as that
/// of another chip: networks and hosts differ.
FittedModels transferred(const System& from, const System& to);

/// `to` with what it has fitted itself (samples > 0), and transferred constants for the rest. Of
/// systems the links' and, where `to` has none, the host's: its gaps are the program's.
Device with_transferred(Device to, const Device& from);
System with_transferred(System to, const System& from);

}  // namespace stepcast::models
