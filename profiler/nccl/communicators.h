#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/fnv1a.h"

namespace stepcast::profiler {

/// The NCCL communicators of a process, by their handles. An id is equal on all members and differs
/// between communicators: a hash of the bytes all were created from, or of the parent, how many
/// communicators came from it before, and the colour. Thread-safe.
class Communicators {
 public:
  struct Entry {
    std::uint64_t id = 0;
    std::int32_t members = 0, rank = 0;
    std::int64_t collectives = 0;  ///< run so far
    std::int64_t exchanges = 0;    ///< groups of sends and receives
    std::int64_t children = 0;
    std::int64_t shrunk = 0;  ///< children that not every member has asked for
  };
  static std::uint64_t hash(const void* bytes, std::size_t size, std::uint64_t seed = fnv1a({}));

  void add(const void* handle, std::uint64_t id, std::int32_t members, std::int32_t rank);
  void remove(const void* handle);
  /// Members and rank of one that was not ready when it was made.
  void complete(const void* handle, std::int32_t members, std::int32_t rank);
  /// The id of a communicator split from `parent`; every member calls it alike.
  std::uint64_t child_id(const void* parent, std::int32_t color);
  /// The id of one without these `count` members; all others call it alike.
  std::uint64_t shrunk_id(const void* parent, const int* excluded, int count);
  /// A communicator asked of `parent` that is still being made: NCCL writes its handle to `made`,
  /// and says that it has by `parent` being done (arrived).
  void await(const void* parent, const void* const* made, std::uint64_t id);
  void arrived(const void* parent);
  /// Finds what is known; a handle that was never seen has id 0.
  Entry find(const void* handle);
  /// The same before this collective or exchange is counted.
  Entry count_collective(const void* handle);
  Entry count_exchange(const void* handle);

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Entry> entries_;
  struct Awaited {
    const void* parent;
    const void* const* made;
    std::uint64_t id;
  };
  std::vector<Awaited> awaited_;
};

}  // namespace stepcast::profiler
