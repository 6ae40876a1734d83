#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/graph/program_fwd.h"

namespace stepcast::traces {

/// Purpose of a runtime or driver call (EventCategory::kRuntimeCall), by its API name: CUDA
/// runtime, CUDA driver and HIP spellings alike ("cudaLaunchKernel", "cuLaunchKernelEx",
/// "hipLaunchKernel"). Ask once per NameId, not per event.
enum class HostCall : std::uint8_t {
  kLaunch,  ///< a kernel or a graph; may hide back-pressure of a full launch queue (R2)
  kCopy,    ///< an asynchronous copy or fill; from pageable memory it blocks none the less (R2)
  kBlockingCopy,  ///< a synchronous copy: returns when the data is there
  kStreamSync,    ///< waits for one stream
  kDeviceSync,    ///< waits for the whole device
  kEventSync,     ///< waits for an event
  kEventRecord,   ///< marks a point of a stream
  kStreamWait,    ///< makes a stream wait for an event; the host goes on
  kMemory,        ///< allocates or frees; a free may synchronise
  kOther
};
HostCall host_call_of(std::string_view name);
/// Names of our own runtime's calls in a recording.
constexpr std::string_view kOwnLaunch = "launch";
constexpr std::string_view kOwnRecord = "record event";
constexpr std::string_view kOwnStreamWait = "stream wait event";
constexpr std::string_view kOwnQueueFull = "wait for room in the queue";
constexpr std::string_view kOwnSynchronize = "synchronize";
/// Overhead of this name is host time that a launch spent waiting for room in a full queue.
constexpr std::string_view kQueueFullOverhead = "command buffer full";
/// Calls whose recorded duration is a wait for the device, not work of the host: strip it before
/// replay (R2).
constexpr bool waits_for_device(HostCall c) {
  return c == HostCall::kBlockingCopy || c == HostCall::kStreamSync || c == HostCall::kDeviceSync ||
         c == HostCall::kEventSync;
}

/// True for the names of kernels that communicate, whoever's: NCCL, RCCL, DeepEP, NVSHMEM, custom
/// all-reduces (traces/kernel_kinds.json). Ask once per name, not per event.
bool is_collective_kernel(std::string_view kernel_name);
/// The kind of a collective by what libraries call it: a kernel's name
/// ("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), a host op's ("nccl:all_to_all",
/// "_allgather_base"). nullopt when the name does not say. NCCL's SendRecv kernel is all-to-all-v
/// or a send and receive: kAllToAllV here; metadata, where present, knows better.
std::optional<OpKind> collective_kind_of(std::string_view name);
/// Bytes of one element by the names profilers use ("Float", "c10::BFloat16", "int64", ...);
/// nullopt when unknown.
std::optional<int> element_bytes_of(std::string_view dtype);

}  // namespace stepcast::traces
