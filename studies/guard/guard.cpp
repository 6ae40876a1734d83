#include "studies/guard/guard.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "core/error.h"
#include "core/statistics.h"
#include "studies/guard/internal/guard_statistics.h"
#include "studies/guard/internal/guard_structure.h"
#include "studies/guard/internal/guard_totals.h"

namespace stepcast::studies {
namespace {

using internal::by_key;
using internal::Case;
using internal::Common;
using internal::compare_structure;
using internal::kCommonNeeds;
using internal::key_of;
using internal::OpKey;

constexpr double kFalseAlarms = 0.005;  ///< of a whole comparison
constexpr double kOfSums = 0.1;         ///< of these, by steps, groups and what all ops share
/// Totals that may be next to nothing are compared with this share of the step added.
constexpr double kNextToNothing = 0.01;
constexpr const char* kAllOps = "all ops together";
constexpr const char* kDeviceTime = "device time of all ops";
/// A change of all ops together that repeats must let be seen; else they allow no verdict.
constexpr double kMustSee = 0.05;
/// The same where a larger tolerance was asked for.
constexpr double kBeyondTolerance = 0.03;
/// A group of ops of less than this share of the step is no concern.
constexpr double kJudgedAsGroup = 0.01;
/// Share of device time in ops of both sides below which the baseline is another
/// program's.
constexpr double kStillDescribed = 0.9;

bool is_op(const GuardedTime& t) { return t.kind != "total" && t.kind != "group"; }

void rank_by_time_lost(GuardResult& result) {
  double lost = 0;
  for (const GuardedTime& t : result.times) {
    lost += t.regressed && is_op(t) ? t.before.base() * t.change : 0;
  }
  for (GuardedTime& t : result.times) {
    t.share = t.regressed && is_op(t) && lost > 0 ? t.before.base() * t.change / lost : 0;
  }
  std::stable_sort(
      result.times.begin(), result.times.end(), [](const GuardedTime& a, const GuardedTime& b) {
        const auto order = [](const GuardedTime& t) {
          return std::tuple(!t.regressed, !is_op(t),
                            t.regressed ? -t.before.base() * t.change : -t.before.base());
        };
        return order(a) < order(b);
      });
}

double mean_of(const std::vector<std::int64_t>& v) {
  double sum = 0;
  for (const std::int64_t x : v) {
    sum += static_cast<double>(x);
  }
  return sum / static_cast<double>(v.size());
}

/// A time to judge, before it is taken apart by run.
struct Pair {
  BaselineTimes before, after;
  double added = 0;  ///< to both, where they may be next to nothing
  enum class Role : std::uint8_t { kOp, kGroup, kTotal } role = Role::kOp;
  bool collective = false;
};

/// The times of `before` that `after` has too, with their rows in the result.
std::vector<Pair> pairs_of(const Baseline& before, const Baseline& after,
                           const std::map<OpKey, const BaselineOp*>& ops_after,
                           GuardResult& result) {
  using Role = Pair::Role;
  std::vector<Pair> pairs;
  const auto add = [&](Pair pair, std::string name, std::string_view kind, std::string_view phase) {
    pairs.push_back(std::move(pair));
    GuardedTime time;
    time.name = std::move(name);
    time.kind = kind;
    time.phase = phase;
    result.times.push_back(std::move(time));
  };
  for (const BaselineOp& op : before.ops) {
    const auto found = ops_after.find(key_of(op));
    if (!op.small && found != ops_after.end()) {
      add({op.time, found->second->time, 0, Role::kOp, is_collective(op.kind)}, op.name,
          shown_kind(op.kind, op.kernel), name_of(op.phase));
    }
  }
  const double step = middle_of(before.step.median);
  const double added = kNextToNothing * step;
  if (middle_of(before.small_ops.median) > 0) {
    add({before.small_ops, after.small_ops, 0, Role::kOp}, "small ops together", "total", "");
  }
  // A kind of one op that is still there is that op.
  const auto kinds = internal::time_by_kind(before), kinds_after = internal::time_by_kind(after);
  const auto census = internal::census_of(before, after);
  for (const auto& [kind, times] : kinds) {
    const auto found = kinds_after.find(kind);
    if (found != kinds_after.end() && middle_of(times.median) >= kJudgedAsGroup * step &&
        (census.at(kind).ops > 1 || census.at(kind).unmatched > 0)) {
      add({times, found->second, 0, Role::kGroup, kind == KernelKind::kCommunication},
          fmt::format("all {} ops", name_of(kind)), "group", "");
    }
  }
  add({before.host, after.host, added, Role::kTotal}, "host between issues", "total", "");
  add({before.exposed, after.exposed, added, Role::kTotal}, "exposed communication", "total", "");
  add({internal::device_time_of(before), internal::device_time_of(after), 0, Role::kTotal},
      kDeviceTime, "total", "");
  add({before.step, after.step, 0, Role::kTotal}, "step", "total", "");
  return pairs;
}

/// The cases of the pairs, each with its row in `result.times`.
std::vector<Case> cases_of(const std::vector<Pair>& pairs, GuardResult& result) {
  std::vector<Case> cases;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Case c;
    c.before_times = &pairs[i].before;
    c.after_times = &pairs[i].after;
    c.time = &result.times[i];
    c.before = internal::log_of(pairs[i].before, pairs[i].added);
    c.after = internal::log_of(pairs[i].after, pairs[i].added);
    c.op = pairs[i].role == Pair::Role::kOp;
    c.group = pairs[i].role == Pair::Role::kGroup;
    c.collective = pairs[i].collective;
    c.level = middle_of(c.before.median);
    cases.push_back(std::move(c));
  }
  return cases;
}

/// Judges every time that both have, and the change that all ops share where there are enough ops.
void judge_times(const Baseline& before, const Baseline& after, const std::vector<Pair>& pairs,
                 const GuardOptions& options, bool spread_known, GuardResult& result) {
  GuardedTime all;
  all.name = kAllOps;
  all.kind = "total";
  result.times.push_back(std::move(all));
  std::vector<Case> cases = cases_of(pairs, result);
  const Common common = internal::take_out_common(cases, before.steps.size(), after.steps.size());
  result.common_change = std::expm1(middle_of(common.after.median));
  const auto ops = std::count_if(cases.begin(), cases.end(), [](const Case& c) { return c.op; });
  const bool has_common = ops >= static_cast<std::ptrdiff_t>(kCommonNeeds);
  if (has_common) {
    Case c;
    c.time = &result.times.back();
    c.before = common.before;
    c.after = common.after;
    c.level = middle_of(c.before.median);
    c.change = middle_of(c.after.median) - c.level;
    cases.push_back(std::move(c));
  }
  internal::spread_of(cases, before.steps.size(), mean_of(before.steps), mean_of(after.steps));
  result.disturbance = internal::disturbance_of(cases);
  for (Case& c : cases) {
    c.error *= c.op ? result.disturbance : 1;
  }
  const double sums = static_cast<double>(cases.size()) - static_cast<double>(ops);
  for (Case& c : cases) {
    const double share =
        c.op ? (1 - kOfSums) / static_cast<double>(ops) : (ops > 0 ? kOfSums : 1) / sums;
    internal::judge(c, kFalseAlarms * share, options, spread_known);
  }
  if (!has_common) {
    result.times.pop_back();
    return;
  }
  // The common change has no time of its own: it is shown on the device time.
  for (const GuardedTime& t : result.times) {
    if (t.name == kDeviceTime) {
      result.times.back().before = t.before;
      result.times.back().after = t.before * (1 + result.times.back().change);
    }
  }
}

GuardPower power_of(const GuardResult& result) {
  GuardPower power;
  std::vector<const GuardedTime*> ops;
  double common = std::numeric_limits<double>::infinity();
  for (const GuardedTime& t : result.times) {
    if (is_op(t)) {
      ops.push_back(&t);
    } else if (t.name == kAllOps || t.name == kDeviceTime) {
      common = std::min(common, t.detects);
    } else if (t.name == "step") {
      power.step = t.detects;
    }
  }
  std::sort(ops.begin(), ops.end(),
            [](const auto* a, const auto* b) { return a->detects < b->detects; });
  if (!ops.empty()) {
    power.one_op = ops[ops.size() / 2]->detects;
    power.worst_op = ops.back()->detects;
    power.worst = ops.back()->name;
  }
  power.all_ops = common;
  return power;
}

/// Finds signs that the baseline no longer describes the program.
void look_for_age(const Baseline& before, const Baseline& after, GuardResult& result) {
  if (before.version != after.version) {
    result.stale.push_back(
        fmt::format("the baseline was made by {}, this is {}", before.version, after.version));
  }
  for (const GuardedTime& t : result.times) {
    if (t.improved && (t.name == kAllOps || t.name == "step")) {
      result.stale.push_back(
          fmt::format("{} is now {:.1f} % faster",
                      t.name, -100 * t.change));
    }
  }
  const double matched =
      std::min(internal::matched_share(before, after), internal::matched_share(after, before));
  if (matched < kStillDescribed) {
    result.stale.push_back(
        fmt::format("{:.0f} % of the device time is in ops that only one of baseline and runs has",
                    100 * (1 - matched)));
  }
}

}  // namespace

