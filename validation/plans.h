#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/system.h"
#include "runtime/mpi/session.h"
#include "validation/plan_tasks.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// One candidate plan of a task: what was predicted, and the median step of each round it ran.
struct PlanRun {
  std::string name;
  std::string kinds;
  double predicted = 0;        ///< seconds
  double bytes = 0;            ///< the measure that a bytes-only choice goes by
  bool lookup_greedy = false;  ///< the plan that greedy placement by lookups makes
  std::vector<double> rounds;  ///< seconds
};

/// When a task says something about a choice.
struct TaskRules {
  double noise = 0.02;     ///< repeat noise, at most
  double spread = 0.15;    ///< median plan over the best, at least
  double near = 0.10;      ///< what "close to the best" means
  std::size_t rivals = 3;  ///< plans that close, besides the best
  double close = 0.03;     ///< over the best: plans that more rounds tell apart
};

/// The verdict on one task. All times are medians over rounds. Repeat noise of a plan is |median of
/// the odd rounds / median of the even ones - 1|, that of the task the median over its plans, that
/// of its close plans the median over those within TaskRules::close of the best.
struct TaskScore {
  double noise = 0, close_noise = 0, spread = 0;
  std::size_t rivals = 0;
  std::optional<std::string> skipped;  ///< why the task does not count
  std::size_t best = 0;                ///< plan of the least measured time
  std::size_t chosen = 0;              ///< plan of the least predicted time
  /// The chosen plan is the best one; or its measured time is above the best by no more than the
  /// close plans' repeat noise, so that the measurement cannot tell them apart.
  bool exact = false, tied = false;
  double regret = 0;  ///< chosen over best - 1, measured
  double kendall_tau = 0;
  /// The same plan is the best of the odd rounds and of the even ones: only then does the
  /// measurement itself know which plan is the fastest.
  bool halves_agree = false;
  /// Median over plans of predicted / measured - 1: what the plans have in common moves no choice.
  /// And the median distance of the plans from it, which does.
  double common_bias = 0, apart = 0;
  std::vector<double> measured;
  std::vector<std::size_t> close;  ///< plans within TaskRules::close of the best, itself among them
};
TaskScore score_of(const std::vector<PlanRun>& plans, const TaskRules& rules = {});

/// One drawn job, its candidates and what became of them.
struct PlanTask {
  Job job;
  std::vector<PlanCandidate> candidates;
  std::vector<PlanRun> runs;  ///< by candidate
  TaskScore score;
};

/// A share of n with its 95 % Wilson interval: (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 +
/// z^2/n), z = 1.96. Source: Wilson, J. Am. Stat. Assoc. 22, 1927.
struct Share {
  double value = 0, low = 0, high = 1;
};
Share wilson(double hits, double n);

/// One way to choose, over the tasks that count.
struct ChoiceScore {
  std::string name;
  std::size_t n = 0;
  Share exact, tied;  ///< strict, and with ties counted as right
  Share agreed;       ///< strict, of the tasks whose halves agree on the best plan
  double mean_regret = 0, worst_regret = 0;
};

/// Ours, bytes-only, lookup-greedy, random (its expectation), and what measuring itself reaches:
/// the plan of least time in the odd rounds, judged by the even ones. And what all tasks say
/// together.
struct PlanScores {
  std::size_t tasks = 0, counted = 0;
  std::size_t agreed = 0;  ///< of those that count: both halves have the same best plan
  /// Means over tasks that count of their common bias, of its size, and of TaskScore::apart.
  double common_bias = 0, common_error = 0, apart = 0;
  std::vector<ChoiceScore> choices;  ///< "stepcast" first
  /// Errors of every plan of the tasks that count; over these tasks the mean tau and the median
  /// noise.
  Group plans{.name = "plans"};
  /// Exact top-1 (strict) at least 90 %, mean regret at most 2 %, and the lower end of the interval
  /// above the share of bytes-only.
  [[nodiscard]] bool pass() const;
};
PlanScores scores_of(const std::vector<PlanTask>& tasks);

struct ValidatePlansOptions {
  std::uint64_t seed = 1;
  std::int64_t count = 24;   ///< tasks that count, to be reached
  std::int64_t at_most = 0;  ///< tasks that run in all; 0: three times as many
  double budget = 0;         ///< seconds of runs; 0: none. The current task is finished
  std::int64_t rounds = 4, steps = 3, warmup = 1;  ///< of every candidate
  /// Further rounds of the plans within TaskRules::close of the best, where the task counts so far.
  std::int64_t close_rounds = 12;
  const System* emulate = nullptr;
  TaskRules rules;
  /// On rank 0, after every prediction, before the first run and after every task.
  std::function<void(const std::vector<PlanTask>&)> predicted;
  std::function<void(double done, const std::string& what)> progress;
};

/// Is the plan that is predicted to be the fastest the fastest? Draws jobs, makes candidates for
/// each, predicts them all and writes that down; then runs the candidates of a task in rounds, one
/// after the other on one set of ranks, until enough tasks count. `system` is the calibrated one,
/// on rank 0. All ranks call it together; rank 0's tasks are complete. Tasks drawn and not run are
/// left out.
std::vector<PlanTask> validate_plans(const System& system, const ValidatePlansOptions& options,
                                     runtime::MpiSession& session);

/// Job that calibration trains: tasks of the same make from other seeds, under calibration_plan.
Job plan_calibration_job(std::int64_t i, std::uint64_t seed, std::int64_t ranks);

}  // namespace stepcast::validation
