#include "traces/events/host_calls.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

#include "core/graph/op.h"
#include "traces/events/kernel_kinds.h"

namespace stepcast::traces {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Lower case without '_', '-', ' ' and ':', so that spellings of one thing meet.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

/// The API's own name: "cudaLaunchKernel_v7000" -> "LaunchKernel_v7000".
std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : {"cuda", "hip", "cu"}) {
    if (name.starts_with(prefix)) {
      return name.substr(prefix.size());
    }
  }
  return {};
}

}  // namespace

HostCall host_call_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, HostCall>, 5> kOwn{{
      {kOwnLaunch, HostCall::kLaunch},
      {kOwnRecord, HostCall::kEventRecord},
      {kOwnStreamWait, HostCall::kStreamWait},
      {kOwnQueueFull, HostCall::kStreamSync},
      {kOwnSynchronize, HostCall::kDeviceSync},
  }};
  for (const auto& [own, kind] : kOwn) {
    if (name == own) {
      return kind;
    }
  }
  const std::string_view call = without_prefix(name);
  if (call.starts_with("LaunchHostFunc")) {
    return HostCall::kOther;
  }
  if (has(call, "Launch") && !has(call, "Attribute")) {
    return HostCall::kLaunch;
  }
  if (call.starts_with("Memcpy") || call.starts_with("Memset")) {
    const bool fill = call.starts_with("Memset");
    return has(call, "Async") || fill ? HostCall::kCopy : HostCall::kBlockingCopy;
  }
  constexpr std::array<std::pair<std::string_view, HostCall>, 10> kByStart{{
      {"StreamSynchronize", HostCall::kStreamSync},
      {"DeviceSynchronize", HostCall::kDeviceSync},
      {"CtxSynchronize", HostCall::kDeviceSync},
      {"EventSynchronize", HostCall::kEventSync},
      {"EventRecord", HostCall::kEventRecord},
      {"StreamWaitEvent", HostCall::kStreamWait},
      {"Malloc", HostCall::kMemory},
      {"MemAlloc", HostCall::kMemory},
      {"Free", HostCall::kMemory},
      {"MemFree", HostCall::kMemory},
  }};
  for (const auto& [start, kind] : kByStart) {
    if (call.starts_with(start)) {
      return kind;
    }
  }
  return HostCall::kOther;
}

bool is_collective_kernel(std::string_view kernel_name) {
  return KernelKinds::built_in().of(kernel_name).kind == KernelKind::kCommunication;
}

std::optional<OpKind> collective_kind_of(std::string_view name) {
  // NCCL's kernels end in algorithm, operation and type: only what stands before the argument list
  // counts.
  const std::string text = plain(name.substr(0, name.find('(')));
  // Longer words first: "reducescatter" holds "reduce", "alltoallv" holds "alltoall".
  constexpr std::array<std::pair<std::string_view, OpKind>, 12> kWords{{
      {"allreduce", OpKind::kAllReduce},
      {"reducescatter", OpKind::kReduceScatter},
      {"allgather", OpKind::kAllGather},
      {"alltoallv", OpKind::kAllToAllV},
      {"alltoallbase", OpKind::kAllToAllV},
      {"alltoallsingle", OpKind::kAllToAllV},
      {"alltoall", OpKind::kAllToAll},
      {"sendrecv", OpKind::kAllToAllV},
      {"broadcast", OpKind::kBroadcast},
      {"barrier", OpKind::kBarrier},
      {"send", OpKind::kSend},
      {"recv", OpKind::kRecv},
  }};
  for (const auto& [word, kind] : kWords) {
    if (has(text, word)) {
      return kind;
    }
  }
  return std::nullopt;
}

std::optional<int> element_bytes_of(std::string_view dtype) {
  std::string text = plain(dtype);
  for (const std::string_view prefix : {"c10", "torch"}) {
    if (text.starts_with(prefix)) {
      text.erase(0, prefix.size());
    }
  }
  constexpr std::array<std::pair<std::string_view, int>, 31> kBytes{{
      {"float", 4},    {"float32", 4}, {"fp32", 4},         {"f32", 4},          {"double", 8},
      {"float64", 8},  {"fp64", 8},    {"half", 2},         {"float16", 2},      {"fp16", 2},
      {"bfloat16", 2}, {"bf16", 2},    {"long", 8},         {"longint", 8},      {"int64", 8},
      {"uint64", 8},   {"int", 4},     {"int32", 4},        {"uint32", 4},       {"short", 2},
      {"int16", 2},    {"char", 1},    {"int8", 1},         {"unsignedchar", 1}, {"byte", 1},
      {"uint8", 1},    {"bool", 1},    {"float8e4m3fn", 1}, {"float8e5m2", 1},   {"float8e4m3", 1},
      {"fp8", 1},
  }};
  const auto found = std::find_if(kBytes.begin(), kBytes.end(),
                                  [&text](const auto& entry) { return entry.first == text; });
  return found == kBytes.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace stepcast::traces
