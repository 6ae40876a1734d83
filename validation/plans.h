#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "core/system.h"
#include "runtime/mpi/session.h"
#include "studies/run/runtime_cases.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// The fabric that tasks of `validate plans` run on unless another is given: nodes of two ranks,
/// slow enough that exchanges are half of a step and latencies are well above the precision of a
/// sleep.
System two_rank_nodes(std::int64_t ranks);

/// A small DLRM whose step takes some 5 to 40 ms on 4 ranks of such a fabric: 6 to 14 tables of
/// 200 to 60,000 rows, dims 8 to 96, pooling 1 to 24, popularity uniform to zipf 1.1. The draw
/// knows nothing of costs.
Job draw_plan_task(const System& system, std::int64_t ranks, studies::Draw& draw);

/// One candidate plan of a task: what was predicted, and the median step of each round it ran.
struct PlanRun {
  std::string name;                 ///< how it was made
  std::vector<std::string> also{};  ///< other ways that came to the same plan
  EmbeddingPlan plan{};
  double predicted = 0;          ///< seconds
  double bytes = 0;              ///< the measure that a bytes-only choice goes by
  std::vector<double> rounds{};  ///< seconds
  [[nodiscard]] bool called(std::string_view way) const;
};

/// Distinct candidates for a job: the planner's best; greedy whole tables by five measures and
/// round robin; every table row-wise, column-wise, table-row-wise; mixes that replicate tables up
/// to a number of rows and place, cut or split the rest; random whole tables and random mixes.
/// Plans that differ by an exchange of equal nodes, or of equal places in all nodes, are one. The
/// cost model is asked by the planner only.
std::vector<PlanRun> candidate_plans(const Job& job, std::uint64_t seed);

/// Bytes as the only measure of a plan: over ranks the largest of lookups forward and update (three
/// passes over the rows) plus what it sends and receives in exchanges and the synchronisation of
/// replicas, each byte alike.
double bytes_of_plan(const Job& job, const EmbeddingPlan& plan);

/// Kinds of sharding in use, in order: "table_wise data_parallel".
std::string kinds_of(const EmbeddingPlan& plan);

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
  std::optional<std::string> skipped{};  ///< why the task does not count
  std::size_t best = 0;                  ///< plan of the least measured time
  std::size_t chosen = 0;                ///< plan of the least predicted time
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
  Job job{};
  std::vector<PlanRun> runs{};
  TaskScore score{};
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
  Share exact{}, tied{};  ///< strict, and with ties counted as right
  Share agreed{};         ///< strict, of the tasks whose halves agree on the best plan
  double mean_regret = 0, worst_regret = 0;
};
/// Ours ("stepcast"), bytes-only, lookup-greedy, random (its expectation), and what measuring
/// itself reaches: the plan of least time in the odd rounds, judged by the even ones.
std::vector<ChoiceScore> choices_of(const std::vector<PlanTask>& tasks);

/// Errors of every plan of the tasks that count, and the tables of choices and tasks. Passes where
/// exact top-1 (strict) is at least 90 %, mean regret at most 2 %, and the lower end of the
/// interval above the share of bytes-only. Rows are the plans of all tasks.
Suite plans_suite(const std::vector<PlanTask>& tasks);

struct ValidatePlansOptions {
  std::uint64_t seed = 1;
  std::int64_t count = 24;  ///< tasks that count, to be reached; at most three times as many run
  double budget = 0;        ///< seconds of runs; 0: none. The current task is finished
  const System* emulate = nullptr;
  /// On rank 0, after every prediction, before the first run and after every task.
  std::function<void(const std::vector<PlanTask>&)> predicted;
  std::function<void(double done, const std::string& what)> progress;
};

/// Is the plan that is predicted to be the fastest the fastest? Draws jobs, makes candidates for
/// each, predicts them all and writes that down; then runs the candidates of a task in rounds, one
/// after the other on one set of ranks, until enough tasks count; plans close to the best of a task
/// that counts run further rounds. `system` is the calibrated one, on rank 0. All ranks call it
/// together; rank 0's tasks are complete. Tasks drawn and not run are left out.
std::vector<PlanTask> validate_plans(const System& system, const ValidatePlansOptions& options,
                                     runtime::MpiSession& session);

/// Job that calibration trains: tasks of the same make from other seeds, with whole tables,
/// row-wise, data-parallel and mixes of them; never column-wise or table-row-wise.
Job plan_calibration_job(std::int64_t i, std::uint64_t seed, std::int64_t ranks);

}  // namespace stepcast::validation
