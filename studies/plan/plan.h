#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/job/efficiency.h"
#include "core/job/job.h"
#include "core/job/plan.h"
#include "planner/embedding/embedding_planner.h"

namespace stepcast::studies {

/// How long a search of embedding plans takes: descents only (about 10 ms for 26 tables on 8
/// ranks), with some runs of simulated annealing (about as long as simulating the best few), with
/// many.
using PlanEffort = planner::SearchEffort;

struct PlanOptions {
  std::size_t top = 3;
  std::optional<double> time_limit;  ///< seconds of search
  PlanEffort effort = PlanEffort::kNormal;
  std::uint64_t seed = 1;
  bool row_tiers = true, slow_tiers = true;  ///< as planner::PlannerOptions
  bool compare = false;
  planner::PlanForm form;         ///< of the plans searched
  std::function<double()> clock;  ///< seconds; without it no time is reported
  /// Asked now and then: true ends the search with what it has.
  std::function<bool()> interrupted;
  std::function<void(double done, const std::string& best)> progress;
};

/// A plan with its simulated step.
struct RankedPlan {
  EmbeddingPlan plan;
  std::string planner = "stepcast";  ///< who proposed it
  double objective = 0;  ///< the part of the step that plans decide, in planner's prices
  std::vector<std::pair<std::string, std::int64_t>> mix;
};

/// A plan of another planner, or of the rule `auto`, in the same measures: a row of `--compare`.
struct ComparedPlan {
  std::string name;
  std::optional<double> objective;
  std::optional<double> step;
  bool made = true;  ///< there is a plan; without one only `remark` says anything
  double fullest_bytes = 0;
  bool fits = true;
  double seconds = 0;  ///< to make it
  std::string remark;
};

struct PlanReport {
  Job job;
  std::vector<RankedPlan> plans;  ///< ascending by predicted step
  double objective = 0;           ///< of the best plan
  /// For the objective. `gap`: what the best objective found is above its bound. The bound of the
  /// step is each plan's `lower_bound`; a plan's own gap is that of its simulated step to it.
  double bound = 0, gap = 0;
  std::string bound_reason;
  double search_seconds = 0, simulation_seconds = 0;
  std::uint64_t evaluations = 0;
  double space_log10 = 0;
  bool cut = false;
  std::optional<planner::Shortage> shortage;  ///< nothing fits
  /// Efficiency of such runs, where it is known: steps and bounds of the plans are at it.
  std::optional<Efficiency> efficiency;
  std::vector<ComparedPlan> compared;
};

/// Searches, then ranks the best few by a full simulation of the step, and with them the plans of
/// the rule `auto` and of other planners whose objective comes close (`compare`: all that fit
/// and break no rule): the answer is the fastest plan that was simulated, whoever proposed it. With
/// a `form` only plans of the search, which another system has to carry out. Errors: InputError.
PlanReport plan(const Job& job, const PlanOptions& options);

}  // namespace stepcast::studies
