#pragma once
#include <array>
#include <cstddef>
#include <iterator>
#include <vector>

#include "core/clearly_less.h"
#include "studies/plan/plan_parallel.h"

namespace stepcast::studies::internal {

/// Without those that another one on no more devices equals in time and memory, or beats.
std::vector<planner::ParallelCandidate> without_dominated(
    const std::vector<planner::ParallelCandidate>& all);

/// Keeps `top` of some plans, ascending by time: the best of each family, unless it is too far
/// behind the best (planner::kFamilyMargin) or there are more families than that, then the fastest.
/// `of`: a plan's family and seconds.
template <class Plan, class Of>
void keep_shown(std::vector<Plan>& plans, std::size_t top, const Of& of) {
  std::vector<char> kept(plans.size(), 0);
  std::size_t left = top;
  std::array<char, std::size(kPlanFamilies)> seen{};
  for (const bool first_of_family : {true, false}) {
    for (std::size_t i = 0; i < plans.size() && left > 0; ++i) {
      const auto [family, seconds] = of(plans[i]);
      char& known = seen.at(static_cast<std::size_t>(family));
      const bool near =
          !clearly_less(of(plans.front()).second * (1 + planner::kFamilyMargin), seconds);
      if (kept[i] == 0 && (!first_of_family || (known == 0 && near))) {
        kept[i] = known = 1;
        --left;
      }
    }
  }
  std::size_t i = 0;
  std::erase_if(plans, [&](const Plan&) { return kept[i++] == 0; });
}

/// True if the order of ranks decides who exchanges tokens of experts, and neither the job nor its
/// framework says it.
bool searches_order(const PlanRequest& request);

/// Errors: InputError where the request's framework cannot run the model, whatever the plan.
void reject_model(const PlanRequest& request);

/// One report of two searches that differ in the order of ranks alone: the best `top` plans of
/// both, each kind once; a bound that holds for both.
ParallelPlanReport joined(ParallelPlanReport a, ParallelPlanReport b, std::size_t top);

}  // namespace stepcast::studies::internal
