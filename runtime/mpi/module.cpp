// libstepcast_mpi.so: runtime/mpi/api.h over the MPI library it is compiled with. It needs that library alone:
//   mpicxx -std=c++20 -O2 -shared -fPIC -fno-exceptions -I FOLDER_ABOVE_RUNTIME -o libstepcast_mpi.so module.cpp
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <cstring>

#include "runtime/mpi/api.h"

namespace stepcast::runtime {
namespace {

/// Handles are pointers in some libraries and integers in others: their bytes are kept.
template <typename Native>
MpiHandle kept(Native native) {
  static_assert(sizeof native <= sizeof(MpiHandle));
  MpiHandle handle = nullptr;
  std::memcpy(&handle, &native, sizeof native);
  return handle;
}

template <typename Native>
Native native(MpiHandle handle) {
  Native value;
  std::memcpy(&value, &handle, sizeof value);
  return value;
}

MPI_Comm comm(MpiHandle handle) { return native<MPI_Comm>(handle); }

MPI_Datatype datatype(MpiType type) {
  switch (type) {
    case MpiType::kByte:
      return MPI_BYTE;
    case MpiType::kFloat:
      return MPI_FLOAT;
    case MpiType::kDouble:
      return MPI_DOUBLE;
    case MpiType::kInt64:
      break;
  }
  return MPI_INT64_T;
}

MPI_Op operation(MpiReduction reduction) {
  return reduction == MpiReduction::kMax ? MPI_MAX : MPI_SUM;
}

/// MPI takes "in place" as an address of its own.
const void* source(const void* send) { return send == nullptr ? MPI_IN_PLACE : send; }

/// `call(MPI_Request*)`, whose request becomes the caller's.
template <typename Call>
int posted(MpiHandle* request, const Call& call) {
  MPI_Request own = MPI_REQUEST_NULL;
  const int code = call(&own);
  *request = kept(own);
  return code;
}

int start(bool* granted) {
  int level = 0;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  *granted = level >= MPI_THREAD_MULTIPLE;
  return code != MPI_SUCCESS ? code : MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

bool stopped() {
  int is = 0;
  MPI_Finalized(&is);
  return is != 0;
}

void abort_all(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }

void error_text(int code, char* text) {
  static_assert(MPI_MAX_ERROR_STRING <= kMpiTextSize);
  int length = 0;
  MPI_Error_string(code, text, &length);
}

int rank_of(MpiHandle communicator, int* rank) { return MPI_Comm_rank(comm(communicator), rank); }
int size_of(MpiHandle communicator, int* size) { return MPI_Comm_size(comm(communicator), size); }

int split_by_machine(MpiHandle communicator, int key, MpiHandle* part) {
  MPI_Comm own = MPI_COMM_NULL;
  const int code =
      MPI_Comm_split_type(comm(communicator), MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &own);
  *part = kept(own);
  return code;
}

int split(MpiHandle communicator, int color, int key, MpiHandle* part) {
  MPI_Comm own = MPI_COMM_NULL;
  const int code = MPI_Comm_split(comm(communicator), color < 0 ? MPI_UNDEFINED : color, key, &own);
  *part = own == MPI_COMM_NULL ? nullptr : kept(own);
  return code;
}

int duplicate(MpiHandle communicator, MpiHandle* copy) {
  MPI_Comm own = MPI_COMM_NULL;
  const int code = MPI_Comm_dup(comm(communicator), &own);
  *copy = kept(own);
  return code;
}

void free_communicator(MpiHandle communicator) {
  MPI_Comm own = comm(communicator);
  MPI_Comm_free(&own);
}

int make_type(int bytes, MpiHandle* type) {
  MPI_Datatype own = MPI_DATATYPE_NULL;
  int code = MPI_Type_contiguous(bytes, MPI_BYTE, &own);
  if (code == MPI_SUCCESS) {
    code = MPI_Type_commit(&own);
  }
  *type = kept(own);
  return code;
}

void free_type(MpiHandle type) {
  auto own = native<MPI_Datatype>(type);
  MPI_Type_free(&own);
}

int barrier(MpiHandle communicator, MpiHandle* request) {
  return request == nullptr ? MPI_Barrier(comm(communicator)) : posted(request, [&](auto* r) {
    return MPI_Ibarrier(comm(communicator), r);
  });
}

int all_reduce(MpiHandle communicator, void* data, int count, MpiType type, MpiReduction reduction,
               MpiHandle* request) {
  if (request == nullptr) {
    return MPI_Allreduce(MPI_IN_PLACE, data, count, datatype(type), operation(reduction),
                         comm(communicator));
  }
  return posted(request, [&](auto* r) {
    return MPI_Iallreduce(MPI_IN_PLACE, data, count, datatype(type), operation(reduction),
                          comm(communicator), r);
  });
}

int all_gather(MpiHandle communicator, const void* send, void* receive, int count, MpiType type,
               MpiHandle* request) {
  const MPI_Datatype t = datatype(type);
  if (request == nullptr) {
    return MPI_Allgather(source(send), count, t, receive, count, t, comm(communicator));
  }
  return posted(request, [&](auto* r) {
    return MPI_Iallgather(source(send), count, t, receive, count, t, comm(communicator), r);
  });
}

int reduce_scatter(MpiHandle communicator, const void* send, void* receive, int count, MpiType type,
                   MpiReduction reduction, MpiHandle* request) {
  if (request == nullptr) {
    return MPI_Reduce_scatter_block(source(send), receive, count, datatype(type),
                                    operation(reduction), comm(communicator));
  }
  return posted(request, [&](auto* r) {
    return MPI_Ireduce_scatter_block(source(send), receive, count, datatype(type),
                                     operation(reduction), comm(communicator), r);
  });
}

int broadcast(MpiHandle communicator, void* data, int count, MpiType type, int root,
              MpiHandle* request) {
  if (request == nullptr) {
    return MPI_Bcast(data, count, datatype(type), root, comm(communicator));
  }
  return posted(request, [&](auto* r) {
    return MPI_Ibcast(data, count, datatype(type), root, comm(communicator), r);
  });
}

int all_to_all_v(MpiHandle communicator, const void* send, const int* send_counts,
                 const int* send_offsets, void* receive, const int* receive_counts,
                 const int* receive_offsets, MpiHandle type, MpiHandle* request) {
  const auto t = native<MPI_Datatype>(type);
  if (request == nullptr) {
    return MPI_Alltoallv(send, send_counts, send_offsets, t, receive, receive_counts,
                         receive_offsets, t, comm(communicator));
  }
  return posted(request, [&](auto* r) {
    return MPI_Ialltoallv(send, send_counts, send_offsets, t, receive, receive_counts,
                          receive_offsets, t, comm(communicator), r);
  });
}

int send(MpiHandle communicator, const void* data, int count, MpiType type, int peer, int tag,
         MpiHandle* request) {
  if (request == nullptr) {
    return MPI_Send(data, count, datatype(type), peer, tag, comm(communicator));
  }
  return posted(request, [&](auto* r) {
    return MPI_Isend(data, count, datatype(type), peer, tag, comm(communicator), r);
  });
}

int receive(MpiHandle communicator, void* data, int count, MpiType type, int peer, int tag,
            MpiHandle* request) {
  if (request == nullptr) {
    return MPI_Recv(data, count, datatype(type), peer, tag, comm(communicator), MPI_STATUS_IGNORE);
  }
  return posted(request, [&](auto* r) {
    return MPI_Irecv(data, count, datatype(type), peer, tag, comm(communicator), r);
  });
}

int test(MpiHandle* request, bool* done) {
  auto own = native<MPI_Request>(*request);
  int finished = 0;
  const int code = MPI_Test(&own, &finished, MPI_STATUS_IGNORE);
  *request = kept(own);
  *done = finished != 0;
  return code;
}

int wait(MpiHandle* request) {
  auto own = native<MPI_Request>(*request);
  const int code = MPI_Wait(&own, MPI_STATUS_IGNORE);
  *request = kept(own);
  return code;
}

int progress(MpiHandle communicator) {
  int found = 0;
  return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm(communicator), &found, MPI_STATUS_IGNORE);
}

int share(MpiHandle machine, std::size_t bytes, MpiHandle* window, void** base) {
  int rank = 0;
  MPI_Comm_rank(comm(machine), &rank);
  void* own = nullptr;
  MPI_Win opened = MPI_WIN_NULL;
  int code = MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL,
                                     comm(machine), &own, &opened);
  if (code == MPI_SUCCESS) {
    MPI_Aint size = 0;
    int unit = 0;
    code = MPI_Win_shared_query(opened, 0, &size, &unit, base);
  }
  *window = kept(opened);
  return code;
}

void unshare(MpiHandle window) {
  auto own = native<MPI_Win>(window);
  MPI_Win_free(&own);
}

const char* library_version() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

}  // namespace
}  // namespace stepcast::runtime

