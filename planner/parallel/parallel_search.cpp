#include "planner/parallel/parallel_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>

#include "planner/parallel/fast_path.h"
#include "planner/parallel/parallel_for.h"
#include "planner/parallel/parallel_space.h"
#include "planner/parallel/search_front.h"
#include "planner/parallel/task_costs.h"

namespace stepcast::planner {
namespace {

/// A split, the ZeRO stages it can have (from `sharded` on), and what its parameters cost under
/// each (from `known` on).
struct Split {
  PlanPoint point;
  std::once_flag sharded, known;
  std::vector<ZeroChoice> zeros;
  std::vector<States> states;
  std::vector<double> beside;  ///< seconds of transfers beside a micro-batch, mean over stages
  std::vector<char> fits;      ///< the parameters alone
  std::vector<char> splits;    ///< zb-h1 is legal
  /// Is the z-th sharding legal with the schedule?
  [[nodiscard]] bool has(std::size_t z, ScheduleKind schedule) const {
    return !splits_weights(schedule) || splits[z] != 0;
  }
  [[nodiscard]] std::int64_t count(ScheduleKind schedule) const {
    std::int64_t n = 0;
    for (std::size_t z = 0; z < zeros.size(); ++z) {
      n += has(z, schedule) ? 1 : 0;
    }
    return n;
  }
  /// Of these, those whose parameters alone do not fit.
  [[nodiscard]] std::int64_t too_large(ScheduleKind schedule) const {
    std::int64_t n = 0;
    for (std::size_t z = 0; z < zeros.size(); ++z) {
      n += has(z, schedule) && fits[z] == 0 ? 1 : 0;
    }
    return n;
  }
  [[nodiscard]] bool any_fits() const {
    return std::find(fits.begin(), fits.end(), char{1}) != fits.end();
  }
};

/// Splits that share everything a pass depends on but the pipeline and replicas, with one
/// micro-batch.
struct Task {
  std::int32_t micro = 1;
  std::vector<std::size_t> splits;
};

/// What no number of micro-batches changes.
double weights(const StateCosts& c, std::int32_t layers, std::int32_t dense) {
  return c.parameters.at(layers, dense) + c.gradients.at(layers, dense) +
         c.optimizer.at(layers, dense);
}

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
    }
  }

  ParallelSearchResult run() {
    make_splits();
    make_tasks();
    look_around();
    // Rounds: what a round may leave out depends on the rounds before it alone, so the counts do
    // not depend on how threads took turns.
    std::size_t done = 0;
    for (std::size_t round = 8; done < tasks_.size(); round *= 2) {
      const std::size_t count = std::min(round, tasks_.size() - done);
      std::vector<CandidateShelf> shelves(count, shelf_);
      std::vector<SearchCounts> counts(count);
      parallel_for(count, options_.threads, [&](std::size_t worker, std::size_t i) {
        work(*paths_[worker], tasks_[done + i], shelves[i], counts[i]);
      });
      for (std::size_t i = 0; i < count; ++i) {
        shelf_.take(shelves[i]);
        counts_ += counts[i];
      }
      done += count;
      if (options_.on_progress) {
        options_.on_progress(static_cast<double>(done) / static_cast<double>(tasks_.size()));
      }
    }
    ParallelSearchResult result;
    result.best = shelf_.best();
    result.front = shelf_.front();
    result.others_at_least = shelf_.others_at_least();
    result.counts = counts_;
    result.cut = cut_;
    if (result.best.empty()) {
      result.least_bytes = least_bytes_;
    }
    return result;
  }

 private:
  /// Layers by stage and chunk: the same for all splits with that pipeline.
  using Dealt = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
  static Dealt key_of(std::int32_t stages, const DealChoice& deal) {
    return {stages, deal.virtual_stages, deal.embedding_layers, deal.head_layers};
  }
  const PipelineLayout& layout(std::int32_t stages, const DealChoice& deal) {
    return layouts_.at(key_of(stages, deal));
  }

  void make_layouts(const PlanPoint& split) {
    PlanPoint point = split;
    for (const DealChoice& deal : space_.deals(split.pipeline)) {
      const Dealt key = key_of(split.pipeline, deal);
      if (!layouts_.contains(key)) {
        point.embedding_layers = deal.embedding_layers;
        point.head_layers = deal.head_layers;
        layouts_.emplace(key, layout_of(*job_.workload.transformer(), split.pipeline,
                                        deal.virtual_stages, pipeline_split(job_, point)));
      }
    }
  }

  void make_splits() {
    for (const PlanPoint& point : space_.splits()) {
      Split& split = splits_.emplace_back();
      split.point = point;
      make_layouts(point);
    }
  }

  /// Made when the first task comes to it: the time limit ends the search in between.
  Split& sharded(Split& split) {
    std::call_once(split.sharded, [&] {
      split.zeros = space_.zeros(split.point);
      for (const ZeroChoice zero : split.zeros) {
        PlanPoint point = split.point;
        point.zero = zero.stage;
        point.shard_level = zero.level;
        split.splits.push_back(space_.splits_backward(point) ? 1 : 0);
      }
    });
    return split;
  }

  /// Likewise its costs.
  const Split& known(Split& split, FastPath& path) {
    std::call_once(split.known, [&] {
      const std::vector<DealChoice>& deals = space_.deals(split.point.pipeline);
      const PipelineLayout& dealt = layout(split.point.pipeline, deals.front());
      const bool ends = std::any_of(deals.begin(), deals.end(), [&](const DealChoice& deal) {
        return layout(split.point.pipeline, deal).empty_ends();
      });
      for (const ZeroChoice zero : split.zeros) {
        PlanPoint point = split.point;
        point.zero = zero.stage;
        point.shard_level = zero.level;
        point.micro = space_.micros(point).front();
        // A lower bound, where the exchange is beside passes.
        split.states.push_back(
            path.reduced().states(point, path.reduced().states_use_passes(), ends));
        // However layers are dealt out, some stage holds the mean.
        double all = 0;
        for (std::size_t at = 0; at < dealt.layers.size(); ++at) {
          all += weights(split.states.back()[static_cast<std::size_t>(dealt.role[at])],
                         dealt.layers[at], dealt.dense[at]);
        }
        const double mean = all / point.pipeline;
        split.fits.push_back(fits(mean) ? 1 : 0);
        split.beside.push_back(fits(mean) ? beside(path, point, dealt, deals.front()) : 0);
        note_bytes(mean);
      }
    });
    return split;
  }

  /// Gathers and reductions beside the passes of a micro-batch, on the mean over stages: they are
  /// the same for every micro-batch size, schedule and recomputation.
  double beside(FastPath& path, PlanPoint point, const PipelineLayout& dealt,
                const DealChoice& deal) {
    if (point.zero < 2 || !job_.parallel.overlap.data) {
      return 0;
    }
    point.virtual_stages = deal.virtual_stages;
    point.embedding_layers = deal.embedding_layers;
    point.head_layers = deal.head_layers;
    const Passes passes = path.reduced().passes(point);
    double all = 0;
    for (std::size_t at = 0; at < dealt.layers.size(); ++at) {
      const PassCosts& of = passes.role[static_cast<std::size_t>(dealt.role[at])];
      all += of.beside.at(dealt.layers[at], dealt.dense[at]);
    }
    return all / point.pipeline;
  }

  void make_tasks() {
    using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, bool, std::int32_t>;
    std::map<Key, Task> tasks;
    for (std::size_t i = 0; i < splits_.size(); ++i) {
      const PlanPoint& p = splits_[i].point;
      for (const std::int32_t micro : space_.micros(p)) {
        Task& task = tasks[{p.context, micro, p.tensor, !p.sequence_parallel, p.expert}];
        task.micro = micro;
        task.splits.push_back(i);
      }
    }
    std::vector<std::pair<double, Task*>> order;
    for (auto& [key, task] : tasks) {
      order.emplace_back(remoteness(task), &task);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    int turn = 0;
    for (const auto& [score, task] : order) {
      if (turn++ % options_.shards == options_.shard) {
        tasks_.push_back(std::move(*task));
      }
    }
  }

  /// How far from what people run first, in doublings: tensor ranks up to a node with sequence
  /// parallelism, experts inside the innermost level of the fabric, whole sequences, micro-batches
  /// of one. It only orders the search: what comes first bounds what follows.
  [[nodiscard]] double remoteness(const Task& task) const {
    const PlanPoint& p = splits_[task.splits.front()].point;
    const auto doublings = [](double of, double from) { return std::abs(std::log2(of / from)); };
    const System& system = job_.system;
    const auto node = static_cast<double>(std::min(system.host.devices, job_.devices));
    const double near = static_cast<double>(
        system.fabric.empty() ? system.host.devices
                              : std::min(system.devices_in_level(0), job_.devices));
    double score = doublings(p.context, 1) + doublings(task.micro, 1);
    score += p.tensor > node ? 2 * doublings(p.tensor, node) : doublings(p.tensor, node) / 2;
    score += p.tensor > 1 && !p.sequence_parallel ? 1.5 : 0;
    if (const auto& experts = job_.workload.transformer()->moe) {
      const double most = std::min(near, static_cast<double>(experts->experts));
      score += p.expert > most ? 2 * doublings(p.expert, most) : doublings(p.expert, most) / 2;
    }
    return score;
  }

  [[nodiscard]] bool fits(double bytes) const {
    return options_.capacity <= 0 || bytes + options_.reserve <= options_.capacity;
  }

  void note_bytes(double bytes) {
    double known = least_bytes_.load();
    while ((known == 0 || bytes < known) && !least_bytes_.compare_exchange_weak(known, bytes)) {
    }
  }

  [[nodiscard]] bool late() {
    if (options_.time_limit && options_.clock && options_.clock() - begin_ > *options_.time_limit) {
      cut_ = true;
    }
    return cut_;
  }

  void work(FastPath& path, const Task& task, CandidateShelf& shelf, SearchCounts& counts) {
    TaskCosts costs(path);
    for (const std::size_t i : task.splits) {
      if (late()) {
        ++counts.space;  // no more is known of it
        ++counts.left_out;
        continue;
      }
      Split& split = sharded(splits_[i]);
      PlanPoint point = split.point;
      point.micro = task.micro;
      const std::vector<ScheduleChoice> schedules = space_.schedules(point);
      if (behind(path, costs, point, schedules, shelf)) {
        for (const auto& [deal, schedule] : schedules) {
          const auto points = split.count(schedule) *
                              static_cast<std::int64_t>(
                                  space_.recomputes(layout(point.pipeline, deal), schedule).size());
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
        const PipelineLayout& dealt = layout(point.pipeline, deal);
        const std::vector<RecomputeChoice> recomputes = space_.recomputes(dealt, schedule);
        const auto points = static_cast<std::int64_t>(recomputes.size()) * split.count(schedule);
        counts.space += points;
        if (late()) {
          counts.left_out += points;
        } else if (behind(path, costs, point, dealt, shelf)) {
          counts.bounded += points;
          counts.rough += may_be_rough_ ? points : 0;
        } else if (!known(split, path).any_fits()) {
          counts.weights_too_large += points;
        } else {
          Work w{path, costs, split, dealt, shelf, counts, {}};
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

  /// Are all plans of the split out of reach, whichever schedule it takes?
  [[nodiscard]] bool behind(FastPath& path, TaskCosts& costs, PlanPoint point,
                            const std::vector<ScheduleChoice>& schedules,
                            const CandidateShelf& shelf) {
    if (by_memory_too() || (!options_.below && std::isinf(shelf.limit())) || schedules.empty()) {
      return false;
    }
    point.zero = point.shard_level = 0;
    const auto is_behind = [&](ScheduleKind kind) {
      point.schedule = kind;
      const double seconds = path.split_bound(point, costs.passes(point, RecomputeKind::kNone));
      return beaten(shelf, seconds, 0);
    };
    const auto apart = [](const ScheduleChoice& s) { return splits_weights(s.kind); };
    return is_behind(ScheduleKind::kOneFOneB) &&
           (std::none_of(schedules.begin(), schedules.end(), apart) ||
            is_behind(ScheduleKind::kZbH1));
  }

  /// And those of a schedule of it, however they recompute and shard? Whole parameters without
  /// recomputation have the shortest passes.
  [[nodiscard]] bool behind(FastPath& path, TaskCosts& costs, PlanPoint point,
                            const PipelineLayout& dealt, const CandidateShelf& shelf) {
    if (by_memory_too() || (!options_.below && std::isinf(shelf.limit()))) {
      return false;
    }
    point.zero = point.shard_level = point.recompute_layers = 0;
    point.recompute = RecomputeKind::kNone;
    Passes& passes = costs.passes(point, point.recompute);
    path.set_passes(point, dealt, passes, passes, costs.hops(passes, point));
    return beaten(shelf, path.bound(), 0);
  }

  /// Does a slow plan count if it is small?
  [[nodiscard]] bool by_memory_too() const { return options_.front && !options_.below; }

  /// A few plans of the first tasks, so that bounds have something to be held against: one chunk a
  /// stage, as many as there are layers for, and half of these. The rounds come to them again.
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

  void look_around(FastPath& path, const Task& task, CandidateShelf& shelf) {
    TaskCosts costs(path);
    SearchCounts counts;  // of the rounds' points
    for (const std::size_t i : task.splits) {
      Split& split = sharded(splits_[i]);
      PlanPoint point = split.point;
      point.micro = task.micro;
      const std::vector<ScheduleChoice> schedules = space_.schedules(point);
      if (late() || behind(path, costs, point, schedules, shelf) ||
          !known(split, path).any_fits()) {
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
        Work w{path, costs, split, layout(point.pipeline, deal), shelf, counts, {}};
        for (const RecomputeChoice& choice : space_.recomputes(w.dealt, schedule)) {
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
    const PipelineLayout& dealt;
    CandidateShelf& shelf;
    SearchCounts& counts;
    std::vector<char> out;  ///< scratch, by sharding
  };

  /// Sharded gradients or weights make passes of their own for every split, and an exchange beside
  /// the passes depends on each. Passes of whole parameters are at hand, take less time and keep as
  /// much, and an exchange hidden in full takes none: a lower bound. With one micro-batch, sharded
  /// gradients need fewer buffers.
  [[nodiscard]] bool has_bound(const PlanPoint& point) const {
    return point.zero >= 2 ? job_.batch.global > std::int64_t{point.data} * point.micro
                           : job_.parallel.overlap.data;
  }

  /// Where bytes only have to fit, buffers of several micro-batches may stand for those of one.
  [[nodiscard]] bool has_time_bound(const PlanPoint& point) const {
    return has_bound(point) || (options_.below && point.zero >= 2);
  }

  /// No path through the schedule is shorter, nor is the stream of what runs beside passes: the
  /// last backward pass may have other transfers.
  [[nodiscard]] double bound_seconds(const Work& w, std::size_t z, const States& states) const {
    return std::max(w.path.bound(states),
                    static_cast<double>(w.path.microbatches() - 1) * w.split.beside[z]);
  }

  /// Can a plan of at least so many seconds and bytes be left out?
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
        w.path.set_passes(of, w.dealt, kept, again, w.costs.hops(kept, of));
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
          if (!late && has_bound(point) && !fits(bytes)) {
            note_bytes(bytes);
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
                      if (fits(bytes) && (bounded(w.path.bound(of_split), bytes) ||
                                          bounded(w.path.step(of_split), bytes))) {
                        return;
                      }
                    }
                    const States& states = w.costs.states(point, of_split);
                    if (!by_memory_too() && bounded(w.path.bound(states), 0)) {
                      return;
                    }
                    const double bytes = w.path.bytes(states);
                    if (!fits(bytes)) {
                      note_bytes(bytes);
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
    const auto first =
        std::partition_point(choices.begin(), choices.end(),
                             [&](const RecomputeChoice& choice) { return !fits(lasting(choice)); });
    const auto below = static_cast<std::int64_t>(first - choices.begin());
    w.counts.weights_too_large += below * all;
    w.counts.memory_too_large += below * shardings;
    if (first == choices.end()) {
      note_bytes(bytes);
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
  bool may_be_rough_ = false;                     // can any plan be?
  std::vector<std::unique_ptr<FastPath>> paths_;  // by worker
  std::map<Dealt, PipelineLayout> layouts_;
  std::deque<Split> splits_;
  std::vector<Task> tasks_;
  CandidateShelf shelf_;
  SearchCounts counts_;
  std::atomic<double> least_bytes_{0};
  std::atomic<bool> cut_{false};
};

}  // namespace

ParallelSearchResult search_parallel(const PlanRequest& request, const models::CostModel& model,
                                     const ParallelSearchOptions& options) {
  return Search(request, model, options).run();
}

}  // namespace stepcast::planner
