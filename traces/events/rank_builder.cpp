#include "traces/events/rank_builder.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "traces/events/internal/link_events.h"

namespace stepcast::traces {
namespace {

template <typename Column>
void permute_column(Column& column, const std::vector<EventId>& order) {
  Column sorted;
  sorted.reserve(order.size());
  for (const EventId i : order) {
    sorted.push_back(column[i]);
  }
  column = std::move(sorted);
}

/// Host threads before streams; streams by device, then stream.
auto place_of(const Lane& l) {
  return std::tuple(l.kind == Lane::Kind::kStream, l.device, l.process, l.thread, l.stream,
                    l.context);
}

}  // namespace

RankBuilder::RankBuilder(Names& names, std::string source) : names_(names) {
  rank_.source = std::move(source);
}

void RankBuilder::reserve(std::uint64_t events) {
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(events, std::uint64_t{1} << 28));
  rank_.events.each_column([n](auto& column) { column.reserve(n); });
  rank_.ops.reserve(n / 2);
}

std::uint16_t RankBuilder::lane(const Lane& lane) {
  auto& lanes = rank_.lanes;
  if (recent_lane_ < lanes.size() && place_of(lanes[recent_lane_]) == place_of(lane) &&
      lanes[recent_lane_].name == lane.name) {
    return recent_lane_;
  }
  auto found = std::find_if(lanes.begin(), lanes.end(), [&lane](const Lane& l) {
    return place_of(l) == place_of(lane) && l.name == lane.name;
  });
  if (found == lanes.end()) {
    if (lanes.size() >= UINT16_MAX) {
      throw InputError(rank_.source, "has more than 65534 threads and streams; is this one rank?");
    }
    lanes.push_back(lane);
    found = lanes.end() - 1;
  }
  recent_lane_ = static_cast<std::uint16_t>(found - lanes.begin());
  return recent_lane_;
}

std::uint16_t RankBuilder::host_lane(std::int64_t process, std::int64_t thread,
                                     std::string_view name) {
  Lane l;
  l.process = process;
  l.thread = thread;
  l.name = name.empty() ? kNoName : names_.intern(name);
  return lane(l);
}

std::uint16_t RankBuilder::stream_lane(std::int32_t device, std::int32_t context,
                                       std::int32_t stream) {
  Lane l;
  l.kind = Lane::Kind::kStream;
  l.process = device;
  l.thread = stream;
  l.device = device;
  l.stream = stream;
  l.context = context;
  return lane(l);
}

EventId RankBuilder::add(const NewEvent& event) {
  Events& e = rank_.events;
  if (e.size() >= kNoEvent - 1) {
    throw InputError(rank_.source, "has more than 4 billion events; cut it by steps first");
  }
  e.begin.push_back(event.begin);
  e.duration.push_back(event.duration);
  e.name.push_back(event.name);
  e.category.push_back(event.category);
  e.lane.push_back(event.lane);
  e.correlation.push_back(event.correlation);
  e.external.push_back(event.external);
  e.detail.push_back(event.detail);
  return static_cast<EventId>(e.size() - 1);
}

void RankBuilder::drop(EventId event) {
  dropped_.resize(rank_.events.size(), false);
  dropped_[event] = true;
}

void RankBuilder::step(EventId event, std::int64_t number) {
  const Events& e = rank_.events;
  rank_.steps.push_back({number, e.begin[event], e.end(event), event});
}

