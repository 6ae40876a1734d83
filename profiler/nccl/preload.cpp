// libstepcast_preload.so: stands before NCCL in a program that is recorded (LD_PRELOAD). NCCL's
// functions are weak symbols made to be replaced so. Each passes its call on unchanged and, while a
// capture listens, tells it what was called. Programs that find NCCL's functions with dlsym() go
// past it.
//
// It is loaded into every process the command starts, so it needs nothing but the C++ library and
// does nothing until a capture listens.
#include <dlfcn.h>
#include <nccl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "profiler/nccl/communicators.h"
#include "profiler/nccl/nccl_call.h"
#include "profiler/nccl/preload.h"

#define STEPCAST_EXPORT extern "C" __attribute__((visibility("default")))

namespace stepcast::profiler {
namespace {

std::atomic<const NcclSink*> listener{nullptr};
std::atomic<std::uint64_t> launches{0};

Communicators& communicators() {
  static auto* all = new Communicators;  // never destroyed: NCCL may be called until the very end
  return *all;
}

/// Calls that this thread's open group has gathered.
struct Group {
  int depth = 0;
  std::uint64_t launch = 0;
  std::vector<NcclCall> calls;
  std::vector<const void*> exchanging;  ///< communicators with sends or receives in this group
};
thread_local Group group;
/// Not 0 while this thread is in a call of NCCL that may launch.
thread_local std::uint64_t launching = 0;

void begin_launch(const NcclSink& sink, std::uint64_t launch) {
  launching = launch;
  sink.launching(launch);
}

void end_launch(const NcclSink& sink) {
  sink.launched();
  launching = 0;
}

/// NCCL's own function: of the library after this one, or, where a program loaded NCCL for itself
/// alone (as Python does), of that.
template <class Function>
Function* real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    if (void* nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)) {
      found = dlsym(nccl, name);
    }
  }
  return reinterpret_cast<Function*>(found);
}

void tell(std::vector<NcclCall>& calls, const NcclSink& sink) {
  const std::int64_t end = sink.now();
  for (NcclCall& call : calls) {
    call.end = end;
    sink.called(&call);
  }
  calls.clear();
}

/// A communicator that was still being made when it was returned, or whose creation was not seen.
void complete(ncclComm_t comm) {
  if (communicators().find(comm).members > 0) {
    return;
  }
  static auto* const count = real<decltype(ncclCommCount)>("ncclCommCount");
  static auto* const user_rank = real<decltype(ncclCommUserRank)>("ncclCommUserRank");
  int members = 0, rank = 0;
  if (count != nullptr && user_rank != nullptr && count(comm, &members) == ncclSuccess &&
      user_rank(comm, &rank) == ncclSuccess) {
    communicators().complete(comm, members, rank);
  }
}

NcclCall describe(NcclFunction function, ncclComm_t comm, std::size_t count, ncclDataType_t type,
                  int peer, const NcclSink& sink) {
  NcclCall call;
  call.function = function;
  call.count = count;
  call.type = type;
  call.peer = peer;
  call.thread = static_cast<std::int32_t>(syscall(SYS_gettid));
  call.begin = sink.now();
  complete(comm);
  Communicators::Entry of;
  if (function == NcclFunction::kSend || function == NcclFunction::kRecv) {
    // Sends and receives of a group on one communicator are one exchange.
    const auto known = std::find(group.exchanging.begin(), group.exchanging.end(), comm);
    if (group.depth > 0 && known != group.exchanging.end()) {
      of = communicators().find(comm);
      --of.exchanges;
    } else {
      of = communicators().count_exchange(comm);
      if (group.depth > 0) {
        group.exchanging.push_back(comm);
      }
    }
    call.sequence = of.exchanges;
  } else {
    of = communicators().count_collective(comm);
    call.sequence = of.collectives;
  }
  call.communicator = of.id;
  call.members = of.members;
  call.rank = of.rank;
  return call;
}

/// Passes a call on. Alone it launches at once; in a group it waits for the group's end.
template <class Pass>
ncclResult_t observe(NcclFunction function, ncclComm_t comm, std::size_t count, ncclDataType_t type,
                     int peer, const Pass& pass) {
  const NcclSink* sink = listener.load();
  if (sink == nullptr) {
    return pass();
  }
  NcclCall call = describe(function, comm, count, type, peer, *sink);
  if (group.depth > 0) {
    call.launch = group.launch;
    const ncclResult_t result = pass();
    if (result == ncclSuccess || result == ncclInProgress) {
      group.calls.push_back(call);
    }
    return result;
  }
  call.launch = ++launches;
  ++group.depth;  // NCCL's own groups inside the call are part of it
  group.launch = call.launch;
  begin_launch(*sink, call.launch);
  const ncclResult_t result = pass();
  end_launch(*sink);
  --group.depth;
  if (result == ncclSuccess || result == ncclInProgress) {
    call.end = sink->now();
    sink->called(&call);
  }
  return result;
}

}  // namespace

