#include "studies/guard/guard.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/digamma.hpp>
#include <boost/math/special_functions/trigamma.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "core/error.h"
#include "core/statistics.h"
#include "studies/guard/internal/guard_totals.h"

namespace stepcast::studies {
namespace {

constexpr double kFalseAlarms = 0.005;  ///< of a whole comparison
constexpr double kOfSums = 0.1;         ///< of these, by steps, groups and what all ops share
constexpr double kPower = 0.95;         ///< what "is caught" means
/// Medians are not distinguished more finely than this: clocks tick, graphs of other tools round.
constexpr double kResolution = 1e-3;
constexpr std::size_t kCommonNeeds = 5;  ///< ops, to tell one from all
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
/// Where less of the device time than this is in ops of both sides, the baseline is another
/// program's.
constexpr double kStillDescribed = 0.9;
constexpr double kManyDegrees = 1e6;  ///< as good as infinitely many

/// log medians and their standard errors, by run.
struct LogTimes {
  std::vector<double> median, error;
};

LogTimes log_of(const BaselineTimes& times, double added) {
  LogTimes logs;
  for (std::size_t r = 0; r < times.median.size(); ++r) {
    const double m = std::max(times.median[r] + added, 1e-12);
    logs.median.push_back(std::log(m));
    logs.error.push_back(std::max(times.standard_error[r] / m, kResolution));
  }
  return logs;
}

double mean_square(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) {
    sum += x * x;
  }
  return sum / static_cast<double>(v.size());
}

double variance(const std::vector<double>& v) {
  double mean = 0, sum = 0;
  for (const double x : v) {
    mean += x / static_cast<double>(v.size());
  }
  for (const double x : v) {
    sum += (x - mean) * (x - mean);
  }
  return sum / static_cast<double>(v.size() - 1);
}

/// Variance of a median of n values of variance 1: pi / (2 n) from three values on.
double of_median(std::size_t n) { return (n > 2 ? std::acos(0.0) : 1.0) / static_cast<double>(n); }

/// x with trigamma(x) = y > 0, by Newton's method on 1 / trigamma, which is convex (Smyth 2004,
/// appendix).
double inverse_trigamma(double y) {
  double x = 0.5 + 1 / y;
  for (int i = 0; i < 50; ++i) {
    const double t = boost::math::trigamma(x);
    const double h = 1e-5 * x;
    const double slope = (boost::math::trigamma(x + h) - t) / h;
    const double step = t * (1 - t / y) / slope;
    x += step;
    if (std::abs(step) < 1e-8 * x) {
      break;
    }
  }
  return x;
}

/// How much runs differ beyond what their steps explain: a scaled inverse chi-squared law over the
/// ops, with `scale` and `degrees` of freedom.
struct Excess {
  double scale = 1, degrees = 0;
};

/// From ratios of observed to expected variance with `degrees` of freedom each.
Excess excess_of(const std::vector<double>& ratios, double degrees) {
  using boost::math::digamma;
  if (ratios.size() < 3) {
    return {};
  }
  std::vector<double> e;
  double mean = 0;
  for (const double ratio : ratios) {
    e.push_back(std::log(std::max(ratio, 1e-6)) - digamma(degrees / 2) + std::log(degrees / 2));
    mean += e.back() / static_cast<double>(ratios.size());
  }
  const double spread = variance(e) - boost::math::trigamma(degrees / 2);
  if (spread <= 0) {
    return {std::exp(mean), kManyDegrees};
  }
  const double prior = 2 * inverse_trigamma(spread);
  return {std::exp(mean + digamma(prior / 2) - std::log(prior / 2)), prior};
}

/// One time to judge, before and after, on the logarithmic scale.
struct Case {
  const BaselineTimes *before_times = nullptr, *after_times = nullptr;
  GuardedTime* time = nullptr;
  LogTimes before, after;
  bool collective = false;
  bool op = false;     ///< contributes to the common change
  bool group = false;  ///< has what is common taken out, like an op
  double level = 0;    ///< median over the runs before
  double change = 0;   ///< of the median over the runs after
  double between = 0;  ///< variance between runs that others of its class have too
  double degrees = 0;
  double error = 0;
};

/// The median change of the ops in run `r`, 0 where there are too few ops to tell.
double common_of(const std::vector<Case>& cases, bool after, std::size_t r) {
  std::vector<double> changes;
  for (const Case& c : cases) {
    if (c.op) {
      changes.push_back((after ? c.after : c.before).median[r] - c.level);
    }
  }
  return changes.size() < kCommonNeeds ? 0 : middle_of(changes);
}

/// What all ops have in common, by run; its own scatter is that of a median over ops.
struct Common {
  LogTimes before, after;
};

std::vector<double> errors_of_common(const std::vector<Case>& cases, bool after, std::size_t runs) {
  std::vector<double> errors(runs, 0);
  double ops = 0;
  for (const Case& c : cases) {
    ops += c.op ? 1 : 0;
    for (std::size_t r = 0; c.op && r < runs; ++r) {
      const double e = (after ? c.after : c.before).error[r];
      errors[r] += e * e;
    }
  }
  for (double& e : errors) {
    e = std::max(kResolution, ops > 0 ? std::sqrt(std::acos(0.0) * e / ops / ops) : 0);
  }
  return errors;
}

/// Takes what all ops have in common out of every run of the ops.
Common take_out_common(std::vector<Case>& cases, std::size_t runs_before, std::size_t runs_after) {
  std::vector<double> before, after;
  for (std::size_t r = 0; r < runs_before; ++r) {
    before.push_back(common_of(cases, false, r));
  }
  for (std::size_t r = 0; r < runs_after; ++r) {
    after.push_back(common_of(cases, true, r));
  }
  for (Case& c : cases) {
    for (std::size_t r = 0; (c.op || c.group) && r < runs_before; ++r) {
      c.before.median[r] -= before[r];
    }
    for (std::size_t r = 0; (c.op || c.group) && r < runs_after; ++r) {
      c.after.median[r] -= after[r];
    }
    c.level = middle_of(c.before.median);
    c.change = middle_of(c.after.median) - c.level;
  }
  Common common;
  common.before = {std::move(before), errors_of_common(cases, false, runs_before)};
  common.after = {std::move(after), errors_of_common(cases, true, runs_after)};
  return common;
}

/// Mean of what the variance between runs has beyond the steps' own, over collectives or over the
/// others: they share a network, or a processor.
double beyond_steps(const std::vector<Case>& cases, bool collective) {
  std::vector<double> beyond;
  for (const Case& c : cases) {
    if (c.op && c.collective == collective) {
      beyond.push_back(variance(c.before.median) - mean_square(c.before.error));
    }
  }
  double sum = 0;
  for (const double b : beyond) {
    sum += b / static_cast<double>(beyond.size());
  }
  return std::max(sum, 0.0);
}

/// Variances of the changes. `steps`: per run, mean of before and of after.
void spread_of(std::vector<Case>& cases, std::size_t runs, double steps_before,
               double steps_after) {
  const auto degrees = static_cast<double>(runs) - 1;
  std::vector<double> ratios;
  if (runs > 1) {
    const double network = beyond_steps(cases, true), processor = beyond_steps(cases, false);
    for (Case& c : cases) {
      if (c.op) {
        c.between = c.collective ? network : processor;
        ratios.push_back(variance(c.before.median) / (c.between + mean_square(c.before.error)));
      }
    }
  }
  const Excess excess = runs > 1 ? excess_of(ratios, degrees) : Excess{1, kManyDegrees};
  for (Case& c : cases) {
    const double own = mean_square(c.before.error);
    double run = own;  // variance of a run's median
    c.degrees = kManyDegrees;
    if (runs > 1) {
      const double prior = c.op ? excess.degrees : 0;
      c.degrees = prior + degrees;
      run = std::max(
          own, (prior * excess.scale * (c.between + own) + degrees * variance(c.before.median)) /
                   c.degrees);
    }
    // A later run of fewer or noisier steps has more of its own.
    const double later =
        run +
        std::max(0.0, std::max(mean_square(c.after.error), own * steps_before / steps_after) - own);
    c.error = std::sqrt(run * of_median(runs) + later * of_median(c.after.median.size()));
  }
}

/// How much wider the changes of all ops scatter than the baseline's spread explains, at least 1:
/// a disturbed run says so itself. The scale of the bulk (median absolute deviation), which one op
/// does not move; B. Devlin, K. Roeder, Genomic control, Biometrics 55, 1999.
double disturbance_of(const std::vector<Case>& cases) {
  std::vector<double> deviations;
  for (const Case& c : cases) {
    if (c.op) {
      deviations.push_back(std::abs(c.change) / c.error);
    }
  }
  constexpr double kMedianOfNormal = 0.6745;
  return deviations.size() < kCommonNeeds ? 1.0
                                          : std::max(1.0, middle_of(deviations) / kMedianOfNormal);
}

double quantile_of_t(double degrees, double tail) {
  return boost::math::quantile(
      boost::math::complement(boost::math::students_t(std::min(degrees, kManyDegrees)), tail));
}

void judge(Case& c, double t, const GuardOptions& options, bool spread_known) {
  GuardedTime& time = *c.time;
  if (c.before_times != nullptr) {
    time.before = seconds(middle_of(c.before_times->median));
    time.after = seconds(middle_of(c.after_times->median));
  }
  time.change = std::exp(c.change) - 1;
  time.noise = c.error;
  const double tolerated = std::log1p(options.tolerance);
  if (!spread_known) {
    time.regressed = options.without_spread && c.change > tolerated;
    time.improved = options.without_spread && c.change < -tolerated;
    return;
  }
  const double threshold = std::max(tolerated, t * c.error);
  // What is real is in every run: one slow process among several is no regression.
  const double least = *std::min_element(c.after.median.begin(), c.after.median.end()) - c.level;
  time.regressed = c.change > threshold && least > tolerated / 2;
  time.improved = c.change < -threshold;
  time.detects = std::expm1(threshold + quantile_of_t(c.degrees, 1 - kPower) * c.error);
}

using Key = std::tuple<std::string, OpKind, Phase>;
Key key_of(const BaselineOp& op) { return {op.name, op.kind, op.phase}; }

std::string shown(const BaselineRange& range) {
  return range.low == range.high ? fmt::format("{:.10g}", range.low)
                                 : fmt::format("{:.10g} to {:.10g}", range.low, range.high);
}

void compare_structure(const Baseline& before, const Baseline& after,
                       const std::map<Key, const BaselineOp*>& ops_after, GuardResult& result) {
  if (before.ranks != after.ranks) {  // all else follows from it
    result.structure.push_back(
        {"ranks", "", "", "", std::to_string(before.ranks), std::to_string(after.ranks), ""});
    return;
  }
  const auto differ = [&result](const char* what, const BaselineOp& op, std::string was,
                                std::string is) {
    result.structure.push_back({what, op.name, std::string(shown_kind(op.kind, op.kernel)),
                                std::string(name_of(op.phase)), std::move(was), std::move(is), ""});
  };
  const auto apart = [](const BaselineRange& a, const BaselineRange& b) {
    return b.low > a.high || b.high < a.low;
  };
  std::map<Key, bool> known;
  for (const BaselineOp& op : before.ops) {
    known[key_of(op)] = true;
    const auto found = ops_after.find(key_of(op));
    if (found == ops_after.end()) {
      if (op.launches.low > 0) {
        differ("op is gone", op, shown(op.launches), "0");
      }
      continue;
    }
    if (apart(op.launches, found->second->launches)) {
      differ("launches", op, shown(op.launches), shown(found->second->launches));
    }
    if (apart(op.bytes, found->second->bytes)) {
      differ("collective bytes", op, shown(op.bytes), shown(found->second->bytes));
    }
  }
  for (const auto& [key, op] : ops_after) {
    if (!known.contains(key)) {
      differ("new op", *op, "0", shown(op->launches));
    }
  }
}

std::map<Key, const BaselineOp*> by_key(const Baseline& baseline) {
  std::map<Key, const BaselineOp*> ops;
  for (const BaselineOp& op : baseline.ops) {
    ops[key_of(op)] = &op;
  }
  return ops;
}

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

}  // namespace

