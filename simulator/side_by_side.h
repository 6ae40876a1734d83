#pragma once
#include <vector>

#include "core/graph/program.h"
#include "core/system.h"

namespace stepcast::simulator {

/// Slows kernels beside which exchanges of experts' tokens hold multiprocessors; false: there are
/// none. Kernels of a segment whose exchanges only its next call awaits (workloads::
/// hide_exchanges_pass) make 1 - s of their progress while one travels, with s =
/// FrameworkTraits::exchange_multiprocessors / Device::multiprocessors. With W seconds of kernels
/// and X of exchanges each of them takes so many times as long:
///
///   1 + s X / W, at most 1 / (1 - s)
///
/// `times`: by op template, in any unit.
bool slow_beside_exchanges(const Program& program, const System& system,
                           std::vector<double>& times);

}  // namespace stepcast::simulator
