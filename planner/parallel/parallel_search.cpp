#include "planner/parallel/parallel_search.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <type_traits>

#include "core/error.h"
#include "planner/parallel/fast_path.h"
#include "planner/parallel/parallel_for.h"
#include "planner/parallel/parallel_space.h"
#include "planner/parallel/search_front.h"

namespace stepcast::planner {
namespace {

using States = ByRole<StateCosts>;

/// A split, the ZeRO stages it can have, and what its parameters cost under each.
struct Split {
  PlanPoint point;
  std::vector<ZeroChoice> zeros;
  std::vector<States> states;
  std::vector<char> fits;    ///< the parameters alone
  std::vector<char> splits;  ///< zb-h1 is legal
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
        shelf_(options.keep, options.front) {
    const int threads = std::max(options.threads, 1);
    for (int t = 0; t < threads; ++t) {
      paths_.push_back(std::make_unique<FastPath>(job_, model));
    }
  }

  ParallelSearchResult run() {
    begin_ = options_.clock ? options_.clock() : 0;
    make_splits();
    make_tasks();
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
    result.counts = counts_;
    result.cut = cut_;
    if (result.best.empty()) {
      result.least_bytes = least_bytes_;
    }
    return result;
  }

 private:
  /// Layers by stage and chunk: the same for all splits with that pipeline.
  const PipelineLayout& layout(std::int32_t stages, std::int32_t chunks) {
    return layouts_.at({stages, chunks});
  }

  void make_layouts(const PlanPoint& split) {
    Job unsplit = job_;
    unsplit.batch.global = split.pipeline;
    PlanPoint point;
    point.pipeline = split.pipeline;
    const std::int64_t most =
        split.pipeline == 1 ? 1 : job_.workload.transformer()->layers / split.pipeline;
    for (std::int32_t v = 1; v <= most; ++v) {
      point.virtual_stages = v;
      const std::pair key{split.pipeline, v};
      if (!layouts_.contains(key)) {
        layouts_.emplace(key, layout_of(unsplit, point));
      }
    }
  }

  void make_splits() {
    for (const PlanPoint& point : space_.splits()) {
      splits_.push_back({point, space_.zeros(point), {}, {}, {}});
      make_layouts(point);
    }
    parallel_for(splits_.size(), options_.threads, [&](std::size_t worker, std::size_t i) {
      Split& split = splits_[i];
      const PipelineLayout& even = layout(split.point.pipeline, 1);
      for (const ZeroChoice zero : split.zeros) {
        PlanPoint point = split.point;
        point.zero = zero.stage;
        point.shard_level = zero.level;
        split.splits.push_back(space_.splits_backward(point) ? 1 : 0);
        point.micro = space_.micros(point).empty() ? 1 : space_.micros(point).front();
        split.states.push_back(paths_[worker]->reduced().states(point));
        // However layers are dealt out, some stage holds the mean.
        double all = 0;
        for (std::size_t at = 0; at < even.layers.size(); ++at) {
          all += weights(split.states.back()[static_cast<std::size_t>(even.role[at])],
                         even.layers[at], even.dense[at]);
        }
        const double mean = all / point.pipeline;
        split.fits.push_back(fits(mean) ? 1 : 0);
        note_bytes(mean);
      }
    });
  }