GuardResult::Verdict GuardResult::verdict() const {
  if ((!structure.empty() && !structure_warns) ||
      std::any_of(structure.begin(), structure.end(),
                  [](const StructureChange& s) { return s.what == "ranks"; }) ||
      std::any_of(times.begin(), times.end(), [](const GuardedTime& t) { return t.regressed; })) {
    return Verdict::kRegressed;
  }
  return by_tolerance_alone || (judged_times && power.all_ops <= must_see) ? Verdict::kPass
                                                                           : Verdict::kCannotJudge;
}

GuardResult guard(const Baseline& before, const Baseline& after, const GuardOptions& options) {
  GuardResult result;
  result.false_alarms = kFalseAlarms;
  result.structure_warns = options.structure_warns;
  result.must_see = std::max(kMustSee, options.tolerance + kBeyondTolerance);
  const std::map<OpKey, const BaselineOp*> ops_after = by_key(after);
  compare_structure(before, after, ops_after, result);
  if (before.ranks != after.ranks) {
    result.judged_times = false;  // another program
    return result;
  }
  const std::vector<Pair> pairs = pairs_of(before, after, ops_after, result);
  const bool spread_known = before.steps.size() > 1 || mean_of(before.steps) > 1;
  result.judged_times = spread_known || options.without_spread;
  result.by_tolerance_alone = !spread_known && options.without_spread;
  judge_times(before, after, pairs, options, spread_known, result);
  rank_by_time_lost(result);
  if (spread_known) {
    result.power = power_of(result);
  } else {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    result.power = {kNever, kNever, "", kNever, kNever};
    result.warnings.push_back(
        "the baseline is one step, so its noise is unknown: only --tolerance judges times; record "
        "several runs");
  }
  if (before.blocks) {
    result.warnings.push_back(
        "the baseline is one run, so its noise is underestimated; make it from at least five");
  }
  look_for_age(before, after, result);
  return result;
}

