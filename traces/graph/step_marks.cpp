#include "traces/graph/step_marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"

namespace stepcast::traces {
namespace {

constexpr double kMost = 0.5;        ///< share of its distance that a range lies over
constexpr double kSame = 0.98;       ///< share of launches that repeat
constexpr std::size_t kRepeats = 3;  ///< of a sequence of launches
constexpr std::string_view kOptimizer = "Optimizer.step#";

/// "train step 12" -> "train step", "ProfilerStep#3" -> "ProfilerStep".
std::string_view without_number(std::string_view name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  name = name.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const std::size_t text = name.find_last_not_of("# _:");
  return name.substr(0, text == std::string_view::npos ? 0 : text + 1);
}

bool is_range(EventCategory c) { return c == EventCategory::kUserRange; }

/// Ranges that a test on their names takes, by begin; of nested ones the outer.
template <typename Takes>
std::vector<StepRange> ranges_of(const Recording& recording, const RankRecording& rank,
                                 Takes takes) {
  const Events& e = rank.events;
  std::vector<StepRange> all;
  for (EventId i = 0; i < e.size(); ++i) {
    if (is_range(e.category[i]) && takes(recording.names.view(e.name[i]))) {
      all.push_back({0, e.begin[i], e.end(i), i});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const StepRange& a, const StepRange& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<StepRange> outer;
  for (const StepRange& r : all) {
    if (outer.empty() || r.begin >= outer.back().end) {
      outer.push_back(r);
      outer.back().number = static_cast<std::int64_t>(outer.size()) - 1;
    }
  }
  return outer;
}

/// First begin and last end of what the host did.
std::optional<StepRange> host_span(const RankRecording& rank) {
  StepRange span{0, Nanoseconds::max(), Nanoseconds::min(), kNoEvent};
  for (EventId e = 0; e < rank.events.size(); ++e) {
    if (!on_device(rank.events.category[e])) {
      span.begin = std::min(span.begin, rank.events.begin[e]);
      span.end = std::max(span.end, rank.events.end(e));
    }
  }
  return span.begin <= span.end ? std::optional(span) : std::nullopt;
}

/// Share of the device work that was launched within ranges, which are apart and by begin.
double launched_in(const RankRecording& rank, const std::vector<StepRange>& ranges) {
  const Events& e = rank.events;
  std::size_t all = 0, within = 0;
  for (EventId i = 0; i < e.size(); ++i) {
    if (!is_device_work(e.category[i]) || e.link[i] == kNoEvent) {
      continue;
    }
    ++all;
    const Nanoseconds at = e.begin[e.link[i]];
    const auto range = std::upper_bound(ranges.begin(), ranges.end(), at,
                                        [](Nanoseconds t, const StepRange& r) { return t < r.end; });
    within += range != ranges.end() && range->begin <= at ? 1 : 0;
  }
  return all > 0 ? static_cast<double>(within) / static_cast<double>(all) : 0;
}

double share_over(const std::vector<StepRange>& ranges, Nanoseconds distance) {
  Nanoseconds sum{};
  for (const StepRange& r : ranges) {
    sum += r.end - r.begin;
  }
  return distance > Nanoseconds{0}
             ? static_cast<double>(sum.count()) / static_cast<double>(distance.count())
             : 0;
}

/// Ranges that are short end steps, from one end to the next.
std::vector<StepRange> as_steps(const RankRecording& rank, std::vector<StepRange> ranges) {
  if (ranges.empty() ||
      share_over(ranges, ranges.back().end - ranges.front().begin) >= kMost) {
    return ranges;
  }
  Nanoseconds begin = host_span(rank)->begin;
  for (StepRange& r : ranges) {
    r.begin = begin;
    begin = r.end;
  }
  return ranges;
}

std::string some_names(const Recording& recording, const RankRecording& rank) {
  std::set<std::string> names;
  for (EventId i = 0; i < rank.events.size() && names.size() < 8; ++i) {
    if (is_range(rank.events.category[i])) {
      names.insert(std::string(without_number(recording.names.view(rank.events.name[i]))));
    }
  }
  std::string text;
  for (const std::string& n : names) {
    text += (text.empty() ? "" : ", ") + n;
  }
  return text.empty() ? "the trace has no ranges" : "its ranges are " + text;
}

StepMarks named(const Recording& recording, std::string_view name) {
  StepMarks marks;
  for (const RankRecording& rank : recording.ranks) {
    std::vector<StepRange> ranges = ranges_of(recording, rank, [name](std::string_view n) {
      return n == name || without_number(n) == name ||
             (n.starts_with(name) && n.substr(name.size()).starts_with('#'));
    });
    if (ranges.empty()) {
      throw InputError("--mark", fmt::format("no range of rank {} is called '{}'; {}", rank.rank,
                                             name, some_names(recording, rank)));
    }
    marks.ranks.push_back(as_steps(rank, std::move(ranges)));
  }
  marks.by = fmt::format("ranges '{}'", name);
  return marks;
}

/// The same marks on all ranks, as often on each; else none.
StepMarks if_whole(std::vector<std::vector<StepRange>> ranks, std::string by) {
  for (const auto& steps : ranks) {
    if (steps.size() < 2 || steps.size() != ranks.front().size()) {
      return {};
    }
  }
  return {std::move(ranks), std::move(by)};
}

/// The fewest repeated ranges of the program that lie over most of the device work's launches.
StepMarks repeated_ranges(const Recording& recording) {
  const RankRecording& first = recording.ranks.front();
  std::map<std::string, std::size_t> families;
  for (EventId i = 0; i < first.events.size(); ++i) {
    if (is_range(first.events.category[i])) {
      const auto family = without_number(recording.names.view(first.events.name[i]));
      families[std::string(family)] += family.empty() ? 0 : 1;
    }
  }
  StepMarks best;
  for (const auto& [family, count] : families) {
    if (count < 2) {
      continue;
    }
    std::vector<std::vector<StepRange>> ranks;
    for (const RankRecording& rank : recording.ranks) {
      ranks.push_back(ranges_of(recording, rank, [&wanted = family](std::string_view n) {
        return without_number(n) == wanted;
      }));
    }
    if (launched_in(first, ranks.front()) < kMost) {
      continue;
    }
    StepMarks marks = if_whole(std::move(ranks), fmt::format("ranges '{}'", family));
    if (!marks.by.empty() &&
        (best.by.empty() || marks.ranks.front().size() < best.ranks.front().size())) {
      best = std::move(marks);
    }
  }
  return best;
}

StepMarks optimizer_steps(const Recording& recording) {
  std::vector<std::vector<StepRange>> ranks;
  for (const RankRecording& rank : recording.ranks) {
    ranks.push_back(as_steps(rank, ranges_of(recording, rank, [](std::string_view n) {
                               return n.starts_with(kOptimizer);
                             })));
  }
  return if_whole(std::move(ranks), fmt::format("ends of '{}'", kOptimizer));
}

/// The launched work of the stream that has most of it, by begin.
std::vector<EventId> main_work(const RankRecording& rank) {
  std::vector<EventId> most;
  for (const Lane& lane : rank.lanes) {
    std::vector<EventId> work;
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      if (is_device_work(rank.events.category[i]) && rank.events.link[i] != kNoEvent) {
        work.push_back(i);
      }
    }
    if (work.size() > most.size()) {
      most = std::move(work);
    }
  }
  return most;
}

/// Share of a sequence that is the same `period` later; 0 below kSame.
double repeating(const std::vector<NameId>& names, std::size_t period) {
  const std::size_t n = names.size() - period;
  const auto allowed = static_cast<std::size_t>(static_cast<double>(n) * (1 - kSame));
  std::size_t other = 0;
  for (std::size_t i = 0; i < n && other <= allowed; ++i) {
    other += names[i] != names[i + period] ? 1 : 0;
  }
  return other > allowed ? 0 : 1 - static_cast<double>(other) / static_cast<double>(n);
}

std::size_t period_of(const std::vector<NameId>& names) {
  std::size_t best = 0;
  double share = 0;
  for (std::size_t period = 2; period * kRepeats <= names.size(); ++period) {
    const double same = repeating(names, period);
    if (same > share + 0.005) {  // of a period and its multiples the period
      best = period;
      share = same;
    }
  }
  return best;
}

std::vector<StepRange> repeated_launches(const RankRecording& rank, std::size_t& period) {
  const Events& e = rank.events;
  const std::vector<EventId> work = main_work(rank);
  std::vector<NameId> names;
  for (const EventId w : work) {
    names.push_back(e.name[w]);
  }
  period = period_of(names);
  std::vector<StepRange> steps;
  if (period == 0) {
    return steps;
  }
  for (std::size_t at = names.size() % period; at + period <= names.size(); at += period) {
    const EventId last = e.link[work[at + period - 1]];
    steps.push_back({static_cast<std::int64_t>(steps.size()), e.begin[e.link[work[at]]],
                     std::max(e.end(last), e.begin[e.link[work[at]]]), kNoEvent});
  }
  return steps;
}

StepMarks launch_pattern(const Recording& recording) {
  std::vector<std::vector<StepRange>> ranks;
  std::size_t period = 0;
  for (const RankRecording& rank : recording.ranks) {
    ranks.push_back(repeated_launches(rank, period));
  }
  return if_whole(std::move(ranks), fmt::format("a sequence of {} launches that repeats", period));
}

}  // namespace

StepMarks step_marks(const Recording& recording, std::string_view name) {
  if (!name.empty()) {
    return named(recording, name);
  }
  StepMarks marks;
  if (std::all_of(recording.ranks.begin(), recording.ranks.end(),
                  [](const RankRecording& r) { return !r.steps.empty(); })) {
    for (const RankRecording& rank : recording.ranks) {
      marks.ranks.push_back(rank.steps);
    }
    const StepRange& first = marks.ranks.front().front();
    marks.by = first.event == kNoEvent
                   ? "the profiler"
                   : fmt::format("ranges '{}'",
                                 without_number(recording.names.view(
                                     recording.ranks.front().events.name[first.event])));
    return marks;
  }
  for (const auto find : {repeated_ranges, optimizer_steps, launch_pattern}) {
    marks = find(recording);
    if (!marks.by.empty()) {
      return marks;
    }
  }
  for (const RankRecording& rank : recording.ranks) {
    const auto span = host_span(rank);
    marks.ranks.push_back(span ? std::vector{*span} : std::vector<StepRange>{});
  }
  return marks;
}

}  // namespace stepcast::traces
