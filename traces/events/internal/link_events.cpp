#include "traces/events/internal/link_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <set>

#include "traces/events/host_calls.h"
#include "traces/events/kernel_kinds.h"

namespace stepcast::traces::internal {
namespace {

std::string place(const RankRecording& rank, const Names& names, EventId e) {
  return fmt::format("{}: '{}' at {} ns", rank.source,
                     names.view(rank.events.name[e]).substr(0, 60), rank.events.begin[e].count());
}

/// Host calls by correlation id: a plain table where ids are dense, as profilers number them. Some
/// use an id again once its call is over: then the last before the work counts.
class Correlations {
 public:
  template <typename Duplicate>
  Correlations(const Events& e, Duplicate&& duplicate) {
    for (EventId i = 0; i < e.size(); ++i) {
      if (e.category[i] == EventCategory::kRuntimeCall && e.correlation[i] != 0) {
        low_ = calls_ == 0 ? e.correlation[i] : std::min(low_, e.correlation[i]);
        high_ = calls_ == 0 ? e.correlation[i] : std::max(high_, e.correlation[i]);
        ++calls_;
      }
    }
    const std::uint64_t range =
        static_cast<std::uint64_t>(high_) - static_cast<std::uint64_t>(low_);
    dense_ = calls_ > 0 && range < 8 * calls_ + 1024;
    if (dense_) {
      table_.assign(range + 1, kNoEvent);
    }
    const auto again = [&](EventId before, EventId i) {
      duplicate(i);
      if (e.begin[i] >= e.end(before) || e.end(i) <= e.begin[before]) {
        again_.emplace_back(e.correlation[i], before);
        again_.emplace_back(e.correlation[i], i);
      }
    };
    for (EventId i = 0; i < e.size(); ++i) {
      if (e.category[i] != EventCategory::kRuntimeCall || e.correlation[i] == 0) {
        continue;
      }
      if (!dense_) {
        pairs_.emplace_back(e.correlation[i], i);
      } else if (EventId& slot = table_[static_cast<std::size_t>(e.correlation[i] - low_)];
                 slot == kNoEvent) {
        slot = i;
      } else {
        again(slot, i);
      }
    }
    std::stable_sort(pairs_.begin(), pairs_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < pairs_.size(); ++i) {
      if (pairs_[i].first == pairs_[i - 1].first) {
        again(pairs_[i - 1].second, pairs_[i].second);
      }
    }
    std::sort(again_.begin(), again_.end(), [&e](const Call& a, const Call& b) {
      return std::pair(a.first, e.begin[a.second]) < std::pair(b.first, e.begin[b.second]);
    });
  }
  /// The call of an id whose work began at a time; kNoEvent where there is none.
  [[nodiscard]] EventId call(const Events& e, std::int64_t correlation, Nanoseconds begin) const {
    const auto from = std::lower_bound(again_.begin(), again_.end(), correlation, kBelow);
    EventId last =
        from != again_.end() && from->first == correlation ? from->second : only(correlation);
    for (auto at = from; at != again_.end() && at->first == correlation; ++at) {
      last = e.begin[at->second] <= begin ? at->second : last;
    }
    return last;
  }

 private:
  using Call = std::pair<std::int64_t, EventId>;
  static constexpr auto kBelow = [](const Call& c, std::int64_t wanted) {
    return c.first < wanted;
  };
  [[nodiscard]] EventId only(std::int64_t correlation) const {
    if (correlation == 0 || calls_ == 0 || correlation < low_ || correlation > high_) {
      return kNoEvent;
    }
    if (dense_) {
      return table_[static_cast<std::size_t>(correlation - low_)];
    }
    const auto at = std::lower_bound(pairs_.begin(), pairs_.end(), correlation, kBelow);
    return at != pairs_.end() && at->first == correlation ? at->second : kNoEvent;
  }

  std::int64_t low_ = 0;
  std::int64_t high_ = 0;
  std::uint64_t calls_ = 0;
  bool dense_ = false;
  std::vector<EventId> table_;
  std::vector<Call> pairs_;
  std::vector<Call> again_;  ///< all calls of ids used again, by begin
};

std::vector<HostCall> host_calls(const Events& e, const Names& names) {
  std::vector<HostCall> call(names.size(), HostCall::kOther);
  std::vector<bool> known(names.size(), false);
  for (EventId i = 0; i < e.size(); ++i) {
    const NameId name = e.name[i];
    if (e.category[i] == EventCategory::kRuntimeCall && name != kNoName && !known[name]) {
      known[name] = true;
      call[name] = host_call_of(names.view(name));
    }
  }
  return call;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         [](std::int64_t a, std::int64_t b) {
                           std::int64_t out = 0;
                           return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &out) ? -1 : out;
                         });
}

/// The first text of a list such as ["float","Scalar"].
std::string_view first_type(std::string_view types) {
  const std::size_t open = types.find('"');
  if (open == std::string_view::npos) {
    return {};
  }
  const std::size_t close = types.find('"', open + 1);
  return close == std::string_view::npos ? std::string_view{}
                                         : types.substr(open + 1, close - open - 1);
}

