#pragma once
#include <cstddef>

namespace stepcast::runtime {

/// A communicator, request, datatype or window of the MPI library; only that library reads it.
using MpiHandle = void*;

enum class MpiReduction : int { kSum, kMax };
enum class MpiType : int { kByte, kFloat, kDouble, kInt64 };

/// Functions that stepcast asks of an MPI library: plain ones with plain types, so that the program
/// links none. libstepcast_mpi.so fills the table from the library it was compiled with; it is one
/// file, runtime/mpi/module.cpp, so that `mpicxx` makes it anew for another MPI. alone() serves one
/// process without any.
///
/// Functions return MPI's code, 0 for success. `request`: null waits until this rank's part is
/// done; else the call returns at once and the request is to be tested or waited for. A null `send`
/// means "in place", in MPI's words for that call.
struct MpiApi {
  const char* library;  ///< name and version of the MPI library

  /// `granted` tells whether any thread may call at any time.
  int (*start)(bool* granted);
  int (*stop)();
  bool (*stopped)();
  void (*abort)(int exit_code);
  /// `text` holds kTextSize characters.
  void (*error_text)(int code, char* text);

  MpiHandle world;
  int (*rank)(MpiHandle communicator, int* rank);
  int (*size)(MpiHandle communicator, int* size);
  /// Ranks that share memory.
  int (*split_by_machine)(MpiHandle communicator, int key, MpiHandle* part);
  /// A rank with a negative color joins no group: `part` is null.
  int (*split)(MpiHandle communicator, int color, int key, MpiHandle* part);
  int (*duplicate)(MpiHandle communicator, MpiHandle* copy);
  void (*free_communicator)(MpiHandle communicator);

  /// A type of `bytes` bytes that is moved, never computed with.
  int (*make_type)(int bytes, MpiHandle* type);
  void (*free_type)(MpiHandle type);

  int (*barrier)(MpiHandle communicator, MpiHandle* request);
  int (*all_reduce)(MpiHandle communicator, void* data, int count, MpiType type,
                    MpiReduction reduction, MpiHandle* request);
  int (*all_gather)(MpiHandle communicator, const void* send, void* receive, int count,
                    MpiType type, MpiHandle* request);
  int (*reduce_scatter)(MpiHandle communicator, const void* send, void* receive, int count,
                        MpiType type, MpiReduction reduction, MpiHandle* request);
  int (*broadcast)(MpiHandle communicator, void* data, int count, MpiType type, int root,
                   MpiHandle* request);
  int (*all_to_all_v)(MpiHandle communicator, const void* send, const int* send_counts,
                      const int* send_offsets, void* receive, const int* receive_counts,
                      const int* receive_offsets, MpiHandle type, MpiHandle* request);
  int (*send)(MpiHandle communicator, const void* data, int count, MpiType type, int peer, int tag,
              MpiHandle* request);
  int (*receive)(MpiHandle communicator, void* data, int count, MpiType type, int peer, int tag,
                 MpiHandle* request);
  int (*test)(MpiHandle* request, bool* done);
  int (*wait)(MpiHandle* request);
  /// Progresses messages in flight.
  int (*progress)(MpiHandle communicator);

  /// Memory of `bytes` bytes that the first rank of `machine` owns and all its ranks map.
  int (*share)(MpiHandle machine, std::size_t bytes, MpiHandle* window, void** base);
  void (*unshare)(MpiHandle window);
};

constexpr std::size_t kMpiTextSize = 1024;
constexpr int kMpiApiVersion = 1;  ///< of the table; a module of another version is rejected

/// The one symbol of the module: its table, or null when it has another version of it.
constexpr const char* kMpiEntry = "stepcast_mpi";
using MpiEntry = const MpiApi*(int version);

/// One rank without any MPI library: what it sends reaches itself.
const MpiApi& alone();

}  // namespace stepcast::runtime
