#include "studies/guard/guard.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "core/error.h"
#include "core/statistics.h"
#include "studies/guard/internal/guard_statistics.h"
#include "studies/guard/internal/guard_structure.h"
#include "studies/guard/internal/guard_totals.h"
#include "studies/guard/internal/late_steps.h"

namespace stepcast::studies {
namespace {

using internal::by_key;
using internal::Case;
using internal::compare_structure;
using internal::key_of;
using internal::OpKey;

constexpr double kFalseAlarms = 0.005;  ///< of a whole comparison
/// Shares of these. Noise that all ops have in common is known from the runs alone, so what they
/// share gets half; totals are judged net of it, as are ops and groups, which get the rest.
constexpr double kOfShared = 0.5, kOfTotals = 0.05;
constexpr double kFaster = 0.01;  ///< probability that equal programs are said to be faster in all
/// Totals that may be next to nothing are compared with this share of the step added.
constexpr double kNextToNothing = 0.01;
constexpr const char* kAllOps = "all ops together";
constexpr const char* kDeviceTime = "device time of all ops";
constexpr const char* kMeanStep = "mean step";
constexpr const char* kLateStep = "95th percentile of steps";
constexpr double kStepsOfQuantile = 8;  ///< per run, that it is of steps and not of chance
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
    lost += t.regressed && is_op(t) ? (t.after - t.before).base() : 0;
  }
  for (GuardedTime& t : result.times) {
    t.share = t.regressed && is_op(t) && lost > 0 ? (t.after - t.before).base() / lost : 0;
  }
  std::stable_sort(
      result.times.begin(), result.times.end(), [](const GuardedTime& a, const GuardedTime& b) {
        const auto order = [](const GuardedTime& t) {
          return std::tuple(!t.regressed, !is_op(t),
                            t.regressed ? (t.before - t.after).base() : -t.before.base());
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
  Case::Role role = Case::Role::kOp;
  bool collective = false;
};

/// The times of `before` that `after` has too, with their rows in the result.
std::vector<Pair> pairs_of(const Baseline& before, const Baseline& after,
                           const std::map<OpKey, const BaselineOp*>& ops_after,
                           GuardResult& result) {
  using Role = Case::Role;
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
  if (!before.step_mean.median.empty() && !before.blocks) {
    add({before.step_mean, after.step_mean, 0, Role::kTotal}, kMeanStep, "total", "");
    // A quantile near the end grows with the number of steps that it is of.
    const double steps = mean_of(before.steps), now = mean_of(after.steps);
    if (std::min(steps, now) >= kStepsOfQuantile && now <= 1.5 * steps) {
      add({before.step_p95, after.step_p95, 0, Role::kTotal}, kLateStep, "total", "");
    }
  }
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
    c.role = pairs[i].role;
    c.collective = pairs[i].collective;
    cases.push_back(std::move(c));
  }
  return cases;
}

/// The number of cases of each role.
std::map<Case::Role, double> roles_of(const std::vector<Case>& cases) {
  std::map<Case::Role, double> count;
  for (const Case& c : cases) {
    count[c.role] += 1;
  }
  return count;
}

/// Judges the cases, among them what all share; a total that is slower in itself is shown with it.
void judge_cases(std::vector<Case>& cases, const GuardOptions& options, bool spread_known,
                 bool faster) {
  using Role = Case::Role;
  auto count = roles_of(cases);
  bool total_regressed = false;
  for (Case& c : cases) {
    const double share = c.role == Role::kShared  ? kOfShared
                         : c.role == Role::kTotal ? kOfTotals / count[Role::kTotal]
                                                  : (1 - kOfShared - kOfTotals) /
                                                        (count[Role::kOp] + count[Role::kGroup]);
    internal::judge(c, kFalseAlarms * share, options, spread_known, faster);
    total_regressed |= c.time->regressed && (c.role == Role::kShared || c.role == Role::kTotal);
  }
  for (Case& c : cases) {
    c.time->regressed |= total_regressed && c.role == Role::kTotal && c.time->slower;
  }
}

/// Judges every time that both have, and the change that all ops share: of their device time where
/// there are too few to tell.
void judge_times(const Baseline& before, const Baseline& after, const std::vector<Pair>& pairs,
                 const GuardOptions& options, bool spread_known, GuardResult& result) {
  result.times.emplace_back();
  std::vector<Case> cases = cases_of(pairs, result);
  const auto device = std::find_if(cases.begin(), cases.end(),
                                   [](const Case& c) { return c.time->name == kDeviceTime; });
  auto common = internal::common_of(cases);
  if (const auto outlier = internal::outlier_of(common ? common->before : device->before,
                                                common ? common->after : device->after)) {
    internal::leave_out(*outlier, cases);
    common = internal::common_of(cases);
    result.warnings.push_back(fmt::format(
        "run {} of the {} is {:+.1f} % beside the others and is left out", outlier->run + 1,
        outlier->after ? "check" : "baseline", 100 * outlier->apart));
  }
  internal::take_out(common, cases);
  const GuardedTime& device_time = *device->time;
  if (common) {
    GuardedTime& all = result.times.back();
    all.name = kAllOps;
    all.kind = "total";
    Case c;
    c.role = Case::Role::kShared;
    c.time = &all;
    c.before = c.net_before = common->before;
    c.after = c.net_after = common->after;
    cases.push_back(std::move(c));
  } else {
    device->role = Case::Role::kShared;
    result.times.pop_back();
  }
  internal::measure(cases, mean_of(before.steps), mean_of(after.steps));
  result.disturbance = internal::disturbance_of(cases);
  for (Case& c : cases) {
    c.net.error *= c.role == Case::Role::kOp ? result.disturbance : 1;
  }
  const Case& shared = *std::find_if(cases.begin(), cases.end(), [](const Case& c) {
    return c.role == Case::Role::kShared;
  });
  if (common) {
    internal::add_noise_of(shared.net, cases);
  }
  const bool faster =
      common && shared.net.value < -internal::noise_threshold(shared.net, kFaster);
  judge_cases(cases, options, spread_known, faster);
  result.common_change = shared.time->change;
  result.at_most = internal::at_most(shared.net);
  if (common) {  // it has no time of its own: it is shown on the device time
    shared.time->before = device_time.before;
    shared.time->after = device_time.before * (1 + shared.time->change);
  }
}

GuardPower power_of(const GuardResult& result) {
  GuardPower power;
  std::vector<const GuardedTime*> ops;
  double common = std::numeric_limits<double>::infinity(), device = common;
  for (const GuardedTime& t : result.times) {
    if (is_op(t)) {
      ops.push_back(&t);
    } else if (t.name == kAllOps) {
      common = t.detects;
    } else if (t.name == kDeviceTime) {
      device = t.detects;  // net of what all share, where that is known
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
  power.all_ops = std::isfinite(common) ? common : device;
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
  return by_tolerance_alone || (judged_times && at_most <= must_see) ? Verdict::kPass
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
    result.at_most = kNever;
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
  for (GuardedTime& t : result.times) {
    if (t.regressed && (t.name == kMeanStep || t.name == kLateStep)) {
      t.note = internal::late_steps(runs);
    }
  }
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
