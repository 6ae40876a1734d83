#include "studies/plan/replan.h"

#include <limits>

#include "core/clearly_less.h"
#include "core/error.h"
#include "core/job/plan_settings.h"
#include "models/cost_model.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/replan.h"
#include "studies/plan/plan_comparison.h"

namespace stepcast::studies {
namespace {

// A simulation of that many tables x devices takes seconds.
constexpr std::int64_t kLargeTask = 20'000;
constexpr std::size_t kFewPoints = 10;
constexpr double kWorthARow = 1e-3;  // of the step in use

}  // namespace

double ReplanReport::steps_to_pay() const {
  const double saved = from_step - plan.predicted_step;
  return migration.bytes == 0 ? 0
         : saved > 0          ? migration.seconds / saved
                              : std::numeric_limits<double>::infinity();
}

ReplanReport replan(const Job& job, const ReplanRequest& request) {
  if (!job.embedding_plan) {
    throw InputError("job: embedding.plan",
                     fmt::format("found \"{}\", expected the plan that is in use; name a plan file",
                                 job.embedding_choice));
  }
  const EmbeddingPlan& from = *job.embedding_plan;
  const models::CostModel model(job.system, job.calibration);
  planner::ReplanOptions options;
  options.search.seed = request.seed;
  options.row_tiers = request.row_tiers;
  options.form = request.form;
  if (const LayeredWorkload* w = job.workload.layered();
      w != nullptr && static_cast<std::int64_t>(w->tables.size()) * job.devices > kLargeTask) {
    options.points = kFewPoints;
  }
  options.held = request.in_use ? &*request.in_use : nullptr;
  planner::ReplanFront front = planner::replan_front(job, model, from, options);

  ReplanReport report;
  report.job = job;
  report.kept = front.kept;
  report.in_use = request.in_use.value_or(from);
  const planner::ReplanPoint* best = nullptr;
  for (planner::ReplanPoint& p : front.points) {
    const bool home = &p == &front.points.front();
    const std::int64_t bytes =
        planner::migration_between(job, report.in_use, p.plan).bytes;  // at most p.bytes
    if (!home && request.max_bytes && bytes > *request.max_bytes) {
      continue;
    }
    p.plan.predicted_step = simulated_step(job, model, p.plan);
    const bool fits = !home || !planner::excess_of(job, p.plan, p.plan.ledger);
    if (home) {
      report.from_step = p.plan.predicted_step;
      report.from_objective = p.objective;
      report.from_fits = fits;
    }
    const double gain = home ? 0 : report.reachable.back().step - p.plan.predicted_step;
    if (home || gain > kWorthARow * report.from_step) {
      report.reachable.push_back({bytes, p.plan.predicted_step});
    }
    const bool rescue = best == &front.points.front() && !report.from_fits;
    if (best == nullptr || rescue ||
        clearly_less(p.plan.predicted_step, best->plan.predicted_step)) {
      best = &p;
    }
  }
  report.plan = best->plan;
  report.plan.workload = job.workload.name;
  report.plan.system = job.system.name;
  report.plan.made_for = plan_settings(job);
  report.objective = best->objective;
  report.migration = planner::migration_between(job, report.in_use, report.plan);
  return report;
}

}  // namespace stepcast::studies
