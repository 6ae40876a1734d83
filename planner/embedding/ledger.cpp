#include "planner/embedding/ledger.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/access/row_order.h"
#include "core/graph/embedding_communicators.h"
#include "core/job/tier_units.h"
#include "core/numbers.h"
#include "planner/embedding/shard_bytes.h"
#include "simulator/reports/framework_memory.h"
#include "workloads/embedding_plan/embedding_tiers.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/embedding_plan/row_shares.h"
#include "workloads/embedding_plan/shard_laws.h"

namespace stepcast::planner {
namespace {

/// The lines of a placement, slice by slice.
class Ledger {
 public:
  Ledger(const Job& job, const EmbeddingPlan& plan)
      : job_(job),
        placement_(workloads::embedding_layout(job, plan)),
        workload_(*job.workload.layered()) {
    const double dense =
        dense_bytes(job) +
        simulator::framework_memory(job.system.device, communicator_sizes(placement_, job.sptt), {})
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
    const auto end = placement_.slices.end();
    for (auto first = placement_.slices.begin(); first != end;) {
      const auto last = std::find_if(
          first, end, [first](const EmbeddingSlice& s) { return s.table != first->table; });
      double arriving = 0;
      for (auto s = first; s != last; ++s) {
        held(*s);
        // Once per route that columns of the table use; levels of one column range add up.
        HeldPiece piece = held_piece(*s, s->ranks.front(), s->frequency_order ? range_mass(*s) : 1);
        arriving += arriving_bytes(job_, table(*s), piece, s->list_share * real(s->members()));
      }
      const bool remapped =
          std::any_of(first, last, [](const EmbeddingSlice& s) { return s.remapped(); });
      for (LedgerLine& at : lines_["hbm"]) {
        at.buffers += arriving;
        at.remap += remapped ? remap_bytes(table(*first)) : 0;
      }
      first = last;
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
  [[nodiscard]] const EmbeddingTable& table(const EmbeddingSlice& s) const {
    return workload_.tables[static_cast<std::size_t>(s.table)];
  }

  std::vector<LedgerLine>& tier(const std::string& name) {
    auto& lines = lines_[name];
    if (lines.empty()) {
      const Tier has = tier_named(job_.system, name).value_or(Tier{});
      for (std::int64_t r = 0; r < job_.devices; ++r) {
        lines.push_back(
            {.rank = static_cast<std::int32_t>(r), .tier = name, .capacity = has.capacity.base()});
      }
    }
    return lines;
  }

  void held(const EmbeddingSlice& s) {
    const std::vector<double> mass = masses(s);
    std::vector<LedgerLine>& home = tier(s.tier);
    std::vector<LedgerLine>& device = tier("hbm");
    std::vector<LedgerLine>* host = nullptr;
    if (s.in_slow_tier() && s.cache_bytes > 0 && s.cache_policy == RowCachePolicy::kLfu &&
        tier_named(job_.system, kHostTier)) {
      host = &tier(std::string(kHostTier));
    }
    for (const std::int32_t rank : s.ranks) {
      const auto at = static_cast<std::size_t>(rank);
      const double share = mass[static_cast<std::size_t>(s.position(rank))] / real(s.copies);
      const HeldPiece piece = held_piece(s, rank, share);
      const BytesByPurpose b = held_bytes(job_, table(s), piece);
      home[at].weights += b.weights;
      home[at].optimizer += b.optimizer;
      device[at].gradients += b.gradients;
      device[at].buffers += b.buffers;
      device[at].cache += s.in_slow_tier() ? s.cache_bytes : 0;
      if (host != nullptr) {
        (*host)[at].cache += real(piece.rows) * kCounterBytes;
      }
    }
  }

  /// Share of the table's lookups that its `rows` most popular rows take.
  static double mass_of_hottest(const EmbeddingTable& table, std::int64_t rows) {
    return rows <= 0            ? 0
           : rows >= table.rows ? 1
           : table.access       ? table.access->cdf(real(rows)).value
                                : real(rows) / real(table.rows);
  }

  /// The same of a slice whose rows are in order of popularity, or were when the plan was made.
  double range_mass(const EmbeddingSlice& s) {
    const std::int64_t end = s.first_row + s.rows;
    if (const LookupsInOrder* stale = in_order(s)) {
      return stale->range(s.first_row, end).second;
    }
    return std::max(0.0, mass_of_hottest(table(s), end) - mass_of_hottest(table(s), s.first_row));
  }

  /// Position of the lookups of now in the order that the plan brings; nullptr if it follows
  /// them.
  const LookupsInOrder* in_order(const EmbeddingSlice& s) {
    if (s.order == nullptr) {
      return nullptr;
    }
    return &in_order_.try_emplace(s.table, *table(s).access, *s.order, s.hot_rows).first->second;
  }

  /// Share of the table's lookups that falls to each member of a group, at most: where the hot rows
  /// of the plan's own split fall.
  std::vector<double> masses(const EmbeddingSlice& s) {
    const Access* law = table(s).access.get();
    const std::int64_t members = s.members();
    const auto count = static_cast<std::size_t>(members);
    const auto by_member = [&](bool own_order, const std::vector<workloads::HotRow>& hot) {
      RowSplit rule = s.row_rule();
      rule.own_order = own_order;
      return workloads::RowShares(law, rule, hot).by_member();
    };
    if (!s.frequency_order) {
      return s.row_split() && !s.row_range() ? by_member(false, workloads::hottest_rows(law))
                                             : std::vector<double>(count, 1.0);
    }
    const double range = range_mass(s);
    std::vector<double> mass(count, range);
    if (!s.row_split()) {
      return mass;
    }
    if (const LookupsInOrder* stale = in_order(s)) {
      return by_member(true, workloads::hot_rows_of(*stale));
    }
    const auto upto = [&](std::int64_t row) { return mass_of_hottest(table(s), row); };
    for (std::int64_t i = 0; i < members; ++i) {
      const HeldRows block = s.row_rule().part(i);
      // The first member of a stripe has most, but at most its hottest row more than the mean.
      mass[static_cast<std::size_t>(i)] =
          s.split == Split::kBlock
              ? upto(block.first + block.rows) - upto(block.first)
              : range / real(members) +
                    (law != nullptr ? law->probability(real(s.first_row)) : 1 / real(s.table_rows));
    }
    return mass;
  }

  /// Rows of slower tiers that a batch fetches, in addition to those that its caches keep.
  void fetched() {
    if (std::none_of(placement_.slices.begin(), placement_.slices.end(),
                     [](const EmbeddingSlice& s) { return s.in_slow_tier(); })) {
      return;
    }
    workloads::ShardLaws laws(job_, placement_);
    for (std::size_t id = 0; id < placement_.slices.size(); ++id) {
      const EmbeddingSlice& s = placement_.slices[id];
      const auto slice = static_cast<std::int32_t>(id);
      for (const std::int32_t rank : s.in_slow_tier() ? s.ranks : std::vector<std::int32_t>{}) {
        const EmbeddingTable& t = table(s);
        const HeldRows rows = held_rows(s, rank);
        const double drawn = real(job_.batch.global) * t.pooling * laws.mass(slice, rank);
        const workloads::CacheShape shape =
            workloads::cache_shape(job_, t, *laws.access(slice, rank), rows.rows, s.dim, drawn,
                                   s.cache_bytes, s.cache_policy);
        tier("hbm")[static_cast<std::size_t>(rank)].buffers +=
            real(shape.slots - shape.capacity) * workloads::cached_row_bytes(job_, t, s.dim);
      }
    }
  }

  const Job& job_;
  const EmbeddingPlacement placement_;
  const LayeredWorkload& workload_;
  std::map<std::string, std::vector<LedgerLine>> lines_;
  std::map<std::int32_t, LookupsInOrder> in_order_;  ///< by table
};

/// The table with most weights on the ranks of a unit.
std::string largest_table(const Job& job, const EmbeddingPlan& plan, const Tier& tier,
                          std::int64_t unit) {
  std::string largest;
  double most = -1;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const PlanTable& table = plan.tables[t];
    const Format format = job.row_format(job.workload.layered()->tables[t]);
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

std::vector<std::size_t> communicator_sizes(const EmbeddingPlacement& placement, bool towers) {
  std::vector<std::size_t> sizes;
  for (const EmbeddingCommunicator& c : embedding_communicators(placement, towers)) {
    if (c.used) {
      sizes.push_back(static_cast<std::size_t>(c.ranks));
    }
  }
  return sizes;
}

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
  return LedgerExcess{*worst, of.name, largest_table(job, plan, of, worst->unit)};
}

}  // namespace stepcast::planner
