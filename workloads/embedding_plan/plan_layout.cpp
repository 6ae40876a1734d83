#include "workloads/embedding_plan/plan_layout.h"

#include <algorithm>
#include <set>

#include "core/access/access.h"
#include "core/access/repeated_lists.h"
#include "core/access/row_order.h"
#include "workloads/embedding_plan/plan.h"

namespace stepcast::workloads {
namespace {

/// Pooling distinct lists once pays where at most this share of the work is left.
constexpr double kMost = 0.9;

/// Whether sessions leave few enough of the lists of all pooled tables, by their columns. One
/// decision for them: tables that pool lists once and tables that do not would exchange one after
/// the other, and each exchange waits for its slowest rank.
bool sessions_repeat_lists(const LayeredWorkload& w) {
  double all = 0;
  double left = 0;
  for (const EmbeddingTable& t : w.tables) {
    if (t.mode != PoolingMode::kSequence) {
      const auto columns = static_cast<double>(t.dim);
      all += columns;
      left += columns / (t.session ? dedup_factor(t.session->samples, t.session->keep) : 1);
    }
  }
  return left < kMost * all;
}

}  // namespace

ListShares list_shares(const Job& job, const EmbeddingTable& table) {
  // Lists of ids with weights differ, and so do those of several features.
  if (!job.embedding_dedup || job.sptt || table.mode == PoolingMode::kSequence || table.weighted ||
      table.feature_count() > 1 || !sessions_repeat_lists(*job.workload.layered())) {
    return {};
  }
  constexpr double kAlmostAll = 1 - 1e-9;  // 1 says that lists are not pooled once
  const double samples = static_cast<double>(job.batch.global) / static_cast<double>(job.devices);
  const DistinctLists distinct = distinct_lists(table, samples);
  return {std::min(kAlmostAll, distinct.lists / samples),
          std::min(1.0, distinct.ids / (samples * table.pooling))};
}

bool pays_to_pool_locally(const ListShares& shares, const EmbeddingTable& table) {
  return shares.ids * table.pooling + 1 < kMost * table.pooling;
}

bool pays_to_pool_once(const Job& job, const ListShares& shares, std::int64_t members,
                       std::int64_t span) {
  if (members == 1) {
    return shares.lists < 1;
  }
  const std::int64_t machine = node_size(job);
  const std::int64_t senders = span > machine ? std::min(members, machine) : 1;
  return shares.lists * static_cast<double>(senders) < kMost;
}

namespace {

/// Ranges of rows, cut by popularity, are exchanged list by list.
bool pools_once(const PlanShard& s, const EmbeddingTable& t, const Job& job,
                const ListShares& shares) {
  if (shares.lists >= 1 || s.rows[1] - s.rows[0] < t.rows) {
    return false;
  }
  const auto members = static_cast<std::int64_t>(s.groups.front().size());
  const bool copies = s.groups.size() > 1;
  if (s.sharding == ShardingKind::kDataParallel || (copies && members == 1) || job.devices == 1) {
    return pays_to_pool_locally(shares, t);
  }
  return pays_to_pool_once(job, shares, members, copies ? members : job.devices);
}

}  // namespace

EmbeddingRoute route_of(const PlanShard& s, const EmbeddingTable& t, const Job& job,
                        const ListShares& shares) {
  const auto members = static_cast<std::int64_t>(s.groups.front().size());
  const bool copies = s.groups.size() > 1;
  if (s.sharding == ShardingKind::kDataParallel || (copies && members == 1)) {
    return EmbeddingRoute::kReplicated;
  }
  if (job.devices == 1) {
    return EmbeddingRoute::kLocal;
  }
  if (t.mode == PoolingMode::kSequence || pools_once(s, t, job, shares)) {
    return copies ? EmbeddingRoute::kGroupSequence : EmbeddingRoute::kSequence;
  }
  if (copies) {
    return EmbeddingRoute::kGroupReduce;
  }
  if (members == 1) {
    return EmbeddingRoute::kExchange;
  }
  return members == job.devices ? EmbeddingRoute::kReduce : EmbeddingRoute::kNodeReduce;
}

namespace {

/// Sizes of the groups in which routes of a plan's shards exchange.
std::vector<std::int64_t> group_sizes_of(const EmbeddingPlan& plan, const Job& job,
                                         const std::vector<ListShares>& shares) {
  const LayeredWorkload& w = *job.workload.layered();
  std::set<std::int64_t> sizes;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    for (const PlanShard& s : plan.tables[t].shards) {
      const EmbeddingRoute route = route_of(s, w.tables[t], job, shares[t]);
      if (is_node_reduce(route) || has_copies(route)) {
        sizes.insert(static_cast<std::int64_t>(s.groups.front().size()));
      }
    }
  }
  return {sizes.begin(), sizes.end()};
}

}  // namespace