void fill_bytes(CollectiveInfo& c, const Names& names, std::int32_t group_size) {
  const std::optional<int> element = element_bytes_of(names.view(c.dtype));
  std::int64_t elements = std::max(c.elements_in, c.elements_out);
  if (c.kind == OpKind::kAllGather && c.elements_out < 0 && c.elements_in >= 0) {
    elements =
        group_size > 0 && c.elements_in < INT64_MAX / group_size ? c.elements_in * group_size : -1;
  }
  if (element && elements >= 0 && elements < INT64_MAX / *element) {
    c.bytes = elements * *element;
  }
}

/// The nearest host range around a launch that says what the collective moves, and the one that
/// names its communicator.
void describe_from_host(RankRecording& rank, Names& names, EventId call, CollectiveInfo& c) {
  const Events& e = rank.events;
  const EventId first = rank.lanes[e.lane[call]].first;
  constexpr EventId kFarthest = 512;
  const EventId stop = call - first > kFarthest ? call - kFarthest : first;
  for (EventId i = call; i-- > stop;) {
    if (e.end(i) < e.end(call) ||
        (e.category[i] != EventCategory::kCpuOp && e.category[i] != EventCategory::kUserRange) ||
        e.detail[i] == kNoDetail) {
      continue;
    }
    const std::string_view name = names.view(e.name[i]);
    const OpInfo& op = rank.ops[static_cast<std::size_t>(e.detail[i])];
    if (op.collective != kNoDetail) {
      const CollectiveInfo& issued = rank.collectives[static_cast<std::size_t>(op.collective)];
      const OpKind kind = c.kind;
      c = issued;
      c.kind = issued.kind == OpKind::kCount ? kind : issued.kind;
      c.from_host = true;
      return;
    }
    if (name.starts_with("nccl:") || name == "record_param_comms") {
      // A kernel's name is nearer to what ran: "nccl:all_to_all" also stands for unequal parts.
      if (const auto kind = collective_kind_of(name)) {
        c.kind = c.kind == OpKind::kCount ? *kind : c.kind;
        c.name = e.name[i];
      }
      std::int64_t elements = 0;
      for (const auto& shape : shapes_of(names.view(op.shapes))) {
        const std::int64_t n = shape.empty() ? 0 : product(shape);
        elements = n < 0 || elements > INT64_MAX / 2 - n ? INT64_MAX / 2 : elements + n;
      }
      const std::string_view type = first_type(names.view(op.types));
      if (elements > 0 && c.elements_in < 0 && element_bytes_of(type)) {
        c.elements_in = elements;
        c.dtype = names.intern(type);
        c.from_host = true;
      }
    }
  }
}

}  // namespace

void link_launches(RankRecording& rank, const Names& names) {
  Events& e = rank.events;
  e.link.assign(e.size(), kNoEvent);
  const Correlations correlations(e, [&](EventId i) {
    rank.oddities.add(ParseWarning::kDuplicateCorrelation, [&] { return place(rank, names, i); });
  });
  const bool timeline = rank.timing == Timing::kTimeline;
  for (EventId i = 0; i < e.size(); ++i) {
    if (!on_device(e.category[i])) {
      continue;
    }
    const EventId call = correlations.call(e, e.correlation[i], e.begin[i]);
    e.link[i] = call;
    if (!is_device_work(e.category[i])) {
      continue;
    }
    if (call == kNoEvent) {
      if (timeline) {
        rank.oddities.add(ParseWarning::kOrphan, [&] { return place(rank, names, i); });
      }
      continue;
    }
    if (e.link[call] == kNoEvent || e.begin[i] < e.begin[e.link[call]]) {
      e.link[call] = i;
    }
    if (e.begin[i] < e.begin[call]) {
      rank.oddities.add(ParseWarning::kBeforeLaunch, [&] { return place(rank, names, i); });
    }
  }
  const std::vector<HostCall> calls = host_calls(e, names);
  for (EventId i = 0; i < e.size(); ++i) {
    if (e.category[i] == EventCategory::kRuntimeCall && e.link[i] == kNoEvent &&
        e.name[i] != kNoName && calls[e.name[i]] == HostCall::kLaunch) {
      rank.oddities.add(ParseWarning::kLaunchWithoutWork, [&] { return place(rank, names, i); });
    }
  }
}

