#include "profiler/cupti/collector.h"

#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <ctime>

namespace stepcast::profiler::cupti {
namespace {

/// Set by open(); see the class.
std::atomic<Collector*> current{nullptr};

std::int64_t read_clock(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::uint64_t CUPTIAPI timestamp() {
  return static_cast<std::uint64_t>(read_clock(CLOCK_MONOTONIC));
}

void CUPTIAPI buffer_requested(std::uint8_t** buffer, std::size_t* size,
                               std::size_t* most_records) {
  *buffer = nullptr;
  *size = 0;
  *most_records = 0;
  if (Collector* collector = current.load()) {
    collector->give_buffer(buffer, size, most_records);
  }
}

void CUPTIAPI buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                               std::size_t /*size*/, std::size_t valid) {
  if (Collector* collector = current.load()) {
    collector->take_buffer(context, stream, buffer, valid);
  }
}

std::string words(CUptiResult result) {
  const char* text = nullptr;
  if (cuptiGetErrorMessage(result, &text) != CUPTI_SUCCESS || text == nullptr) {
    cuptiGetResultString(result, &text);
  }
  return fmt::format("{} (CUPTI error {}) by libcupti {}", text == nullptr ? "unknown" : text,
                     static_cast<int>(result), Collector::version());
}

/// Two clocks read at one moment: of several readings, that in which ours moves least counts.
template <class Other>
ClockPair read_together(const Other& other) {
  ClockPair best;
  std::int64_t closest = INT64_MAX;
  for (int i = 0; i < 9; ++i) {
    const std::int64_t before = read_clock(CLOCK_MONOTONIC);
    const std::int64_t seen = other();
    const std::int64_t after = read_clock(CLOCK_MONOTONIC);
    if (after - before < closest) {
      closest = after - before;
      best = {before + closest / 2, seen};
    }
  }
  return best;
}

/// Ours less CUPTI's own.
std::int64_t ahead_of_cupti() {
  const ClockPair both = read_together([] {
    std::uint64_t stamp = 0;
    cuptiGetTimestamp(&stamp);
    return static_cast<std::int64_t>(stamp);
  });
  return both.capture - both.realtime;
}

/// Calls that tell nothing of a step and would be most of the records.
constexpr std::array<CUpti_CallbackId, 14> kQuietRuntime{
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020,  // spun on by those who wait
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDeviceCount_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreate_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreateWithFlags_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventDestroy_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetAttribute_v5000,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncGetAttributes_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPointerGetAttributes_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000};
constexpr std::array<CUpti_CallbackId, 22> kQuietDriver{
    CUPTI_DRIVER_TRACE_CBID_cuEventQuery,
    CUPTI_DRIVER_TRACE_CBID_cuStreamQuery,
    CUPTI_DRIVER_TRACE_CBID_cuKernelGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuKernelGetFunction,
    CUPTI_DRIVER_TRACE_CBID_cuLibraryGetKernel,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxGetState,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice,
    CUPTI_DRIVER_TRACE_CBID_cuCtxPushCurrent_v2,
    CUPTI_DRIVER_TRACE_CBID_cuCtxPopCurrent_v2,
    CUPTI_DRIVER_TRACE_CBID_cuCtxSetCurrent,
    CUPTI_DRIVER_TRACE_CBID_cuDeviceGet,
    CUPTI_DRIVER_TRACE_CBID_cuDeviceGetCount,
    CUPTI_DRIVER_TRACE_CBID_cuDeviceGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuGetProcAddress,
    CUPTI_DRIVER_TRACE_CBID_cuGetProcAddress_v2,
    CUPTI_DRIVER_TRACE_CBID_cuEventCreate,
    CUPTI_DRIVER_TRACE_CBID_cuEventDestroy_v2,
    CUPTI_DRIVER_TRACE_CBID_cuFuncGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttributes,
    CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing};

constexpr std::array<CUpti_ActivityKind, 13> kKinds{
    CUPTI_ACTIVITY_KIND_DEVICE,     CUPTI_ACTIVITY_KIND_CONTEXT,
    CUPTI_ACTIVITY_KIND_STREAM,     CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,     CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_MEMCPY,     CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,     CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
    CUPTI_ACTIVITY_KIND_CUDA_EVENT, CUPTI_ACTIVITY_KIND_OVERHEAD,
    CUPTI_ACTIVITY_KIND_MARKER};

constexpr std::array<CUpti_CallbackId, 10> kRangeCallbacks{
    CUPTI_CBID_NVTX_nvtxRangePushA,         CUPTI_CBID_NVTX_nvtxRangePushEx,
    CUPTI_CBID_NVTX_nvtxRangePop,           CUPTI_CBID_NVTX_nvtxRangeStartA,
    CUPTI_CBID_NVTX_nvtxRangeStartEx,       CUPTI_CBID_NVTX_nvtxRangeEnd,
    CUPTI_CBID_NVTX_nvtxDomainRangePushEx,  CUPTI_CBID_NVTX_nvtxDomainRangePop,
    CUPTI_CBID_NVTX_nvtxDomainRangeStartEx, CUPTI_CBID_NVTX_nvtxDomainRangeEnd};

}  // namespace

bool Collector::note(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) {
    return true;
  }
  const std::string problem = fmt::format("{}: {}", call, words(result));
  const std::lock_guard lock(problems_mutex_);
  constexpr std::size_t kLongest = 2000;
  if (problems_.size() < kLongest && problems_.find(problem) == std::string::npos) {
    problems_ += (problems_.empty() ? "" : "; ") + problem;
  }
  return false;
}

