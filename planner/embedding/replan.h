#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "models/cost_model.h"
#include "planner/embedding/plan_space.h"
#include "planner/embedding/search.h"

namespace stepcast::planner {

/// A plan reached from another one, and what getting there moves.
struct ReplanPoint {
  EmbeddingPlan plan;
  std::int64_t bytes = 0;  ///< as Migration::bytes, at least 1 where anything changes
  double objective = 0;    ///< seconds, as PlannedCandidate::objective
  double time = 0;    ///< the objective; thousands of seconds where the given plan does not fit
  bool home = false;  ///< the given plan itself
};

/// Plans by how many bytes they move.
struct ReplanFront {
  std::vector<ReplanPoint> points;  ///< bytes rise, times fall; the first is the given plan
  std::vector<std::string> kept;    ///< tables that stay: the space has no placement like theirs
  double bound = 0;                 ///< seconds: no plan of the space has a lower objective
  std::uint64_t evaluations = 0;
};

struct ReplanOptions {
  SearchOptions search;
  std::size_t points = 24;  ///< at most; those with most to gain
  bool row_tiers = true;    ///< also rows by popularity at several replication levels
  PlanForm form;            ///< of what is moved; what stays keeps its own
  /// Where rows lie now, where that is not the given plan: one of other tables or devices, carried
  /// over to the job's (planner/embedding/adapt_plan.h). The first point then moves what that
  /// takes.
  const EmbeddingPlan* held = nullptr;
};

/// The front of time and moved bytes around a plan that is in use. It does not depend on any
/// budget, so the best plan within a budget is never worse than within a smaller one.
///
/// The search of planner/embedding/search.h gives targets. From each, tables go back home one by
/// one, the one first that costs least time: a chain of plans down to no move at all. Then for
/// budgets that halve, local search from the best plan so far, where no placement fits that moves
/// more (planner::Moves), and the chain of what it finds. Deterministic for a seed; a time limit is
/// not used.
///
/// `from` must be a plan of the job (workloads::check_embedding_plan). Tables in a form that the
/// plan space lacks (row ranges in blocks, uneven columns, groups out of line) are left as they are
/// and count neither load nor bytes. Errors: InputError as check_plannable.
ReplanFront replan_front(const Job& job, const models::CostModel& model, const EmbeddingPlan& from,
                         const ReplanOptions& options = {});

}  // namespace stepcast::planner
