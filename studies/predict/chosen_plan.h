#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/job/job.h"
#include "studies/predict/simulated_step.h"

namespace stepcast::studies {

/// Keys that a forecast took for a job that does not say them.
struct PlanChoice {
  bool chosen = false;     ///< the plan: the job says no key of it
  std::int64_t tried = 0;  ///< recipes it is the best of
  bool tight = false;      ///< none leaves RecipeSearch::kHeadroom free: it is the smallest
  /// The keys as `--set` takes them; with them the job is literal, and its step is the same.
  std::vector<std::string> settings;
  std::vector<std::string> notes;  ///< devices and batch that were taken, as sentences
};

struct ChosenJob {
  Job job;
  PlanChoice choice;
  std::string default_framework, rejected, framework;  ///< config::JobOnFramework
  std::optional<BuiltStep> built;                      ///< of the job, where it was simulated
};

/// The job of a source and overrides, with what it leaves open chosen:
///   plan     of a transformer, where no degree, schedule, ZeRO, recomputation or micro-batch is
///            said: the fastest recipe that fits (studies/predict/recipes.h), the best few of them
///            simulated, or the smallest where none leaves the usual headroom; in inference the
///            fewest tensor ranks that fit. Where none fits, the literal plan.
///   devices  one machine, or twice, four times, ... as many: the fewest that hold the job
///   batch    where the workload's default does not divide: the next below that does
/// `as_is` leaves all of it alone: what is not said has the plainest value. Tables are placed as
/// with_searched_plan (studies/plan) does. Errors: InputError.
ChosenJob choose_plan(const config::Source& source, const std::vector<std::string>& overrides,
                      const config::Library& library, bool as_is = false);

}  // namespace stepcast::studies