std::int32_t RankBuilder::launch(const LaunchInfo& info) {
  std::uint64_t hash = 0;
  for (const std::int64_t v : std::initializer_list<std::int64_t>{
           info.grid[0], info.grid[1], info.grid[2], info.block[0], info.block[1], info.block[2],
           info.registers, info.shared_memory, info.graph, info.graph_node}) {
    hash = (hash ^ static_cast<std::uint64_t>(v)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  auto& bucket = launches_[hash];
  for (const std::int32_t i : bucket) {
    if (rank_.launches[static_cast<std::size_t>(i)] == info) {
      return i;
    }
  }
  rank_.launches.push_back(info);
  bucket.push_back(static_cast<std::int32_t>(rank_.launches.size() - 1));
  return bucket.back();
}

std::int32_t RankBuilder::group(std::string_view name) {
  const auto [it, fresh] =
      groups_.try_emplace(std::string(name), static_cast<std::int32_t>(rank_.groups.size()));
  if (fresh) {
    rank_.groups.emplace_back().name = std::string(name);
  }
  return it->second;
}

void RankBuilder::depends(EventId event, std::int64_t on, Dependencies::Kind kind) {
  edges_.push_back({event, on, kind});
}

std::vector<EventId> RankBuilder::sorted_order() {
  auto& lanes = rank_.lanes;
  Events& e = rank_.events;
  std::vector<std::uint16_t> by_place(lanes.size());
  std::iota(by_place.begin(), by_place.end(), std::uint16_t{0});
  std::stable_sort(by_place.begin(), by_place.end(), [&lanes](std::uint16_t a, std::uint16_t b) {
    return place_of(lanes[a]) < place_of(lanes[b]);
  });
  std::vector<std::uint16_t> place(lanes.size());
  std::vector<Lane> sorted;
  for (const std::uint16_t l : by_place) {
    place[l] = static_cast<std::uint16_t>(sorted.size());
    sorted.push_back(lanes[l]);
  }
  lanes = std::move(sorted);
  dropped_.resize(dropped_.empty() ? 0 : e.size(), false);
  const auto kept = [this](EventId i) { return dropped_.empty() || !dropped_[i]; };
  std::size_t all = 0;
  for (EventId i = 0; i < e.size(); ++i) {
    e.lane[i] = place[e.lane[i]];
    lanes[e.lane[i]].count += kept(i) ? 1 : 0;
    all += kept(i) ? 1 : 0;
  }
  EventId first = 0;
  for (Lane& l : lanes) {
    l.first = first;
    first += l.count;
  }
  std::vector<EventId> next(lanes.size());
  std::transform(lanes.begin(), lanes.end(), next.begin(), [](const Lane& l) { return l.first; });
  std::vector<EventId> order(all);
  for (EventId i = 0; i < e.size(); ++i) {
    if (kept(i)) {
      order[next[e.lane[i]]++] = i;
    }
  }
  const auto earlier = [&e](EventId a, EventId b) {
    return e.begin[a] != e.begin[b] ? e.begin[a] < e.begin[b] : e.duration[a] > e.duration[b];
  };
  const auto lower_id = [&e](EventId a, EventId b) { return e.external[a] < e.external[b]; };
  for (const Lane& l : lanes) {
    const auto begin = order.begin() + l.first;
    const auto end = begin + l.count;
    if (rank_.timing == Timing::kNone) {
      std::stable_sort(begin, end, lower_id);
    } else if (rank_.timing == Timing::kTimeline && !std::is_sorted(begin, end, earlier)) {
      std::stable_sort(begin, end, earlier);
    }
  }
  return order;
}

/// Drops the second of two records of the same name, times and ids in one lane. Some ops last no
/// time or are called by one of their own name, so those without ids count only where nearly all
/// events are doubled.
void RankBuilder::drop_repeated(std::vector<EventId>& order) {
  const Events& e = rank_.events;
  constexpr std::size_t kFarthest = 8;
  std::vector<std::size_t> sure, likely;  // places in `order`
  for (std::size_t k = 1; k < order.size(); ++k) {
    const EventId i = order[k];
    for (std::size_t back = 1; back <= std::min(k, kFarthest); ++back) {
      const EventId j = order[k - back];
      if (e.lane[j] != e.lane[i] || e.begin[j] != e.begin[i] || e.duration[j] != e.duration[i]) {
        break;
      }
      if (e.name[j] == e.name[i] && e.category[j] == e.category[i] &&
          e.correlation[j] == e.correlation[i] && e.external[j] == e.external[i]) {
        const bool told =
            e.duration[i].count() > 0 && (e.correlation[i] != 0 || e.external[i] >= 0 ||
                                          e.category[i] == EventCategory::kUserRange);
        (told ? sure : likely).push_back(k);
        break;
      }
    }
  }
  if (10 * (sure.size() + likely.size()) >= 4 * order.size()) {
    sure.insert(sure.end(), likely.begin(), likely.end());
  }
  if (sure.empty()) {
    return;
  }
  rank_.oddities.add(
      ParseWarning::kRepeated,
      [&] { return rank_.source + ": " + std::string(names_.view(e.name[order[sure.front()]])); },
      sure.size());
  std::vector<bool> out(order.size(), false);
  for (const std::size_t k : sure) {
    out[k] = true;
    --rank_.lanes[e.lane[order[k]]].count;
  }
  std::size_t kept = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (!out[k]) {
      order[kept++] = order[k];
    }
  }
  order.resize(kept);
  EventId first = 0;
  for (Lane& l : rank_.lanes) {
    l.first = first;
    first += l.count;
  }
}

void RankBuilder::permute(const std::vector<EventId>& order) {
  if (order.size() == rank_.events.size() && std::is_sorted(order.begin(), order.end())) {
    return;
  }
  const std::size_t all = rank_.events.size();
  rank_.events.each_column([&order](auto& column) { permute_column(column, order); });
  if (!rank_.steps.empty()) {
    std::vector<EventId> place(all);
    for (EventId i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
    }
    for (StepRange& s : rank_.steps) {
      s.event = place[s.event];
    }
  }
}

void RankBuilder::link_dependencies(const std::vector<EventId>& order) {
  if (edges_.empty()) {
    return;
  }
  const Events& e = rank_.events;
  std::vector<EventId> place(order.size());
  for (EventId i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
  }
  std::unordered_map<std::int64_t, EventId> by_external;
  for (EventId i = 0; i < e.size(); ++i) {
    by_external.emplace(e.external[i], i);
  }
  std::vector<std::uint32_t> count(e.size() + 1, 0);
  std::erase_if(edges_, [&](Edge& edge) {
    edge.event = place[edge.event];
    const auto found = by_external.find(edge.on);
    if (found == by_external.end()) {
      rank_.oddities.add(ParseWarning::kUnknownDependency, [&] {
        return fmt::format("{}: node {} names {}", rank_.source, e.external[edge.event], edge.on);
      });
      return true;
    }
    edge.on = found->second;
    ++count[edge.event + 1];
    return false;
  });
  std::partial_sum(count.begin(), count.end(), count.begin());
  Dependencies& d = rank_.dependencies;
  d.offsets = count;
  d.targets.resize(edges_.size());
  d.kinds.resize(edges_.size());
  for (const Edge& edge : edges_) {
    const std::uint32_t at = count[edge.event]++;
    d.targets[at] = static_cast<EventId>(edge.on);
    d.kinds[at] = edge.kind;
  }
}

RankRecording RankBuilder::finish(Nanoseconds base) && {
  for (Nanoseconds& t : rank_.events.begin) {
    t += base;
  }
  for (StepRange& s : rank_.steps) {
    s.begin += base;
    s.end += base;
  }
  for (MemoryChange& m : rank_.memory) {
    m.at += base;
  }
  std::stable_sort(rank_.memory.begin(), rank_.memory.end(),
                   [](const MemoryChange& a, const MemoryChange& b) { return a.at < b.at; });
  std::vector<EventId> order = sorted_order();
  if (rank_.timing == Timing::kTimeline && rank_.steps.empty() && edges_.empty()) {
    drop_repeated(order);
  }
  permute(order);
  link_dependencies(order);
  internal::link_launches(rank_, names_);
  internal::describe_collectives(rank_, names_);
  if (rank_.timing == Timing::kTimeline) {
    internal::cut_overruns(rank_, names_);
    internal::count_overlaps(rank_, names_);
    internal::find_steps(rank_, names_);
  }
  return std::move(rank_);
}

}  // namespace stepcast::traces
