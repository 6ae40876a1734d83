#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/job/plan_request.h"
#include "planner/parallel/parallel_search.h"
#include "studies/predict/predict.h"

namespace stepcast::studies {

struct ParallelPlanOptions {
  std::size_t top = 3;
  int threads = 1;
  double headroom = 0;               ///< bytes of each device that the plan leaves free
  bool front = false;                ///< also the front of time, memory and devices
  bool fewer_devices = true;         ///< it also over a half, a quarter, ... of the devices
  std::optional<double> time_limit;  ///< seconds of search
  std::function<double()> clock;     ///< seconds; without it no time is reported
  /// Share done and seconds of the best plan so far (infinite: none).
  std::function<void(double, double)> on_progress;
};

struct RankedParallelPlan {
  Job job;  ///< split as planned
  planner::PlanPoint point;
  double closed_form = 0;  ///< seconds
  double bytes = 0;        ///< of the fullest device, reserve included
  StepPrediction prediction;
  std::vector<std::string> settings;  ///< as `--set` takes it beside the job; empty: nobody asked
};

struct ParallelPlanReport {
  Job job;
  std::vector<RankedParallelPlan> plans;  ///< the fastest of each kind, ascending by simulated step
  std::vector<planner::ParallelCandidate>
      front;                     ///< if asked for: no other is faster, smaller and on fewer devices
  planner::SearchCounts counts;  ///< of the job's own number of devices
  FixedPlan fixed;               ///< what the job said, and no plan changes
  bool order_searched = false;   ///< both orders of ranks; else that of `job`
  double lower_bound = 0;      ///< seconds: no step of the space is shorter, to kLeastTimeError; 0:
                               ///< none is known, for a time limit ended the search
  std::size_t simulated = 0;   ///< how many of them were
  std::int64_t unproven = 0;   ///< plans that fit, were not simulated, and whose least time does
                               ///< not put them behind the first of `plans`
  double others_at_least = 0;  ///< least seconds of every plan that was not simulated
  bool unproven_more = false;  ///< there are more than `unproven`, which were not counted
  bool proven = false;         ///< `unproven` is 0, and no time limit ended the search: no plan is
                               ///< faster than the first, to kLeastTimeError
  double search_seconds = 0;   ///< of the space that `counts` counts
  double fewer_devices_seconds = 0;  ///< of those on fewer devices
  double simulation_seconds = 0;
  double capacity = 0, least_bytes = 0;  ///< bytes: of a device, without headroom; that the
                                         ///< smallest plan needs
  bool cut = false;
  bool front_cut = false;  ///< a time limit left fewer devices out of the front
};

/// True if the space of the request has a legal plan.
bool has_plans(const PlanRequest& request);

/// How far a plan's least time (planner::ClosedFormModel with Clock::kLeast; where nothing overlaps
/// with compute that is the closed form) may lie above its simulated step, as the test of both
/// holds (tests/planner/least_time_test.cpp).
constexpr double kLeastTimeError = 0.005;

/// Searches all parallel plans of a transformer by their closed form and simulates the best few of
/// each kind (planner::PlanKind); then searches again for every plan whose least time is below the
/// fastest, and simulates those too, until none is left or as many were simulated as in the first
/// place. Where processes share the search, shard 0 alone simulates.
/// Who exchanges tokens of experts with whom depends on the order of ranks, so of a mixture of
/// experts both the usual order and Megatron-LM's are searched, one after the other, unless the
/// request fixes it.
/// Errors: InputError when what was fixed leaves no legal plan.
ParallelPlanReport plan_parallel(const PlanRequest& request, const ParallelPlanOptions& options);

}  // namespace stepcast::studies
