// libcupti.so.13 of a machine without a GPU, for tests: the functions the profiler calls, with the
// behaviour their header documents, over a device that is a queue per stream and the clock. It
// checks the profiler's manners on the way and aborts where they are bad.
#include <cupti.h>
#include <cupti_driver_cbid.h>
// After it: the parameters of NVTX calls.
#include <generated_nvtx_meta.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fake_gpu.h"

namespace {

struct PendingKernel {
  CUpti_ActivityKernel10 record;
};

struct Fake {
  std::recursive_mutex mutex;
  CUpti_CallbackFunc callback = nullptr;
  void* user = nullptr;
  CUpti_TimestampCallbackFunc timestamp = nullptr;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::set<int> kinds, callbacks;
  bool second_kind = false;   ///< the subscriber is one of cuptiSubscribe_v2
  bool late_kernels = false;  ///< their kind is off: those launched before are still recorded
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, used = 0, dropped = 0;
  std::uint32_t correlation = 0, markers = 0;
  std::uint64_t sync_ids = 0, nodes = 0;
  std::map<std::uint32_t, std::uint64_t> stream_free;
  struct Event {
    std::uint64_t sync_id = 0;
  };
  std::map<std::uint32_t, Event> events;
  std::deque<PendingKernel> pending;
  std::set<std::string> names;
};

Fake& fake() {
  static auto* all = new Fake;
  return *all;
}
thread_local std::map<int, std::vector<std::uint64_t>> external;
thread_local std::vector<std::uint32_t> open_ranges;

[[noreturn]] void bad(const char* what) {
  std::fprintf(stderr, "fake CUPTI: %s\n", what);
  std::abort();
}

/// Without a callback the time of day, as of Linux's CUPTI: tests see that it is not kept for ours.
std::uint64_t now() {
  if (fake().timestamp != nullptr) {
    return fake().timestamp();
  }
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

/// A newer library, which FAKE_CUPTI_LIKE asks for: a subscriber of the second kind is refused the
/// calls of the first.
bool refuses_first_kind() {
  static const bool newer = std::getenv("FAKE_CUPTI_LIKE") != nullptr;
  return newer && fake().second_kind;
}

std::size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
      return sizeof(CUpti_ActivityCudaEvent2);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_MARKER:
      return sizeof(CUpti_ActivityMarker2);
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return sizeof(CUpti_ActivityDevice5);
    default:
      bad("a record of a kind it does not make");
  }
}

void give_back() {
  Fake& f = fake();
  if (f.buffer != nullptr) {
    std::uint8_t* const buffer = f.buffer;
    const std::size_t size = f.size, used = f.used;
    f.buffer = nullptr;
    f.complete(nullptr, 0, buffer, size, used);
  }
}

template <class R>
void write(R record, CUpti_ActivityKind kind) {
  Fake& f = fake();
  record.kind = kind;
  if (f.kinds.count(kind) == 0) {
    return;
  }
  if (f.buffer != nullptr && f.size - f.used < sizeof record) {
    give_back();
  }
  if (f.buffer == nullptr) {
    std::size_t most = 99;
    f.request(&f.buffer, &f.size, &most);
    if (f.buffer == nullptr) {
      ++f.dropped;
      return;
    }
    if (reinterpret_cast<std::uintptr_t>(f.buffer) % 8 != 0 || most != 0) {
      bad("a buffer that is not aligned, or bounded by records");
    }
    f.used = 0;
  }
  std::memcpy(f.buffer + f.used, &record, sizeof record);
  f.used += sizeof record;
}

std::uint32_t thread_id() { return static_cast<std::uint32_t>(syscall(SYS_gettid)); }

