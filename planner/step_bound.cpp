#include "planner/step_bound.h"

#include <algorithm>

#include "planner/bound.h"
#include "planner/internal/phase_bound.h"
#include "planner/overlapped_arrival.h"

namespace stepcast::planner {
namespace {

constexpr std::uint64_t kBoundNodes = 300;
constexpr std::size_t kMostTablesByPhase = 100;  // beyond, the bound by phases costs as much as the search

/// Of a plain problem's objective.
Ticks bound_of(const PlacementProblem& problem, const Placement* known) {
  const Ticks plain = lower_bound(problem).value;
  if (known == nullptr || problem.tables.size() > kMostTablesByPhase || problem.phases().size() < 2) {
    return plain;
  }
  const Ticks best = objective_of(problem, *known);
  return std::max(plain, internal::PhaseBound::solve(problem, best, best, kBoundNodes, 0).value);
}

}  // namespace

double least_step(const Job& job, const PlanSpace& space, const Placement* known) {
  const PlacementProblem& problem = space.problem();
  const Overlap& overlap = job.parallel.overlap;
  const double dense = space.dense_step();
  const auto hidden = problem.arrival_overlaps;
  const PlacementProblem chain = hidden ? relaxed(problem, 1) : problem;
  if (overlap.input_all_to_all || overlap.output_all_to_all) {
    return std::max(dense, (dense + load_seconds(lower_bound(chain).value)) / 2);
  }
  const double objective = load_seconds(bound_of(chain, known));
  if (!hidden) {
    return dense + objective;
  }
  // The chain alone; and the mean of chain and links, which leave `hidden` to compute.
  const double mean =
      load_seconds(bound_of(relaxed(problem, 0.5), known) + relaxed_constant(problem, 0.5));
  return std::max(dense + objective, std::min(dense, load_seconds(*hidden)) + mean);
}

}  // namespace stepcast::planner
