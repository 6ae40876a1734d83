#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "models/cost_model.h"
#include "planner/embedding/plan_space.h"
#include "planner/embedding/search.h"

namespace stepcast::planner {

struct PlannerOptions {
  std::size_t keep = 4;  ///< plans handed back, best first
  SearchOptions search;
  bool row_tiers = true;   ///< also rows by popularity at several replication levels
  bool slow_tiers = true;  ///< also slower memory, where memory is scarce
  /// Plans of others for the same tables and devices: the search starts from the best of them too.
  std::vector<EmbeddingPlan> proposed = {};
  /// Told after each space: the share of them that is searched, and the best objective so far.
  std::function<void(double done, double objective)> progress = nullptr;
  PlanForm form;
};

/// One plan with what the planner's own model says of it.
struct PlannedCandidate {
  EmbeddingPlan plan;    ///< with its ledger
  double objective = 0;  ///< seconds that the plan decides: lookups, exchanges, update
  std::vector<std::pair<std::string, std::int64_t>> mix;  ///< tables by kind of option
  /// Row tiers or slower memory were at hand; arrival of ids was paid for in full. The best plan
  /// without the former and the best with the latter are handed back as well.
  bool wide = false, paid = false;
};

/// The result of a search over the embedding plans of a job.
struct EmbeddingPlanning {
  std::vector<PlannedCandidate> candidates;  ///< ascending by objective
  double bound = 0;                          ///< no plan of the spaces has a smaller objective
  std::string bound_reason;
  double gap = 0;  ///< best objective / bound - 1
  /// Seconds: no plan of the space has a shorter simulated step. The dense model's part, which no
  /// plan changes, and the bound of the objective, whose prices are never above the model's. Where
  /// exchanges of looked-up rows overlap with compute a step may be as short as the longer of both,
  /// so at least half their sum.
  double step_bound = 0;
  std::uint64_t evaluations = 0;
  double space_log10 = 0;  ///< placements in the space, as a power of ten
  bool cut = false;
  std::optional<Shortage> shortage;  ///< set when nothing fits
  [[nodiscard]] const PlannedCandidate* best() const;
};

/// Chooses where every row and column of a job's tables lives. Plans of whole tables are searched
/// for each size of row-split groups; with `tiers` and more than one device the wider space too.
/// Every plan obeys workloads::broken_rule. Every candidate's ledger stays within every capacity.
/// Errors: InputError as check_plannable and capacities_of.
EmbeddingPlanning plan_embeddings(const Job& job, const models::CostModel& model,
                                  const PlannerOptions& options = {});

/// The planner's objective of plans made of whole-table kinds and blocks of rows (a baseline's, a
/// file's), in the same prices, whatever a job asks of plans that are searched. `proposed`: the
/// plans that will be priced.
class PlanPricer {
 public:
  PlanPricer(const Job& job, const models::CostModel& model,
             std::vector<const EmbeddingPlan*> proposed);
  /// nullopt where the plan holds shards that the space does not have.
  [[nodiscard]] std::optional<double> objective(const EmbeddingPlan& plan) const;

 private:
  Job job_;
  EmbeddingPrices prices_;
  PlanSpace space_;
};
/// The same for one plan.
std::optional<double> objective_of_plan(const Job& job, const models::CostModel& model,
                                        const EmbeddingPlan& plan);

}  // namespace stepcast::planner