GuardResult guard(const Baseline& before, std::span<const GuardSamples> runs,
                  std::span<const std::string> names, const std::string& version,
                  const GuardOptions& options) {
  STEPCAST_CHECK(names.size() == runs.size(), "{} names of {} runs", names.size(), runs.size());
  GuardResult result = guard(before, make_baseline(runs, version, &before), options);
  if (runs.size() == 1) {
    return result;
  }
  // A range over all runs overlaps the baseline's as soon as one run does: each by itself.
  struct Change {
    StructureChange change;
    std::vector<std::string> in;
  };
  std::vector<Change> changes;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Baseline run = make_baseline(runs.subspan(r, 1), version, &before);
    GuardResult of_run;
    compare_structure(before, run, by_key(run), of_run);
    for (const StructureChange& s : of_run.structure) {
      const auto known = std::find_if(changes.begin(), changes.end(), [&s](const Change& c) {
        const auto fields = [](const StructureChange& x) {
          return std::tie(x.what, x.name, x.kind, x.phase, x.before, x.after);
        };
        return fields(c.change) == fields(s);
      });
      if (known == changes.end()) {
        changes.push_back({s, {names[r]}});
      } else {
        known->in.push_back(names[r]);
      }
    }
  }
  result.structure.clear();
  for (Change& c : changes) {
    c.change.runs = c.in.size() < runs.size() ? fmt::format("{}", fmt::join(c.in, ", ")) : "";
    result.structure.push_back(std::move(c.change));
  }
  return result;
}

}  // namespace stepcast::studies