namespace {

/// A time to judge, before it is taken apart by run.
struct Pair {
  BaselineTimes before, after;
  double added = 0;  ///< to both, where they may be next to nothing
  enum class Role : std::uint8_t { kOp, kGroup, kTotal } role = Role::kOp;
  bool collective = false;
};

/// The times of `before` that `after` has too, with their rows in the result.
std::vector<Pair> pairs_of(const Baseline& before, const Baseline& after,
                           const std::map<Key, const BaselineOp*>& ops_after, GuardResult& result) {
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

/// What says that the baseline no longer describes the program.
void look_for_age(const Baseline& before, const Baseline& after, GuardResult& result) {
  if (before.version != after.version) {
    result.stale.push_back(
        fmt::format("the baseline was made by {}, this is {}", before.version, after.version));
  }
  for (const GuardedTime& t : result.times) {
    if (t.improved && (t.name == kAllOps || t.name == "step")) {
      result.stale.push_back(
          fmt::format("{}: {:.1f} % less time than the baseline; a slowdown back to it would pass",
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
  const std::map<Key, const BaselineOp*> ops_after = by_key(after);
  compare_structure(before, after, ops_after, result);
  if (before.ranks != after.ranks) {
    result.judged_times = false;  // another program
    return result;
  }
  const std::vector<Pair> pairs = pairs_of(before, after, ops_after, result);
  GuardedTime all;
  all.name = kAllOps;
  all.kind = "total";
  result.times.push_back(std::move(all));
  std::vector<Case> cases;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Case c;
    c.before_times = &pairs[i].before;
    c.after_times = &pairs[i].after;
    c.time = &result.times[i];
    c.before = log_of(pairs[i].before, pairs[i].added);
    c.after = log_of(pairs[i].after, pairs[i].added);
    c.op = pairs[i].role == Pair::Role::kOp;
    c.group = pairs[i].role == Pair::Role::kGroup;
    c.collective = pairs[i].collective;
    c.level = middle_of(c.before.median);
    cases.push_back(std::move(c));
  }
  const Common common = take_out_common(cases, before.steps.size(), after.steps.size());
  result.common_change = std::expm1(middle_of(common.after.median));
  const auto ops = std::count_if(cases.begin(), cases.end(), [](const Case& c) { return c.op; });
  if (ops >= static_cast<std::ptrdiff_t>(kCommonNeeds)) {
    Case c;
    c.time = &result.times.back();
    c.before = common.before;
    c.after = common.after;
    c.level = middle_of(c.before.median);
    c.change = middle_of(c.after.median) - c.level;
    cases.push_back(std::move(c));
  }
  spread_of(cases, before.steps.size(), mean_of(before.steps), mean_of(after.steps));
  result.disturbance = disturbance_of(cases);
  for (Case& c : cases) {
    c.error *= c.op ? result.disturbance : 1;
  }
  const bool spread_known = before.steps.size() > 1 || mean_of(before.steps) > 1;
  result.judged_times = spread_known || options.without_spread;
  result.by_tolerance_alone = !spread_known && options.without_spread;
  const auto share_of = [&](const Case& c) {
    const double sums = static_cast<double>(cases.size()) - static_cast<double>(ops);
    return c.op ? (1 - kOfSums) / static_cast<double>(ops) : (ops > 0 ? kOfSums : 1) / sums;
  };
  for (Case& c : cases) {
    judge(c, quantile_of_t(c.degrees, kFalseAlarms * share_of(c)), options, spread_known);
  }
  // What all have in common has no time of its own: it is shown on the device time.
  for (const GuardedTime& t : result.times) {
    if (t.name == kDeviceTime) {
      result.times.back().before = t.before;
      result.times.back().after = t.before * (1 + result.times.back().change);
    }
  }
  if (cases.size() == pairs.size()) {
    result.times.pop_back();  // too few ops have anything in common
  }
  rank_by_time_lost(result);
  if (spread_known) {
    result.power = power_of(result);
  } else {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    result.power = {kNever, kNever, "", kNever, kNever};
    result.warnings.push_back(
        "the baseline is one step, which says nothing of noise: times are judged by the tolerance, "
        "if one was given; record several runs");
  }
  if (before.blocks) {
    result.warnings.push_back(
        "the baseline is one run: blocks of its steps stand for repeat runs, which differ more; "
        "make it from at least five");
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
