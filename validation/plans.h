#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/system.h"
#include "runtime/mpi/session.h"
#include "validation/plan_scores.h"
#include "validation/plan_tasks.h"

namespace stepcast::validation {

/// One drawn job, its candidates and what became of them.
struct PlanTask {
  Job job;
  std::vector<PlanCandidate> candidates;
  std::vector<PlanRun> runs;  ///< by candidate
  TaskScore score;
};

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
  /// On rank 0, after every prediction and before the first run.
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

/// What calibration trains: tasks of the same make from other seeds, under calibration_plan.
Job plan_calibration_job(std::int64_t i, std::uint64_t seed, std::int64_t ranks);

}  // namespace stepcast::validation
