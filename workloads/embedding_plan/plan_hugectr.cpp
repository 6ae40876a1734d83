#include "workloads/embedding_plan/plan_hugectr.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/graph/optimizer_state.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::workloads {
namespace {

double bytes_of_row(const Job& job, const EmbeddingTable& table) {
  return format_bytes(job.row_format(table), 1, table.dim).base();
}

/// Memory bytes of one lookup (read; then read and write weights and state) over link bytes of one
/// pooled row, there and back.
double work_ratio(const Job& job, const EmbeddingTable& table) {
  const std::int64_t dim = table.dim;
  const double row = bytes_of_row(job, table);
  const double state = state_row_bytes(job.embedding_optimizer, dim);
  const double link = format_bytes(job.formats.all_to_all_forward, 1, dim).base() +
                      format_bytes(job.formats.all_to_all_backward, 1, dim).base();
  return (3 * row + 2 * state) / link;
}

class HugeCtrPlanner {
 public:
  HugeCtrPlanner(const Job& job, const HugeCtrRule& rule)
      : job_(job), rule_(rule), tables_(job.workload.layered()->tables), parts_(tables_.size(), 0) {
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      parts_[i] = job.devices > 1 && weights(i) >= rule.replicated_below.base() ? 1 : 0;
    }
  }

  EmbeddingPlan plan() {
    Placement best = placed();
    for (int i = 0; i < rule_.splits && split_hottest(); ++i) {
      Placement next = placed();
      if (next.maximum < best.maximum) {
        best = std::move(next);
      }
    }
    return written(best);
  }

 private:
  struct Placement {
    std::vector<std::vector<std::int64_t>> places;  ///< of the parts of each table
    double maximum = INFINITY;
  };

  [[nodiscard]] double weights(std::size_t i) const {
    return static_cast<double>(tables_[i].rows) * bytes_of_row(job_, tables_[i]);
  }
  [[nodiscard]] double bytes_of_part(std::size_t i) const {
    const double state = state_row_bytes(job_.embedding_optimizer, tables_[i].dim);
    const double all = weights(i) + static_cast<double>(tables_[i].rows) * state;
    return all / static_cast<double>(std::max<std::int64_t>(1, parts_[i]));
  }
  /// Wider rows weigh more; the unit is a row of the first table.
  [[nodiscard]] double width(std::size_t i) const {
    return static_cast<double>(tables_[i].dim) / static_cast<double>(tables_[0].dim);
  }
  [[nodiscard]] double lookups_of_part(std::size_t i) const {
    return width(i) * tables_[i].pooling / static_cast<double>(parts_[i]);
  }
  [[nodiscard]] double cost_of_part(std::size_t i) const {
    return lookups_of_part(i) + width(i) * rule_.memory_over_link / work_ratio(job_, tables_[i]);
  }
  [[nodiscard]] std::int64_t places() const { return job_.devices / rule_.members; }

