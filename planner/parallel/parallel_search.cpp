#include "planner/parallel/parallel_search.h"

#include <algorithm>
#include <atomic>

#include "core/clearly_less.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/internal/point_search.h"
#include "planner/parallel/internal/search_memory.h"
#include "planner/parallel/internal/split_table.h"
#include "planner/parallel/parallel_for.h"
#include "planner/parallel/parallel_space.h"
#include "planner/parallel/search_front.h"
#include "planner/parallel/task_costs.h"

namespace stepcast::planner {

SearchCounts& SearchCounts::operator+=(const SearchCounts& o) {
  space += o.space;
  weights_too_large += o.weights_too_large;
  memory_too_large += o.memory_too_large;
  bounded += o.bounded;
  evaluated += o.evaluated;
  left_out += o.left_out;
  rough += o.rough;
  return *this;
}

namespace {

using internal::PointSearch;
using internal::SearchTask;
using internal::Split;
using internal::SplitTable;

class Search {
 public:
  Search(internal::SearchMemory& memory, const ParallelSearchOptions& options)
      : memory_(memory),
        options_(options),
        clock_(options.below ? CostBasis::kLowerBound : CostBasis::kUsual),
        table_(memory.splits),
        points_(memory.job, options, table_),
        shelf_(options) {
    const Overlap& overlap = memory.job.parallel.overlap;
    may_be_rough_ =
        !options.below && (overlap.data || overlap.tensor || overlap.expert || overlap.pipeline);
  }

  ParallelSearchResult run() {
    look_around();
    // Rounds: what a round may leave out depends on the rounds before it alone, so the counts do
    // not depend on how threads took turns.
    std::size_t done = 0;
    for (std::size_t round = 8; done < tasks_.size(); round *= 2) {
      const std::size_t count = std::min(round, tasks_.size() - done);
      std::vector<CandidateShelf> shelves(count, shelf_);
      std::vector<SearchCounts> counts(count);
      parallel_for(count, options_.threads, [&](std::size_t worker, std::size_t i) {
        const std::size_t t = done + i;
        work(worker, t, shelves[i], counts[i]);
        if (options_.bound_splits) {
          bound_splits(worker, t);
        }
      });
      for (std::size_t i = 0; i < count; ++i) {
        shelf_.take(shelves[i]);
        counts_ += counts[i];
      }
      done += count;
      tell(static_cast<double>(done));
    }
    ParallelSearchResult result;
    result.best = shelf_.best();
    result.of_families = shelf_.of_families();
    result.front = shelf_.front();
    result.others_at_least = shelf_.others_at_least();
    result.counts = counts_;
    result.cut = cut_;
    if (result.best.empty()) {
      result.least_bytes = table_.least_bytes();
    }
    return result;
  }

 private:
  /// From the calling thread: so many tasks are done.
  void tell(double done) const {
    if (options_.on_progress) {
      options_.on_progress(done / static_cast<double>(tasks_.size()),
                           shelf_.best().empty() ? std::numeric_limits<double>::infinity()
                                                 : shelf_.best().front().seconds);
    }
  }
  [[nodiscard]] bool late() {
    if (options_.time_limit && options_.clock && options_.clock() - begin_ > *options_.time_limit) {
      cut_ = true;
    }
    return cut_;
  }

  /// Costs of a task's points; where a search for plans `below` follows, also for that.
  [[nodiscard]] TaskCosts costs_of(std::size_t worker, std::size_t t) const {
    ClosedFormModel& path = memory_.path(clock_, worker);
    TaskTable& table = memory_.table(clock_, t);
    return options_.bound_splits
               ? TaskCosts(path, table, memory_.path(CostBasis::kLowerBound, worker),
                           memory_.table(CostBasis::kLowerBound, t))
               : TaskCosts(path, table);
  }
  const Split& known(Split& split, std::size_t worker) {
    if (options_.bound_splits) {
      table_.known(split, memory_.path(CostBasis::kLowerBound, worker));
    }
    return table_.known(split, memory_.path(clock_, worker));
  }

