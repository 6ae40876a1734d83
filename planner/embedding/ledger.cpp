#include "planner/embedding/ledger.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "core/job/tier_units.h"
#include "core/numbers.h"
#include "planner/embedding/shard_bytes.h"
#include "simulator/reports/framework_memory.h"
#include "workloads/embedding_plan/embedding_tiers.h"
#include "workloads/embedding_plan/plan_communicators.h"
#include "workloads/embedding_plan/shard_laws.h"

namespace stepcast::planner {
namespace {

Holding holding_of(const PlanShard& s, const EmbeddingTable& t, const Job& job,
                   const workloads::ListShares& lists) {
  const std::int64_t devices = job.devices;
  const auto members = static_cast<std::int64_t>(s.groups.front().size());
  if (s.split == Split::kReplicate && members == devices) {
    return Holding::kReplicated;
  }
  if (devices == 1) {
    return Holding::kLocal;
  }
  if (t.mode == PoolingMode::kSequence) {
    return Holding::kUnpooled;
  }
  if (is_sequence(workloads::route_of(s, t, job, lists))) {
    return Holding::kListed;
  }
  return members == 1         ? Holding::kExchanged
         : members == devices ? Holding::kReduced
                              : Holding::kNodeReduced;
}

class Ledger {
 public:
  Ledger(const Job& job, const EmbeddingPlan& plan) : job_(job), plan_(plan) {
    const double dense =
        dense_bytes(job) +
        simulator::framework_memory(job.system.device, workloads::plan_communicators(job, plan), {})
            .total()
            .base();
    for (std::int64_t r = 0; r < job.devices; ++r) {
      lines_["hbm"].push_back({.rank = static_cast<std::int32_t>(r),
                               .tier = "hbm",
                               .dense = dense,
                               .capacity = job.system.device.memory.base()});
    }
  }

  std::vector<LedgerLine> lines() {
    const DlrmWorkload& w = *job_.workload.dlrm();
    for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
      const workloads::ListShares lists = workloads::list_shares(job_, w.tables[t]);
      for (const PlanShard& s : plan_.tables[t].shards) {
        shard(plan_.tables[t], w.tables[t], s, lists);
      }
      arriving(plan_.tables[t], w.tables[t], lists);
    }
    fetched();
    std::vector<LedgerLine> all;
    for (auto& [tier, lines] : lines_) {
      all.insert(all.end(), lines.begin(), lines.end());
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const LedgerLine& a, const LedgerLine& b) { return a.rank < b.rank; });
    return all;
  }

 private:
  LedgerLine& line(const std::string& tier, std::int32_t rank) {
    auto& lines = lines_[tier];
    if (lines.empty()) {
      const Tier has = tier_named(job_.system, tier).value_or(Tier{});
      for (std::int64_t r = 0; r < job_.devices; ++r) {
        lines.push_back(
            {.rank = static_cast<std::int32_t>(r), .tier = tier, .capacity = has.capacity.base()});
      }
    }
    return lines[static_cast<std::size_t>(rank)];
  }

  void shard(const PlanTable& plan, const EmbeddingTable& table, const PlanShard& s,
             const workloads::ListShares& lists) {
    const Holding holding = holding_of(s, table, job_, lists);
    const std::int64_t columns = s.columns[1] - s.columns[0];
    const bool copies = s.groups.size() > 1;
    for (const auto& group : s.groups) {
      const auto members = static_cast<std::int64_t>(group.size());
      const std::vector<double> mass = masses(plan, table, s, members);
      for (std::int64_t i = 0; i < members; ++i) {
        const std::int64_t rows = row_split(s, members).held(i);
        const double arrives = mass[static_cast<std::size_t>(i)] / real(groups_of(s));
        const BytesByPurpose b =
            held_bytes(job_, table, {holding, rows, columns, arrives, members});
        const std::int32_t rank = group[static_cast<std::size_t>(i)];
        LedgerLine& home = line(s.tier, rank);
        home.weights += b.weights;
        home.optimizer += b.optimizer;
        LedgerLine& device = line("hbm", rank);
        device.gradients += b.gradients;
        if (copies && holding != Holding::kReplicated) {
          device.gradients += format_bytes(job_.formats.gradient, rows, columns).base();
        }
        device.buffers += b.buffers;
        device.cache += s.tier == "hbm" ? 0 : s.cache_bytes;
        if (s.tier != "hbm" && s.cache_bytes > 0 && s.cache_policy == RowCachePolicy::kLfu &&
            has_tier(kHostTier)) {
          line(std::string(kHostTier), rank).cache += real(rows) * kCounterBytes;
        }
      }
    }
  }

