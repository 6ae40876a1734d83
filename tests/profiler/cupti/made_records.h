#pragma once
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiler/cupti/record_parser.h"

namespace stepcast::profiler::cupti::made {

/// Activity records as CUPTI would write them, for tests: one process, times in us.
class Records {
 public:
  static constexpr std::uint32_t kProcess = 100, kThread = 101, kContext = 1, kDevice = 0;
  static constexpr std::uint32_t kLaunch = 211, kRecordEvent = 135, kStreamWait = 147,
                                 kDeviceSync = 165, kCopyAsync = 41, kGraphLaunch = 311,
                                 kDriverLaunch = 307, kEventSync = 137, kStreamSync = 131;

  /// Names of the callbacks above; real ones come from CUPTI.
  static std::string api_name(bool runtime, std::uint32_t callback) {
    switch (callback) {
      case kLaunch:
        return "cudaLaunchKernel_v7000";
      case kRecordEvent:
        return "cudaEventRecord_v3020";
      case kStreamWait:
        return "cudaStreamWaitEvent_v3020";
      case kDeviceSync:
        return "cudaDeviceSynchronize_v3020";
      case kCopyAsync:
        return "cudaMemcpyAsync_v3020";
      case kGraphLaunch:
        return "cudaGraphLaunch_v10000";
      case kEventSync:
        return "cudaEventSynchronize_v3020";
      case kStreamSync:
        return "cudaStreamSynchronize_v3020";
      case kDriverLaunch:
        return "cuLaunchKernel";
      default:
        return runtime ? "cudaOther" : "cuOther";
    }
  }

