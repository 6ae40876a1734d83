#include "studies/plan/searched_plan.h"

#include "studies/plan/plan.h"

namespace stepcast::studies {

Job with_searched_plan(Job job) {
  if (job.embedding_choice != "search" || job.embedding_plan) {
    return job;
  }
  job.embedding_choice = "auto";
  PlanReport report = plan(job, {.top = 1, .effort = PlanEffort::kQuick});
  if (report.plans.empty()) {
    return job;
  }
  job.embedding_choice = "search";
  job.embedding_plan = std::move(report.plans.front().plan);
  return job;
}

}  // namespace stepcast::studies
