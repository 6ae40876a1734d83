#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/graph/program_fwd.h"
#include "core/system.h"

namespace stepcast::simulator {

/// Memory of a device that drivers and libraries take in addition to the tensors of a step. From
/// the device's fitted "memory" (0 where nothing is known; a constant is data, with its source):
///   reserve            device context and loaded kernels, bytes
///   communicator       buffers of one communicator the rank talks on, bytes
///   communicator_pair  the same where it joins two ranks; without it as any other
///   fragmentation      share of activations and temporaries that the allocator loses
///   blas_workspace     scratch of one handle of the library of matrix products; a framework has
///                      two, for forward and backward passes
///   engine_workspace   the same of a library of layers; four more for products of experts, which
///                      it issues on as many streams
///   margin             share of the memory that nine of ten measured peaks differ by at most
///                      (`stepcast validate memory`; models/stacks/memory_margin.json)
///   over               share that 99 of 100 measured peaks are below the forecast by at most
///   runs               mean error of forecasts of published runs, whose settings are known in
///                      part, as a share
/// All who ask whether a step fits a device ask here: predictions, planners and their ledgers.
struct FrameworkMemory {
  Bytes context, communicators, fragmentation;
  Bytes workspaces;  ///< the part of the context that a framework's own allocator holds
  [[nodiscard]] Bytes total() const { return context + communicators + fragmentation; }
};

/// `communicators`: how many ranks each one joins that a rank talks on. `experts`: products of
/// experts are grouped.
FrameworkMemory framework_memory(const Device& device,
                                 const std::vector<std::size_t>& communicators, Bytes activations,
                                 bool experts = false);
/// Whether a program has products of experts.
bool has_experts(const Program& program);

/// Whether a step fits a device: yes | likely: it is over by less than forecasts of memory are too
/// high by | no.
enum class Fit : std::uint8_t { kYes, kLikely, kNo };
std::string_view name_of(Fit fit);
/// Share of activations that the allocator loses on top of them.
double lost_share(const Device& device);
/// Share of a device's memory that forecasts err by; 0 where nothing is known.
double memory_margin(const Device& device);
/// Share of a device's memory that forecasts are too high by.
double memory_overestimate(const Device& device);
/// Share that forecasts of published runs err by.
double memory_error_of_runs(const Device& device);
/// Memory whose size is not known (0) holds all.
Fit fit_of(Bytes needed, Bytes capacity, double overestimate);
inline Fit fit_of(Bytes needed, const Device& device) {
  return fit_of(needed, device.memory, memory_overestimate(device));
}

/// Those that a program's ops use; `ranks_in` says how many ranks a communicator joins.
std::vector<std::size_t> communicators_of(const Program& program,
                                          const std::function<std::size_t(std::int32_t)>& ranks_in);

}  // namespace stepcast::simulator
