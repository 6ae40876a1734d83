#include "studies/plan/searched_plan.h"

#include <utility>

#include "studies/plan/plan.h"
#include "studies/predict/context_choice.h"

namespace stepcast::studies {

Job with_searched_plan(Job job) {
  job = settled(std::move(job));
  if (job.embedding_choice != "search" || job.embedding_plan) {
    return job;
  }
  job.embedding_choice = "auto";
  PlanOptions options;
  options.top = 1;
  options.effort = PlanEffort::kQuick;
  PlanReport report = plan(job, options);
  if (report.plans.empty()) {
    return job;
  }
  job.embedding_choice = "search";
  job.embedding_plan = std::move(report.plans.front().plan);
  return job;
}

}  // namespace stepcast::studies
