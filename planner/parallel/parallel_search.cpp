#include "planner/parallel/parallel_search.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <span>

#include "planner/parallel/fast_path.h"
#include "planner/parallel/internal/split_table.h"
#include "planner/parallel/parallel_for.h"
#include "planner/parallel/parallel_space.h"
#include "planner/parallel/search_front.h"
#include "planner/parallel/task_costs.h"

namespace stepcast::planner {
namespace {

using internal::SearchTask;
using internal::Split;
using internal::SplitTable;

class Search {
 public:
  Search(const PlanRequest& request, const models::CostModel& model,
         const ParallelSearchOptions& options)
      : job_(without_fits(request.job)),
        model_(model),
        options_(options),
        space_(request.job, request.fixed),
        clock_(options.below ? Clock::kLeast : Clock::kUsual),
        shelf_(options) {
    const Overlap& overlap = job_.parallel.overlap;
    may_be_rough_ =
        !options.below && (overlap.data || overlap.tensor || overlap.expert || overlap.pipeline ||
                           request.job.workload.transformer()->full_attention_every > 0);
    const int threads = std::max(options.threads, 1);
    for (int t = 0; t < threads; ++t) {
      paths_.push_back(std::make_unique<FastPath>(job_, model, clock_));
      if (options.bound_splits) {
        least_.push_back(std::make_unique<FastPath>(*paths_.back(), Clock::kLeast));
      }
    }
  }

  ParallelSearchResult run() {
    tasks_ = table_.tasks();
    look_around();
    std::vector<std::size_t> first(tasks_.size() + 1, 0);  // split of each task, over all tasks
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      first[t + 1] = first[t] + tasks_[t].splits.size();
    }
    bounds_ = options_.split_bounds;
    bounds_.resize(first.back());
    // Rounds: what a round may leave out depends on the rounds before it alone, so the counts do
    // not depend on how threads took turns.
    std::size_t done = 0;
    for (std::size_t round = 8; done < tasks_.size(); round *= 2) {
      const std::size_t count = std::min(round, tasks_.size() - done);
      std::vector<CandidateShelf> shelves(count, shelf_);
      std::vector<SearchCounts> counts(count);
      parallel_for(count, options_.threads, [&](std::size_t worker, std::size_t i) {
        const std::size_t t = done + i;
        const std::span bounds = std::span(bounds_).subspan(first[t], tasks_[t].splits.size());
        work(*paths_[worker], tasks_[t], shelves[i], counts[i], bounds);
        if (options_.bound_splits) {
          bound_splits(*least_[worker], tasks_[t], bounds);
        }
        if (worker == 0) {
          tell(done + i + 1);
        }
      });
      for (std::size_t i = 0; i < count; ++i) {
        shelf_.take(shelves[i]);
        counts_ += counts[i];
      }
      done += count;
      tell(done);
    }
    ParallelSearchResult result;
    result.best = shelf_.best();
    result.front = shelf_.front();
    result.others_at_least = shelf_.others_at_least();
    result.counts = counts_;
    result.cut = cut_;
    result.split_bounds = std::move(bounds_);
    if (result.best.empty()) {
      result.least_bytes = table_.least_bytes();
    }
    return result;
  }

 private:
  /// From the calling thread.
  void tell(std::size_t done) const {
    if (options_.on_progress) {
      options_.on_progress(static_cast<double>(done) / static_cast<double>(tasks_.size()));
    }
  }
  [[nodiscard]] bool late() {
    if (options_.time_limit && options_.clock && options_.clock() - begin_ > *options_.time_limit) {
      cut_ = true;
    }
    return cut_;
  }

