#include "workloads/embedding_plan/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/access/access.h"
#include "core/access/row_order.h"
#include "core/error.h"
#include "core/graph/optimizer_state.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/embedding_plan/plan_rules.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::workloads {
namespace {

constexpr std::int64_t kNarrowest = 4;  // columns of a column-wise part: one 16-byte vector of fp32

const LayeredWorkload& dlrm_of(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  STEPCAST_CHECK(w != nullptr, "embedding plan of '{}', which is not a DLRM", job.workload.name);
  return *w;
}

double cost_of(const EmbeddingTable& t) {
  return static_cast<double>(t.dim) * std::max(t.pooling, 1e-3) *
         std::log10(static_cast<double>(std::max<std::int64_t>(t.rows, 10)));
}

/// Bytes of one column of a table with its optimizer state.
double bytes_of(const EmbeddingTable& t, const Job& job) {
  const double weights = format_bytes(job.row_format(t), t.rows, t.dim).base();
  return weights + static_cast<double>(t.rows) * state_row_bytes(job.embedding_optimizer, t.dim);
}

/// Table indices, most costly first; equal costs in the workload's order.
std::vector<std::size_t> by_cost(const LayeredWorkload& w) {
  std::vector<std::size_t> order(w.tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&w](std::size_t a, std::size_t b) {
    return cost_of(w.tables[a]) > cost_of(w.tables[b]);
  });
  return order;
}

double total_cost(const LayeredWorkload& w) {
  double sum = 0;
  for (const EmbeddingTable& t : w.tables) {
    sum += cost_of(t);
  }
  return sum;
}

double capacity_of(const Job& job) {
  const double memory = job.system.device.memory.base();
  return memory > 0 ? kUsableMemory * memory : INFINITY;
}

/// Fewest equal parts of `dim` columns, at most `devices`, whose cost is within a rank's fair
/// share; at least two where possible.
std::int64_t parts_of(const EmbeddingTable& t, std::int64_t devices, double fair_share) {
  std::int64_t parts = 1;
  for (std::int64_t k = 2; k <= std::min(devices, t.dim / kNarrowest); ++k) {
    if (t.dim % k != 0) {
      continue;
    }
    if (parts > 1 && cost_of(t) / static_cast<double>(parts) <= fair_share) {
      break;
    }
    parts = k;
  }
  return parts;
}

std::vector<PlanShard> column_shards(const EmbeddingTable& t, const Job& job, double fair_share,
                                     Balance& balance) {
  const std::int64_t parts = parts_of(t, job.devices, fair_share);
  const std::int64_t width = t.dim / parts;
  std::vector<PlanShard> shards;
  std::vector<std::int64_t> taken;
  for (std::int64_t p = 0; p < parts; ++p) {
    const double share = static_cast<double>(parts);
    const std::int64_t rank = balance.put(cost_of(t) / share, bytes_of(t, job) / share, taken);
    taken.push_back(rank);
    shards.push_back(shard_on(t, ShardingKind::kColumnWise, rank, 1, {p * width, (p + 1) * width}));
  }
  return shards;
}

EmbeddingPlan automatic_plan(const Job& job) {
  const LayeredWorkload& w = dlrm_of(job);
  EmbeddingPlan plan = empty_plan(job);
  const double fair_share = total_cost(w) / static_cast<double>(job.devices);
  const double capacity = capacity_of(job);
  Balance balance(job.devices, capacity);
  std::vector<std::size_t> rest;
  for (const std::size_t i : by_cost(w)) {
    const EmbeddingTable& t = w.tables[i];
    const double bytes = bytes_of(t, job);
    const bool tiny = t.rows <= job.batch.global / job.devices && !t.keyed();
    const bool large = bytes > capacity / 2 || cost_of(t) > 2 * fair_share;
    if (job.devices == 1 || (!tiny && !large)) {
      rest.push_back(i);
    } else if (tiny) {
      plan.tables[i].shards = {shard_on(t, ShardingKind::kDataParallel, 0, job.devices)};
      balance.put_everywhere(0, 2 * bytes);  // with its dense gradient
    } else {
      plan.tables[i].shards = {shard_on(t, ShardingKind::kRowWise, 0, job.devices)};
      const double share = static_cast<double>(job.devices);
      balance.put_everywhere(cost_of(t) / share, bytes / share);
    }
  }
  for (const std::size_t i : rest) {
    const EmbeddingTable& t = w.tables[i];
    const std::int64_t rank = balance.put(cost_of(t), bytes_of(t, job));
    plan.tables[i].shards = {shard_on(t, ShardingKind::kTableWise, rank)};
  }
  return plan;
}

}  // namespace

