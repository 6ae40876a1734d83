#include "planner/embedding/step_bound.h"

#include <algorithm>
#include <optional>

#include "planner/embedding/bound.h"
#include "planner/embedding/internal/phase_bound.h"
#include "planner/embedding/overlapped_arrival.h"

namespace stepcast::planner {
namespace {

constexpr std::uint64_t kBoundNodes = 300;
constexpr std::uint64_t kNodesTimesTables = 1'000'000;  // nodes times tables, where there are many
constexpr double kAbove = 1.25;  // a ceiling above what is known already, and above the last one
constexpr double kReached = 1 - 1e-6;

/// Bound of a plain problem's objective, in seconds.
double bound_of(const PlacementProblem& problem, double enough) {
  double bound = load_seconds(lower_bound(problem).value);
  if (problem.phases().size() < 2 || bound <= 0) {
    return bound;
  }
  const std::uint64_t nodes =
      std::min<std::uint64_t>(kBoundNodes, kNodesTimesTables / problem.tables.size());
  double ceiling = bound;
  while (bound >= ceiling * kReached && bound < enough) {
    // Below a ceiling the bound is true whether or not a placement attains the ceiling.
    ceiling *= kAbove;
    const Femtoseconds most = to_load(ceiling);
    bound =
        std::max(bound, load_seconds(internal::PhaseBound(problem, 0).raise(most, most, nodes)));
  }
  return bound;
}

/// Without the all-reduces of copies' gradients.
PlacementProblem without_sums(const PlacementProblem& problem) {
  PlacementProblem left = problem;
  for (PlacementTable& table : left.tables) {
    for (PlacementOption& o : table.options) {
      for (const LoadPhase p : {kExchange, kGroupExchange, kSequenceExchange}) {
        o.load[p] -= std::min(o.load[p], o.synchronised);
      }
      o.synchronised = 0;
    }
  }
  return left;
}

/// The mean of a rank's kernels and of the exchanges, which weigh `exchanges`; the lookups of all
/// routes are one phase, as a rank need not wait between them.
PlacementProblem mean_of_overlapped(const PlacementProblem& problem, const Job& job,
                                    double exchanges) {
  const double kernels = 1 - exchanges;
  // Ids that are there when the step begins cost nothing. Looked up ahead: after the
  // exchanges, by ranks that need not have waited for all of them.
  const double arrival = job.parallel.dlrm_pipeline >= DlrmPipeline::kSparseDist ? 0
                         : job.parallel.overlap.input_all_to_all                 ? exchanges
                                                                                 : 1;
  const double first = job.parallel.dlrm_pipeline >= DlrmPipeline::kPrefetch ? kernels : 1;
  const auto times = [](double weight, Femtoseconds load) {
    return static_cast<Femtoseconds>(weight * static_cast<double>(load));
  };
  PlacementProblem mean = problem;
  mean.arrival_overlaps.reset();
  const auto weigh = [&](Load& load, Femtoseconds by_kernels) {
    const Load was = load;
    load = {};
    load[kArrival] = times(arrival, was[kArrival]);
    load[kLookup] =
        times(first, was[kLookup]) + times(kernels, was[kGroupLookup] + was[kSequenceLookup]);
    for (const LoadPhase p : {kExchange, kGroupExchange, kSequenceExchange}) {
      const Femtoseconds sums = std::min(by_kernels, was[p]);
      load[p] = times(exchanges, was[p] - sums) + times(kernels, sums);
    }
    load[kUpdate] = times(kernels, was[kUpdate]);
  };
  for (PlacementTable& table : mean.tables) {
    for (PlacementOption& o : table.options) {
      weigh(o.load, o.synchronised);
      weigh(o.everywhere, total(o.everywhere));  // kernels that pool rows
      weigh(o.skewed, 0);
    }
  }
  // Starts of kernels and of exchanges.
  for (Femtoseconds& charge : mean.fixed) {
    charge = times(std::min(exchanges, kernels), charge);
  }
  mean.constant = times(std::min(exchanges, kernels), problem.constant);
  return mean;
}

/// Bound for rows that are exchanged overlapped with compute.
double least_overlapped(const Job& job, const PlanSpace& space, const PlacementProblem& problem,
                        double enough) {
  const auto dense = [&space](double exchanges) {
    return exchanges * space.dense_alone() + (1 - exchanges) * space.dense_step();
  };
  double best = space.dense_step();
  double best_weight = 0;
  for (const double exchanges : {0.0, 0.25, 0.5, 0.65, 0.8, 0.9, 1.0}) {
    const PlacementProblem mean = mean_of_overlapped(problem, job, exchanges);
    const double bound = dense(exchanges) + load_seconds(lower_bound(mean).value);
    if (bound > best) {
      best = bound;
      best_weight = exchanges;
    }
  }
  const PlacementProblem mean = mean_of_overlapped(problem, job, best_weight);
  const double rest = dense(best_weight);
  return std::max(best, rest + bound_of(mean, enough - rest));
}

}  // namespace

double least_step(const Job& job, const PlanSpace& space, double enough) {
  const Overlap& overlap = job.parallel.overlap;
  std::optional<PlacementProblem> without;  // where these are overlapped with compute
  if (overlap.dense_all_reduce) {
    without = without_sums(space.problem());
  }
  const PlacementProblem& problem = without ? *without : space.problem();
  const double dense = space.dense_step();
  if (overlap.input_all_to_all || overlap.output_all_to_all) {
    return least_overlapped(job, space, problem, enough);
  }
  return dense + bound_of(problem.arrival_overlaps ? relaxed(problem, 1) : problem, enough - dense);
}

}  // namespace stepcast::planner
