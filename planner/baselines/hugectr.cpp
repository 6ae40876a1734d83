#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/baselines/methods.h"
#include "planner/baselines/table_wise.h"
#include "planner/capacity.h"
#include "planner/shard_bytes.h"
#include "workloads/embedding_plan.h"

namespace stepcast::planner {
namespace {

/// HugeCTR's published MLPerf settings: memory-to-communication ratio and the size below which a
/// table is replicated, for one machine and for several.
struct Settings {
  double memory_to_link;
  double replicate_below;  // bytes
};
constexpr Settings kOneMachine{7, 0.008e9};
constexpr Settings kSeveral{67, 0.0125e9};
constexpr int kSplits = 20;

double real(std::int64_t v) { return static_cast<double>(v); }

}  // namespace

/// HugeCTR's automatic sharding: tables below a size are replicated; the others are cut into 1, 2,
/// 4, ... row shards while the heaviest shard is above the mean load, and placed, heaviest first,
/// on the place (device; machine when there are several) with least cost. Cost of a place: sum of
/// multi-hot / splits plus shards * memory-to-link ratio. Restricted to splits that a plan can
/// express: one place or all of them.
BaselinePlan hugectr_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  const DlrmWorkload& w = *job.workload.dlrm();
  const std::int64_t node = workloads::node_size(job);
  const bool several = node > 1 && node < job.devices;
  const Settings settings = several ? kSeveral : kOneMachine;
  const std::int64_t places = several ? job.devices / node : job.devices;
  const std::int64_t members = several ? node : 1;
  const double room =
      static_cast<double>(capacities_of(job, false).front().capacity.front()) * real(members);
  EmbeddingPlan plan = empty_plan(job);
  std::vector<std::size_t> rest;
  std::vector<double> used(static_cast<std::size_t>(places), 0);
  for (std::size_t t = 0; t < w.tables.size(); ++t) {
    const EmbeddingTable& table = w.tables[t];
    const double bytes = format_bytes(job.formats.embedding, table.rows, table.dim).base();
    if (bytes <= settings.replicate_below || job.devices == 1) {
      plan.tables[t].shards = {
          shard_on(table, ShardingKind::kDataParallel, 0, job.devices, {0, table.dim})};
      const double all =
          held_bytes(job, table, {Holding::kReplicated, table.rows, table.dim, 1, 1}).total();
      for (double& u : used) {
        u += all * real(members);
      }
    } else {
      rest.push_back(t);
    }
  }
  std::vector<bool> over_all(w.tables.size(), false);
  const auto cost = [&](std::size_t t) {
    return (over_all[t] ? w.tables[t].pooling / real(places) : w.tables[t].pooling) +
           settings.memory_to_link;
  };
  const auto bytes_of = [&](std::size_t t) {
    const EmbeddingTable& table = w.tables[t];
    return held_bytes(job, table, {Holding::kExchanged, table.rows, table.dim, 1, 1}).total();
  };
  for (int i = 0; i < kSplits; ++i) {
    double sum = 0;
    std::ptrdiff_t heaviest = -1;
    for (const std::size_t t : rest) {
      sum += over_all[t] ? cost(t) * real(places) : cost(t);
      if (!over_all[t] && (heaviest < 0 || bytes_of(t) > room ||
                           cost(t) > cost(static_cast<std::size_t>(heaviest)))) {
        heaviest = static_cast<std::ptrdiff_t>(t);
      }
    }
    if (heaviest < 0) {
      break;
    }
    const auto t = static_cast<std::size_t>(heaviest);
    if (cost(t) <= sum / real(places) && bytes_of(t) <= room) {
      break;
    }
    over_all[t] = true;
  }
  std::vector<double> load(static_cast<std::size_t>(places), 0);
  for (const std::size_t t : rest) {
    if (over_all[t]) {
      plan.tables[t].shards = {
          shard_on(w.tables[t], ShardingKind::kRowWise, 0, job.devices, {0, w.tables[t].dim})};
      for (std::size_t p = 0; p < load.size(); ++p) {
        load[p] += cost(t);
        used[p] += bytes_of(t) / real(places);
      }
    }
  }
  std::stable_sort(rest.begin(), rest.end(),
                   [&](std::size_t a, std::size_t b) { return cost(a) > cost(b); });
  for (const std::size_t t : rest) {
    if (over_all[t]) {
      continue;
    }
    std::size_t best = 0;
    for (std::size_t p = 1; p < load.size(); ++p) {
      const bool fits = used[p] + bytes_of(t) <= room;
      const bool best_fits = used[best] + bytes_of(t) <= room;
      if (fits != best_fits ? fits : fits ? load[p] < load[best] : used[p] < used[best]) {
        best = p;
      }
    }
    load[best] += cost(t);
    used[best] += bytes_of(t);
    plan.tables[t].shards = {
        shard_on(w.tables[t], members > 1 ? ShardingKind::kTableRowWise : ShardingKind::kTableWise,
                 static_cast<std::int64_t>(best) * members, members, {0, w.tables[t].dim})};
  }
  return {std::move(plan), several ? "hier_auto" : "auto"};
}

}  // namespace stepcast::planner
