#include "workloads/embedding_plan_hugectr.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace stepcast::workloads {
namespace {

constexpr double kUsableMemory = 0.85;

double state_bytes(OptimizerKind kind, double dim) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kAdam:
      return 8 * dim;
    case OptimizerKind::kAdagrad:
      return 4 * dim;
    case OptimizerKind::kRowwiseAdagrad:
      return 4;
  }
  return 0;
}

double bytes_of_row(const Job& job, const EmbeddingTable& table) {
  return format_bytes(job.row_format(table), 1, table.dim).base();
}

/// Memory bytes of one lookup (read; then read and write weights and state) over link bytes of one
/// pooled row, there and back.
double work_ratio(const Job& job, const EmbeddingTable& table) {
  const std::int64_t dim = table.dim;
  const double row = bytes_of_row(job, table);
  const double state = state_bytes(job.embedding_optimizer, static_cast<double>(dim));
  const double link = format_bytes(job.formats.all_to_all_forward, 1, dim).base() +
                      format_bytes(job.formats.all_to_all_backward, 1, dim).base();
  return (3 * row + 2 * state) / link;
}

class HugeCtrPlanner {
 public:
  HugeCtrPlanner(const Job& job, const HugeCtrRule& rule)
      : job_(job),
        rule_(rule),
        tables_(job.workload.dlrm()->tables),
        split_(tables_.size(), false) {
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      if (job.devices > 1 && weights(i) >= rule.replicated_below.base()) {
        sharded_.push_back(i);
      }
    }
  }

  EmbeddingPlan plan() {
    place();
    Placement best = placement_;
    for (int i = 0; i < rule_.splits && split_costliest(); ++i) {
      place();
      if (placement_.maximum < best.maximum) {
        best = placement_;
      }
    }
    return written(best);
  }

 private:
  struct Placement {
    std::vector<std::int32_t> rank;  ///< place by table; -1: split over all ranks, or replicated
    std::vector<bool> split;
    std::int32_t most_loaded = 0;
    double maximum = INFINITY;
  };

  [[nodiscard]] double weights(std::size_t i) const {
    return static_cast<double>(tables_[i].rows) * bytes_of_row(job_, tables_[i]);
  }
  [[nodiscard]] double bytes(std::size_t i) const {
    const double state = state_bytes(job_.embedding_optimizer, static_cast<double>(tables_[i].dim));
    return weights(i) + static_cast<double>(tables_[i].rows) * state;
  }
  [[nodiscard]] double cost(std::size_t i) const {
    const double parts = split_[i] ? static_cast<double>(places()) : 1;
    // Wider rows weigh more; the unit is a row of the first table.
    const double width = static_cast<double>(tables_[i].dim) / static_cast<double>(tables_[0].dim);
    return width *
           (tables_[i].pooling / parts + rule_.memory_over_link / work_ratio(job_, tables_[i]));
  }

  [[nodiscard]] std::int64_t places() const { return job_.devices / rule_.members; }

  void place() {
    const auto ranks = static_cast<std::size_t>(places());
    std::vector<double> load(ranks, 0);
    std::vector<double> room(ranks, kUsableMemory * job_.system.device.memory.base() *
                                        static_cast<double>(rule_.members));
    placement_ = {std::vector<std::int32_t>(tables_.size(), -1), split_, 0, 0};
    std::vector<std::size_t> whole;
    for (const std::size_t i : sharded_) {
      if (!split_[i]) {
        whole.push_back(i);
        continue;
      }
      for (std::size_t r = 0; r < ranks; ++r) {
        load[r] += cost(i);
        room[r] -= bytes(i) / static_cast<double>(ranks);
      }
    }
    std::stable_sort(whole.begin(), whole.end(),
                     [this](std::size_t a, std::size_t b) { return cost(a) > cost(b); });
    for (const std::size_t i : whole) {
      std::size_t best = 0;
      for (std::size_t r = 1; r < ranks; ++r) {
        const bool fits = room[r] >= bytes(i);
        const bool best_fits = room[best] >= bytes(i);
        const bool better = fits != best_fits ? fits : load[r] < load[best];
        best = better ? r : best;
      }
      load[best] += cost(i);
      room[best] -= bytes(i);
      placement_.rank[i] = static_cast<std::int32_t>(best);
    }
    const auto most = std::max_element(load.begin(), load.end());
    placement_.most_loaded = static_cast<std::int32_t>(most - load.begin());
    const bool fits = std::all_of(room.begin(), room.end(), [](double r) { return r >= 0; });
    placement_.maximum = fits ? *most : INFINITY;
  }

  /// Of the most loaded rank; false where it holds no whole table.
  bool split_costliest() {
    std::size_t costliest = tables_.size();
    for (const std::size_t i : sharded_) {
      if (placement_.rank[i] == placement_.most_loaded &&
          (costliest == tables_.size() || cost(i) > cost(costliest))) {
        costliest = i;
      }
    }
    if (costliest == tables_.size()) {
      return false;
    }
    split_[costliest] = true;
    return true;
  }

  [[nodiscard]] EmbeddingPlan written(const Placement& placement) const {
    EmbeddingPlan plan;
    plan.workload = job_.workload.name;
    plan.system = job_.system.name;
    plan.devices = job_.devices;
    std::vector<std::int32_t> all(static_cast<std::size_t>(job_.devices));
    std::iota(all.begin(), all.end(), 0);
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      PlanShard shard;
      shard.rows = {0, tables_[i].rows};
      shard.columns = {0, tables_[i].dim};
      if (placement.rank[i] >= 0) {
        if (rule_.members > 1) {
          shard.sharding = ShardingKind::kTableRowWise;
        }
        const auto first = all.begin() + placement.rank[i] * rule_.members;
        shard.groups = {{first, first + rule_.members}};
      } else if (placement.split[i]) {
        shard.sharding = ShardingKind::kRowWise;
        shard.split = Split::kStripe;
        shard.groups = {all};
      } else {
        shard.sharding = ShardingKind::kDataParallel;
        shard.split = Split::kReplicate;
        shard.groups = {all};
      }
      plan.tables.push_back({.name = tables_[i].name, .frequency_order = false, .shards = {shard}});
    }
    return plan;
  }

  const Job& job_;
  const HugeCtrRule& rule_;
  const std::vector<EmbeddingTable>& tables_;
  std::vector<bool> split_;
  std::vector<std::size_t> sharded_;
  Placement placement_;
};

}  // namespace

EmbeddingPlan hugectr_plan(const Job& job, const HugeCtrRule& rule) {
  STEPCAST_CHECK(job.workload.dlrm() != nullptr, "embedding plan of '{}', which is not a DLRM",
                 job.workload.name);
  STEPCAST_CHECK(rule.members > 0 && job.devices % rule.members == 0, "places of {} devices, of {}",
                 rule.members, job.devices);
  return HugeCtrPlanner(job, rule).plan();
}

}  // namespace stepcast::workloads
