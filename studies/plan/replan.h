#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "planner/embedding/migration.h"
#include "planner/embedding/plan_space.h"

namespace stepcast::studies {

struct ReplanRequest {
  std::optional<std::int64_t> max_bytes;  ///< to move, all ranks together; nullopt: any
  std::uint64_t seed = 1;
  bool row_tiers = true;   ///< also rows by popularity at several replication levels
  planner::PlanForm form;  ///< of the tables that move
  /// Where rows lie now, where the job's plan is not the one in use but that one carried over to
  /// other tables or devices (planner/embedding/adapt_plan.h).
  std::optional<EmbeddingPlan> in_use = std::nullopt;
};

/// The best plan that can be reached from the one in use.
struct ReplanReport {
  Job job;
  EmbeddingPlan plan;         ///< with its ledger, predicted step and bound
  double objective = 0;       ///< what the plan decides, seconds
  double from_step = 0;       ///< of the plan in use, seconds
  double from_objective = 0;  ///< its objective
  bool from_fits = true;
  EmbeddingPlan in_use;  ///< where rows lie now
  planner::Migration migration;
  /// Plans that were simulated, by bytes moved, without those that gain less than a thousandth over
  /// the one before; the first is the plan in use.
  struct Step {
    std::int64_t bytes = 0;
    double step = 0;
  };
  std::vector<Step> reachable;
  std::vector<std::string> kept;  ///< tables left as they are, because the search has no such form
  /// Steps after which the time that the move takes is earned back; infinite where nothing is won.
  [[nodiscard]] double steps_to_pay() const;
};

/// Simulates the plans of planner::replan_front that move at most `max_bytes` and keeps the
/// fastest; of equal ones the one that moves least. 0 gives the plan in use, priced again; of a
/// plan carried over the one that moves least, whatever that takes. More bytes never give a slower
/// plan, because the front does not depend on them. Errors: InputError where the job has no plan
/// (embedding.plan), or one that cannot be built.
ReplanReport replan(const Job& job, const ReplanRequest& request);

}  // namespace stepcast::studies
