#include "traces/memory/memory_record.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace stepcast::traces {
namespace {

using What = MemoryRecord::What;

/// Walks a record from its begin; what was allocated before is known from what is left at the end.
class Walk {
 public:
  explicit Walk(const MemoryRecord& record) : record_(record), reserved_(record.reserved) {
    std::unordered_set<std::int64_t> allocated_within;
    for (const MemoryRecord::Event& b : record.live) {
      allocated_ += b.bytes;
    }
    for (const MemoryRecord::Event& e : record.events) {
      allocated_ -= e.what == What::kAllocate ? e.bytes : e.what == What::kFree ? -e.bytes : 0;
      reserved_ -= e.what == What::kReserve ? e.bytes : e.what == What::kRelease ? -e.bytes : 0;
      if (e.what == What::kAllocate) {
        allocated_within.insert(e.address);
      }
    }
    for (const MemoryRecord::Event& b : record.live) {
      if (!allocated_within.contains(b.address)) {
        blocks_[b.address] = &b;
      }
    }
  }
  void take(const MemoryRecord::Event& e) {
    switch (e.what) {
      case What::kAllocate:
        allocated_ += e.bytes;
        blocks_[e.address] = &e;
        break;
      case What::kFree:
        allocated_ -= e.bytes;
        blocks_.erase(e.address);
        break;
      case What::kReserve:
        reserved_ += e.bytes;
        break;
      case What::kRelease:
        reserved_ -= e.bytes;
        break;
      case What::kOutOfMemory:
        break;
    }
  }
  [[nodiscard]] std::int64_t allocated() const { return allocated_; }
  [[nodiscard]] MemoryMoment moment() const {
    MemoryMoment m{.allocated = allocated_, .reserved = reserved_, .rows = {}, .by_use = {}};
    std::map<MemoryRecord::Place, MemoryMoment::Row> rows;
    std::int64_t told = 0;
    const auto add = [&](const MemoryRecord::Place& place, std::int64_t bytes) {
      MemoryMoment::Row& row = rows[place];
      row.place = place;
      row.bytes += bytes;
      ++row.blocks;
      m.by_use[static_cast<std::size_t>(place.use)] += bytes;
      told += bytes;
    };
    for (const auto& [address, block] : blocks_) {
      add(block->place < 0 ? MemoryRecord::Place{"no place recorded", MemoryUse::kUnknown}
                           : record_.places[static_cast<std::size_t>(block->place)],
          block->bytes);
    }
    if (allocated_ > told) {
      add({"allocated before the record", MemoryUse::kUnknown}, allocated_ - told);
    }
    for (const auto& [place, row] : rows) {
      m.rows.push_back(row);
    }
    std::stable_sort(m.rows.begin(), m.rows.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return m;
  }

 private:
  const MemoryRecord& record_;
  std::int64_t allocated_ = 0, reserved_ = 0;
  std::unordered_map<std::int64_t, const MemoryRecord::Event*> blocks_;  ///< by address
};

/// After the first `count` events.
MemoryMoment moment_after(const MemoryRecord& record, std::size_t count) {
  Walk walk(record);
  for (std::size_t i = 0; i < count; ++i) {
    walk.take(record.events[i]);
  }
  return walk.moment();
}

}  // namespace

std::string_view name_of(MemoryUse use) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(MemoryUse::kCount)> kNames{
      "unknown", "weights", "optimizer", "backward", "forward"};
  return kNames.at(static_cast<std::size_t>(use));
}

MemoryMoment memory_peak(const MemoryRecord& record) {
  Walk walk(record);
  std::int64_t most = walk.allocated();
  std::size_t at = 0;
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    walk.take(record.events[i]);
    if (walk.allocated() > most) {
      most = walk.allocated();
      at = i + 1;
    }
  }
  return moment_after(record, at);
}

std::optional<OutOfMemory> out_of_memory(const MemoryRecord& record) {
  for (std::size_t i = record.events.size(); i-- > 0;) {
    const MemoryRecord::Event& e = record.events[i];
    if (e.what == What::kOutOfMemory) {
      return OutOfMemory{
          .asked = e.bytes,
          .device_free = e.device_free,
          .then = moment_after(record, i),
          .place = e.place < 0 ? "" : record.places[static_cast<std::size_t>(e.place)].name};
    }
  }
  return std::nullopt;
}

}  // namespace stepcast::traces