const NcclSink* current_sink() { return listener.load(); }
std::uint64_t current_launch() { return launching; }

}  // namespace stepcast::profiler

using stepcast::profiler::Communicators;
using stepcast::profiler::communicators;
using stepcast::profiler::group;
using stepcast::profiler::launches;
using stepcast::profiler::listener;
using stepcast::profiler::NcclFunction;
using stepcast::profiler::NcclSink;
using stepcast::profiler::observe;
using stepcast::profiler::real;

/// Marks a step: where a program calls this at the begin of each of its steps, `stepcast profile
/// --steps` needs no ranges: `if (stepcast_profile_step) stepcast_profile_step();` with a weak
/// declaration, or ctypes.CDLL(None).stepcast_profile_step() in Python.
STEPCAST_EXPORT void stepcast_profile_step() {
  if (const NcclSink* sink = listener.load()) {
    sink->step();
  }
}

STEPCAST_EXPORT void stepcast_listen(const NcclSink* sink) { listener.store(sink); }

// A function that this NCCL does not have is an error of the program: it would not have linked.
#define STEPCAST_REAL(name)                                 \
  static auto* const pass_on = real<decltype(name)>(#name); \
  if (pass_on == nullptr) {                                 \
    return ncclInternalError;                               \
  }

STEPCAST_EXPORT ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream) {
  STEPCAST_REAL(ncclAllReduce)
  return observe(NcclFunction::kAllReduce, comm, count, type, -1,
                 [&] { return pass_on(send, receive, count, type, op, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclAllGather(const void* send, void* receive, size_t count,
                                           ncclDataType_t type, ncclComm_t comm,
                                           cudaStream_t stream) {
  STEPCAST_REAL(ncclAllGather)
  return observe(NcclFunction::kAllGather, comm, count, type, -1,
                 [&] { return pass_on(send, receive, count, type, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count,
                                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                               cudaStream_t stream) {
  STEPCAST_REAL(ncclReduceScatter)
  return observe(NcclFunction::kReduceScatter, comm, count, type, -1,
                 [&] { return pass_on(send, receive, count, type, op, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                                           ncclDataType_t type, int root, ncclComm_t comm,
                                           cudaStream_t stream) {
  STEPCAST_REAL(ncclBroadcast)
  return observe(NcclFunction::kBroadcast, comm, count, type, root,
                 [&] { return pass_on(send, receive, count, type, root, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root,
                                       ncclComm_t comm, cudaStream_t stream) {
  STEPCAST_REAL(ncclBcast)
  return observe(NcclFunction::kBroadcast, comm, count, type, root,
                 [&] { return pass_on(buffer, count, type, root, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                                        ncclDataType_t type, ncclRedOp_t op, int root,
                                        ncclComm_t comm, cudaStream_t stream) {
  STEPCAST_REAL(ncclReduce)
  return observe(NcclFunction::kReduce, comm, count, type, root,
                 [&] { return pass_on(send, receive, count, type, op, root, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                                      ncclComm_t comm, cudaStream_t stream) {
  STEPCAST_REAL(ncclSend)
  return observe(NcclFunction::kSend, comm, count, type, peer,
                 [&] { return pass_on(send, count, type, peer, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer,
                                      ncclComm_t comm, cudaStream_t stream) {
  STEPCAST_REAL(ncclRecv)
  return observe(NcclFunction::kRecv, comm, count, type, peer,
                 [&] { return pass_on(receive, count, type, peer, comm, stream); });
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
STEPCAST_EXPORT ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count,
                                          ncclDataType_t type, ncclComm_t comm,
                                          cudaStream_t stream) {
  STEPCAST_REAL(ncclAlltoAll)
  return observe(NcclFunction::kAllToAll, comm, count, type, -1,
                 [&] { return pass_on(send, receive, count, type, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclGather(const void* send, void* receive, size_t count,
                                        ncclDataType_t type, int root, ncclComm_t comm,
                                        cudaStream_t stream) {
  STEPCAST_REAL(ncclGather)
  return observe(NcclFunction::kGather, comm, count, type, root,
                 [&] { return pass_on(send, receive, count, type, root, comm, stream); });
}

STEPCAST_EXPORT ncclResult_t ncclScatter(const void* send, void* receive, size_t count,
                                         ncclDataType_t type, int root, ncclComm_t comm,
                                         cudaStream_t stream) {
  STEPCAST_REAL(ncclScatter)
  return observe(NcclFunction::kScatter, comm, count, type, root,
                 [&] { return pass_on(send, receive, count, type, root, comm, stream); });
}
#endif

STEPCAST_EXPORT ncclResult_t ncclGroupStart() {
  STEPCAST_REAL(ncclGroupStart)
  if (group.depth++ == 0) {
    group.launch = ++launches;
    group.calls.clear();
    group.exchanging.clear();
  }
  return pass_on();
}

STEPCAST_EXPORT ncclResult_t ncclGroupEnd() {
  STEPCAST_REAL(ncclGroupEnd)
  const NcclSink* sink = listener.load();
  group.depth = group.depth > 0 ? group.depth - 1 : 0;
  if (group.depth > 0 || sink == nullptr) {
    return pass_on();
  }
  stepcast::profiler::begin_launch(*sink, group.launch);
  const ncclResult_t result = pass_on();
  stepcast::profiler::end_launch(*sink);
  if (result == ncclSuccess || result == ncclInProgress) {
    stepcast::profiler::tell(group.calls, *sink);
  }
  group.calls.clear();
  return result;
}

STEPCAST_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int members, ncclUniqueId id,
                                              int rank) {
  STEPCAST_REAL(ncclCommInitRank)
  const ncclResult_t result = pass_on(comm, members, id, rank);
  if (comm != nullptr && *comm != nullptr) {
    communicators().add(*comm, Communicators::hash(&id, sizeof id), members, rank);
  }
  return result;
}

STEPCAST_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int members, ncclUniqueId id,
                                                    int rank, ncclConfig_t* config) {
  STEPCAST_REAL(ncclCommInitRankConfig)
  const ncclResult_t result = pass_on(comm, members, id, rank, config);
  if (comm != nullptr && *comm != nullptr) {
    communicators().add(*comm, Communicators::hash(&id, sizeof id), members, rank);
  }
  return result;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
STEPCAST_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int members, int rank,
                                                      int n_ids, ncclUniqueId* ids,
                                                      ncclConfig_t* config) {
  STEPCAST_REAL(ncclCommInitRankScalable)
  const ncclResult_t result = pass_on(comm, members, rank, n_ids, ids, config);
  if (comm != nullptr && *comm != nullptr && ids != nullptr && n_ids > 0) {
    const auto bytes = static_cast<size_t>(n_ids) * sizeof(ncclUniqueId);
    communicators().add(*comm, Communicators::hash(ids, bytes), members, rank);
  }
  return result;
}
#endif

/// All members in this process; which rank is which device does not matter to the id.
STEPCAST_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  STEPCAST_REAL(ncclCommInitAll)
  const ncclResult_t result = pass_on(comms, devices, list);
  if (result == ncclSuccess && comms != nullptr) {
    const std::uint64_t made = ++launches;
    const std::uint64_t id = Communicators::hash(&made, sizeof made);
    for (int i = 0; i < devices; ++i) {
      communicators().add(comms[i], id, devices, i);
    }
  }
  return result;
}

/// Knows a communicator that was asked of `parent` by its id.
static ncclResult_t asked_of(ncclComm_t parent, std::uint64_t id, const ncclComm_t* made,
                             ncclResult_t result) {
  if (made != nullptr && *made != nullptr) {
    communicators().add(*made, id, 0, 0);  // it may not be ready: asked at its first use
  } else if (made != nullptr && result == ncclInProgress) {
    communicators().await(parent, reinterpret_cast<const void* const*>(made), id);
  }
  return result;
}

STEPCAST_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                                           ncclConfig_t* config) {
  STEPCAST_REAL(ncclCommSplit)
  const ncclResult_t result = pass_on(comm, color, key, made, config);
  return asked_of(comm, communicators().child_id(comm, color), made, result);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
STEPCAST_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count,
                                            ncclComm_t* made, ncclConfig_t* config, int flags) {
  STEPCAST_REAL(ncclCommShrink)
  const ncclResult_t result = pass_on(comm, excluded, count, made, config, flags);
  return asked_of(comm, communicators().shrunk_id(comm, excluded, count), made, result);
}
#endif

/// Callers ask a communicator that does not block whether it is done before they read what a
/// split made.
STEPCAST_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  STEPCAST_REAL(ncclCommGetAsyncError)
  const ncclResult_t result = pass_on(comm, state);
  if (result == ncclSuccess && *state == ncclSuccess) {
    communicators().arrived(comm);
  }
  return result;
}

STEPCAST_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  STEPCAST_REAL(ncclCommDestroy)
  communicators().remove(comm);
  return pass_on(comm);
}

STEPCAST_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  STEPCAST_REAL(ncclCommAbort)
  communicators().remove(comm);
  return pass_on(comm);
}
