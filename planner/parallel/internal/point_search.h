#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/clearly_less.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/internal/split_table.h"
#include "planner/parallel/parallel_search.h"
#include "planner/parallel/parallel_space.h"
#include "planner/parallel/search_front.h"
#include "planner/parallel/task_costs.h"

namespace stepcast::planner::internal {

/// Looks at the points of a split and layout: what bounds rule out is counted, the rest is costed
/// and offered. Safe for threads.
class PointSearch {
 public:
  PointSearch(const Job& job, const ParallelSearchOptions& options, SplitTable& table)
      : job_(job), options_(options), table_(table) {}

  /// Points that differ in recomputation and sharding alone.
  struct Work {
    ClosedFormModel& path;
    TaskCosts& costs;
    const Split& split;
    const PipelineLayout& layout;
    CandidateShelf& shelf;
    SearchCounts& counts;
    std::vector<char> out;  ///< scratch, by sharding
  };

  /// The point under every sharding.
  void consider(Work& w, const PlanPoint& choice);

  /// The point under every recomputation and sharding.
  void consider_recomputes(Work& w, PlanPoint point, std::span<const RecomputeChoice> choices);

  /// True if a slow plan counts where it needs less memory.
  [[nodiscard]] bool by_memory_too() const { return options_.front && !options_.below; }
  /// True if time alone can put a plan behind.
  [[nodiscard]] bool by_time(const CandidateShelf& shelf) const {
    return !by_memory_too() && (options_.below || !std::isinf(shelf.limit()));
  }
  /// True if plans of the split can be left out, as all take at least so long, times their
  /// efficiency.
  [[nodiscard]] bool beaten(const CandidateShelf& shelf, const Split& split, double seconds) const {
    PlanPoint point = split.point;
    for (std::size_t z = 0; z < split.zeros.size(); ++z) {
      point.zero = split.zeros[z].stage;
      if (!beaten(shelf, point, options_.efficiency * seconds, 0)) {
        return false;
      }
    }
    return true;
  }

 private:
  /// Sharded gradients or weights need passes of their own for every split, and an exchange that
  /// overlaps with passes depends on each. Passes of whole parameters are known, take less time and
  /// keep as much, and a fully hidden exchange takes none: a lower bound. With one micro-batch,
  /// sharded gradients need fewer buffers.
  [[nodiscard]] bool has_bound(const PlanPoint& point) const {
    return point.exchanged() >= 2 ? job_.batch.global > std::int64_t{point.data} * point.micro
                                  : job_.parallel.overlap.data;
  }

  /// Buffers of several micro-batches may stand for those of one if bytes only have to fit.
  [[nodiscard]] bool has_time_bound(const PlanPoint& point) const {
    return has_bound(point) || (options_.below && point.exchanged() >= 2);
  }

  /// No path through the schedule is shorter, nor is the stream of overlapped transfers: the last
  /// backward pass may have other transfers.
  [[nodiscard]] double bound_seconds(const Work& w, std::size_t z, const States& states) const {
    return options_.efficiency *
           std::max(w.path.bound(states),
                    static_cast<double>(w.path.microbatches() - 1) * w.split.overlapped[z]);
  }

  /// True if the point can be left out, as it takes at least so many seconds and bytes.
  [[nodiscard]] bool beaten(const CandidateShelf& shelf, const PlanPoint& point, double seconds,
                            double bytes) const {
    return (options_.below && clearly_less(*options_.below, seconds)) ||
           shelf.beaten(family_of(point), seconds, bytes + options_.reserve);
  }
  /// True if none of the choices fits, as recomputing all layers keeps least: then all are counted.
  bool all_too_large(Work& w, PlanPoint point, std::span<const RecomputeChoice> choices);
  /// The first k layers of every stage, for all k. With each layer more the lasting memory falls
  /// and the time rises, so two of them can speak for the rest: a k that does not fit for all
  /// below, the time of the least that may fit and the memory of the most for all between.
  void consider_first_layers(Work& w, PlanPoint point, std::span<const RecomputeChoice> choices);
  /// Notes and counts a point whose bytes do not fit.
  bool too_large(Work& w, double bytes);
  [[nodiscard]] bool rough(Work& w) const { return !options_.below && !w.path.bounds_simulator(); }
  /// The point's own; what bounds its time and bytes; what bounds its time alone.
  enum class CostsOf { kItself, kBound, kTimeBound };

  /// Calls `visit(z, point, states, fresh)` for the shardings under which the parameters fit, but
  /// for those `out`; `fresh` where the path holds other passes than before. Where there are some,
  /// bounds stand in, if asked for: else `states` are still those of the split.
  template <class Visit>
  void each_sharding(Work& w, PlanPoint point, CostsOf which, const std::vector<char>& out,
                     const Visit& visit);
  /// Marks the shardings that bounds rule out already.
  void rule_out(Work& w, const PlanPoint& choice, std::vector<char>& out);

  const Job& job_;
  const ParallelSearchOptions& options_;
  SplitTable& table_;
};

}  // namespace stepcast::planner::internal