std::int64_t node_size(const Job& job) {
  const std::int64_t machine =
      std::max<std::int64_t>(1, std::min(job.system.host.devices, job.devices));
  return std::gcd(machine, job.devices);
}

std::vector<std::int64_t> nested_units(const Job& job) {
  std::set<std::int64_t> sizes{node_size(job)};
  for (std::size_t level = 0; level + 1 < job.system.fabric.size(); ++level) {
    sizes.insert(job.system.devices_in_level(level));
  }
  std::vector<std::int64_t> units;
  std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(units), [&](std::int64_t size) {
    return size > 1 && size < job.devices && job.devices % size == 0;
  });
  units.resize(std::min(units.size(), kMostGroupSizes));
  return units;
}

EmbeddingPlan make_embedding_plan(const Job& job, ShardingKind kind) {
  const LayeredWorkload& w = dlrm_of(job);
  EmbeddingPlan plan = empty_plan(job);
  const double fair_share = total_cost(w) / static_cast<double>(job.devices);
  const std::int64_t node = node_size(job);
  const bool by_node = kind == ShardingKind::kTableRowWise;
  const double places = by_node ? static_cast<double>(node) : 1;
  Balance balance(by_node ? job.devices / node : job.devices, capacity_of(job) * places);
  for (const std::size_t i : by_cost(w)) {
    const EmbeddingTable& t = w.tables[i];
    std::vector<PlanShard>& shards = plan.tables[i].shards;
    switch (kind) {
      case ShardingKind::kTableWise:
        shards = {shard_on(t, kind, balance.put(cost_of(t), bytes_of(t, job)))};
        break;
      case ShardingKind::kColumnWise:
        shards = column_shards(t, job, fair_share, balance);
        break;
      case ShardingKind::kTableRowWise:
        shards = {shard_on(t, kind, balance.put(cost_of(t), bytes_of(t, job)) * node, node)};
        break;
      case ShardingKind::kRowWise:
      case ShardingKind::kDataParallel:
        shards = {shard_on(t, kind, 0, job.devices)};
        break;
    }
  }
  return plan;
}

EmbeddingPlan make_embedding_plan(const Job& job, std::string_view choice) {
  if (choice == "auto") {
    return automatic_plan(job);
  }
  if (choice == "tiered") {
    return make_tiered_plan(job);
  }
  const std::optional<ShardingKind> kind = sharding_named(choice);
  if (!kind) {
    throw InputError(
        "job: embedding.plan",
        fmt::format("'{}' is no plan; use auto, table_wise, row_wise, column_wise, table_row_wise, "
                    "data_parallel, tiered or the path of a plan file",
                    choice));
  }
  return make_embedding_plan(job, *kind);
}

void name_hot_rows(const EmbeddingTable& table, PlanTable& plan) {
  if (!plan.frequency_order || table.access == nullptr) {
    return;
  }
  if (auto order = RowOrder::of(*table.access, plan.hot_rows())) {
    plan.order = std::make_shared<const RowOrder>(std::move(*order));
    const bool recorded = table.access->kind() == AccessKind::kIndices && !table.remapped;
    plan.order_file = recorded ? table.access_file : "";
  }
}

EmbeddingPlan resolved_embedding_plan(const Job& job) {
  if (!job.embedding_plan) {
    EmbeddingPlan plan = make_embedding_plan(job, job.embedding_choice);
    const auto& tables = dlrm_of(job).tables;
    if (std::any_of(tables.begin(), tables.end(), [](const auto& t) { return t.keyed(); })) {
      check_embedding_plan(job, plan, job.embedding_choice);  // a choice knows no keys
    }
    return plan;
  }
  check_embedding_plan(job, *job.embedding_plan,
                       job.embedding_choice.ends_with(".json") ? job.embedding_choice : "plan");
  return *job.embedding_plan;
}

}  // namespace stepcast::workloads