  /// `bounds` of the task's splits.
  void work(FastPath& path, const SearchTask& task, CandidateShelf& shelf, SearchCounts& counts,
            std::span<const double> bounds) {
    TaskCosts costs(path);
    for (std::size_t s = 0; s < task.splits.size(); ++s) {
      const std::size_t i = task.splits[s];
      if (late()) {
        ++counts.space;  // no more is known of it
        ++counts.left_out;
        continue;
      }
      Split& split = table_.sharded(i);
      PlanPoint point = split.point;
      point.micro = task.micro;
      const std::vector<ScheduleChoice> schedules = space_.schedules(point);
      const bool known_behind = options_.below && bounds[s] > *options_.below;
      if (known_behind || behind(path, costs, point, schedules, shelf)) {
        for (const auto& [deal, schedule] : schedules) {
          const auto points =
              split.count(schedule) *
              static_cast<std::int64_t>(
                  space_.recomputes(table_.layout(point.pipeline, deal), schedule).size());
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
        const PipelineLayout& layout = table_.layout(point.pipeline, deal);
        const std::vector<RecomputeChoice> recomputes = space_.recomputes(layout, schedule);
        const auto points = static_cast<std::int64_t>(recomputes.size()) * split.count(schedule);
        counts.space += points;
        if (late()) {
          counts.left_out += points;
        } else if (behind(path, costs, point, layout, shelf)) {
          counts.bounded += points;
          counts.rough += may_be_rough_ ? points : 0;
        } else if (!table_.known(split, path).any_fits()) {
          counts.weights_too_large += points;
        } else {
          Work w{path, costs, split, layout, shelf, counts, {}};
          auto next = recomputes.begin();
          for (; next != recomputes.end() && next->kind != RecomputeKind::kFirstLayers; ++next) {
            point.recompute = next->kind;
            point.recompute_layers = 0;
            consider(w, point);
          }
          point.recompute = RecomputeKind::kFirstLayers;
          consider_first_layers(
              w, point,
              std::span(recomputes).subspan(static_cast<std::size_t>(next - recomputes.begin())));
        }
      }
    }
  }

  void bound_splits(FastPath& path, const SearchTask& task, std::span<double> bounds) {
    TaskCosts costs(path);
    for (std::size_t s = 0; s < bounds.size() && !late(); ++s) {
      PlanPoint point = table_.sharded(task.splits[s]).point;
      point.micro = task.micro;
      bounds[s] = path.split_bound(point, costs.passes(point, RecomputeKind::kNone));
    }
  }

  /// True if no plan of the split, under any schedule, can be among the answers. Passes whose
  /// weight gradients are made apart take no less.
  [[nodiscard]] bool behind(FastPath& path, TaskCosts& costs, PlanPoint point,
                            const std::vector<ScheduleChoice>& schedules,
                            const CandidateShelf& shelf) {
    if (by_memory_too() || (!options_.below && std::isinf(shelf.limit())) || schedules.empty()) {
      return false;
    }
    point.zero = point.shard_level = 0;
    return beaten(shelf, path.split_bound(point, costs.passes(point, RecomputeKind::kNone)), 0);
  }

  /// The same for one schedule of it, under any recomputation and sharding: whole parameters
  /// without recomputation have the shortest passes.
  [[nodiscard]] bool behind(FastPath& path, TaskCosts& costs, PlanPoint point,
                            const PipelineLayout& layout, const CandidateShelf& shelf) {
    if (by_memory_too() || (!options_.below && std::isinf(shelf.limit()))) {
      return false;
    }
    point.zero = point.shard_level = point.recompute_layers = 0;
    point.recompute = RecomputeKind::kNone;
    Passes& passes = costs.passes(point, point.recompute);
    path.set_passes(point, layout, passes, passes, costs.hops(passes, point));
    return beaten(shelf, path.bound(), 0);
  }

  /// True if a slow plan counts where it needs less memory.
  [[nodiscard]] bool by_memory_too() const { return options_.front && !options_.below; }

  /// A few plans of the first tasks, so that bounds can exclude plans from the start: one chunk a
  /// stage, as many as there are layers for, and half of these. The rounds evaluate them again.
  void look_around() {
    constexpr std::size_t kTasks = 8;
    const std::size_t count = std::min(kTasks, tasks_.size());
    std::vector<CandidateShelf> shelves(count, shelf_);
    parallel_for(count, options_.threads, [&](std::size_t worker, std::size_t i) {
      look_around(*paths_[worker], tasks_[i], shelves[i]);
    });
    for (const CandidateShelf& shelf : shelves) {
      shelf_.take(shelf);
    }
  }

  void look_around(FastPath& path, const SearchTask& task, CandidateShelf& shelf) {
    TaskCosts costs(path);
    SearchCounts counts;  // of the rounds' points
    for (const std::size_t i : task.splits) {
      Split& split = table_.sharded(i);
      PlanPoint point = split.point;
      point.micro = task.micro;
      const std::vector<ScheduleChoice> schedules = space_.schedules(point);
      if (late() || behind(path, costs, point, schedules, shelf) ||
          !table_.known(split, path).any_fits()) {
        continue;
      }
      std::int32_t most = 1;
      for (const ScheduleChoice& s : schedules) {
        most = std::max(most, s.deal.virtual_stages);
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
        Work w{path, costs, split, table_.layout(point.pipeline, deal), shelf, counts, {}};
        for (const RecomputeChoice& choice : space_.recomputes(w.layout, schedule)) {
          if (choice.kind != RecomputeKind::kFirstLayers) {
            point.recompute = choice.kind;
            point.recompute_layers = 0;
            consider(w, point);
          }
        }
      }
    }
  }

  /// Points that differ in recomputation and sharding alone.
  struct Work {
    FastPath& path;
    TaskCosts& costs;
    const Split& split;
    const PipelineLayout& layout;
    CandidateShelf& shelf;
    SearchCounts& counts;
    std::vector<char> out;  ///< scratch, by sharding
  };

  /// Sharded gradients or weights need passes of their own for every split, and an exchange that
  /// overlaps with passes depends on each. Passes of whole parameters are known, take less time and
  /// keep as much, and a fully hidden exchange takes none: a lower bound. With one micro-batch,
  /// sharded gradients need fewer buffers.
  [[nodiscard]] bool has_bound(const PlanPoint& point) const {
    return point.zero >= 2 ? job_.batch.global > std::int64_t{point.data} * point.micro
                           : job_.parallel.overlap.data;
  }

  /// Where bytes only have to fit, buffers of several micro-batches may stand for those of one.
  [[nodiscard]] bool has_time_bound(const PlanPoint& point) const {
    return has_bound(point) || (options_.below && point.zero >= 2);
  }

  /// No path through the schedule is shorter, nor is the stream of overlapped transfers: the last
  /// backward pass may have other transfers.
  [[nodiscard]] double bound_seconds(const Work& w, std::size_t z, const States& states) const {
    return std::max(w.path.bound(states),
                    static_cast<double>(w.path.microbatches() - 1) * w.split.overlapped[z]);
  }

  /// True if a plan of at least so many seconds and bytes can be left out.
  [[nodiscard]] bool beaten(const CandidateShelf& shelf, double seconds, double bytes) const {
    return (options_.below && seconds > *options_.below) ||
           shelf.beaten(seconds, bytes + options_.reserve);
  }
  [[nodiscard]] bool beaten(const Work& w, double seconds, double bytes) const {
    return beaten(w.shelf, seconds, bytes);
  }
  [[nodiscard]] bool rough(Work& w) const { return !options_.below && !w.path.bounds_simulator(); }

  /// Of the point; what bounds its time and bytes; its time alone, where that is all that counts.
  enum class CostsOf { kItself, kBound, kTimeBound };

  /// Calls `visit(z, point, states, fresh)` for the shardings under which the parameters fit, but
  /// for those `out`; `fresh` where the path holds other passes than before. Where there are some,
  /// bounds stand in, if asked for: else `states` are still those of the split.
  template <class Visit>
  void each_sharding(Work& w, PlanPoint point, CostsOf which, const std::vector<char>& out,
                     const Visit& visit) {
    const bool mixture = point.recompute == RecomputeKind::kFirstLayers;
    const Passes* set = nullptr;  // passes the path holds
    for (std::size_t z = 0; z < w.split.zeros.size(); ++z) {
      if (!w.split.has(z, point.schedule) || w.split.fits[z] == 0 ||
          (!out.empty() && out[z] != 0)) {
        continue;
      }
      point.zero = w.split.zeros[z].stage;
      point.shard_level = w.split.zeros[z].level;
      PlanPoint of = point;
      const bool bound = (which == CostsOf::kBound && has_bound(point)) ||
                         (which == CostsOf::kTimeBound && has_time_bound(point));
      if (bound) {
        of.zero = of.shard_level = 0;
      }
      Passes& kept = w.costs.passes(of, mixture ? RecomputeKind::kNone : of.recompute);
      const bool fresh = set != &kept;
      if (fresh) {
        Passes& again = mixture ? w.costs.passes(of, RecomputeKind::kFull) : kept;
        w.path.set_passes(of, w.layout, kept, again, w.costs.hops(kept, of));
        set = &kept;
      }
      const States& of_split = w.split.states[z];
      visit(z, point,
            which == CostsOf::kItself || bound ? of_split : w.costs.states(point, of_split), fresh);
    }
  }

  /// Marks the shardings that bounds rule out already.
  void rule_out(Work& w, const PlanPoint& choice, std::vector<char>& out) {
    out.assign(w.split.zeros.size(), 0);
    each_sharding(
        w, choice, CostsOf::kTimeBound, {},
        [&](std::size_t z, const PlanPoint& point, const States& states, bool) {
          if (!has_time_bound(point)) {
            return;
          }
          const bool late = !by_memory_too() && beaten(w, bound_seconds(w, z, states), 0);
          const double bytes = late ? 0 : w.path.lasting_bytes(states);
          if (!late && has_bound(point) && !table_.fits(bytes)) {
            table_.note_bytes(bytes);
            ++w.counts.memory_too_large;
            out[z] = 1;
          } else if (late || (by_memory_too() && beaten(w, bound_seconds(w, z, states), bytes))) {
            ++w.counts.bounded;
            w.counts.rough += rough(w) ? 1 : 0;
            out[z] = 1;
          }
        });
  }

  void consider(Work& w, const PlanPoint& choice) {
    bool is_rough = false;
    bool any_fresh = false;
    const auto known_rough = [&] {  // asked late: it takes the times of the passes
      is_rough = any_fresh || !is_rough ? rough(w) : is_rough;
      any_fresh = false;
      return is_rough;
    };
    w.counts.weights_too_large += w.split.too_large(choice.schedule);
    rule_out(w, choice, w.out);
    each_sharding(w, choice, CostsOf::kItself, w.out,
                  [&](std::size_t, const PlanPoint& point, const States& of_split, bool fresh) {
                    any_fresh = any_fresh || fresh;
                    const auto bounded = [&](double seconds, double bytes) {
                      if (!beaten(w, seconds, bytes)) {
                        return false;
                      }
                      ++w.counts.bounded;
                      w.counts.rough += known_rough() ? 1 : 0;
                      return true;
                    };
                    if (has_bound(point)) {  // its own passes, as if the exchange took no time
                      if (!by_memory_too() && bounded(w.path.bound(of_split), 0)) {
                        return;
                      }
                      const double bytes = w.path.lasting_bytes(of_split);
                      if (table_.fits(bytes) && (bounded(w.path.bound(of_split), bytes) ||
                                                 bounded(w.path.step(of_split), bytes))) {
                        return;
                      }
                    }
                    const States& states = w.costs.states(point, of_split);
                    if (!by_memory_too() && bounded(w.path.bound(states), 0)) {
                      return;
                    }
                    const double bytes = w.path.bytes(states);
                    if (!table_.fits(bytes)) {
                      table_.note_bytes(bytes);
                      ++w.counts.memory_too_large;
                      return;
                    }
                    if (by_memory_too() && bounded(w.path.bound(states), bytes)) {
                      return;
                    }
                    const double seconds = w.path.step(states);
                    if (options_.below && bounded(seconds, bytes)) {
                      return;
                    }
                    w.counts.rough += known_rough() ? 1 : 0;
                    ++w.counts.evaluated;
                    w.shelf.offer({point, seconds, bytes + options_.reserve, is_rough});
                  });
  }

  /// The first k layers of every stage, for all k. With each layer more the lasting memory falls
  /// and the time rises, so two of them can speak for the rest: a k that does not fit for all
  /// below, the time of the least that may fit and the memory of the most for all between.
  void consider_first_layers(Work& w, PlanPoint point, std::span<const RecomputeChoice> choices) {
    if (choices.empty()) {
      return;
    }
    bool ordered = true;
    const auto lasting = [&](const RecomputeChoice& choice) {
      point.recompute_layers = choice.layers;
      double least = std::numeric_limits<double>::infinity();
      each_sharding(w, point, CostsOf::kBound, {},
                    [&](std::size_t, const PlanPoint&, const States& states, bool fresh) {
                      least = std::min(least, w.path.lasting_bytes(states));
                      ordered = ordered && (!fresh || w.path.trades_memory_for_time());
                    });
      return least;
    };
    const auto least_seconds = [&](const RecomputeChoice& choice, bool& any_rough) {
      point.recompute_layers = choice.layers;
      double seconds = std::numeric_limits<double>::infinity();
      each_sharding(w, point, CostsOf::kBound, {},
                    [&](std::size_t z, const PlanPoint&, const States& states, bool fresh) {
                      ordered = ordered && (!fresh || w.path.trades_memory_for_time());
                      seconds = std::min(seconds, bound_seconds(w, z, states));
                      any_rough = any_rough || rough(w);
                    });
      return seconds;
    };
    constexpr double kRounding = 1 - 1e-12;
    const auto all = w.split.too_large(point.schedule);
    const auto shardings = w.split.count(point.schedule) - all;
    const auto all_bounded = [&](std::int64_t rest, bool any_rough) {
      w.counts.weights_too_large += rest * all;
      w.counts.bounded += rest * shardings;
      w.counts.rough += any_rough ? rest * shardings : 0;
    };
    if (!by_memory_too()) {  // the time of one speaks for all, whether they fit or not
      bool any_rough = false;
      if (beaten(w, least_seconds(choices.front(), any_rough) * kRounding, 0) && ordered) {
        all_bounded(static_cast<std::int64_t>(choices.size()), any_rough);
        return;
      }
    }
    const double bytes = lasting(choices.back());
    if (!ordered) {
      for (const RecomputeChoice& choice : choices) {
        point.recompute_layers = choice.layers;
        consider(w, point);
      }
      return;
    }
    const auto first = std::partition_point(
        choices.begin(), choices.end(),
        [&](const RecomputeChoice& choice) { return !table_.fits(lasting(choice)); });
    const auto below = static_cast<std::int64_t>(first - choices.begin());
    w.counts.weights_too_large += below * all;
    w.counts.memory_too_large += below * shardings;
    if (first == choices.end()) {
      table_.note_bytes(bytes);
      return;
    }
    bool any_rough = false;
    const double seconds = least_seconds(*first, any_rough);
    if (beaten(w, seconds * kRounding, bytes * kRounding)) {
      all_bounded(choices.end() - first, any_rough);
      return;
    }
    for (auto choice = first; choice != choices.end(); ++choice) {
      point.recompute_layers = choice->layers;
      consider(w, point);
    }
  }

  Job job_;
  const models::CostModel& model_;
  const ParallelSearchOptions& options_;
  double begin_ = options_.clock ? options_.clock() : 0;
  ParallelSpace space_;
  Clock clock_;
  bool may_be_rough_ = false;                     // true if some plan may be
  std::vector<std::unique_ptr<FastPath>> paths_;  // by worker
  std::vector<std::unique_ptr<FastPath>> least_;  // likewise, where splits are bounded
  std::vector<double> bounds_;                    // by task and split
  SplitTable table_{job_, space_, options_};
  std::vector<SearchTask> tasks_;
  CandidateShelf shelf_;
  SearchCounts counts_;
  std::atomic<bool> cut_{false};
};

}  // namespace

ParallelSearchResult search_parallel(const PlanRequest& request, const models::CostModel& model,
                                     const ParallelSearchOptions& options) {
  return Search(request, model, options).run();
}

}  // namespace stepcast::planner
