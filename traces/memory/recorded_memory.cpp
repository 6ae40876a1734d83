#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include "core/error.h"
#include "traces/graph/phases.h"
#include "traces/memory/memory_record.h"
#include "traces/open_trace.h"

namespace stepcast::traces {
namespace {

using What = MemoryRecord::What;

MemoryUse use_in(Phase phase) {
  return phase == Phase::kOptimizer                                ? MemoryUse::kOptimizer
         : phase == Phase::kBackward || phase == Phase::kRecompute ? MemoryUse::kBackward
                                                                   : MemoryUse::kForward;
}

/// The event of each change's thread that says where it was: the innermost module, else the
/// outermost operator; kNoEvent where none was open.
std::vector<EventId> places_of(const Recording& recording, const RankRecording& rank) {
  constexpr std::string_view kModule = "nn.Module: ";
  const Events& e = rank.events;
  std::vector<EventId> places(rank.memory.size(), kNoEvent);
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> by_thread;
  for (std::size_t i = 0; i < rank.memory.size(); ++i) {
    by_thread[{rank.memory[i].process, rank.memory[i].thread}].push_back(i);
  }
  for (const Lane& lane : rank.lanes) {
    const auto changes = by_thread.find({lane.process, lane.thread});
    if (lane.kind != Lane::Kind::kHostThread || changes == by_thread.end()) {
      continue;
    }
    std::vector<EventId> open;
    EventId next = lane.first;
    for (const std::size_t i : changes->second) {
      const Nanoseconds at = rank.memory[i].at;
      for (; next < lane.first + lane.count && e.begin[next] <= at; ++next) {
        while (!open.empty() && e.end(open.back()) <= e.begin[next]) {
          open.pop_back();
        }
        open.push_back(next);
      }
      while (!open.empty() && e.end(open.back()) < at) {
        open.pop_back();
      }
      for (const EventId o : open) {
        const bool module = e.category[o] == EventCategory::kPythonFunction &&
                            recording.names.view(e.name[o]).starts_with(kModule);
        const bool first_op = e.category[o] == EventCategory::kCpuOp && places[i] == kNoEvent;
        places[i] = module || first_op ? o : places[i];
      }
    }
  }
  return places;
}

std::vector<MemoryRecord> memory_of_rank(const Recording& recording, const RankRecording& rank) {
  const std::vector<EventId> places = places_of(recording, rank);
  const Phases phases(recording.names, rank);
  struct Last {
    std::int64_t allocated = 0, reserved = -1;
    std::map<MemoryRecord::Place, std::int64_t> numbers;
    std::unordered_map<std::int64_t, MemoryRecord::Event> live;
  };
  std::map<std::int32_t, std::pair<MemoryRecord, Last>> devices;
  for (std::size_t i = 0; i < rank.memory.size(); ++i) {
    const MemoryChange& c = rank.memory[i];
    auto& [record, last] = devices[c.device];
    std::int64_t place = -1;
    if (places[i] != kNoEvent) {
      const auto [at, fresh] =
          last.numbers.try_emplace({std::string(recording.names.view(rank.events.name[places[i]])),
                                    use_in(phases.of_host(places[i]))},
                                   static_cast<std::int64_t>(record.places.size()));
      if (fresh) {
        record.places.push_back(at->first);
      }
      place = at->second;
    }
    if (last.reserved >= 0 && c.reserved != last.reserved) {
      record.events.push_back({.what = c.reserved > last.reserved ? What::kReserve : What::kRelease,
                               .bytes = std::abs(c.reserved - last.reserved)});
    }
    last.reserved = c.reserved;
    last.allocated = c.allocated;
    record.events.push_back({.what = c.bytes >= 0 ? What::kAllocate : What::kFree,
                             .address = c.address,
                             .bytes = std::abs(c.bytes),
                             .place = place});
    if (c.bytes >= 0) {
      last.live[c.address] = record.events.back();
    } else {
      last.live.erase(c.address);
    }
  }
  std::vector<MemoryRecord> all;
  for (auto& [device, both] : devices) {
    auto& [record, last] = both;
    record.source = rank.source;
    record.device = device;
    record.reserved = last.reserved;
    std::int64_t before = last.allocated;
    for (const auto& [address, block] : last.live) {
      record.live.push_back(block);
      before -= block.bytes;
    }
    std::sort(record.live.begin(), record.live.end(),
              [](const auto& a, const auto& b) { return a.address < b.address; });
    if (before > 0) {
      record.live.push_back({.address = -1, .bytes = before});
    }
    all.push_back(std::move(record));
  }
  return all;
}

}  // namespace

std::vector<MemoryRecord> memory_of(const Recording& recording, const std::string& source) {
  std::vector<MemoryRecord> all;
  for (const RankRecording& rank : recording.ranks) {
    std::vector<MemoryRecord> devices = memory_of_rank(recording, rank);
    std::move(devices.begin(), devices.end(), std::back_inserter(all));
  }
  if (all.empty()) {
    throw InputError(source,
                     "has no record of memory; profile with profile_memory=True, or write a "
                     "snapshot with torch.cuda.memory._dump_snapshot");
  }
  return all;
}

std::vector<MemoryRecord> open_memory(const std::filesystem::path& path) {
  if (is_memory_snapshot(path)) {
    Input input = Input::of_file(path);
    return read_memory_snapshot(input);
  }
  return memory_of(open_trace(path), path.string());
}

}  // namespace stepcast::traces