/// A subscriber of the second kind learns who is there before it. Newer libraries give it calls of
/// its own and refuse it those of the first kind, which are used here: a kind switched on and off
/// says so.
Collector::Rejection Collector::subscribe(bool named, CUpti_CallbackFunc callback,
                                          void* user_data) {
  std::array<char, 2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder{};
  CUpti_SubscriberParams params{};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "stepcast";
  params.oldSubscriberName = holder.data();
  params.oldSubscriberSize = holder.size() - 1;
  const CUptiResult subscribed = named
                                     ? cuptiSubscribe_v2(&subscriber_, callback, user_data, &params)
                                     : cuptiSubscribe(&subscriber_, callback, user_data);
  if (subscribed == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    return {true,
            fmt::format("{} holds CUPTI (libcupti {})",
                        holder[0] == '\0' ? "another tool, which it does not name," : holder.data(),
                        version())};
  }
  if (subscribed != CUPTI_SUCCESS) {
    return {false, fmt::format("{}: {}", named ? "cuptiSubscribe_v2" : "cuptiSubscribe",
                               words(subscribed))};
  }
  current.store(this);
  shift_ = note(cuptiActivityRegisterTimestampCallback(&timestamp),
                "cuptiActivityRegisterTimestampCallback")
               ? 0
               : ahead_of_cupti();
  constexpr CUpti_ActivityKind kHostOnly = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  const char* call = "cuptiActivityRegisterCallbacks";
  CUptiResult result = cuptiActivityRegisterCallbacks(&buffer_requested, &buffer_completed);
  if (result == CUPTI_SUCCESS) {
    call = "cuptiActivityEnable";
    result = cuptiActivityEnable(kHostOnly);
  }
  if (result != CUPTI_SUCCESS) {
    close();
    return {false, fmt::format("{}: {}", call, words(result))};
  }
  note(cuptiActivityDisable(kHostOnly), "cuptiActivityDisable");
  return {};
}

Collector::Rejection Collector::open(CUpti_CallbackFunc callback, void* user_data) {
  Rejection rejection = subscribe(true, callback, user_data);
  if (!rejection.busy && !rejection.reason.empty()) {
    problems_.clear();
    rejection = subscribe(false, callback, user_data);
  }
  if (!rejection.reason.empty()) {
    return rejection;
  }
  note(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), "cuptiSetThreadIdType");
  note(cuptiActivityEnableAllSyncRecords(0), "cuptiActivityEnableAllSyncRecords");
  // Only full buffers come by themselves; a period keeps them from waiting for CUPTI's own rules.
  constexpr std::uint32_t kFlushMilliseconds = 250;
  note(cuptiActivityFlushPeriod(kFlushMilliseconds), "cuptiActivityFlushPeriod");
  note(cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RUNTIME_API,
                           CUPTI_RUNTIME_TRACE_CBID_cudaDeviceReset_v3020),
       "cuptiEnableCallback(cudaDeviceReset)");
  note(cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE,
                           CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING),
       "cuptiEnableCallback(context destroyed)");
  return {};
}

void Collector::close() {
  if (subscriber_ != nullptr) {
    note(cuptiUnsubscribe(subscriber_), "cuptiUnsubscribe");
    subscriber_ = nullptr;
  }
  constexpr std::int64_t kMoved = 1'000'000;  // ns
  if (shift_ != 0 && std::abs(ahead_of_cupti() - shift_) > kMoved) {
    const std::lock_guard lock(problems_mutex_);
    problems_ += problems_.empty() ? "" : "; ";
    problems_ += "the time of day was set while it recorded: times before and after do not fit";
  }
}

/// Buffers that CUPTI still holds come back later.
Collector::~Collector() {
  Collector* self = this;
  current.compare_exchange_strong(self, nullptr);
}