/// A runtime call that takes 2 us or, where it waits, until `until`.
std::uint32_t call(std::uint32_t callback, std::uint64_t until = 0) {
  Fake& f = fake();
  const std::uint32_t correlation = ++f.correlation;
  CUpti_ActivityAPI api{};
  api.cbid = callback;
  api.start = now();
  while (now() < until) {
    usleep(10);
  }
  while (now() < api.start + 2000) {
  }
  api.end = now();
  api.processId = static_cast<std::uint32_t>(getpid());
  api.threadId = thread_id();
  api.correlationId = correlation;
  for (const auto& [kind, ids] : external) {
    if (!ids.empty()) {
      CUpti_ActivityExternalCorrelation e{};
      e.externalKind = static_cast<CUpti_ExternalCorrelationKind>(kind);
      e.externalId = ids.back();
      e.correlationId = correlation;
      write(e, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    }
  }
  write(api, CUPTI_ACTIVITY_KIND_RUNTIME);
  return correlation;
}

/// Records of kernels that have ended by now, or of all.
void finish_kernels(bool all) {
  Fake& f = fake();
  while (!f.pending.empty() && (all || f.pending.front().record.end <= now())) {
    if (f.pending.front().record.end > now()) {
      f.pending.front().record.start = f.pending.front().record.end = 0;  // forced: not complete
    }
    write(f.pending.front().record, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    f.pending.pop_front();
  }
}

void launch(const char* kernel, std::uint32_t stream, std::uint64_t microseconds) {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  if (f.request != nullptr && std::getenv("FAKE_CUPTI_REFUSES") != nullptr) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, most = 0;
    f.request(&buffer, &size, &most);  // as the library may of who has left
    if (buffer != nullptr) {
      bad("a buffer of a subscriber that has left");
    }
  }
  const std::uint32_t correlation = call(211);
  CUpti_ActivityKernel10 k{};
  k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  k.name = f.names.insert(kernel).first->c_str();
  k.start = std::max(now() + 4000, f.stream_free[stream]);
  k.end = k.start + microseconds * 1000;
  f.stream_free[stream] = k.end;
  k.contextId = 1;
  k.streamId = stream;
  k.correlationId = correlation;
  k.gridX = k.gridY = k.gridZ = k.blockX = k.blockY = k.blockZ = 1;
  if (f.kinds.count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) > 0) {
    f.pending.push_back({k});
  }
}

void call_back_node(CUpti_CallbackId made, std::uint64_t node, std::uint64_t original) {
  Fake& f = fake();
  if (f.callback == nullptr || f.callbacks.count(1000 + static_cast<int>(made)) == 0) {
    return;
  }
  CUpti_GraphData graph{};
  graph.node = reinterpret_cast<CUgraphNode>(node);
  graph.originalNode = reinterpret_cast<CUgraphNode>(original);
  CUpti_ResourceData resource{};
  resource.resourceDescriptor = &graph;
  f.callback(f.user, CUPTI_CB_DOMAIN_RESOURCE, made, &resource);
}

std::uint64_t node_created() {
  const std::uint64_t node = ++fake().nodes;
  call_back_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, node, 0);
  return node;
}

std::uint64_t node_cloned(std::uint64_t original) {
  const std::uint64_t node = ++fake().nodes;
  call_back_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, node, original);
  return node;
}

void launch_graph(const std::uint64_t* nodes, std::uint32_t count, std::uint32_t stream,
                  std::uint64_t microseconds_each) {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  const std::uint32_t correlation = call(311);
  std::uint64_t at = std::max(now() + 4000, f.stream_free[stream]);
  for (std::uint32_t i = 0; i < count; ++i) {
    CUpti_ActivityKernel10 k{};
    k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    k.name = f.names.insert("node").first->c_str();
    k.start = at;
    k.end = at += microseconds_each * 1000;
    k.contextId = 1;
    k.streamId = stream;
    k.correlationId = correlation;
    k.graphId = 1;
    k.graphNodeId = nodes[i];
    k.gridX = k.gridY = k.gridZ = k.blockX = k.blockY = k.blockZ = 1;
    if (f.kinds.count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) > 0) {
      f.pending.push_back({k});
    }
  }
  f.stream_free[stream] = at;
}