  void make_tasks() {
    using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, bool, std::int32_t>;
    std::map<Key, Task> tasks;
    for (std::size_t i = 0; i < splits_.size(); ++i) {
      const PlanPoint& p = splits_[i].point;
      for (const std::int32_t micro : space_.micros(p)) {
        Task& task = tasks[{micro, p.tensor, p.context, !p.sequence_parallel, p.expert}];
        task.micro = micro;
        task.splits.push_back(i);
      }
    }
    int turn = 0;
    for (auto& [key, task] : tasks) {
      if (turn++ % options_.shards == options_.shard) {
        tasks_.push_back(std::move(task));
      }
    }
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
      const Split& split = splits_[i];
      PlanPoint point = split.point;
      point.micro = task.micro;
      const std::int64_t microbatches =
          job_.batch.global / (std::int64_t{point.data} * point.micro);
      for (const std::int32_t v : space_.virtual_stages(point, microbatches)) {
        point.virtual_stages = v;
        const PipelineLayout& dealt = layout(point.pipeline, v);
        for (const ScheduleKind schedule : space_.schedules(point, v)) {
          point.schedule = schedule;
          const std::vector<RecomputeChoice> recomputes = space_.recomputes(dealt, schedule);
          const auto zeros = schedule == ScheduleKind::kZbH1
                                 ? std::count(split.splits.begin(), split.splits.end(), char{1})
                                 : static_cast<std::ptrdiff_t>(split.zeros.size());
          const auto points = static_cast<std::int64_t>(recomputes.size()) * zeros;
          counts.space += points;
          if (!split.any_fits()) {
            counts.weights_too_large += points;
          } else if (late()) {
            counts.left_out += points;
          } else {
            for (const RecomputeChoice& r : recomputes) {
              point.recompute = r.kind;
              point.recompute_layers = r.layers;
              consider(path, costs, split, dealt, point, shelf, counts);
            }
          }
        }
      }
    }
  }

  /// Passes of a task, made when first needed.
  class TaskCosts {
   public:
    explicit TaskCosts(FastPath& path) : path_(path) {}
    const Passes& passes(PlanPoint point, RecomputeKind kind) {
      point.recompute = kind;
      const bool data = path_.reduced().passes_use_data(point);
      const std::tuple key{kind,
                           point.pipeline == 1,
                           point.schedule == ScheduleKind::kZbH1,
                           data ? point.zero : 0,
                           data ? point.shard_level : 0,
                           data ? point.pipeline : 0,
                           data ? point.data : 0};
      auto it = passes_.find(key);
      if (it == passes_.end()) {
        it = passes_.emplace(key, path_.reduced().passes(point)).first;
      }
      return it->second;
    }
    /// Those of the split, unless the exchange runs beside the passes.
    const States& states(const PlanPoint& point, const States& of_split) {
      // Those of the split are for several micro-batches.
      const bool other = path_.reduced().passes_use_data(point) && path_.microbatches() == 1;
      if (!path_.reduced().states_use_passes() && !other) {
        return of_split;
      }
      const std::tuple key{point.recompute, point.schedule == ScheduleKind::kZbH1,
                           point.pipeline,  point.data,
                           point.zero,      point.shard_level};
      auto it = states_.find(key);
      if (it == states_.end()) {
        it = states_.emplace(key, path_.reduced().states(point)).first;
      }
      return it->second;
    }
    const Hops& hops(const Passes& passes, const PlanPoint& point) {
      auto it = hops_.find(point.pipeline);
      if (it == hops_.end()) {
        it = hops_.emplace(point.pipeline, hops_of(path_.reduced(), passes, point)).first;
      }
      return it->second;
    }

   private:
    FastPath& path_;
    std::map<std::tuple<RecomputeKind, bool, bool, std::int32_t, std::int32_t, std::int32_t,
                        std::int32_t>,
             Passes>
        passes_;
    std::map<
        std::tuple<RecomputeKind, bool, std::int32_t, std::int32_t, std::int32_t, std::int32_t>,
        States>
        states_;
    std::map<std::int32_t, Hops> hops_;
  };