std::string Collector::enable() {
  const CUptiResult needed = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (needed != CUPTI_SUCCESS) {
    return "cuptiActivityEnable(kernels): " + words(needed);
  }
  if (whole_graphs_) {
    note(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), "cuptiActivityEnable(graphs)");
  }
  for (const CUpti_ActivityKind kind : kKinds) {
    note(cuptiActivityEnable(kind),
         fmt::format("cuptiActivityEnable({})", static_cast<int>(kind)).c_str());
  }
  for (const CUpti_CallbackId api : kQuietRuntime) {
    note(cuptiActivityEnableRuntimeApi(api, 0), "cuptiActivityEnableRuntimeApi");
  }
  for (const CUpti_CallbackId api : kQuietDriver) {
    note(cuptiActivityEnableDriverApi(api, 0), "cuptiActivityEnableDriverApi");
  }
  return {};
}

void Collector::disable() {
  note(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL),
       "cuptiActivityDisable(kernels)");
  if (whole_graphs_) {
    note(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), "cuptiActivityDisable(graphs)");
  }
  for (const CUpti_ActivityKind kind : kKinds) {
    note(cuptiActivityDisable(kind),
         fmt::format("cuptiActivityDisable({})", static_cast<int>(kind)).c_str());
  }
}

void Collector::flush(bool forced) {
  note(cuptiActivityFlushAll(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0),
       "cuptiActivityFlushAll");
}

void Collector::watch_ranges(bool on) {
  for (const CUpti_CallbackId callback : kRangeCallbacks) {
    note(cuptiEnableCallback(on ? 1 : 0, subscriber_, CUPTI_CB_DOMAIN_NVTX, callback),
         "cuptiEnableCallback(NVTX)");
  }
}

void Collector::watch_graph_nodes() {
  for (const CUpti_CallbackId callback :
       {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED}) {
    note(cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, callback),
         "cuptiEnableCallback(graph nodes)");
  }
}

std::uint64_t Collector::node_id(CUgraphNode node) {
  std::uint64_t id = 0;
  return node != nullptr && cuptiGetGraphNodeId(node, &id) == CUPTI_SUCCESS ? id : 0;
}

bool Collector::mark() {
  using GetVersion = CUresult(int*);
  static auto* const get_version = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return reinterpret_cast<GetVersion*>(driver == nullptr ? nullptr
                                                           : dlsym(driver, "cuDriverGetVersion"));
  }();
  int driver_version = 0;
  return get_version != nullptr && get_version(&driver_version) == CUDA_SUCCESS;
}

void Collector::read(RecordParser& parser, std::uint32_t milliseconds) {
  parser.shift_stamps(shift_);
  for (auto full = buffers_.next(milliseconds); full; full = buffers_.next(0)) {
    const std::int64_t begin = now();
    CUpti_Activity* record = nullptr;
    CUptiResult result = CUPTI_SUCCESS;
    while ((result = cuptiActivityGetNextRecord(full->buffer, full->valid, &record)) ==
           CUPTI_SUCCESS) {
      parser.add(*record);
      ++records_;
    }
    // The end of the buffer, or a record that is incomplete: what follows it cannot be read.
    if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) {
      note(result, "cuptiActivityGetNextRecord");
      dropped_.fetch_add(1);
    }
    buffers_.recycle(full->buffer);
    reading_s_ += static_cast<double>(now() - begin) * 1e-9;
  }
}

void Collector::give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = buffers_.take();
  *size = *buffer == nullptr ? 0 : RecordBuffers::kBytes;
  *most_records = 0;  // as many as fit
}

void Collector::take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                            std::size_t valid) {
  std::size_t dropped = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) {
    dropped_.fetch_add(dropped);
  }
  buffers_.filled(buffer, valid);
}

std::string Collector::api_name(bool runtime, std::uint32_t callback) {
  const char* name = nullptr;
  const CUptiResult result = cuptiGetCallbackName(
      runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API, callback, &name);
  return result == CUPTI_SUCCESS && name != nullptr
             ? std::string(name)
             : fmt::format("{} call {}", runtime ? "cuda" : "cu", callback);
}

std::int64_t Collector::now() { return read_clock(CLOCK_MONOTONIC); }

ClockPair Collector::clocks() {
  return read_together([] { return read_clock(CLOCK_REALTIME); });
}

std::string Collector::problems() const {
  const std::lock_guard lock(problems_mutex_);
  return problems_;
}

std::string Collector::version() {
  std::uint32_t version = 0;
  return cuptiGetVersion(&version) == CUPTI_SUCCESS ? std::to_string(version) : "unknown";
}

}  // namespace stepcast::profiler::cupti