  [[nodiscard]] bool has_tier(std::string_view name) const {
    return std::any_of(job_.system.tiers.begin(), job_.system.tiers.end(),
                       [name](const Tier& t) { return t.name == name; });
  }

  static std::int64_t groups_of(const PlanShard& s) {
    return static_cast<std::int64_t>(s.groups.size());
  }

  /// Share of the table's lookups that its `rows` most popular rows take.
  static double mass_of_hottest(const EmbeddingTable& table, std::int64_t rows) {
    return rows <= 0            ? 0
           : rows >= table.rows ? 1
           : table.access       ? table.access->cdf(real(rows)).value
                                : real(rows) / real(table.rows);
  }

  /// The same of a shard whose rows are in order of popularity, or were when the plan was made.
  double range_mass(const PlanTable& plan, const EmbeddingTable& table, const PlanShard& s) {
    if (const LookupsInOrder* stale = in_order(plan, table)) {
      return stale->range(s.rows[0], s.rows[1]).second;
    }
    return std::max(0.0, mass_of_hottest(table, s.rows[1]) - mass_of_hottest(table, s.rows[0]));
  }

  /// Where the lookups of now fall in the order that the plan brings; nullptr where it follows
  /// them.
  const LookupsInOrder* in_order(const PlanTable& plan, const EmbeddingTable& table) {
    const auto [it, fresh] = in_order_.try_emplace(&plan);
    if (fresh) {
      if (const auto order = workloads::own_order(plan, table)) {
        it->second.emplace(*table.access, *order, plan.hot_rows());
      }
    }
    return it->second ? &*it->second : nullptr;
  }

  /// Share of the table's lookups that falls to each member of a group, at most: where the hot rows
  /// of the plan's own split fall.
  std::vector<double> masses(const PlanTable& plan, const EmbeddingTable& table, const PlanShard& s,
                             std::int64_t members) {
    const auto upto = [&](std::int64_t row) { return mass_of_hottest(table, row); };
    const auto count = static_cast<std::size_t>(members);
    const bool whole = s.rows[0] == 0 && s.rows[1] == table.rows;
    const bool split = members > 1 && s.split != Split::kReplicate;
    if (plan.frequency_order) {
      const double range = range_mass(plan, table, s);
      std::vector<double> mass(count, range);
      if (const LookupsInOrder* stale = split ? in_order(plan, table) : nullptr) {
        return workloads::RowShares(table.access.get(),
                                    {.first_row = s.rows[0],
                                     .rows = s.rows[1] - s.rows[0],
                                     .table_rows = table.rows,
                                     .split = s.split,
                                     .members = members,
                                     .own_order = true},
                                    workloads::hot_rows_of(*stale))
            .by_member();
      }
      RowSplit blocks = row_split(s, members);
      blocks.split = Split::kBlock;
      for (std::int64_t i = 0; split && i < members; ++i) {
        const HeldRows held = blocks.part(i);
        // Of a stripe the first member has most, but at most its hottest row more than the mean.
        mass[static_cast<std::size_t>(i)] =
            s.split == Split::kBlock
                ? upto(held.first + held.rows) - upto(held.first)
                : range / real(members) + (table.access ? table.access->probability(real(s.rows[0]))
                                                        : 1 / real(table.rows));
      }
      return mass;
    }
    if (!split || !whole) {
      return std::vector<double>(count, 1.0);
    }
    return workloads::RowShares(table.access.get(),
                                {.first_row = 0,
                                 .rows = table.rows,
                                 .table_rows = table.rows,
                                 .split = s.split,
                                 .members = members},
                                workloads::hottest_rows(table.access.get()))
        .by_member();
  }

  /// Rows of slower tiers that a batch fetches stand beside those that its caches keep.
  void fetched() {
    const auto slow = [](const PlanShard& s) { return s.tier != "hbm"; };
    if (std::none_of(plan_.tables.begin(), plan_.tables.end(), [&](const PlanTable& t) {
          return std::any_of(t.shards.begin(), t.shards.end(), slow);
        })) {
      return;
    }
    Job job = job_;
    job.embedding_plan = plan_;
    const EmbeddingPlacement layout = workloads::embedding_layout(job);
    workloads::ShardLaws laws(job, layout);
    for (std::size_t id = 0; id < layout.slices.size(); ++id) {
      const EmbeddingSlice& s = layout.slices[id];
      const auto slice = static_cast<std::int32_t>(id);
      for (const std::int32_t rank : s.in_slow_tier() ? s.ranks : std::vector<std::int32_t>{}) {
        const EmbeddingTable& table =
            job.workload.dlrm()->tables[static_cast<std::size_t>(s.table)];
        const HeldRows held = held_rows(s, rank);
        const double drawn = real(job.batch.global) * table.pooling * laws.mass(slice, rank);
        const workloads::CacheShape shape =
            workloads::cache_shape(job, table, *laws.access(slice, rank), held.rows, s.dim, drawn,
                                   s.cache_bytes, s.cache_policy);
        line("hbm", rank).buffers +=
            real(shape.slots - shape.capacity) * workloads::cached_row_bytes(job, table, s.dim);
      }
    }
  }

