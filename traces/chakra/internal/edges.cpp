#include "traces/chakra/internal/edges.h"

#include <algorithm>
#include <map>
#include <utility>

#include "traces/events/host_calls.h"

namespace stepcast::traces::internal {
namespace {

using Kind = Dependencies::Kind;
using Stream = std::pair<std::int32_t, std::int32_t>;  // device, stream

Stream stream_of(const Lane& lane) { return {lane.device, lane.stream}; }

/// Device work and host calls in the order in which the host issued them.
class TimelineEdges {
 public:
  TimelineEdges(const RankRecording& rank, const Names& names, bool host_waits)
      : rank_(rank),
        e_(rank.events),
        names_(names),
        host_waits_(host_waits),
        predecessors_(rank.events.size()) {}

  Dependencies edges() && {
    for (const Lane& lane : rank_.lanes) {
      lane.kind == Lane::Kind::kStream ? stream(lane) : thread(lane);
    }
    waits();
    for (EventId i = 0; rank_.dependencies.added && i < e_.size(); ++i) {
      for (const EventId on : rank_.dependencies.of(i)) {
        depends(i, on, Kind::kData);
      }
    }
    Dependencies d;
    d.offsets.push_back(0);
    for (auto& list : predecessors_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
      for (const auto& [target, kind] : list) {
        d.targets.push_back(target);
        d.kinds.push_back(kind);
      }
      d.offsets.push_back(static_cast<std::uint32_t>(d.targets.size()));
    }
    return d;
  }

 private:
  void depends(EventId event, EventId on, Kind kind) {
    predecessors_[event].emplace_back(on, kind);
  }

  void stream(const Lane& lane) {
    EventId before = kNoEvent;
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      if (e_.link[i] != kNoEvent) {
        depends(i, e_.link[i], Kind::kData);
      }
      if (is_device_work(e_.category[i])) {
        if (before != kNoEvent) {
          depends(i, before, Kind::kData);
        }
        before = i;
      }
    }
  }

  void thread(const Lane& lane) {
    std::vector<EventId> open;
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      while (!open.empty() && e_.end(open.back()) <= e_.begin[i]) {
        open.pop_back();
      }
      if (!open.empty()) {
        depends(i, open.back(), Kind::kControl);
      }
      if (i > lane.first) {
        depends(i, i - 1, Kind::kData);
      }
      open.push_back(i);
    }
  }

  /// Walks host calls in time; remembers the last work launched on each stream.
  void waits() {
    std::vector<EventId> calls;
    std::map<std::int64_t, const SyncInfo*> syncs;  // by correlation of the call
    for (EventId i = 0; i < e_.size(); ++i) {
      if (e_.category[i] == EventCategory::kRuntimeCall) {
        calls.push_back(i);
      } else if (e_.category[i] == EventCategory::kSync && e_.detail[i] != kNoDetail) {
        syncs[e_.correlation[i]] = &rank_.syncs[static_cast<std::size_t>(e_.detail[i])];
      }
    }
    std::stable_sort(calls.begin(), calls.end(),
                     [this](EventId a, EventId b) { return e_.begin[a] < e_.begin[b]; });
    std::map<Stream, EventId> last;
    std::map<std::int64_t, std::map<Stream, EventId>> at_record;
    std::map<std::int32_t, std::vector<EventId>> due;  // by waiting stream
    for (const EventId call : calls) {
      const auto found = syncs.find(e_.correlation[call]);
      const SyncInfo* sync = found == syncs.end() ? nullptr : found->second;
      switch (host_call_of(names_.view(e_.name[call]))) {
        case HostCall::kEventRecord:
          at_record[e_.correlation[call]] = last;
          break;
        case HostCall::kStreamWait:
          if (sync != nullptr) {
            for (const auto& [stream, work] : at_record[sync->record_correlation]) {
              if (stream.second == sync->source_stream) {
                due[sync->stream].push_back(work);
              }
            }
          }
          break;
        case HostCall::kBlockingCopy:
        case HostCall::kStreamSync:
        case HostCall::kDeviceSync:
        case HostCall::kEventSync:
          for (const auto& [stream, work] : last) {
            const bool meant =
                sync == nullptr || sync->source_stream < 0 || stream.second == sync->source_stream;
            if (host_waits_ && meant && e_.end(work) <= e_.end(call)) {
              depends(call, work, Kind::kData);
            }
          }
          break;
        default:
          break;
      }
      if (const EventId work = e_.link[call]; work != kNoEvent) {
        const Stream stream = stream_of(rank_.lanes[e_.lane[work]]);
        for (const EventId on : std::exchange(due[stream.second], {})) {
          if (on != work && e_.begin[on] <= e_.begin[work]) {
            depends(work, on, Kind::kData);
          }
        }
        last[stream] = work;
      }
    }
  }

  const RankRecording& rank_;
  const Events& e_;
  const Names& names_;
  bool host_waits_;
  std::vector<std::vector<std::pair<EventId, Kind>>> predecessors_;
};

}  // namespace

Dependencies edges_of_timeline(const RankRecording& rank, const Names& names, bool host_waits) {
  return TimelineEdges(rank, names, host_waits).edges();
}

std::vector<Nanoseconds> own_times(const RankRecording& rank, const Names& names) {
  const Events& e = rank.events;
  std::vector<Nanoseconds> own;
  own.reserve(e.size());
  for (EventId i = 0; i < e.size(); ++i) {
    own.push_back(e.duration[i]);
  }
  if (rank.timing != Timing::kTimeline) {
    return own;
  }
  std::vector<EventId> open;
  for (const Lane& lane : rank.lanes) {
    open.clear();
    for (EventId i = lane.first;
         lane.kind == Lane::Kind::kHostThread && i < lane.first + lane.count; ++i) {
      while (!open.empty() && e.end(open.back()) <= e.begin[i]) {
        open.pop_back();
      }
      if (!open.empty()) {
        own[open.back()] -= std::min(e.end(i), e.end(open.back())) - e.begin[i];
      }
      open.push_back(i);
    }
  }
  for (EventId i = 0; i < e.size(); ++i) {
    const bool waits = e.category[i] == EventCategory::kRuntimeCall &&
                       waits_for_device(host_call_of(names.view(e.name[i])));
    own[i] = waits ? Nanoseconds{0} : std::max(own[i], Nanoseconds{0});
  }
  return own;
}

EventId find_cycle(const Dependencies& edges, std::size_t n) {
  // Nodes leave when all they wait for has left; those that never do are on a cycle or behind one.
  std::vector<std::uint32_t> waits(n, 0);
  std::vector<std::vector<EventId>> followers(n);
  for (EventId e = 0; e < n && !edges.offsets.empty(); ++e) {
    for (std::uint32_t d = edges.offsets[e]; d < edges.offsets[e + 1]; ++d) {
      if (edges.kinds[d] == Kind::kData) {
        followers[edges.targets[d]].push_back(e);
        ++waits[e];
      }
    }
  }
  std::vector<EventId> free;
  for (EventId e = 0; e < n; ++e) {
    if (waits[e] == 0) {
      free.push_back(e);
    }
  }
  std::size_t left = n;
  while (!free.empty()) {
    const EventId e = free.back();
    free.pop_back();
    --left;
    for (const EventId f : followers[e]) {
      if (--waits[f] == 0) {
        free.push_back(f);
      }
    }
  }
  if (left == 0) {
    return kNoEvent;
  }
  const auto stuck = std::find_if(waits.begin(), waits.end(), [](auto w) { return w > 0; });
  return static_cast<EventId>(stuck - waits.begin());
}

}  // namespace stepcast::traces::internal