std::shared_ptr<const RowOrder> own_order(const PlanTable& plan, const EmbeddingTable& table) {
  const bool own = plan.frequency_order && plan.order != nullptr && table.access != nullptr &&
                   table.access->kind() != AccessKind::kUniform &&
                   LookupsInOrder::can_follow(*table.access) && !plan.order->follows(*table.access);
  return own ? plan.order : nullptr;
}

EmbeddingPlacement embedding_layout(const Job& job) {
  return embedding_layout(job, resolved_embedding_plan(job));
}

EmbeddingPlacement embedding_layout(const Job& job, const EmbeddingPlan& plan) {
  const LayeredWorkload& w = *job.workload.layered();
  EmbeddingPlacement layout;
  layout.devices = job.devices;
  layout.node = job.sptt ? job.system.host.devices : 1;
  std::vector<ListShares> shares;
  for (const EmbeddingTable& t : w.tables) {
    shares.push_back(list_shares(job, t));
  }
  layout.group_sizes = group_sizes_of(plan, job, shares);
  for (std::size_t t = 0; t < w.tables.size(); ++t) {
    const std::shared_ptr<const RowOrder> order = own_order(plan.tables[t], w.tables[t]);
    std::vector<EmbeddingSlice> slices;
    for (std::size_t i = 0; i < plan.tables[t].shards.size(); ++i) {
      const PlanShard& s = plan.tables[t].shards[i];
      EmbeddingSlice slice;
      slice.table = static_cast<std::int32_t>(t);
      slice.first_column = s.columns[0];
      slice.dim = s.columns[1] - s.columns[0];
      slice.features = w.tables[t].feature_count();
      slice.feature_column = layout.columns + s.columns[0];
      slice.feature_pitch = w.tables[t].dim;
      slice.route = route_of(s, w.tables[t], job, shares[t]);
      if (pools_once(s, w.tables[t], job, shares[t])) {
        slice.list_share = shares[t].lists;
        slice.id_share = shares[t].ids;
      }
      slice.split = s.split;
      slice.frequency_order = plan.tables[t].frequency_order;
      slice.order = order;
      slice.hot_rows = order != nullptr ? plan.tables[t].hot_rows() : 0;
      for (const auto& group : s.groups) {
        slice.ranks.insert(slice.ranks.end(), group.begin(), group.end());
      }
      slice.copies = has_copies(slice.route) ? static_cast<std::int64_t>(s.groups.size()) : 1;
      if (slice.route == EmbeddingRoute::kReplicated) {
        slice.split = Split::kReplicate;
      }
      slice.first_row = s.rows[0];
      slice.rows = s.rows[1] - s.rows[0];
      slice.table_rows = w.tables[t].rows;
      slice.tier = s.tier;
      slice.cache_bytes = s.cache_bytes;
      slice.cache_policy = s.cache_policy;
      if (is_node_reduce(slice.route) || has_copies(slice.route)) {
        const auto level =
            std::find(layout.group_sizes.begin(), layout.group_sizes.end(), slice.members()) -
            layout.group_sizes.begin();
        slice.route = at_level(slice.route, static_cast<std::size_t>(level));
      }
      slices.push_back(std::move(slice));
    }
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first_column, a.first_row) < std::pair(b.first_column, b.first_row);
    });
    std::move(slices.begin(), slices.end(), std::back_inserter(layout.slices));
    layout.columns += w.tables[t].output_columns();
  }
  for (const EmbeddingSlice& s : layout.slices) {
    layout.used.set(static_cast<std::size_t>(s.route));
  }
  layout.held.resize(static_cast<std::size_t>(job.devices));
  for (std::size_t route = 0; route < kRoutes; ++route) {
    if (!layout.used[route]) {
      continue;
    }
    for (std::size_t s = 0; s < layout.slices.size(); ++s) {
      if (layout.slices[s].route != static_cast<EmbeddingRoute>(route)) {
        continue;
      }
      for (const std::int32_t r : layout.slices[s].ranks) {
        layout.held[static_cast<std::size_t>(r)].push_back(static_cast<std::int32_t>(s));
      }
    }
  }
  return layout;
}

}  // namespace stepcast::workloads
