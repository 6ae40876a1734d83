#include <mpi.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <list>
#include <vector>

#include "tests/runtime/cuda/standin/device.h"
#include "tests/runtime/cuda/standin/device_memory.h"

// NCCL over MPI, on host memory. One thread; calls outside of a group are done when they return,
// but for a send: that is under way until the communicator ends, as on a stream of its own.

struct ncclComm {
  ncclComm() : memory(stepcast::standin::take_device_memory(1)) {}
  ~ncclComm() { stepcast::standin::give_back(memory); }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
  void* const memory;
  MPI_Comm handle = MPI_COMM_NULL;
  std::list<std::pair<MPI_Request, std::vector<char>>> sends;
};

namespace {

bool grouped = false;
std::chrono::steady_clock::time_point first_asked;
std::vector<MPI_Request> group;

int bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt64:
      return 8;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 4;
  }
}

int count_of(std::size_t count, ncclDataType_t type) {
  return static_cast<int>(count) * bytes_of(type);
}

/// Sums and maxima of fp32, all that the tests reduce.
ncclResult_t reduce_check(ncclDataType_t type) {
  return type == ncclFloat32 ? ncclSuccess : ncclInvalidArgument;
}
MPI_Op operation(ncclRedOp_t op) { return op == ncclMax ? MPI_MAX : MPI_SUM; }

bool started() {
  int ready = 0;
  MPI_Initialized(&ready);
  return ready != 0;
}

/// One process that runs alone has started no MPI.
void start_alone() {
  if (!started()) {
    MPI_Init(nullptr, nullptr);
    std::atexit([] { MPI_Finalize(); });
  }
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "standin"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int,
                                    ncclConfig_t* config) {
  *comm = new ncclComm;
  first_asked = std::chrono::steady_clock::now();
  if (!started()) {
    return ranks == 1 ? ncclSuccess : ncclInvalidUsage;  // without a launcher: alone
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &(*comm)->handle);
  return config->blocking == 0 ? ncclInProgress : ncclSuccess;
}
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int devices, const int*) {
  if (devices != 1 || stepcast::standin::setting("STANDIN_NCCL", 1) == 0) {
    return ncclSystemError;
  }
  start_alone();
  *comm = new ncclComm;
  return MPI_Comm_dup(MPI_COMM_SELF, &(*comm)->handle) == MPI_SUCCESS ? ncclSuccess
                                                                      : ncclInternalError;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  *part = nullptr;
  if (comm->handle == MPI_COMM_NULL) {
    *part = color < 0 ? nullptr : new ncclComm;
    return ncclSuccess;
  }
  MPI_Comm split = MPI_COMM_NULL;
  MPI_Comm_split(comm->handle, color < 0 ? MPI_UNDEFINED : color, key, &split);
  if (color >= 0) {
    *part = new ncclComm;
    (*part)->handle = split;
  }
  return ncclInProgress;
}
/// STANDIN_SETUP_SECONDS after the first communicator was asked for all are there.
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  const auto age = std::chrono::steady_clock::now() - first_asked;
  const auto setup = std::chrono::seconds(stepcast::standin::setting("STANDIN_SETUP_SECONDS", 0));
  *state = age < setup ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = 0;
  return comm->handle == MPI_COMM_NULL || MPI_Comm_rank(comm->handle, rank) == MPI_SUCCESS
             ? ncclSuccess
             : ncclInternalError;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* size) {
  *size = 1;
  return comm->handle == MPI_COMM_NULL || MPI_Comm_size(comm->handle, size) == MPI_SUCCESS
             ? ncclSuccess
             : ncclInternalError;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  for (auto& [request, data] : comm->sends) {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  comm->sends.clear();
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->handle != MPI_COMM_NULL) {
    MPI_Comm_free(&comm->handle);
  }
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  grouped = true;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (!grouped) {
    return ncclInvalidUsage;
  }
  const stepcast::standin::OnDevice device;
  if (!group.empty()) {
    MPI_Waitall(static_cast<int>(group.size()), group.data(), MPI_STATUSES_IGNORE);
    group.clear();
  }
  grouped = false;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t) {
  int members = 0;
  ncclCommCount(comm, &members);
  if (peer < 0 || peer >= members) {
    return ncclInvalidArgument;
  }
  const stepcast::standin::OnDevice device;
  if (grouped) {
    MPI_Isend(data, count_of(count, type), MPI_BYTE, peer, 0, comm->handle, &group.emplace_back());
    return ncclSuccess;
  }
  const auto* first = static_cast<const char*>(data);
  auto& [request, copy] = comm->sends.emplace_back(
      MPI_REQUEST_NULL, std::vector<char>(first, first + count_of(count, type)));
  MPI_Isend(copy.data(), static_cast<int>(copy.size()), MPI_BYTE, peer, 0, comm->handle, &request);
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t) {
  const stepcast::standin::OnDevice device;
  if (grouped) {
    MPI_Irecv(data, count_of(count, type), MPI_BYTE, peer, 0, comm->handle, &group.emplace_back());
  } else {
    MPI_Recv(data, count_of(count, type), MPI_BYTE, peer, 0, comm->handle, MPI_STATUS_IGNORE);
  }
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  const stepcast::standin::OnDevice device;
  if (stepcast::standin::collective_hangs()) {
    return ncclSuccess;
  }
  MPI_Allreduce(send == receive ? MPI_IN_PLACE : send, receive, static_cast<int>(count), MPI_FLOAT,
                operation(op), comm->handle);
  return reduce_check(type);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  const stepcast::standin::OnDevice device;
  if (stepcast::standin::collective_hangs()) {
    return ncclSuccess;
  }
  const std::size_t parts = [&] {
    int size = 1;
    MPI_Comm_size(comm->handle, &size);
    return static_cast<std::size_t>(size);
  }();
  const auto* from = static_cast<const float*>(send);
  const std::vector<float> copy(from, from + parts * count);  // the result may be a part of it
  MPI_Reduce_scatter_block(copy.data(), receive, static_cast<int>(count), MPI_FLOAT, operation(op),
                           comm->handle);
  return reduce_check(type);
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t) {
  const stepcast::standin::OnDevice device;
  if (stepcast::standin::collective_hangs()) {
    return ncclSuccess;
  }
  const auto* from = static_cast<const char*>(send);
  const std::vector<char> copy(from, from + count_of(count, type));  // may stand where it belongs
  MPI_Allgather(copy.data(), static_cast<int>(copy.size()), MPI_BYTE, receive,
                static_cast<int>(copy.size()), MPI_BYTE, comm->handle);
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t) {
  const stepcast::standin::OnDevice device;
  if (stepcast::standin::collective_hangs()) {
    return ncclSuccess;
  }
  if (send != receive) {
    return ncclInvalidArgument;
  }
  MPI_Bcast(receive, count_of(count, type), MPI_BYTE, root, comm->handle);
  return ncclSuccess;
}
