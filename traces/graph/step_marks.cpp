#include "traces/graph/step_marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/glob.h"

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

/// Name of the ranges that differ from it in numbers: "execute_16_context_0" ->
/// "execute_*_context", which also names them as --mark takes it.
std::string family_of(std::string_view name) {
  std::string family;
  for (const char c : without_number(name)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || family.empty() || family.back() != '*') {
      family += digit ? '*' : c;
    }
  }
  return family;
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

/// First begin and last end of what the host did; where it launched nothing, of all.
std::optional<StepRange> span_of(const RankRecording& rank) {
  const Events& e = rank.events;
  bool launched = false;
  for (EventId i = 0; i < e.size() && !launched; ++i) {
    launched = is_device_work(e.category[i]) && e.link[i] != kNoEvent;
  }
  StepRange span{0, Nanoseconds::max(), Nanoseconds::min(), kNoEvent};
  for (EventId i = 0; i < e.size(); ++i) {
    if (!launched || !on_device(e.category[i])) {
      span.begin = std::min(span.begin, e.begin[i]);
      span.end = std::max(span.end, e.end(i));
    }
  }
  return span.begin <= span.end ? std::optional(span) : std::nullopt;
}

/// Names of the device work launched within each of several ranges, which are apart and by begin.
struct LaunchedIn {
  LaunchedIn(const RankRecording& rank, const std::vector<StepRange>& ranges)
      : names(ranges.size()) {
    const Events& e = rank.events;
    std::vector<std::pair<Nanoseconds, NameId>> launches;
    for (EventId i = 0; i < e.size(); ++i) {
      if (is_device_work(e.category[i]) && e.link[i] != kNoEvent) {
        launches.emplace_back(e.begin[e.link[i]], e.name[i]);
      }
    }
    std::sort(launches.begin(), launches.end());
    for (const auto& [at, name] : launches) {
      const auto range =
          std::upper_bound(ranges.begin(), ranges.end(), at,
                           [](Nanoseconds t, const StepRange& r) { return t < r.end; });
      if (range != ranges.end() && range->begin <= at) {
        names[static_cast<std::size_t>(range - ranges.begin())].push_back(name);
        ++within;
      }
    }
    share =
        launches.empty() ? 0 : static_cast<double>(within) / static_cast<double>(launches.size());
  }
  /// Steps launch more than a kernel each and about as much as each other. Where the same contents
  /// come back only after several ranges, these are parts of a step.
  [[nodiscard]] bool like_steps() const {
    std::vector<std::size_t> sizes;
    for (const auto& n : names) {
      sizes.push_back(n.size());
    }
    const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
    std::nth_element(sizes.begin(), middle, sizes.end());
    const std::size_t usual = *middle;
    const auto odd =
        static_cast<std::size_t>(std::count_if(sizes.begin(), sizes.end(), [usual](std::size_t n) {
          return 5 * std::max(n, usual) > 6 * std::min(n, usual);
        }));
    const auto comes_back_after = [this](std::size_t period) {
      return std::equal(names.begin() + static_cast<std::ptrdiff_t>(period), names.end(),
                        names.begin());
    };
    bool parts = false;
    for (std::size_t period = 2; 2 * period <= names.size() && !parts; ++period) {
      parts = comes_back_after(period) && !comes_back_after(1);
    }
    return usual > 1 && 2 * odd < names.size() && !parts;
  }
  std::vector<std::vector<NameId>> names;  ///< by range
  std::size_t within = 0;
  double share = 0;  ///< of all device work
};

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
  if (ranges.empty() || share_over(ranges, ranges.back().end - ranges.front().begin) >= kMost) {
    return ranges;
  }
  Nanoseconds begin = span_of(rank)->begin;
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
      names.insert(family_of(recording.names.view(rank.events.name[i])));
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
      return glob_matches(name, n) || glob_matches(name, without_number(n)) ||
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
  return {std::move(ranks), std::move(by), false, {}};
}

StepMarks guessed(StepMarks marks) {
  marks.guessed = !marks.by.empty();
  return marks;
}

/// The fewest repeated ranges of the program that lie over most of the device work's launches, and
/// hold what steps do.
StepMarks repeated_ranges(const Recording& recording) {
  const RankRecording& first = recording.ranks.front();
  std::map<std::string, std::size_t> families;
  for (EventId i = 0; i < first.events.size(); ++i) {
    if (is_range(first.events.category[i])) {
      const std::string family = family_of(recording.names.view(first.events.name[i]));
      families[family] += family.empty() ? 0 : 1;
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
        return family_of(n) == wanted;
      }));
    }
    const LaunchedIn launched(first, ranks.front());
    if (launched.share < kMost || !launched.like_steps()) {
      continue;
    }
    StepMarks marks = if_whole(std::move(ranks), fmt::format("ranges '{}'", family));
    if (!marks.by.empty() &&
        (best.by.empty() || marks.ranks.front().size() < best.ranks.front().size())) {
      best = std::move(marks);
    }
  }
  return guessed(std::move(best));
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