void record_event(std::uint32_t event, std::uint32_t stream) {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  CUpti_ActivityCudaEvent2 e{};
  e.correlationId = call(135);
  e.contextId = 1;
  e.streamId = stream;
  e.eventId = event;
  e.cudaEventSyncId = f.events[event].sync_id = ++f.sync_ids;
  write(e, CUPTI_ACTIVITY_KIND_CUDA_EVENT);
}

void wait_event(std::uint32_t event, std::uint32_t stream) {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  CUpti_ActivitySynchronization2 s{};
  s.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  s.start = now();
  s.correlationId = call(147);
  s.end = now();
  s.contextId = 1;
  s.streamId = stream;
  s.cudaEventId = event;
  s.cudaEventSyncId = f.events[event].sync_id;
  write(s, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  for (const auto& [other, free] : f.stream_free) {
    f.stream_free[stream] = std::max(f.stream_free[stream], free);
  }
}

void synchronize() {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  std::uint64_t until = 0;
  for (const auto& [stream, free] : f.stream_free) {
    until = std::max(until, free);
  }
  CUpti_ActivitySynchronization2 s{};
  s.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE;
  s.start = now();
  s.correlationId = call(165, until);
  s.end = now();
  s.contextId = 1;
  s.streamId = s.cudaEventId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  s.cudaEventSyncId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  write(s, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  finish_kernels(false);
}

void marker(CUpti_ActivityFlag flag, std::uint32_t id, const char* name) {
  CUpti_ActivityMarker2 m{};
  m.flags = flag;
  m.timestamp = now();
  m.id = id;
  m.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  m.objectId.pt.processId = static_cast<std::uint32_t>(getpid());
  m.objectId.pt.threadId = thread_id();
  m.name = name;
  write(m, CUPTI_ACTIVITY_KIND_MARKER);
}

void call_back(CUpti_CallbackId id, const void* params) {
  Fake& f = fake();
  if (f.callback != nullptr && f.callbacks.count(static_cast<int>(id)) > 0) {
    const CUpti_NvtxData data{"", params, nullptr};
    f.callback(f.user, CUPTI_CB_DOMAIN_NVTX, id, &data);
  }
}

void push(const char* range) {
  Fake& f = fake();
  {
    const std::lock_guard lock(f.mutex);
    open_ranges.push_back(++f.markers);
    marker(CUPTI_ACTIVITY_FLAG_MARKER_START, open_ranges.back(),
           f.names.insert(range).first->c_str());
  }
  const nvtxRangePushA_params params{range};
  call_back(CUPTI_CBID_NVTX_nvtxRangePushA, &params);
}

void pop() {
  const nvtxRangePop_params params{};
  call_back(CUPTI_CBID_NVTX_nvtxRangePop, &params);
  const std::lock_guard lock(fake().mutex);
  marker(CUPTI_ACTIVITY_FLAG_MARKER_END, open_ranges.back(), nullptr);
  open_ranges.pop_back();
}

void driver_call() {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  CUpti_ActivityAPI api{};
  api.cbid = CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion;
  api.start = now();
  api.end = api.start + 100;
  api.processId = static_cast<std::uint32_t>(getpid());
  api.threadId = thread_id();
  api.correlationId = ++f.correlation;
  write(api, CUPTI_ACTIVITY_KIND_DRIVER);
}

void take_buffers() {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  give_back();
  f.request = [](std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
    *size = 1 << 20;
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, *size));
    *most = 0;
  };
  f.complete = [](CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) {
    std::free(buffer);
  };
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE const FakeGpu* fake_gpu() {
  static const FakeGpu gpu{launch,       record_event, wait_event,   synchronize, push,        pop,
                           node_created, node_cloned,  launch_graph, driver_call, take_buffers};
  return &gpu;
}

FAKE CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                                   void* user, CUpti_SubscriberParams* params) {
  if (params == nullptr || params->structSize != CUpti_SubscriberParams_STRUCT_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (const char* holder = std::getenv("FAKE_CUPTI_HOLDER")) {
    std::snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s", holder);
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  fake().callback = callback;
  fake().user = user;
  fake().second_kind = true;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&fake());
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                                void* user) {
  if (std::getenv("FAKE_CUPTI_HOLDER") != nullptr) {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  fake().callback = callback;
  fake().user = user;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&fake());
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiGetTimestamp(std::uint64_t* stamp) {
  *stamp = now();
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  fake().callback = nullptr;
  fake().second_kind = false;
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  if (fake().kinds.size() > (fake().late_kernels ? 1U : 0U)) {
    bad("a timestamp callback after kinds were enabled");
  }
  if (refuses_first_kind() || std::getenv("FAKE_CUPTI_OWN_CLOCK") != nullptr) {
    return CUPTI_ERROR_NOT_COMPATIBLE;
  }
  fake().timestamp = function;
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                CUpti_BuffersCallbackCompleteFunc complete) {
  fake().request = request;
  fake().complete = complete;
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (std::getenv("FAKE_CUPTI_REFUSES") != nullptr) {
    return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  }
  if (refuses_first_kind()) {
    return CUPTI_ERROR_NOT_COMPATIBLE;
  }
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  f.kinds.insert(kind);
  f.late_kernels = f.late_kernels && kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  if (kind == CUPTI_ACTIVITY_KIND_DEVICE) {
    CUpti_ActivityDevice5 device{};
    device.name = "Fake GPU";
    write(device, kind);
  }
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(fake().mutex);
  // Kernels launched before are still recorded when they end.
  if (kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    fake().kinds.erase(kind);
  } else {
    fake().late_kernels = true;
  }
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityFlushAll(std::uint32_t flag) {
  const std::lock_guard lock(fake().mutex);
  finish_kernels(flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  give_back();
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = fake().dropped;
  fake().dropped = 0;
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid,
                                            CUpti_Activity** record) {
  auto* at = reinterpret_cast<std::uint8_t*>(*record);
  if (at == nullptr) {
    at = buffer;
  } else {
    at += size_of((*record)->kind);
  }
  if (at >= buffer + valid) {
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  }
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                        std::uint64_t id) {
  external[kind].push_back(id);
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                       std::uint64_t*) {
  if (external[kind].empty()) {
    bad("more external ids popped than pushed");
  }
  external[kind].pop_back();
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle,
                                     CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  if (domain == CUPTI_CB_DOMAIN_NVTX && enable != 0) {
    fake().callbacks.insert(static_cast<int>(id));
  }
  if (domain == CUPTI_CB_DOMAIN_RESOURCE && enable != 0) {
    fake().callbacks.insert(1000 + static_cast<int>(id));
  }
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain, std::uint32_t id, const char** name) {
  *name = id == 211   ? "cudaLaunchKernel_v7000"
          : id == 135 ? "cudaEventRecord_v3020"
          : id == 147 ? "cudaStreamWaitEvent_v3020"
          : id == 165 ? "cudaDeviceSynchronize_v3020"
          : id == 311 ? "cudaGraphLaunch_v10000"
                      : "cudaOther";
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiGetErrorMessage(CUptiResult, const char** text) {
  *text = "a reason in CUPTI's words";
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "CUPTI_RESULT";
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiGetGraphNodeId(CUgraphNode node, std::uint64_t* id) {
  *id = reinterpret_cast<std::uint64_t>(node);
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType) { return CUPTI_SUCCESS; }
FAKE CUptiResult cuptiActivityEnableAllSyncRecords(std::uint8_t) { return CUPTI_SUCCESS; }
FAKE CUptiResult cuptiActivityFlushPeriod(std::uint32_t) { return CUPTI_SUCCESS; }
FAKE CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId, std::uint8_t) {
  if (fake().kinds.count(CUPTI_ACTIVITY_KIND_RUNTIME) == 0) {
    bad("an API switched off before its kind, which switches it on again");
  }
  return CUPTI_SUCCESS;
}
FAKE CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId, std::uint8_t) {
  if (fake().kinds.count(CUPTI_ACTIVITY_KIND_DRIVER) == 0) {
    bad("an API switched off before its kind, which switches it on again");
  }
  return CUPTI_SUCCESS;
}
