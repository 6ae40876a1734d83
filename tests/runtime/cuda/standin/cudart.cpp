#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/profiler/fakes/fake_gpu.h"
#include "tests/runtime/cuda/standin/device.h"
#include "tests/runtime/cuda/standin/device_memory.h"

namespace stepcast::standin {
namespace {

struct Node {
  std::function<void()> work;
  std::uint64_t id = 0;  ///< as the profiler knows it; 0: it sees none
};
using Graph = std::vector<Node>;
std::optional<Graph> captured;  // one thread
bool hung = false;
bool copied_in = false;  ///< what was enqueued last came from the host
[[noreturn]] void wait_for_ever() {
  while (true) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}
struct Copy {
  void* to;
  std::vector<std::byte> bytes;
};
std::vector<Copy> under_way;          ///< from pageable memory, on the default stream
constexpr std::uint32_t kStream = 7;  // all records bear it

/// Listener to all work: the fake CUPTI of tests/profiler/fakes, where it is loaded into this
/// process.
const FakeGpu* profiler() {
  void* cupti = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_NOLOAD);
  void* entry = cupti == nullptr ? nullptr : dlsym(cupti, "fake_gpu");
  return entry == nullptr ? nullptr : reinterpret_cast<FakeGpuEntry*>(entry)();
}

}  // namespace

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

void enqueue_unseen(std::function<void()> work) {
  static std::int64_t enqueued = 0;
  hung = hung || ++enqueued == setting("STANDIN_HANGS_AT_LAUNCH", -1);
  if (hung) {  // a queue holds so many
    static std::int64_t held = 0;
    if (++held > setting("STANDIN_QUEUE", 1 << 30)) {
      wait_for_ever();
    }
    return;
  }
  if (captured) {
    captured->push_back({std::move(work)});
  } else {
    const OnDevice device;
    work();
  }
}

void enqueue(std::function<void()> work) {
  copied_in = false;
  if (const FakeGpu* gpu = profiler(); gpu != nullptr && !hung) {
    if (captured) {
      captured->push_back({std::move(work), gpu->node_created()});
      return;
    }
    gpu->launch("kernel", kStream, 1);
  }
  enqueue_unseen(std::move(work));
}

void arrive(cudaStream_t stream) {
  if (stream != nullptr) {
    return;
  }
  const OnDevice device;
  for (const Copy& c : under_way) {
    std::memcpy(c.to, c.bytes.data(), c.bytes.size());
  }
  under_way.clear();
}

bool collective_hangs() {
  static std::int64_t seen = 0;
  hung = hung || ++seen == setting("STANDIN_HANGS_AT", -1);
  if (const FakeGpu* gpu = profiler(); gpu != nullptr && !hung && !captured) {
    // Launches as NCCL does for communicators that do not block: from a thread of its own.
    std::thread([gpu] { gpu->launch("ncclDevKernel_standin", kStream, 1); }).join();
  }
  return hung;
}

}  // namespace stepcast::standin

using stepcast::standin::arrive;
using stepcast::standin::captured;
using stepcast::standin::copied_in;
using stepcast::standin::enqueue;
using stepcast::standin::enqueue_unseen;
using stepcast::standin::Graph;
using stepcast::standin::hung;
using stepcast::standin::kStream;
using stepcast::standin::OnDevice;
using stepcast::standin::profiler;
using stepcast::standin::setting;
using stepcast::standin::under_way;
using stepcast::standin::wait_for_ever;

