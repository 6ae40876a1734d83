#include <algorithm>
#include <cmath>
#include <utility>

#include "core/clearly_less.h"
#include "planner/parallel/internal/split_table.h"

namespace stepcast::planner::internal {
namespace {

/// Bytes that do not depend on the number of micro-batches.
double weights(const StateCosts& c, const LayerCounts& layers) {
  return c.parameters.at(layers) + c.gradients.at(layers) + c.optimizer.at(layers);
}

/// The mean over stages: under any assignment of layers, some stage holds as much.
double mean_weights(const States& states, const PipelineLayout& layout) {
  double all = 0;
  for (std::size_t at = 0; at < layout.layers.size(); ++at) {
    all += weights(states[static_cast<std::size_t>(layout.role[at])], layout.kinds[at]);
  }
  return all / layout.stages;
}

}  // namespace

std::int64_t Split::count(ScheduleKind schedule) const {
  std::int64_t n = 0;
  for (std::size_t z = 0; z < zeros.size(); ++z) {
    n += has(z, schedule) ? 1 : 0;
  }
  return n;
}

std::int64_t Split::too_large(ScheduleKind schedule) const {
  std::int64_t n = 0;
  for (std::size_t z = 0; z < zeros.size(); ++z) {
    n += has(z, schedule) && fits[z] == 0 ? 1 : 0;
  }
  return n;
}

SplitTable::SplitTable(const Job& job, const ParallelSpace& space,
                       const ParallelSearchOptions& options)
    : job_(job), space_(space), options_(options) {
  for (const PlanPoint& point : space_.splits()) {
    splits_.emplace_back().point = point;
    make_layouts(point);
  }
}

void SplitTable::make_layouts(const PlanPoint& split) {
  PlanPoint point = split;
  for (const DealChoice& deal : space_.deals(split.pipeline)) {
    point.embedding_layers = deal.embedding_layers;
    point.head_layers = deal.head_layers;
    for (const ScheduleTraits& s : kSchedules) {
      const LayoutKey key = key_of(split.pipeline, deal, s.placement);
      if (deal.virtual_stages >= s.least_chunks && !layouts_.contains(key)) {
        layouts_.emplace(
            key, layout_of(*job_.workload.transformer(), split.pipeline, deal.virtual_stages,
                           pipeline_split(job_, point), s.placement));
      }
    }
  }
}

Split& SplitTable::sharded(std::size_t index) {
  Split& split = splits_[index];
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

const Split& SplitTable::known(Split& split, ClosedFormModel& path) {
  const std::vector<DealChoice>& deals = space_.deals(split.point.pipeline);
  const auto sharded = [&](const ZeroChoice& zero) {
    PlanPoint point = split.point;
    point.zero = zero.stage;
    point.shard_level = zero.level;
    point.micro = space_.micros(point).front();
    return point;
  };
  const auto clock = static_cast<std::size_t>(path.clock());
  const PipelineLayout& first = layout(split.point.pipeline, deals.front());
  std::call_once(split.costed.at(clock), [&] {
    const bool ends = std::any_of(deals.begin(), deals.end(), [&](const DealChoice& deal) {
      return layout(split.point.pipeline, deal).empty_ends();
    });
    std::vector<States>& all = split.states_by_clock.at(clock);
    all.resize(split.zeros.size());
    std::vector<char> fit(all.size(), 0);
    for (std::size_t z = all.size(); z-- > 0;) {
      const auto more = std::find_if(split.zeros.begin(), split.zeros.end(), [&](const auto& o) {
        return o.level == split.zeros[z].level && o.stage > split.zeros[z].stage;
      });
      if (more != split.zeros.end() &&
          fit[static_cast<std::size_t>(more - split.zeros.begin())] == 0) {
        continue;  // what is sharded less does not fit either
      }
      // A lower bound, where the exchange overlaps with passes.
      all[z] =
          path.reduced().states(sharded(split.zeros[z]), path.reduced().states_use_passes(), ends);
      const double mean = mean_weights(all[z], first);
      fit[z] = fits(mean) ? 1 : 0;
      if (fit[z] == 0) {
        note_bytes(mean);
      }
    }
    std::call_once(split.known, [&] {
      split.fits = fit;
      for (std::size_t z = 0; z < all.size(); ++z) {
        split.overlapped.push_back(
            fit[z] != 0 ? overlapped(path, sharded(split.zeros[z]), first, deals.front()) : 0);
      }
    });
  });
  return split;
}

double SplitTable::any_micro_bound(const Split& split, ClosedFormModel& path) {
  const PlanPoint key = path.any_micro_key(split.point);
  AnyMicro* of = nullptr;
  {
    const std::lock_guard lock(bounding_);
    of = &any_micro_[key];
  }
  const auto clock = static_cast<std::size_t>(path.clock());
  std::call_once(of->costed.at(clock),
                 [&] { of->seconds.at(clock) = path.any_micro_bound(split.point); });
  return of->seconds.at(clock);
}

/// Gathers and reductions overlapped with the passes of a micro-batch, on the mean over stages: the
/// same for every micro-batch size, schedule and recomputation.
double SplitTable::overlapped(ClosedFormModel& path, PlanPoint point, const PipelineLayout& layout,
                              const DealChoice& deal) const {
  if (point.exchanged() < 2 || !job_.parallel.overlap.data) {
    return 0;
  }
  point.virtual_stages = deal.virtual_stages;
  point.embedding_layers = deal.embedding_layers;
  point.head_layers = deal.head_layers;
  const Passes passes = path.reduced().passes(point);
  double all = 0;
  for (std::size_t at = 0; at < layout.layers.size(); ++at) {
    const PassCosts& of = passes.role[static_cast<std::size_t>(layout.role[at])];
    all += of.overlapped.at(layout.kinds[at]);
  }
  return all / point.pipeline;
}

std::vector<SearchTask> SplitTable::tasks() const {
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, bool, std::int32_t>;
  std::map<Key, SearchTask> by_key;
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    const PlanPoint& p = splits_[i].point;
    for (const std::int32_t micro : space_.micros(p)) {
      SearchTask& task = by_key[{p.context, micro, p.tensor, !p.sequence_parallel, p.expert}];
      task.micro = micro;
      task.splits.push_back(i);
    }
  }
  std::vector<std::pair<float, SearchTask*>> order;
  for (auto& [key, task] : by_key) {
    order.emplace_back(comparable(remoteness(task)), &task);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<SearchTask> tasks;
  for (const auto& [score, task] : order) {
    tasks.push_back(std::move(*task));
  }
  return tasks;
}

/// Distance from the most usual plans, in doublings: tensor ranks up to a node with sequence
/// parallelism, experts inside the innermost level of the fabric, whole sequences, micro-batches
/// of one. It only orders the search.
double SplitTable::remoteness(const SearchTask& task) const {
  const PlanPoint& p = splits_[task.splits.front()].point;
  const auto doublings = [](double of, double from) { return std::abs(std::log2(of / from)); };
  const System& system = job_.system;
  const auto node = static_cast<double>(std::min(system.host.devices, job_.devices));
  const double near = static_cast<double>(system.fabric.empty()
                                              ? system.host.devices
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

void SplitTable::note_bytes(double bytes) {
  bytes += options_.reserve;
  double known = least_bytes_.load();
  while ((known == 0 || bytes < known) && !least_bytes_.compare_exchange_weak(known, bytes)) {
  }
}

}  // namespace stepcast::planner::internal
