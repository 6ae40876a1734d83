// libnccl.so.2 of a machine without a GPU, for tests: communicators that know their size, and calls
// that launch a kernel of NCCL's names when they, or their group, end.
#include <dlfcn.h>
#include <nccl.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "fake_gpu.h"

struct ncclComm {
  int members, rank;
};

namespace {

int depth = 0;
std::vector<std::string> waiting;
std::pair<ncclComm_t*, ncclComm_t> made_later{};

const FakeGpu* gpu() {
  static const FakeGpu* found = [] {
    void* cupti = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_NOLOAD);
    void* entry = cupti == nullptr ? nullptr : dlsym(cupti, "fake_gpu");
    return entry == nullptr ? nullptr : reinterpret_cast<FakeGpuEntry*>(entry)();
  }();
  return found;
}

/// Tells what NCCL tells its profiler plugin of an all-reduce, if it was given one (interface v5).
void tell_plugin(const char* kernel) {
  struct Event {
    std::uint64_t type;
    void* parent;
    int rank;
    std::uint64_t sequence;
    const char* function;
    const void* send;
    void* receive;
    size_t count;
    int root;
    const char* datatype;
    std::uint8_t channels, warps;
    const char *algorithm, *protocol;
    void* group;
  };
  struct Plugin {
    const char* name;
    ncclResult_t (*init)(void**, std::uint64_t, int*, const char*, int, int, int, void*);
    ncclResult_t (*start)(void*, void**, Event*);
  };
  static const Plugin* plugin = [] {
    const char* path = std::getenv("NCCL_PROFILER_PLUGIN");
    void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr
                              : static_cast<const Plugin*>(dlsym(library, "ncclProfiler_v5"));
  }();
  if (plugin == nullptr || std::string(kernel).find("AllReduce") == std::string::npos) {
    return;
  }
  void* context = nullptr;
  void* handle = nullptr;
  int mask = 0;
  plugin->init(&context, 1, &mask, "world", 1, 1, 0, nullptr);
  Event event{};
  event.type = 1 << 1;
  event.function = "AllReduce";
  event.channels = 4;
  event.algorithm = "RING";
  event.protocol = "LL128";
  if ((mask & (1 << 1)) != 0) {
    plugin->start(context, &handle, &event);
  }
}

ncclResult_t launch(const char* kernel) {
  if (depth == 0) {
    tell_plugin(kernel);
  }
  if (depth > 0) {
    waiting.emplace_back(kernel);
  } else if (gpu() != nullptr) {
    gpu()->launch(kernel, 20, 300);
  }
  return ncclSuccess;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE ncclResult_t ncclCommInitRank(ncclComm_t* comm, int members, ncclUniqueId, int rank) {
  *comm = new ncclComm{members, rank};
  return ncclSuccess;
}
/// Splits: where the new one does not block, it is there once the old one was asked.
FAKE ncclResult_t ncclCommSplit(ncclComm_t comm, int, int, ncclComm_t* made, ncclConfig_t* config) {
  *made = nullptr;
  made_later = {made, new ncclComm{comm->members, comm->rank}};
  if (config != nullptr && config->blocking == 0) {
    return ncclInProgress;
  }
  *made = made_later.second;
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  if (made_later.first != nullptr) {
    *std::exchange(made_later.first, nullptr) = made_later.second;
  }
  *state = ncclSuccess;
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommShrink(ncclComm_t comm, int*, int excluded, ncclComm_t* made,
                                 ncclConfig_t*, int) {
  *made = new ncclComm{comm->members - excluded, comm->rank};
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->members;
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
FAKE ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                cudaStream_t) {
  return launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL");
}
FAKE ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                                cudaStream_t) {
  return launch("ncclDevKernel_AllGather_RING_LL");
}
FAKE ncclResult_t ncclGather(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                             cudaStream_t) {
  return launch("ncclDevKernel_Gather_RING_LL");
}
FAKE ncclResult_t ncclScatter(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                              cudaStream_t) {
  return launch("ncclDevKernel_Scatter_RING_LL");
}
FAKE ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return launch("ncclDevKernel_SendRecv");
}
FAKE ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return launch("ncclDevKernel_SendRecv");
}
FAKE ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
/// Sends and receives of a group share one kernel.
FAKE ncclResult_t ncclGroupEnd() {
  if (--depth == 0) {
    std::string last;
    for (const std::string& kernel : waiting) {
      if (kernel != last || kernel != "ncclDevKernel_SendRecv") {
        launch(kernel.c_str());
      }
      last = kernel;
    }
    waiting.clear();
  }
  return ncclSuccess;
}