  void consider(FastPath& path, TaskCosts& costs, const Split& split, const PipelineLayout& dealt,
                PlanPoint point, CandidateShelf& shelf, SearchCounts& counts) {
    const bool mixture = point.recompute == RecomputeKind::kFirstLayers;
    const Passes* set = nullptr;  // passes the path holds
    bool rough = false;           // for these
    for (std::size_t z = 0; z < split.zeros.size(); ++z) {
      if (point.schedule == ScheduleKind::kZbH1 && split.splits[z] == 0) {
        continue;  // no point of the space
      }
      if (split.fits[z] == 0) {
        ++counts.weights_too_large;
        continue;
      }
      point.zero = split.zeros[z].stage;
      point.shard_level = split.zeros[z].level;
      const Passes& kept = costs.passes(point, mixture ? RecomputeKind::kNone : point.recompute);
      if (set != &kept) {
        const Passes& again = mixture ? costs.passes(point, RecomputeKind::kFull) : kept;
        path.set_passes(point, dealt, kept, again, costs.hops(kept, point));
        set = &kept;
        rough = !path.bounds_simulator();
      }
      const States& states = costs.states(point, split.states[z]);
      const StepForecast bound = path.bound(states);
      if (!fits(bound.bytes)) {
        note_bytes(bound.bytes);
        ++counts.memory_too_large;
        continue;
      }
      counts.rough += rough ? 1 : 0;
      if (shelf.beaten(bound.seconds, bound.bytes + options_.reserve)) {
        ++counts.bounded;
        continue;
      }
      ++counts.evaluated;
      const StepForecast step = path.step(states);
      shelf.offer({point, step.seconds, step.bytes + options_.reserve, rough});
    }
  }

  Job job_;
  const models::CostModel& model_;
  const ParallelSearchOptions& options_;
  ParallelSpace space_;
  std::vector<std::unique_ptr<FastPath>> paths_;  // by worker
  std::map<std::pair<std::int32_t, std::int32_t>, PipelineLayout> layouts_;
  std::vector<Split> splits_;
  std::vector<Task> tasks_;
  CandidateShelf shelf_;
  SearchCounts counts_;
  std::atomic<double> least_bytes_{0};
  std::atomic<bool> cut_{false};
  double begin_ = 0;
};

}  // namespace

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

ParallelSearchResult search_parallel(const PlanRequest& request, const models::CostModel& model,
                                     const ParallelSearchOptions& options) {
  return Search(request, model, options).run();
}

std::string packed(const ParallelSearchResult& result) {
  static_assert(std::is_trivially_copyable_v<ParallelCandidate> &&
                std::is_trivially_copyable_v<SearchCounts>);
  std::string bytes;
  const auto put = [&bytes](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  put(&result.counts, sizeof result.counts);
  put(&result.least_bytes, sizeof result.least_bytes);
  put(&result.cut, sizeof result.cut);
  for (const auto* list : {&result.best, &result.front}) {
    const std::size_t size = list->size();
    put(&size, sizeof size);
    put(list->data(), size * sizeof(ParallelCandidate));
  }
  return bytes;
}

ParallelSearchResult unpacked(const std::string& bytes) {
  ParallelSearchResult result;
  std::size_t at = 0;
  const auto get = [&](void* data, std::size_t size) {
    STEPCAST_CHECK(at + size <= bytes.size(), "a search result of {} bytes is cut short",
                   bytes.size());
    std::memcpy(data, bytes.data() + at, size);
    at += size;
  };
  get(&result.counts, sizeof result.counts);
  get(&result.least_bytes, sizeof result.least_bytes);
  get(&result.cut, sizeof result.cut);
  for (auto* list : {&result.best, &result.front}) {
    std::size_t size = 0;
    get(&size, sizeof size);
    for (std::size_t i = 0; i < size; ++i) {
      get(&list->emplace_back(), sizeof(ParallelCandidate));
    }
  }
  return result;
}

ParallelSearchResult merged(std::vector<ParallelSearchResult> parts, std::size_t keep) {
  CandidateShelf shelf(keep, true);
  ParallelSearchResult all;
  for (const ParallelSearchResult& part : parts) {
    for (const auto* list : {&part.best, &part.front}) {
      for (const ParallelCandidate& c : *list) {
        shelf.offer(c);
      }
    }
    all.counts += part.counts;
    all.cut = all.cut || part.cut;
    if (part.best.empty() && (all.least_bytes == 0 || part.least_bytes < all.least_bytes)) {
      all.least_bytes = part.least_bytes;
    }
  }
  all.best = shelf.best();
  all.front = shelf.front();
  return all;
}

}  // namespace stepcast::planner