namespace {

struct StandinEvent {
  std::int64_t ns = 0;
  bool pending = false;         ///< recorded behind a collective that hangs
  bool by_copy_engine = false;  ///< recorded behind a copy from the host
};

StandinEvent* of(cudaEvent_t e) { return reinterpret_cast<StandinEvent*>(e); }

std::int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::int64_t capacity() { return setting("STANDIN_MEMORY", std::int64_t{8} << 30); }

std::int64_t unused() {
  return capacity() - static_cast<std::int64_t>(stepcast::standin::device_bytes_in_use());
}

/// Whether a copy's two ends are where its kind says.
bool ends_fit(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = stepcast::standin::on_device(to, bytes);
  const bool from_device = stepcast::standin::on_device(from, bytes);
  return bytes == 0 || kind == cudaMemcpyDefault ||
         (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
          from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
}

cudaError_t sticky = cudaSuccess;  ///< what cudaGetLastError will say
cudaError_t rejected(cudaError_t code) { return sticky = code; }

/// The driver, as the first call of the real library loads it, where it is told of a profiler: the
/// fake one of tests/profiler/fakes.
void load_driver() {
  static const bool once = [] {
    void* driver = std::getenv("CUDA_INJECTION64_PATH") == nullptr
                       ? nullptr
                       : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void* start = driver == nullptr ? nullptr : dlsym(driver, "cuInit");
    return start != nullptr && reinterpret_cast<int (*)(unsigned)>(start)(0) == 0;
  }();
  (void)once;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* n) {
  load_driver();
  if (setting("STANDIN_DRIVER", 13000) < 13000) {
    return cudaErrorInsufficientDriver;
  }
  *n = static_cast<int>(setting("STANDIN_DEVICES", 1));
  return *n == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  const auto capability = static_cast<int>(setting("STANDIN_CAPABILITY", 90));
  if (what == cudaDevAttrMultiProcessorCount) {
    *value = 1;
    return cudaSuccess;
  }
  *value = what == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "stand-in");
  p->totalGlobalMem = static_cast<std::size_t>(capacity());
  p->l2CacheSize = 1 << 13;
  p->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = static_cast<int>(setting("STANDIN_DRIVER", 13000));
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(sticky, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t) { return "standin"; }
const char* cudaGetErrorString(cudaError_t) { return "standin"; }
cudaError_t cudaDeviceSynchronize() {
  arrive(nullptr);
  return captured ? rejected(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = static_cast<std::size_t>(capacity());
  *free = static_cast<std::size_t>(unused());
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  if (captured) {
    return rejected(cudaErrorStreamCaptureUnsupported);
  }
  if (static_cast<std::int64_t>(bytes) > unused()) {
    return rejected(cudaErrorMemoryAllocation);
  }
  *p = stepcast::standin::take_device_memory(bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) {
  if (captured) {
    return rejected(cudaErrorStreamCaptureUnsupported);
  }
  *p = stepcast::standin::take_pinned_memory(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
  arrive(nullptr);  // waits for the device
  return stepcast::standin::give_back(p) ? cudaSuccess : rejected(cudaErrorInvalidValue);
}
cudaError_t cudaFree(void* p) { return cudaFreeHost(p); }
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (captured || !ends_fit(to, from, bytes, kind)) {
    return rejected(cudaErrorInvalidValue);
  }
  arrive(nullptr);
  const OnDevice device;
  if (stepcast::standin::on_device(to, bytes) && !stepcast::standin::on_device(from, bytes) &&
      !stepcast::standin::pinned(from, bytes)) {
    const auto* first = static_cast<const std::byte*>(from);
    under_way.push_back({to, {first, first + bytes}});
  } else {
    std::memcpy(to, from, bytes);
  }
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  if (captured || (bytes > 0 && !stepcast::standin::on_device(to, bytes))) {
    return rejected(cudaErrorInvalidValue);
  }
  arrive(nullptr);
  const OnDevice device;
  std::memset(to, value, bytes);
  return cudaSuccess;
}
/// Stricter than the library: the host's end is page-locked, or the host would wait and a captured
/// copy read what is gone by then.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const void* host = kind == cudaMemcpyHostToDevice   ? from
                     : kind == cudaMemcpyDeviceToHost ? to
                                                      : nullptr;
  if (!ends_fit(to, from, bytes, kind) ||
      (bytes > 0 && host != nullptr && !stepcast::standin::pinned(host, bytes))) {
    return rejected(cudaErrorInvalidValue);
  }
  arrive(stream);
  if (bytes > 0) {  // nothing may be nowhere
    enqueue([=] { std::memmove(to, from, bytes); });
    copied_in = kind == cudaMemcpyHostToDevice;
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes > 0 && !stepcast::standin::on_device(to, bytes)) {
    return rejected(cudaErrorInvalidValue);
  }
  arrive(stream);
  if (bytes > 0) {
    enqueue([=] { std::memset(to, value, bytes); });
  }
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  *s = reinterpret_cast<cudaStream_t>(new int);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  delete reinterpret_cast<int*>(s);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  arrive(stream);
  return captured ? rejected(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return captured ? rejected(cudaErrorStreamCaptureUnsupported)
         : hung   ? cudaErrorNotReady
                  : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  *e = reinterpret_cast<cudaEvent_t>(new StandinEvent);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete of(e);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t, unsigned) {
  of(e)->pending = hung;
  of(e)->by_copy_engine = copied_in;
  enqueue_unseen([e] { of(e)->ns = now(); });
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  return cudaEventRecordWithFlags(e, s, 0);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  return of(e)->pending ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (of(e)->pending) {
    wait_for_ever();
  }
  return cudaSuccess;
}
/// Adds STANDIN_ENGINE_CHANGE_NS where work of another engine lies between them.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  const bool changed = of(a)->by_copy_engine && !of(b)->by_copy_engine;
  const std::int64_t change = changed ? setting("STANDIN_ENGINE_CHANGE_NS", 0) : 0;
  *ms = static_cast<float>(of(b)->ns - of(a)->ns + change) * 1e-6F;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  captured.emplace();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(new Graph(std::move(*captured)));
  captured.reset();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  auto* executable = new Graph(*reinterpret_cast<Graph*>(graph));
  for (auto& node : *executable) {
    node.id = node.id == 0 || profiler() == nullptr ? 0 : profiler()->node_cloned(node.id);
  }
  *exec = reinterpret_cast<cudaGraphExec_t>(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete reinterpret_cast<Graph*>(exec);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  const OnDevice device;
  std::vector<std::uint64_t> seen;
  for (const auto& node : *reinterpret_cast<Graph*>(exec)) {
    node.work();
    if (node.id != 0) {
      seen.push_back(node.id);
    }
  }
  if (profiler() != nullptr) {
    profiler()->launch_graph(seen.data(), static_cast<std::uint32_t>(seen.size()), kStream, 1);
  }
  return cudaSuccess;
}

}  // extern "C"
