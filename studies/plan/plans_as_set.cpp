#include "studies/plan/plans_as_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/clearly_less.h"
#include "core/error.h"
#include "studies/predict/recipes.h"

namespace stepcast::studies {

void predict_command_line(ParallelPlanReport& report, const AsSet& command_line_form) {
  bool changed = false;
  for (RankedParallelPlan& plan : report.plans) {
    config::PlanAsSet as;
    try {
      as = command_line_form(plan.job);
    } catch (const InputError&) {  // legal as it is, though no keys say it beside the job
      continue;
    }
    plan.settings = std::move(as.settings);
    if (!config::differences(plan.job, as.job).empty()) {
      plan.job = std::move(as.job);
      plan.prediction = predict(plan.job);
      changed = true;
    }
  }
  if (!changed) {
    return;
  }
  std::stable_sort(report.plans.begin(), report.plans.end(), [](const auto& a, const auto& b) {
    return clearly_less(a.prediction.iteration, b.prediction.iteration);
  });
  const double best = report.plans.front().prediction.iteration.base();
  report.lower_bound = std::min(report.lower_bound, best);
  if (report.proven && !clearly_less(best, report.others_at_least * (1 - kLeastTimeError))) {
    report.proven = false;
    report.unproven_more = true;
  }
}

std::vector<std::string> dividing_batch(const PlanRequest& request, const config::Source& source,
                                        const std::vector<std::string>& overrides,
                                        const config::Library& library) {
  PlanRequest other = request;
  other.job.batch.global = divisible_batch(request.job);
  return has_plans(request) || config::given_keys(source, overrides, library).global ||
                 !has_plans(other)
             ? std::vector<std::string>{}
             : std::vector{fmt::format("batch.global={}", other.job.batch.global)};
}

}  // namespace stepcast::studies
