// NCCL's profiler plugin, of interfaces v4 and v5: how NCCL runs each collective (algorithm,
// protocol, channels), which no kernel's name tells for certain. NCCL loads it where
// NCCL_PROFILER_PLUGIN names libstepcast_preload.so (`stepcast profile --nccl-details`). It only
// adds to what the wrapper records, and joins it by the thread: NCCL enqueues collectives on the
// thread that launches them, within the wrapper's call.
//
// The structs below are the interface as NCCL defines it, as far as it is used, in words of our
// own; NCCL installs no header for it.
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "profiler/nccl/nccl_call.h"
#include "profiler/nccl/preload.h"

namespace stepcast::profiler {
namespace {

constexpr int kCollectives = 1 << 1;  ///< bit of the event mask, and the type of such an event

/// Facts that NCCL tells of a collective when it is enqueued.
struct CollectiveEvent {
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* type;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
/// v4 writes one byte of type, v5 eight; the rest lies alike.
struct Event {
  union {
    std::uint8_t type_v4;
    std::uint64_t type_v5;
  };
  void* parent;
  int rank;
  union {
    CollectiveEvent collective;
    std::uint64_t others[16];
  };
};
static_assert(offsetof(Event, parent) == 8 && offsetof(Event, rank) == 16 &&
              offsetof(Event, collective) == 24);

template <std::size_t N>
void copy(char (&to)[N], const char* from) {
  std::strncpy(to, from == nullptr ? "" : from, N - 1);
  to[N - 1] = '\0';
}

void keep(const CollectiveEvent& event) {
  const NcclSink* sink = current_sink();
  const std::uint64_t launch = current_launch();
  if (sink == nullptr || launch == 0 || sink->detailed == nullptr) {
    return;
  }
  NcclDetail detail;
  detail.launch = launch;
  detail.channels = event.channels;
  detail.warps = event.warps;
  copy(detail.function, event.function);
  copy(detail.algorithm, event.algorithm);
  copy(detail.protocol, event.protocol);
  sink->detailed(&detail);
}

ncclResult_t init_v4(void** context, int* mask, const char*, std::uint64_t, int, int, int, void*) {
  *context = nullptr;
  *mask = kCollectives;
  return ncclSuccess;
}
ncclResult_t init_v5(void** context, std::uint64_t, int* mask, const char*, int, int, int, void*) {
  *context = nullptr;
  *mask = kCollectives;
  return ncclSuccess;
}
ncclResult_t start_v4(void*, void** handle, Event* event) {
  *handle = nullptr;
  if (event->type_v4 == kCollectives) {
    keep(event->collective);
  }
  return ncclSuccess;
}
ncclResult_t start_v5(void*, void** handle, Event* event) {
  *handle = nullptr;
  if (event->type_v5 == kCollectives) {
    keep(event->collective);
  }
  return ncclSuccess;
}
ncclResult_t stop(void*) { return ncclSuccess; }
ncclResult_t state(void*, int, void*) { return ncclSuccess; }
ncclResult_t finalize(void*) { return ncclSuccess; }

struct PluginV4 {
  const char* name;
  ncclResult_t (*init)(void**, int*, const char*, std::uint64_t, int, int, int, void*);
  ncclResult_t (*start)(void*, void**, Event*);
  ncclResult_t (*stop)(void*);
  ncclResult_t (*state)(void*, int, void*);
  ncclResult_t (*finalize)(void*);
};
struct PluginV5 {
  const char* name;
  ncclResult_t (*init)(void**, std::uint64_t, int*, const char*, int, int, int, void*);
  ncclResult_t (*start)(void*, void**, Event*);
  ncclResult_t (*stop)(void*);
  ncclResult_t (*state)(void*, int, void*);
  ncclResult_t (*finalize)(void*);
};

}  // namespace
}  // namespace stepcast::profiler

using namespace stepcast::profiler;

extern "C" {
__attribute__((visibility("default"))) extern const PluginV4 ncclProfiler_v4;
__attribute__((visibility("default"))) extern const PluginV5 ncclProfiler_v5;
const PluginV4 ncclProfiler_v4{"stepcast", init_v4, start_v4, stop, state, finalize};
const PluginV5 ncclProfiler_v5{"stepcast", init_v5, start_v5, stop, state, finalize};
}
