#pragma once
#include <vector>

#include "core/graph/program.h"
#include "core/system.h"

namespace stepcast::simulator {

/// Slows kernels that overlap with collectives, which occupy multiprocessors; false: there are
/// none. A kernel makes 1 - s of its progress while a collective of another stream is in flight,
/// with s = FrameworkTraits::exchange_multiprocessors / Device::multiprocessors, 0 where the device
/// has no more, or its slowdown was measured (models/fit/interference.h). With W seconds of kernels
/// of a layer in a segment and X of its collectives each of them takes so many times as long:
///
///   1 + s X / W, at most 1 / (1 - s)
///
/// Exchanges of tokens that the segment itself awaits overlap with no kernels; messages and copies
/// occupy none. `times`: by op template, in any unit. Source: arXiv 2507.03114 measured
/// kernels 18.9 % longer under collectives, on the average.
bool slow_beside_exchanges(const Program& program, const System& system,
                           std::vector<double>& times);

}  // namespace stepcast::simulator
