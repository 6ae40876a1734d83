#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/plan_request.h"
#include "planner/parallel/parallel_search.h"
#include "studies/predict.h"

namespace stepcast::studies {

struct ParallelPlanOptions {
  std::size_t top = 3;
  int threads = 1;
  bool fewer_devices = true;         ///< the front also over a half, a quarter, ... of the devices
  std::optional<double> time_limit;  ///< seconds of search
  std::function<double()> clock;     ///< seconds; without it no time is reported
  std::function<void(double)> on_progress;
  // Several processes that share a search: each does its shard, `gather` returns all results on
  // every one of them.
  int shard = 0, shards = 1;
  std::function<std::vector<planner::ParallelSearchResult>(const planner::ParallelSearchResult&)>
      gather;
};

struct RankedParallelPlan {
  Job job;  ///< split as planned
  planner::PlanPoint point;
  double closed_form = 0;  ///< seconds
  double bytes = 0;        ///< of the fullest device, reserve included
  StepPrediction prediction;
};

struct ParallelPlanReport {
  Job job;
  std::vector<RankedParallelPlan> plans;  ///< ascending by simulated step
  std::vector<planner::ParallelCandidate>
      front;                     ///< no other is faster, smaller and on fewer devices
  planner::SearchCounts counts;  ///< of the job's own number of devices
  double lower_bound = 0;        ///< seconds: the least closed-form step of the space
  std::size_t simulated = 0;     ///< how many of the best were
  std::int64_t rough = 0;        ///< plans that fit, were not simulated, and whose closed form the
                                 ///< simulator may beat: the ranking before simulation is rough
  double others_at_least = 0;  ///< closed-form seconds of every plan that was not; 0: there is none
  bool proven = false;  ///< no plan left out can be among `plans` unless it is faster than its
                        ///< closed form by more than kClosedFormError; none of them is rough, and
                        ///< no time limit ended the search
  double search_seconds = 0;         ///< of the space that `counts` counts
  double fewer_devices_seconds = 0;  ///< of those on fewer devices
  double simulation_seconds = 0;
  double capacity = 0, least_bytes = 0;  ///< bytes: of a device; that the smallest plan needs
  bool cut = false;
};

/// What the test of the closed form against the event simulator holds.
constexpr double kClosedFormError = 0.01;

/// Searches all parallel plans of a transformer, then simulates the best few, and more of them
/// until the rest is provably behind. Where processes share the search, shard 0 alone simulates.
/// Errors: InputError when what was fixed leaves no legal plan.
ParallelPlanReport plan_parallel(const PlanRequest& request, const ParallelPlanOptions& options);

}  // namespace stepcast::studies
