#pragma once
#include "core/job/job.h"

namespace stepcast::studies {

/// A job with what it leaves open: its context algorithm (studies/predict/context_choice.h), and
/// where it asks for `embedding.plan: "search"` the plan that the planner's quick search finds, the
/// fastest of those it simulated; the same job gives the same plan. Where no plan fits the devices
/// the job gets that of the rule `auto`, whose prediction says what does not fit. Other jobs come
/// back as they are. Errors: InputError as planner::check_plannable.
Job with_searched_plan(Job job);

}  // namespace stepcast::studies