  void arriving(const PlanTable& plan, const EmbeddingTable& table,
                const workloads::ListShares& lists) {
    // Once per route that columns of the table use; levels of one column range add up.
    double bytes = 0;
    for (const PlanShard& s : plan.shards) {
      const Holding holding = holding_of(s, table, job_, lists);
      const double share = plan.frequency_order ? range_mass(plan, table, s) : 1;
      const double listed = lists.lists * real(static_cast<std::int64_t>(s.groups.front().size()));
      bytes +=
          arriving_bytes(job_, table, holding, s.columns[1] - s.columns[0], share, listed).total();
    }
    const double remap = plan.frequency_order && plan.shards.size() > 1 ? remap_bytes(table) : 0;
    for (std::int64_t r = 0; r < job_.devices; ++r) {
      LedgerLine& at = line("hbm", static_cast<std::int32_t>(r));
      at.buffers += bytes;
      at.remap += remap;
    }
  }

  const Job& job_;
  const EmbeddingPlan& plan_;
  std::map<std::string, std::vector<LedgerLine>> lines_;
  std::map<const PlanTable*, std::optional<LookupsInOrder>> in_order_;
};

/// The table with most weights on the ranks of a unit.
std::string largest_table(const Job& job, const EmbeddingPlan& plan, const Tier& tier,
                          std::int64_t unit) {
  std::string largest;
  double most = -1;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const PlanTable& table = plan.tables[t];
    const Format format = job.row_format(job.workload.dlrm()->tables[t]);
    double bytes = 0;
    for (const PlanShard& s : table.shards) {
      for (const auto& group : s.groups) {
        for (std::size_t i = 0; s.tier == tier.name && i < group.size(); ++i) {
          if (unit_of(group[i], tier.shared_by) == unit) {
            const std::int64_t rows = row_split(s, static_cast<std::int64_t>(group.size()))
                                          .held(static_cast<std::int64_t>(i));
            bytes += format_bytes(format, rows, s.columns[1] - s.columns[0]).base();
          }
        }
      }
    }
    if (bytes > most) {
      most = bytes;
      largest = table.name;
    }
  }
  return largest;
}

}  // namespace

std::vector<LedgerLine> ledger_of(const Job& job, const EmbeddingPlan& plan) {
  return Ledger(job, plan).lines();
}

std::optional<LedgerExcess> excess_of(const Job& job, const EmbeddingPlan& plan,
                                      const std::vector<LedgerLine>& ledger) {
  std::map<std::string, std::vector<Bytes>> held;
  for (const LedgerLine& line : ledger) {
    auto& ranks = held[line.tier];
    ranks.resize(static_cast<std::size_t>(job.devices));
    ranks[static_cast<std::size_t>(line.rank)] = Bytes(line.total());
  }
  std::optional<TierExcess> worst;
  Tier of;
  for (const auto& [name, bytes] : held) {
    Tier tier = tier_named(job.system, name).value_or(Tier{});
    tier.name = name;
    const auto excess = tier_excess(tier, bytes);
    if (excess && (!worst || excess->missing() > worst->missing())) {
      worst = excess;
      of = tier;
    }
  }
  if (!worst) {
    return std::nullopt;
  }
  LedgerExcess sum;
  sum.line.rank = static_cast<std::int32_t>(worst->fullest_rank);
  sum.line.tier = of.name;
  sum.line.capacity = worst->capacity.base();
  sum.largest_table = largest_table(job, plan, of, worst->unit);
  for (const LedgerLine& line : ledger) {
    if (line.tier == of.name && unit_of(line.rank, of.shared_by) == worst->unit) {
      sum.line.weights += line.weights;
      sum.line.optimizer += line.optimizer;
      sum.line.gradients += line.gradients;
      sum.line.cache += line.cache;
      sum.line.remap += line.remap;
      sum.line.buffers += line.buffers;
      sum.line.dense += line.dense;
    }
  }
  return sum;
}

}  // namespace stepcast::planner
