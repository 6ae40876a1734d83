#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job/plan_request.h"
#include "models/cost_model.h"
#include "planner/parallel/plan_point.h"

namespace stepcast::planner {

/// A plan that fits, costed in closed form.
struct ParallelCandidate {
  PlanPoint point;
  /// Times the efficiency of such plans; where the search is for plans `below` a time: at least.
  double seconds = 0;
  double bytes = 0;  ///< of the fullest device, reserve included
  bool rough =
      false;  ///< the simulator may be faster by more than 1 %: ClosedFormModel::bounds_simulator
  MeshOrder order = kUsualOrder;  ///< the request's, which the search does not vary
};
/// Faster first (clearly_less), then smaller, then by the point's own order: no two points are
/// equal.
bool ranks_before(const ParallelCandidate& a, const ParallelCandidate& b);

/// Fate of every point of the space; the parts but `rough` sum to `space`.
struct SearchCounts {
  std::int64_t space = 0;
  std::int64_t weights_too_large = 0;  ///< parameters, gradients and optimizer alone do not fit
  std::int64_t memory_too_large = 0;   ///< with activations they do not
  std::int64_t bounded = 0;            ///< cannot be among the best, nor on the front
  std::int64_t evaluated = 0;          ///< costed in full
  std::int64_t left_out = 0;           ///< not looked at before the time limit
  /// Those of them that may fit: the closed form orders them but proves nothing.
  /// 0 in a search for plans `below` a time.
  std::int64_t rough = 0;
  SearchCounts& operator+=(const SearchCounts& o);
};

/// A plan is among the best of its family if it takes at most so much longer than the best of all.
constexpr double kFamilyMargin = 0.25;

struct ParallelSearchOptions {
  std::size_t keep = 10;  ///< best plans
  /// At most so many of a kind.
  std::size_t each = std::numeric_limits<std::size_t>::max();
  /// Only plans that take at most 1 + `margin` times as long as the best of the `near`-th
  /// kind.
  std::size_t near = 10;
  double margin = std::numeric_limits<double>::infinity();
  /// No plan that takes longer is among the best.
  double at_most = std::numeric_limits<double>::infinity();
  std::size_t keep_of_family = 0;  ///< best plans of each family, with the same `margin`
  /// Seconds of the best plan of another search, which those of a family are held against, too.
  double rival = std::numeric_limits<double>::infinity();
  bool front = true;    ///< also the Pareto front of time and memory
  double capacity = 0;  ///< bytes of a device; 0 unlimited
  double reserve = 0;   ///< bytes of a device that plans cannot use
  /// Expected over closed-form time (core/job/efficiency.h). All seconds of a search hold it.
  double efficiency = 1;
  /// Seconds: instead of what the closed form takes to be fast, look for every plan that fits and
  /// that ClosedFormModel with Clock::kLeast does not keep from so short a step: `best` are those
  /// with the least such time, all of them where they are fewer than `keep`. There is no front.
  std::optional<double> below;
  /// Also bound every split for such a search, which then leaves out those that are behind.
  bool bound_splits = false;
  int threads = 1;
  std::optional<double> time_limit;  ///< seconds of `clock`
  std::function<double()> clock;
  /// Share done and seconds of the best plan so far (infinite: none), from the calling thread.
  std::function<void(double, double)> on_progress;
};

struct ParallelSearchResult {
  std::vector<ParallelCandidate> best;         ///< ascending
  std::vector<ParallelCandidate> of_families;  ///< the best of each, ascending
  std::vector<ParallelCandidate> front;        ///< ascending by time, descending by memory
  /// Seconds: all plans that fit and are not among `best` take at least so long.
  double others_at_least = std::numeric_limits<double>::infinity();
  SearchCounts counts;
  double least_bytes = 0;  ///< of all points that did not fit, reserve included; 0 when one fits
  bool cut = false;
};

namespace internal {
struct SearchMemory;
}

/// Every legal parallel plan of the request, exactly: the `keep` best by closed-form time, those of
/// each family, and the Pareto front, are those of the whole space. A point is left out only where
/// its parameters alone do not fit, where it does not fit, or where a lower bound of its time is
/// not below the last of the best so far, of all and of its family, and a point of the front so far
/// is no slower and no larger. The result does not depend on threads.
/// Where no split is legal, `counts.space` is 0.
///
/// Searches that follow one another take from each other what was costed:
///
///   ParallelSearch search(request, model, options);
///   const ParallelSearchResult fastest = search.run(options);
///   options.below = ...;
///   const ParallelSearchResult in_reach = search.run(options);
class ParallelSearch {
 public:
  /// All searches have the efficiency, capacity, reserve and threads of `common`.
  ParallelSearch(const PlanRequest& request, const models::CostModel& model,
                 const ParallelSearchOptions& common);
  ParallelSearch(ParallelSearch&&) noexcept;
  ParallelSearch& operator=(ParallelSearch&&) noexcept;
  ~ParallelSearch();
  ParallelSearchResult run(const ParallelSearchOptions& options);

 private:
  std::unique_ptr<internal::SearchMemory> memory_;
};

/// One search alone.
ParallelSearchResult search_parallel(const PlanRequest& request, const models::CostModel& model,
                                     const ParallelSearchOptions& options);

}  // namespace stepcast::planner