  /// Parts with the most lookups first, each on the least loaded place that has room and none of
  /// the same table.
  [[nodiscard]] Placement placed() const {
    const auto all = static_cast<std::size_t>(places());
    std::vector<double> load(all, 0);
    std::vector<double> room(
        all, kUsableMemory * job_.system.device.memory.base() * static_cast<double>(rule_.members));
    Placement placement{std::vector<std::vector<std::int64_t>>(tables_.size()), 0};
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      if (parts_[i] > 0) {
        order.push_back(i);
      }
    }
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return lookups_of_part(a) > lookups_of_part(b);
    });
    std::vector<std::size_t> by_load(all);
    for (const std::size_t i : order) {
      std::iota(by_load.begin(), by_load.end(), std::size_t{0});
      std::stable_sort(by_load.begin(), by_load.end(), [&](std::size_t a, std::size_t b) {
        const bool fits = room[a] >= bytes_of_part(i);
        const bool other = room[b] >= bytes_of_part(i);
        return fits != other ? fits : load[a] < load[b];
      });
      for (std::int64_t part = 0; part < parts_[i]; ++part) {
        const std::size_t to = by_load[static_cast<std::size_t>(part)];
        load[to] += cost_of_part(i);
        room[to] -= bytes_of_part(i);
        placement.places[i].push_back(static_cast<std::int64_t>(to));
      }
    }
    const bool fits = std::all_of(room.begin(), room.end(), [](double r) { return r >= 0; });
    placement.maximum = fits ? *std::max_element(load.begin(), load.end()) : INFINITY;
    return placement;
  }

  /// Twice as many parts of the table whose parts have the most lookups; false where no table has
  /// room for more.
  bool split_hottest() {
    std::size_t hottest = tables_.size();
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const bool splits = parts_[i] > 0 && 2 * parts_[i] <= std::min(places(), tables_[i].rows);
      if (splits && (hottest == tables_.size() || lookups_of_part(i) > lookups_of_part(hottest))) {
        hottest = i;
      }
    }
    if (hottest == tables_.size()) {
      return false;
    }
    parts_[hottest] *= 2;
    return true;
  }

  /// A part is a block of rows on a rank, or on the ranks of a machine.
  [[nodiscard]] std::vector<PlanShard> shards_of(const EmbeddingTable& table,
                                                 const std::vector<std::int64_t>& at) const {
    std::vector<PlanShard> shards;
    const auto parts = static_cast<std::int64_t>(at.size());
    for (std::int64_t part = 0; part < parts; ++part) {
      shards.push_back(shard_on(
          table, rule_.members > 1 ? ShardingKind::kTableRowWise : ShardingKind::kTableWise,
          at[static_cast<std::size_t>(part)] * rule_.members, rule_.members));
      shards.back().rows = {table.rows * part / parts, table.rows * (part + 1) / parts};
    }
    return shards;
  }

  [[nodiscard]] EmbeddingPlan written(const Placement& placement) const {
    EmbeddingPlan plan = empty_plan(job_);
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      std::vector<PlanShard>& shards = plan.tables[i].shards;
      shards = shards_of(tables_[i], placement.places[i]);
      if (shards.empty()) {
        shards = {shard_on(tables_[i], ShardingKind::kDataParallel, 0, job_.devices)};
      }
    }
    return plan;
  }

  const Job& job_;
  const HugeCtrRule& rule_;
  const std::vector<EmbeddingTable>& tables_;
  std::vector<std::int64_t> parts_;  ///< 0: replicated
};

}  // namespace

HugeCtrRule hugectr_rule(const Job& job) {
  constexpr double kReplicatedMegabytes = 12.5;
  constexpr std::int64_t kOneMachine = 8;
  const System& system = job.system;
  const std::int64_t node = node_size(job);
  const bool several =
      job.devices > kOneMachine && node > 1 && node < job.devices && job.devices % node == 0;
  HugeCtrRule rule;
  const auto level = std::find_if(system.fabric.begin(), system.fabric.end(), [&](const auto& f) {
    return f.size >= (several ? job.devices : std::min(kOneMachine, job.devices));
  });
  if (level != system.fabric.end()) {
    rule.memory_over_link = std::round(system.device.bandwidth.base() / level->bandwidth.base());
  }
  if (several) {
    rule.replicated_below = MB(kReplicatedMegabytes);
    rule.members = node;
  }
  return rule;
}

EmbeddingPlan hugectr_plan(const Job& job, const HugeCtrRule& rule) {
  STEPCAST_CHECK(job.workload.layered() != nullptr, "embedding plan of '{}', which is not a DLRM",
                 job.workload.name);
  STEPCAST_CHECK(rule.members > 0 && job.devices % rule.members == 0, "places of {} devices, of {}",
                 rule.members, job.devices);
  return HugeCtrPlanner(job, rule).plan();
}

}  // namespace stepcast::workloads
