#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/parallel_search.h"
#include "planner/parallel/parallel_space.h"
#include "planner/parallel/task_costs.h"

// The splits of a search over parallel plans: their layouts, and what their parameters cost.
namespace stepcast::planner::internal {

/// A split, the ZeRO stages it can have (from SplitTable::sharded on), and what its parameters cost
/// under each (from SplitTable::known on).
struct Split {
  PlanPoint point;
  std::once_flag sharded, known;
  std::array<std::once_flag, 2> costed;  ///< by clock
  std::vector<ZeroChoice> zeros;
  std::array<std::vector<States>, 2> states_by_clock;
  /// States as a search by the clock knows them.
  [[nodiscard]] const std::vector<States>& states(CostBasis clock) const {
    return states_by_clock.at(static_cast<std::size_t>(clock));
  }
  std::vector<double> overlapped;  ///< seconds of transfers overlapped with a micro-batch's passes,
                                   ///< mean over stages
  std::vector<char> fits;          ///< the parameters alone
  std::vector<char> splits;        ///< splitting the backward pass is legal
  /// True if the z-th sharding is legal with the schedule.
  [[nodiscard]] bool has(std::size_t z, ScheduleKind schedule) const {
    return !splits_weights(schedule) || splits[z] != 0;
  }
  [[nodiscard]] std::int64_t count(ScheduleKind schedule) const;
  /// Shardings legal with the schedule whose parameters alone do not fit.
  [[nodiscard]] std::int64_t too_large(ScheduleKind schedule) const;
  [[nodiscard]] bool any_fits() const {
    return std::find(fits.begin(), fits.end(), char{1}) != fits.end();
  }
};

/// Splits that share everything a pass depends on but the pipeline and replicas, with one
/// micro-batch size.
struct SearchTask {
  std::int32_t micro = 1;
  std::vector<std::size_t> splits;  ///< of SplitTable
};

/// Safe for threads but for construction.
class SplitTable {
 public:
  SplitTable(const Job& job, const ParallelSpace& space, const ParallelSearchOptions& options);

  [[nodiscard]] const PipelineLayout& layout(std::int32_t stages, const DealChoice& deal,
                                             ScheduleKind schedule = {}) const {
    return layouts_.at(key_of(stages, deal, traits_of(schedule).placement));
  }
  /// Evaluated when the first task comes to it: the time limit may end the search before.
  Split& sharded(std::size_t split);
  /// Its costs too, by the path's clock. `split`: answered by `sharded`.
  const Split& known(Split& split, ClosedFormModel& path);
  /// ClosedFormModel::any_micro_bound, made once.
  double any_micro_bound(const Split& split, ClosedFormModel& path);
  /// Tasks of this shard of the search, the most usual plans first: what comes first bounds what
  /// follows.
  [[nodiscard]] std::vector<SearchTask> tasks() const;

  [[nodiscard]] bool fits(double bytes) const {
    return options_.capacity <= 0 || bytes + options_.reserve <= options_.capacity;
  }
  /// Remembers the least of the bytes that did not fit, reserve included; 0 if none.
  void note_bytes(double bytes);
  [[nodiscard]] double least_bytes() const { return least_bytes_; }

 private:
  /// Layers by stage and chunk are the same for all splits with that pipeline.
  using LayoutKey =
      std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, ChunkPlacement>;
  static LayoutKey key_of(std::int32_t stages, const DealChoice& deal, ChunkPlacement placement) {
    return {stages, deal.virtual_stages, deal.embedding_layers, deal.head_layers, placement};
  }
  void make_layouts(const PlanPoint& split);
  [[nodiscard]] double overlapped(ClosedFormModel& path, PlanPoint point,
                                  const PipelineLayout& layout, const DealChoice& deal) const;
  [[nodiscard]] double remoteness(const SearchTask& task) const;

  const Job& job_;
  const ParallelSpace& space_;
  const ParallelSearchOptions& options_;
  std::map<LayoutKey, PipelineLayout> layouts_;
  std::deque<Split> splits_;
  std::atomic<double> least_bytes_{0};
  std::mutex bounding_;
  struct AnyMicro {
    std::array<std::once_flag, 2> costed;  ///< by clock
    std::array<double, 2> seconds{};
  };
  std::map<PlanPoint, AnyMicro> any_micro_;  ///< by ClosedFormModel::any_micro_key
};

}  // namespace stepcast::planner::internal
