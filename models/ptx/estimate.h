#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/system.h"
#include "core/units.h"
#include "models/ptx/counts.h"

namespace stepcast::models::ptx {

/// One resource of a device and how long the counts of a launch keep it busy.
struct Term {
  std::string_view name;
  double amount = 0;  ///< bytes, operations or cycles, as `unit` says
  std::string_view unit;
  Seconds time;
};

/// A launch as a roofline: its time is that of the term that takes longest.
///
///   memory        bytes / bandwidth: different sectors, each once, as blocks that read the same
///                 run together and find it in the L2
///   arithmetic    flops / peak of fp32, and operations of special functions at a sixteenth of its
///                 lanes
///   tensor cores  flops of mma / peak of bf16
///   shared memory passes of its port, one a cycle
///   issue         instructions of PTX, four a cycle
///
/// All but memory cover one multiprocessor's share: blocks are assigned whole, so their amounts
/// count ceil(blocks / multiprocessors) * multiprocessors / blocks times. The clock follows from
/// the fp32 peak: peak / (2 * lanes * multiprocessors), 64 lanes for targets sm_70 to sm_80, else
/// 128. In:      counts of `counts.blocks` of `blocks` blocks, scaled up; `target`, "sm_90". Valid:
/// kernels with enough warps to hide latencies. A lower bound: no latency, no launch, no
///          clock below the peak's; ptxas may need fewer or more instructions than the PTX has.
/// Errors:  InputError where the device's fp32 peak is unknown.
/// Source:  Williams et al., "Roofline", CACM 52(4), 2009; CUDA C++ Programming Guide, "Arithmetic
///          Instructions" (throughputs).
struct Estimate {
  std::vector<Term> terms;
  Seconds time;
  std::size_t longest = 0;  ///< index of the term that decides
};
Estimate estimate(const Counts& counts, std::uint64_t blocks, const Device& device,
                  std::string_view target);

}  // namespace stepcast::models::ptx