/// Whether a sequence repeats its last `period` names from its first on, so that what came before
/// the first whole period was the end of one, and holds more than one name. Layers repeat too, but
/// what comes before and after them is in no layer.
bool repeats(const std::vector<NameId>& names, std::size_t period) {
  const auto allowed = [](std::size_t n) {
    return static_cast<std::size_t>(static_cast<double>(n) * (1 - kSame));
  };
  const std::size_t n = names.size(), head = n % period;
  std::size_t other = 0, other_in_head = 0, kinds = 0;
  for (std::size_t i = 0; i < n && other <= allowed(n); ++i) {
    const NameId last = names[n - period + (i + period - head) % period];
    other += names[i] != last ? 1 : 0;
    other_in_head += i < head && names[i] != last ? 1 : 0;
    kinds += last != names.back() ? 1 : 0;
  }
  return other <= allowed(n) && other_in_head <= allowed(period) && kinds > 0;
}

std::size_t period_of(const std::vector<NameId>& names) {
  const auto last = [&names](std::size_t back) { return names[names.size() - 1 - back]; };
  constexpr std::size_t kTail = 64;  // of which most must come back, before the rest is looked at
  for (std::size_t period = 2; period * kRepeats <= names.size(); ++period) {
    const std::size_t tail = std::min(kTail, names.size() - period);
    std::size_t other = 0;
    for (std::size_t i = 0; i < tail && 8 * other <= kTail; ++i) {
      other += last(i) != last(i + period) ? 1 : 0;
    }
    if (8 * other <= kTail && repeats(names, period)) {
      return period;
    }
  }
  return 0;
}

/// Whether one operator or range of the host holds all of some ranges: then they are its parts.
bool within_one(const RankRecording& rank, const std::vector<StepRange>& ranges) {
  const Events& e = rank.events;
  for (EventId i = 0; i < e.size(); ++i) {
    if ((is_range(e.category[i]) || e.category[i] == EventCategory::kCpuOp) &&
        e.begin[i] <= ranges.front().begin && e.end(i) >= ranges.back().end) {
      return true;
    }
  }
  return false;
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
  return within_one(rank, steps) ? std::vector<StepRange>{} : steps;
}

/// Whether any step of a rank launched device work, or holds such that nothing launched.
bool hold_work(const Recording& recording, const StepMarks& marks) {
  for (std::size_t r = 0; r < recording.ranks.size(); ++r) {
    const Events& e = recording.ranks[r].events;
    for (EventId i = 0; i < e.size(); ++i) {
      const Nanoseconds at = e.begin[e.link[i] == kNoEvent ? i : e.link[i]];
      if (is_device_work(e.category[i]) &&
          std::any_of(marks.ranks[r].begin(), marks.ranks[r].end(),
                      [at](const StepRange& s) { return s.begin <= at && at < s.end; })) {
        return true;
      }
    }
  }
  return false;
}

StepMarks launch_pattern(const Recording& recording) {
  std::vector<std::vector<StepRange>> ranks;
  std::size_t period = 0;
  for (const RankRecording& rank : recording.ranks) {
    ranks.push_back(repeated_launches(rank, period));
  }
  return guessed(
      if_whole(std::move(ranks), fmt::format("a sequence of {} launches that repeats", period)));
}

StepMarks marks_of(const Recording& recording) {
  StepMarks marks;
  if (std::all_of(recording.ranks.begin(), recording.ranks.end(),
                  [](const RankRecording& r) { return !r.steps.empty(); })) {
    for (const RankRecording& rank : recording.ranks) {
      marks.ranks.push_back(rank.steps);
    }
    const StepRange& first = marks.ranks.front().front();
    marks.by =
        first.event == kNoEvent
            ? "the profiler"
            : fmt::format("ranges '{}'", without_number(recording.names.view(
                                             recording.ranks.front().events.name[first.event])));
    return marks;
  }
  for (const auto find : {repeated_ranges, optimizer_steps, launch_pattern}) {
    marks = find(recording);
    if (!marks.by.empty()) {
      break;
    }
  }
  return marks;
}

}  // namespace

std::vector<std::string> StepMarks::warnings() const {
  std::vector<std::string> all;
  if (!empty_ones.empty()) {
    all.push_back(fmt::format("{} launched no device work", empty_ones));
  }
  if (by.empty()) {
    all.emplace_back(
        "nothing marks steps: the whole recording counts as one; name the ranges that are steps "
        "with --mark NAME");
  } else if (guessed) {
    all.push_back(fmt::format(
        "steps are guessed from {}; name the ranges that are steps with --mark NAME", by));
  }
  return all;
}

StepMarks step_marks(const Recording& recording, std::string_view name) {
  if (!name.empty()) {
    return named(recording, name);
  }
  StepMarks marks = marks_of(recording);
  if (!marks.by.empty() && hold_work(recording, marks)) {
    return marks;
  }
  StepMarks whole;
  whole.empty_ones = marks.by;
  for (const RankRecording& rank : recording.ranks) {
    const auto span = span_of(rank);
    whole.ranks.push_back(span ? std::vector{*span} : std::vector<StepRange>{});
  }
  return whole;
}

}  // namespace stepcast::traces