  void work(std::size_t worker, std::size_t t, CandidateShelf& shelf, SearchCounts& counts) {
    ClosedFormModel& path = memory_.path(clock_, worker);
    const SearchTask& task = tasks_[t];
    TaskCosts costs = costs_of(worker, t);
    for (std::size_t s = 0; s < task.splits.size(); ++s) {
      const std::size_t i = task.splits[s];
      if (worker == 0) {
        tell(static_cast<double>(t) +
             static_cast<double>(s) / static_cast<double>(task.splits.size()));
      }
      if (late()) {
        ++counts.space;  // no more is known of it
        ++counts.left_out;
        continue;
      }
      Split& split = table_.sharded(i);
      PlanPoint point = split.point;
      point.micro = task.micro;
      const std::vector<ScheduleChoice>& schedules = schedules_of(t, s, point);
      const bool known_behind =
          options_.below && clearly_less(*options_.below, memory_.split_bounds[t][s]);
      const bool at_any_micro = !known_behind && behind_at_any_micro(path, split, shelf);
      memory_.at_any_micro[t][s] = at_any_micro ? 1 : 0;
      if (known_behind || at_any_micro || behind(path, costs, split, point, schedules, shelf)) {
        for (const auto& [deal, schedule] : schedules) {
          const auto points =
              split.count(schedule) *
              static_cast<std::int64_t>(
                  space_.recomputes(table_.layout(point.pipeline, deal, schedule), schedule)
                      .size());
          counts.space += points;
          counts.bounded += points;
          counts.rough += may_be_rough_ ? points : 0;
        }
        continue;
      }
      for (const auto& [deal, schedule] : schedules) {
        point.virtual_stages = deal.virtual_stages;
        point.embedding_layers = deal.embedding_layers;
        point.head_layers = deal.head_layers;
        point.schedule = schedule;
        const PipelineLayout& layout = table_.layout(point.pipeline, deal, schedule);
        const std::vector<RecomputeChoice> recomputes = space_.recomputes(layout, schedule);
        const auto points = static_cast<std::int64_t>(recomputes.size()) * split.count(schedule);
        counts.space += points;
        PointSearch::Work w{path, costs, split, layout, shelf, counts, {}};
        if (late()) {
          counts.left_out += points;
        } else if (behind(path, costs, split, point, layout, shelf)) {
          counts.bounded += points;
          counts.rough += may_be_rough_ ? points : 0;
        } else if (!known(split, worker).any_fits()) {
          counts.weights_too_large += points;
        } else {
          points_.consider_recomputes(w, point, recomputes);
        }
      }
    }
  }

  void bound_splits(std::size_t worker, std::size_t t) {
    ClosedFormModel& path = memory_.path(CostBasis::kLowerBound, worker);
    const SearchTask& task = tasks_[t];
    TaskCosts costs(path, memory_.table(CostBasis::kLowerBound, t));
    for (std::size_t s = 0; s < task.splits.size() && !late(); ++s) {
      const Split& split = table_.sharded(task.splits[s]);
      PlanPoint point = split.point;
      point.micro = task.micro;
      memory_.split_bounds[t][s] =
          options_.efficiency *
          (memory_.at_any_micro[t][s] != 0
               ? table_.any_micro_bound(split, path)
               : path.split_bound(point, costs.passes(point, RecomputeKind::kNone)));
    }
  }

  /// Schedules that plans of a task's split can have.
  const std::vector<ScheduleChoice>& schedules_of(std::size_t t, std::size_t s,
                                                  const PlanPoint& point) {
    const std::vector<ScheduleChoice>*& known = memory_.schedules[t][s];
    if (known == nullptr) {
      PlanPoint key = point;
      key.expert = std::min(key.expert, 2);
      const std::lock_guard lock(memory_.making_schedules);
      const auto [at, fresh] = memory_.all_schedules.try_emplace(key);
      if (fresh) {
        at->second = space_.schedules(point);
      }
      known = &at->second;
    }
    return *known;
  }

  /// True if no plan of the split can be among the answers, whatever its micro-batch.
  [[nodiscard]] bool behind_at_any_micro(ClosedFormModel& path, const Split& split,
                                         const CandidateShelf& shelf) {
    return points_.by_time(shelf) &&
           points_.beaten(shelf, split, table_.any_micro_bound(split, path));
  }

  /// The same with the point's micro-batch, under any schedule. Passes whose weight gradients are
  /// made apart take no less.
  [[nodiscard]] bool behind(ClosedFormModel& path, TaskCosts& costs, const Split& split,
                            PlanPoint point, const std::vector<ScheduleChoice>& schedules,
                            const CandidateShelf& shelf) {
    if (!points_.by_time(shelf) || schedules.empty()) {
      return false;
    }
    point.zero = point.shard_level = 0;
    const Passes& passes = costs.passes(point, RecomputeKind::kNone);
    return points_.beaten(shelf, split, path.split_bound(point, passes));
  }

  /// The same for one schedule of it, under any recomputation and sharding: whole parameters
  /// without recomputation have the shortest passes.
  [[nodiscard]] bool behind(ClosedFormModel& path, TaskCosts& costs, const Split& split,
                            PlanPoint point, const PipelineLayout& layout,
                            const CandidateShelf& shelf) {
    if (!points_.by_time(shelf)) {
      return false;
    }
    point.zero = point.shard_level = point.recompute_layers = 0;
    point.recompute = RecomputeKind::kNone;
    const Passes& passes = costs.passes(point, point.recompute);
    path.set_passes(point, layout, passes, passes, costs.message_times(passes, point));
    return points_.beaten(shelf, split, path.bound());
  }