  ApiRecord& api(std::uint32_t callback, std::uint64_t begin, std::uint64_t end,
                 std::uint32_t correlation, bool runtime = true) {
    auto& r = add<ApiRecord>(runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER);
    r.cbid = callback;
    r.start = us(begin);
    r.end = us(end);
    r.processId = kProcess;
    r.threadId = kThread;
    r.correlationId = correlation;
    return r;
  }
  KernelRecord& kernel(const char* name, std::uint32_t stream, std::uint64_t begin,
                       std::uint64_t end, std::uint32_t correlation) {
    auto& r = add<KernelRecord>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    r.name = name;
    r.start = us(begin);
    r.end = us(end);
    r.deviceId = kDevice;
    r.contextId = kContext;
    r.streamId = stream;
    r.correlationId = correlation;
    r.gridX = 8;
    r.gridY = r.gridZ = 1;
    r.blockX = 128;
    r.blockY = r.blockZ = 1;
    r.registersPerThread = 32;
    r.staticSharedMemory = 1024;
    r.dynamicSharedMemory = 512;
    return r;
  }
  CopyRecord& copy(std::uint64_t bytes, std::uint32_t stream, std::uint64_t begin,
                   std::uint64_t end, std::uint32_t correlation) {
    auto& r = add<CopyRecord>(CUPTI_ACTIVITY_KIND_MEMCPY);
    r.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    r.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    r.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    r.bytes = bytes;
    r.start = us(begin);
    r.end = us(end);
    r.deviceId = kDevice;
    r.contextId = kContext;
    r.streamId = stream;
    r.correlationId = correlation;
    return r;
  }
  EventRecord& recorded(std::uint32_t event, std::uint64_t sync_id, std::uint32_t stream,
                        std::uint32_t correlation) {
    auto& r = add<EventRecord>(CUPTI_ACTIVITY_KIND_CUDA_EVENT);
    r.correlationId = correlation;
    r.contextId = kContext;
    r.deviceId = kDevice;
    r.streamId = stream;
    r.eventId = event;
    r.cudaEventSyncId = sync_id;
    return r;
  }
  SyncRecord& sync(CUpti_ActivitySynchronizationType type, std::uint64_t begin, std::uint64_t end,
                   std::uint32_t correlation, std::uint32_t stream, std::uint32_t event,
                   std::uint64_t sync_id) {
    auto& r = add<SyncRecord>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    r.type = type;
    r.start = us(begin);
    r.end = us(end);
    r.correlationId = correlation;
    r.contextId = kContext;
    r.streamId = stream;
    r.cudaEventId = event;
    r.cudaEventSyncId = sync_id;
    return r;
  }
  ExternalRecord& external(CUpti_ExternalCorrelationKind kind, std::uint64_t id,
                           std::uint32_t correlation) {
    auto& r = add<ExternalRecord>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    r.externalKind = kind;
    r.externalId = id;
    r.correlationId = correlation;
    return r;
  }
  void range(const char* name, std::uint64_t begin, std::uint64_t end,
             const char* domain = nullptr) {
    const std::uint32_t id = ++markers_;
    marker(CUPTI_ACTIVITY_FLAG_MARKER_START, id, begin, name, domain);
    marker(CUPTI_ACTIVITY_FLAG_MARKER_END, id, end, nullptr, domain);
  }
  MarkerRecord& marker(CUpti_ActivityFlag flags, std::uint32_t id, std::uint64_t at,
                       const char* name, const char* domain) {
    auto& r = add<MarkerRecord>(CUPTI_ACTIVITY_KIND_MARKER);
    r.flags = flags;
    r.timestamp = us(at);
    r.id = id;
    r.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
    r.objectId.pt.processId = kProcess;
    r.objectId.pt.threadId = kThread;
    r.name = name;
    r.domain = domain;
    return r;
  }
  OverheadRecord& overhead(CUpti_ActivityOverheadKind kind, std::uint64_t begin, std::uint64_t end,
                           std::uint32_t correlation) {
    auto& r = add<OverheadRecord>(CUPTI_ACTIVITY_KIND_OVERHEAD);
    r.overheadKind = kind;
    r.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
    r.objectId.pt.processId = kProcess;
    r.objectId.pt.threadId = kThread;
    r.start = us(begin);
    r.end = us(end);
    r.correlationId = correlation;
    return r;
  }
  /// A launch call of 5 us at `called`, and its kernel.
  void launch(const char* name, std::uint32_t stream, std::uint64_t called, std::uint64_t begin,
              std::uint64_t end, std::uint32_t correlation) {
    api(kLaunch, called, called + 5, correlation);
    kernel(name, stream, begin, end, correlation);
  }
  template <class R>
  R& add(CUpti_ActivityKind kind) {
    memory_.emplace_back(std::make_unique<std::uint64_t[]>(sizeof(R) / 8 + 1));
    std::memset(memory_.back().get(), 0, sizeof(R));
    R* r = reinterpret_cast<R*>(memory_.back().get());
    r->kind = kind;
    all_.push_back(reinterpret_cast<const Record*>(r));
    return *r;
  }
  [[nodiscard]] const std::vector<const Record*>& all() const { return all_; }
  /// Through the real parser, in the order made or backwards.
  [[nodiscard]] traces::Recording parse(const CaptureFacts& facts = {},
                                        const std::vector<NcclCall>& calls = {},
                                        bool backwards = false,
                                        const std::function<void(RecordParser&)>& more = {}) const {
    RecordParser parser("rank", &api_name);
    for (std::size_t i = 0; i < all_.size(); ++i) {
      parser.add(*all_[backwards ? all_.size() - 1 - i : i]);
    }
    for (const NcclCall& c : calls) {
      parser.add(c);
    }
    if (more) {
      more(parser);
    }
    return std::move(parser).finish(facts);
  }

  static std::uint64_t us(std::uint64_t t) { return t == 0 ? 0 : kStart + t * 1000; }
  static constexpr std::uint64_t kStart = 5'000'000'000;  ///< clock at time 0

 private:
  std::deque<std::unique_ptr<std::uint64_t[]>> memory_;
  std::vector<const Record*> all_;
  std::uint32_t markers_ = 0;
};

}  // namespace stepcast::profiler::cupti::made
