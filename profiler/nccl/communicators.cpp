#include "profiler/nccl/communicators.h"

#include <algorithm>

namespace stepcast::profiler {

std::uint64_t Communicators::hash(const void* bytes, std::size_t size, std::uint64_t seed) {
  return fnv1a({static_cast<const char*>(bytes), size}, seed);
}

void Communicators::add(const void* handle, std::uint64_t id, std::int32_t members,
                        std::int32_t rank) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[handle] = Entry{};
  entry.id = id;
  entry.members = members;
  entry.rank = rank;
}

void Communicators::remove(const void* handle) {
  const std::lock_guard lock(mutex_);
  entries_.erase(handle);
}

void Communicators::complete(const void* handle, std::int32_t members, std::int32_t rank) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[handle];
  entry.members = members;
  entry.rank = rank;
}

Communicators::Entry Communicators::find(const void* handle) {
  const std::lock_guard lock(mutex_);
  return entries_[handle];
}

std::uint64_t Communicators::child_id(const void* parent, std::int32_t color) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[parent];
  const std::int64_t made_from[] = {entry.children++, color};
  return hash(made_from, sizeof made_from, entry.id);
}

std::uint64_t Communicators::shrunk_id(const void* parent, const int* excluded, int count) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[parent];
  const std::int64_t number = entry.shrunk++;
  const std::uint64_t seed = hash(&number, sizeof number, entry.id + 1);
  return hash(excluded, static_cast<std::size_t>(std::max(0, count)) * sizeof *excluded, seed);
}

void Communicators::await(const void* parent, const void* const* made, std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  awaited_.push_back({parent, made, id});
}

void Communicators::arrived(const void* parent) {
  const std::lock_guard lock(mutex_);
  std::erase_if(awaited_, [&](const Awaited& a) {
    if (a.parent == parent && *a.made != nullptr) {
      entries_[*a.made] = Entry{};
      entries_[*a.made].id = a.id;
    }
    return a.parent == parent;
  });
}

Communicators::Entry Communicators::count_collective(const void* handle) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[handle];
  const Entry now = entry;
  ++entry.collectives;
  return now;
}

Communicators::Entry Communicators::count_exchange(const void* handle) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[handle];
  const Entry now = entry;
  ++entry.exchanges;
  return now;
}

}  // namespace stepcast::profiler
