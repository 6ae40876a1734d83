#pragma once
#include <cstdint>

namespace stepcast::profiler {

/// Purpose of an intercepted NCCL function.
enum class NcclFunction : std::uint32_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kSend,
  kRecv,
  kCount
};

/// One call as the interposed library saw it, handed from libstepcast_preload.so to
/// libstepcast_cupti.so: plain data, so that the two need nothing of each other.
struct NcclCall {
  std::uint64_t launch = 0;        ///< external correlation id that was on when NCCL launched it
  std::uint64_t communicator = 0;  ///< equal on all members, see Communicators
  std::int32_t members = 0;
  std::int32_t rank = 0;  ///< of this process in the communicator
  NcclFunction function = NcclFunction::kCount;
  std::int32_t type = -1;   ///< ncclDataType_t
  std::uint64_t count = 0;  ///< as passed: elements, by NCCL's convention of the function
  std::int32_t peer = -1;   ///< other side of a send or receive, or the root; rank in communicator
  std::int32_t thread = 0;  ///< of the operating system
  /// Collectives: how many the communicator ran before. Sends and receives: how many groups.
  std::int64_t sequence = 0;
  std::int64_t begin = 0, end = 0;  ///< ns of the capture's clock; `end` when the launch returned
};

/// How NCCL ran a collective, as its profiler interface says.
struct NcclDetail {
  std::uint64_t launch = 0;
  std::int32_t channels = 0, warps = 0;
  char function[24] = {};   ///< "AllReduce"
  char algorithm[16] = {};  ///< "RING", "TREE", "NVLS", ...
  char protocol[16] = {};   ///< "LL", "LL128", "SIMPLE"
};

/// Functions that the interposed library calls while a capture listens. Called on the application's
/// threads.
struct NcclSink {
  std::int64_t (*now)() = nullptr;
  /// NCCL may launch kernels between the two, on this thread.
  void (*launching)(std::uint64_t launch) = nullptr;
  void (*launched)() = nullptr;
  void (*called)(const NcclCall* call) = nullptr;
  void (*detailed)(const NcclDetail* detail) = nullptr;
  void (*step)() = nullptr;  ///< stepcast_profile_step() of the program
};

/// `extern "C" void stepcast_listen(const NcclSink*)` of libstepcast_preload.so; null stops it. The
/// sink must live as long as the process.
using NcclListen = void(const NcclSink*);
constexpr const char* kNcclListen = "stepcast_listen";

}  // namespace stepcast::profiler