void describe_collectives(RankRecording& rank, Names& names) {
  Events& e = rank.events;
  for (EventId i = 0; i < e.size(); ++i) {
    if (e.category[i] != EventCategory::kCollective) {
      continue;
    }
    if (e.detail[i] == kNoDetail) {
      e.detail[i] = static_cast<std::int32_t>(rank.collectives.size());
      rank.collectives.emplace_back();
    }
    CollectiveInfo c = rank.collectives[static_cast<std::size_t>(e.detail[i])];
    if (c.kind == OpKind::kCount) {
      const NameId said = c.name == kNoName ? e.name[i] : c.name;
      c.kind = collective_kind_of(names.view(said))
                   .value_or(
                       collective_kind_of(names.view(e.name[i]))
                           .value_or(KernelKinds::built_in().of(names.view(e.name[i])).collective));
    }
    if (c.kind == OpKind::kAllToAll &&
        collective_kind_of(names.view(e.name[i])) == OpKind::kAllToAllV) {
      c.kind = OpKind::kAllToAllV;  // nothing says that the parts are equal
    }
    if (c.elements_in < 0 && c.elements_out < 0 && c.bytes < 0 && e.link[i] != kNoEvent) {
      describe_from_host(rank, names, e.link[i], c);
    }
    if (c.bytes < 0) {
      const std::int32_t size =
          c.group >= 0 ? rank.groups[static_cast<std::size_t>(c.group)].size : rank.world_size;
      fill_bytes(c, names, size);
    }
    if (c.bytes < 0) {
      rank.oddities.add(ParseWarning::kUnsizedCollective, [&] { return place(rank, names, i); });
    }
    if (c.kind == OpKind::kCount) {
      rank.oddities.add(ParseWarning::kUnknownCollective, [&] { return place(rank, names, i); });
    }
    rank.collectives[static_cast<std::size_t>(e.detail[i])] = std::move(c);
  }
}

void cut_overruns(RankRecording& rank, const Names& names) {
  constexpr std::size_t kOver = 4;  // that begin before its end
  Events& e = rank.events;
  std::vector<EventId> work;
  for (const Lane& lane : rank.lanes) {
    work.clear();
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      if (lane.kind == Lane::Kind::kStream && is_device_work(e.category[i])) {
        work.push_back(i);
      }
    }
    std::vector<std::size_t> over;
    for (std::size_t w = 0; w + kOver < work.size(); ++w) {
      const EventId i = work[w], last = work[w + kOver];
      const bool one_launch = e.correlation[i] != 0 && e.correlation[i] == e.correlation[last];
      if (e.end(i) > e.begin[last] && !one_launch) {
        over.push_back(w);
      }
    }
    if (over.size() > std::max<std::size_t>(3, work.size() / 100)) {
      continue;  // this stream is no queue
    }
    for (const std::size_t w : over) {
      const EventId i = work[w];
      const auto next =
          std::find_if(work.begin() + static_cast<std::ptrdiff_t>(w), work.end(),
                       [&e, i](EventId follower) { return e.begin[follower] > e.begin[i]; });
      if (next != work.end()) {
        rank.oddities.add(ParseWarning::kOverrun, [&] { return place(rank, names, i); });
        e.duration.set(i, e.begin[*next] - e.begin[i]);
      }
    }
  }
}

void count_overlaps(RankRecording& rank, const Names& names) {
  const Events& e = rank.events;
  std::vector<Nanoseconds> open;  // ends of the host ranges around the current one
  for (const Lane& lane : rank.lanes) {
    open.clear();
    std::optional<Nanoseconds> busy_until;
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      if (lane.kind == Lane::Kind::kStream) {
        if (!is_device_work(e.category[i])) {
          continue;
        }
        if (busy_until && e.begin[i] < *busy_until) {
          rank.oddities.add(ParseWarning::kOverlap, [&] { return place(rank, names, i); });
        }
        busy_until = std::max(busy_until.value_or(e.end(i)), e.end(i));
        continue;
      }
      while (!open.empty() && open.back() <= e.begin[i]) {
        open.pop_back();
      }
      if (!open.empty() && e.end(i) > open.back()) {
        rank.oddities.add(ParseWarning::kCrossing, [&] { return place(rank, names, i); });
      }
      open.push_back(e.end(i));
    }
  }
}

void find_steps(RankRecording& rank, const Names& names) {
  constexpr std::string_view kMark = "ProfilerStep#";
  const Events& e = rank.events;
  std::vector<std::int64_t> number(names.size(), -1);
  for (NameId n = 0; n < names.size(); ++n) {
    const std::string_view text = names.view(n);
    if (text.starts_with(kMark)) {
      std::from_chars(text.data() + kMark.size(), text.data() + text.size(), number[n]);
    }
  }
  for (EventId i = 0; i < e.size(); ++i) {
    const bool range =
        e.category[i] == EventCategory::kUserRange || e.category[i] == EventCategory::kCpuOp;
    if (range && e.name[i] != kNoName && number[e.name[i]] >= 0) {
      rank.steps.push_back({number[e.name[i]], e.begin[i], e.end(i), i});
    }
  }
  std::stable_sort(rank.steps.begin(), rank.steps.end(),
                   [](const StepRange& a, const StepRange& b) { return a.begin < b.begin; });
  std::set<std::int64_t> numbers;
  for (const StepRange& s : rank.steps) {
    numbers.insert(s.number);
  }
  if (numbers.size() == rank.steps.size()) {
    return;
  }
  // Cycles that begin anew, or one step on several threads, of which the first that began stands
  // for all.
  std::vector<StepRange> apart;
  for (const StepRange& s : rank.steps) {
    if (apart.empty() || s.begin >= apart.back().end) {
      apart.push_back(s);
      apart.back().number = static_cast<std::int64_t>(apart.size()) - 1;
    }
  }
  rank.steps = std::move(apart);
}

}  // namespace stepcast::traces::internal