  /// A few plans of the first tasks, so that bounds can exclude plans from the start: one chunk a
  /// stage, as many as there are layers for, and half of these. Those with the shortest passes come
  /// first and exclude others. The rounds evaluate them again.
  void look_around() {
    constexpr std::size_t kTasks = 8;
    const std::size_t all = std::min(kTasks, tasks_.size());
    std::size_t done = 0;
    for (std::size_t round = 2; done < all; round = kTasks) {
      const std::size_t count = std::min(round, all - done);
      std::vector<CandidateShelf> shelves(count, shelf_);
      parallel_for(count, options_.threads, [&](std::size_t worker, std::size_t i) {
        look_around(worker, done + i, shelves[i]);
      });
      for (const CandidateShelf& shelf : shelves) {
        shelf_.take(shelf);
      }
      done += count;
    }
  }

  void look_around(std::size_t worker, std::size_t t, CandidateShelf& shelf) {
    ClosedFormModel& path = memory_.path(clock_, worker);
    const SearchTask& task = tasks_[t];
    TaskCosts costs = costs_of(worker, t);
    struct Look {
      float seconds = 0;  // of whole parameters
      std::size_t split = 0;
      PlanPoint point;
    };
    std::vector<Look> looks;
    for (std::size_t s = 0; s < task.splits.size() && !late(); ++s) {
      if (worker == 0) {
        tell(0);
      }
      PlanPoint point = table_.sharded(task.splits[s]).point;
      point.micro = task.micro;
      const std::vector<ScheduleChoice>& schedules = schedules_of(t, s, point);
      std::int32_t most = 1;
      for (const ScheduleChoice& choice : schedules) {
        most = std::max(most, choice.deal.virtual_stages);
      }
      for (const auto& [deal, schedule] : schedules) {
        const std::int32_t v = deal.virtual_stages;
        if (schedule != schedules.front().kind || (v != 1 && v != most && v != (most + 1) / 2)) {
          continue;
        }
        point.virtual_stages = v;
        point.embedding_layers = deal.embedding_layers;
        point.head_layers = deal.head_layers;
        point.schedule = schedule;
        const PipelineLayout& layout = table_.layout(point.pipeline, deal, schedule);
        for (const RecomputeChoice& choice : space_.recomputes(layout, schedule)) {
          if (choice.kind != RecomputeKind::kFirstLayers) {
            point.recompute = choice.kind;
            const Passes& passes = costs.passes(point, point.recompute);
            path.set_passes(point, layout, passes, passes, costs.message_times(passes, point));
            looks.push_back({comparable(path.bound()), s, point});
          }
        }
      }
    }
    std::stable_sort(looks.begin(), looks.end(),
                     [](const Look& a, const Look& b) { return a.seconds < b.seconds; });
    SearchCounts counts;  // of the rounds' points
    for (const auto& [seconds, s, point] : looks) {
      Split& split = table_.sharded(task.splits[s]);
      PlanPoint of_split = split.point;
      of_split.micro = task.micro;
      if (!late() && !behind_at_any_micro(path, split, shelf) &&
          !behind(path, costs, split, of_split, schedules_of(t, s, of_split), shelf) &&
          known(split, worker).any_fits()) {
        const DealChoice deal{point.virtual_stages, point.embedding_layers, point.head_layers};
        PointSearch::Work w{path,  costs,  split, table_.layout(point.pipeline, deal),
                            shelf, counts, {}};
        points_.consider(w, point);
      }
    }
  }

  internal::SearchMemory& memory_;
  const ParallelSearchOptions& options_;
  double begin_ = options_.clock ? options_.clock() : 0;
  const ParallelSpace& space_ = memory_.space;
  const std::vector<SearchTask>& tasks_ = memory_.tasks;
  CostBasis clock_;
  bool may_be_rough_ = false;  // true if some plan may be
  SplitTable& table_;
  PointSearch points_;
  CandidateShelf shelf_;
  SearchCounts counts_;
  std::atomic<bool> cut_{false};
};

}  // namespace

ParallelSearch::ParallelSearch(const PlanRequest& request, const models::CostModel& model,
                               const ParallelSearchOptions& common)
    : memory_(std::make_unique<internal::SearchMemory>(request, model, common)) {}
ParallelSearch::ParallelSearch(ParallelSearch&&) noexcept = default;
ParallelSearch& ParallelSearch::operator=(ParallelSearch&&) noexcept = default;
ParallelSearch::~ParallelSearch() = default;

ParallelSearchResult ParallelSearch::run(const ParallelSearchOptions& options) {
  return Search(*memory_, options).run();
}

ParallelSearchResult search_parallel(const PlanRequest& request, const models::CostModel& model,
                                     const ParallelSearchOptions& options) {
  return ParallelSearch(request, model, options).run(options);
}

}  // namespace stepcast::planner
