#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/baseline.h"
#include "core/graph/kernel_kind.h"
#include "core/units.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// Times and counts of the steps of one run; every list is by step.
struct GuardSamples {
  struct Op {
    std::string name;
    OpKind kind = OpKind::kRecorded;
    Phase phase = Phase::kForward;
    KernelKind kernel = KernelKind::kOther;
    std::vector<double> seconds, launches, bytes;  ///< as BaselineOp counts them
  };
  std::int64_t ranks = 0;
  std::vector<Op> ops;
  std::vector<double> step, host, exposed;  ///< seconds
};
GuardSamples samples_of(const traces::MeasuredRun& run);

/// Medians and their standard errors of runs of one program, which must agree on ranks. A single
/// run stands for several: blocks of its steps. `like`: the baseline it will be held against, which
/// decides the ops that are judged alone; else those of at least 1 % of the step are.
/// Errors: InputError when the runs have different programs or hold no step.
Baseline make_baseline(std::span<const GuardSamples> runs, std::string version,
                       const Baseline* like = nullptr);

/// The runs of `kept`, then those of `fresh`, made like it; the latest `most` of them.
Baseline extended(const Baseline& kept, const Baseline& fresh, std::size_t most);

struct GuardOptions {
  double tolerance = 0.02;  ///< slowdowns up to this share of an op are ignored
  /// Judge by the tolerance alone where the baseline has no spread to judge by (a single step).
  bool without_spread = false;
  /// Changes of structure are told and fail nothing: libraries choose other kernels by the day.
  bool structure_warns = false;
};

/// One guarded time: an op, or a total.
struct GuardedTime {
  /// Kind "total" for those that are no op, "group" for all ops of a kernel kind together.
  std::string name, kind, phase;
  Seconds before, after;  ///< per step
  double change = 0;   ///< after / before - 1 without what all ops have in common, run by run
  double noise = 0;    ///< standard error of that change
  double detects = 0;  ///< the slowdown that is caught in 95 % of cases
  double share = 0;    ///< of the time lost by all ops that regressed
  bool slower = false;  ///< in itself, beyond tolerance and noise
  bool regressed = false, improved = false;
  std::string note;  ///< "every 4th step takes 5.2 ms, the others 3.8 ms"
};

/// One guarded fact that no noise excuses: a count that left the range of the baseline.
struct StructureChange {
  std::string what;  ///< "new op", "op is gone", "launches", "collective bytes", "ranks"
  std::string name, kind, phase;
  std::string before, after;
  std::string runs;  ///< the runs it is in, where others of the check are as before
};

/// The change that is caught in 95 % of cases; infinite where no spread is known.
struct GuardPower {
  double one_op = 0;    ///< half of the ops are seen from this on
  double worst_op = 0;  ///< all are
  std::string worst;
  double all_ops = 0;  ///< all ops together
  double step = 0;
};

struct GuardResult {
  enum class Verdict : std::uint8_t {
    kPass,
    kRegressed,
    kCannotJudge  ///< nothing regressed, and `at_most` is more than must be seen
  };
  std::vector<GuardedTime> times;  ///< regressed first, by time lost; then the longest
  std::vector<StructureChange> structure;
  double common_change = 0;  ///< of all ops together: the machine, or a global cause
  GuardPower power;
  double at_most = 0;   ///< the change of all ops together is below it in 95 % of cases
  double must_see = 0;  ///< such a change that a verdict must exclude
  bool structure_warns = false;
  /// Why the baseline should be renewed; empty: it still describes the program.
  std::vector<std::string> stale;
  double disturbance = 1;   ///< how much wider all ops scatter than the baseline explains
  double false_alarms = 0;  ///< probability of any regression on a repeat recording, by design
  bool by_tolerance_alone = false;  ///< no spread is known and a tolerance was asked for
  bool judged_times = true;         ///< false: the baseline has no spread
  std::vector<std::string> warnings;
  [[nodiscard]] Verdict verdict() const;
  [[nodiscard]] bool pass() const { return verdict() == Verdict::kPass; }
};

/// Compares runs with a baseline: whether an op takes longer than repeat recordings explain.
///
/// For each op the median over steps is compared, on a logarithmic scale, as the difference of the
/// means over runs. What all ops have in common (in each run their median change: clock rate, a
/// neighbour) is judged by itself, "all ops together", with a t test: noise that all ops share is
/// known from the runs alone. All else - ops, groups (all ops of a kernel kind), device time, host
/// time, exposed communication, the median, mean and 95th percentile of steps - regressed when
/// it is slower in itself (beyond tolerance and noise) and net of the common change (beyond the
/// tolerance, and beyond a one-sided t quantile), in every run. An op's variance is the one of both
/// sides' runs, at least what its steps explain, drawn toward the other ops' as far as they agree
/// (moderated t: G. K. Smyth, Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol.
/// Biol. 3(1), 2004); others stand alone. The net tests and that of the common change divide
/// false_alarms among them (Bonferroni).
///
/// Without a regression the runs are as before where the common change is below 5 % with 95 %
/// confidence; else they cannot be judged.
///
/// Structure is compared exactly. Accuracy: tests/studies/guard_test.cpp.
GuardResult guard(const Baseline& before, const Baseline& after, const GuardOptions& options = {});

/// Overload for several runs at once. Times are judged over all together, structure of each run by
/// itself: one run of another program among good ones is not as before. `names` is by run. Runs of
/// another number of ranks differ in nothing else worth saying. Errors: InputError when the runs
/// differ in ranks among themselves, or hold no step.
GuardResult guard(const Baseline& before, std::span<const GuardSamples> runs,
                  std::span<const std::string> names, const std::string& version,
                  const GuardOptions& options = {});

}  // namespace stepcast::studies
