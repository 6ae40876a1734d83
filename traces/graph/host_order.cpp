#include "traces/graph/host_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace stepcast::traces {
namespace {

constexpr std::int64_t kGapResolution = 1000;  ///< nanoseconds
/// A stream that is idle for longer than 20 us between two waiting ops waits for something else.
constexpr std::int64_t kLongestGap = 20'000;

bool acts(HostCall what) { return what != HostCall::kMemory && what != HostCall::kOther; }

}  // namespace

HostOrder::HostOrder(const Recording& recording, const RankRecording& rank)
    : rank_(rank),
      operators_(recording, rank),
      phases_(recording.names, rank),
      work_(rank.lanes.size()) {
  const Events& e = rank.events;
  std::vector<HostCall> kinds(recording.names.size());
  for (NameId n = 0; n < kinds.size(); ++n) {
    kinds[n] = host_call_of(recording.names.view(n));
  }
  for (EventId i = 0; i < e.size(); ++i) {
    if (e.category[i] == EventCategory::kRuntimeCall && acts(kinds[e.name[i]])) {
      actions_.push_back({.event = i, .what = kinds[e.name[i]]});
    } else if (is_device_work(e.category[i])) {
      work_[e.lane[i]].push_back(i);
      if (e.link[i] != kNoEvent) {
        launched_.push_back(i);
      }
    } else if ((e.category[i] == EventCategory::kSync ||
                e.category[i] == EventCategory::kEventRecord) &&
               e.detail[i] != kNoDetail && e.correlation[i] != 0) {
      syncs_.emplace_back(e.correlation[i], e.detail[i]);
    } else if (e.category[i] == EventCategory::kOverhead && e.correlation[i] != 0 &&
               recording.names.view(e.name[i]) == kQueueFullOverhead) {
      queue_full_.emplace_back(e.correlation[i], e.duration[i]);
    }
  }
  std::sort(syncs_.begin(), syncs_.end());
  std::sort(queue_full_.begin(), queue_full_.end());
  std::stable_sort(launched_.begin(), launched_.end(), [&e](EventId a, EventId b) {
    return std::pair(e.link[a], e.begin[a]) < std::pair(e.link[b], e.begin[b]);
  });
  auto next = launched_.cbegin();
  for (HostAction& call : actions_) {  // by event, as they are
    next = std::find_if(next, launched_.cend(), [&](EventId w) { return e.link[w] >= call.event; });
    call.first_launched = static_cast<std::uint32_t>(next - launched_.cbegin());
    next = std::find_if(next, launched_.cend(), [&](EventId w) { return e.link[w] != call.event; });
    call.launched = static_cast<std::uint32_t>(next - launched_.cbegin()) - call.first_launched;
  }
  std::stable_sort(actions_.begin(), actions_.end(),
                   [&e](const HostAction& a, const HostAction& b) {
                     return e.begin[a.event] < e.begin[b.event];
                   });
  measure_latencies(e);
}

const SyncInfo* HostOrder::sync_of(EventId call) const {
  const std::int64_t correlation = rank_.events.correlation[call];
  const auto at =
      std::lower_bound(syncs_.begin(), syncs_.end(), std::pair{correlation, std::int32_t{0}});
  return correlation != 0 && at != syncs_.end() && at->first == correlation
             ? &rank_.syncs[static_cast<std::size_t>(at->second)]
             : nullptr;
}

Nanoseconds HostOrder::queue_full_in(EventId call) const {
  const std::int64_t correlation = rank_.events.correlation[call];
  Nanoseconds sum{};
  for (auto at = std::lower_bound(queue_full_.begin(), queue_full_.end(),
                                  std::pair{correlation, Nanoseconds::min()});
       correlation != 0 && at != queue_full_.end() && at->first == correlation; ++at) {
    sum += at->second;
  }
  return std::min(sum, rank_.events.duration[call]);
}

void HostOrder::measure_latencies(const Events& e) {
  std::vector<std::int64_t> latency, gaps, calls;
  for (const HostAction& a : actions_) {
    if (a.what == HostCall::kLaunch) {
      calls.push_back(e.duration[a.event].count());
    }
  }
  if (!calls.empty()) {
    const auto middle = calls.begin() + static_cast<std::ptrdiff_t>(calls.size() / 2);
    std::nth_element(calls.begin(), middle, calls.end());
    launch_call_ = Nanoseconds(*middle);
  }
  for (const auto& lane : work_) {
    Nanoseconds free = Nanoseconds::min();
    for (const EventId i : lane) {
      if (e.link[i] != kNoEvent && e.category[i] != EventCategory::kCollective) {
        const Nanoseconds called = e.begin[e.link[i]];
        if (free < called) {
          latency.push_back((e.begin[i] - called).count());
        } else if (free > called + e.duration[e.link[i]] + std::chrono::microseconds(20)) {
          gaps.push_back(std::max<std::int64_t>(0, (e.begin[i] - free).count()));
        }
      }
      free = std::max(free, e.end(i));
    }
  }
  if (!latency.empty()) {
    const auto middle = latency.begin() + static_cast<std::ptrdiff_t>(latency.size() / 2);
    std::nth_element(latency.begin(), middle, latency.end());
    launch_latency_ = Nanoseconds(std::max<std::int64_t>(0, *middle));
  }
  std::sort(gaps.begin(), gaps.end());
  const std::int64_t median = gaps.empty() ? 0 : gaps[gaps.size() / 2];
  usual_gap_ = Nanoseconds(std::min(kLongestGap, median + std::max(median, kGapResolution)));
  gaps.erase(std::upper_bound(gaps.begin(), gaps.end(), usual_gap_.count()), gaps.end());
  if (!gaps.empty()) {
    dispatch_gap_ = Nanoseconds(std::accumulate(gaps.begin(), gaps.end(), std::int64_t{0}) /
                                static_cast<std::int64_t>(gaps.size()));
  }
}

}  // namespace stepcast::traces