extern "C" __attribute__((visibility("default"))) const stepcast::runtime::MpiApi* stepcast_mpi(
    int version) {
  namespace r = stepcast::runtime;
  if (version != r::kMpiApiVersion) {
    return nullptr;
  }
  static r::MpiApi api;  // filled at run time: what names the world is no constant in every library
  api = {.library = r::library_version(),
         .start = r::start,
         .stop = MPI_Finalize,
         .stopped = r::stopped,
         .abort = r::abort_all,
         .error_text = r::error_text,
         .world = r::kept(static_cast<MPI_Comm>(MPI_COMM_WORLD)),
         .rank = r::rank_of,
         .size = r::size_of,
         .split_by_machine = r::split_by_machine,
         .split = r::split,
         .duplicate = r::duplicate,
         .free_communicator = r::free_communicator,
         .make_type = r::make_type,
         .free_type = r::free_type,
         .barrier = r::barrier,
         .all_reduce = r::all_reduce,
         .all_gather = r::all_gather,
         .reduce_scatter = r::reduce_scatter,
         .broadcast = r::broadcast,
         .all_to_all_v = r::all_to_all_v,
         .send = r::send,
         .receive = r::receive,
         .test = r::test,
         .wait = r::wait,
         .progress = r::progress,
         .share = r::share,
         .unshare = r::unshare};
  return &api;
}
