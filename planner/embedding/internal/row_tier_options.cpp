#include "planner/embedding/internal/row_tier_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "core/access/row_order.h"
#include "core/clearly_less.h"
#include "core/error.h"
#include "core/numbers.h"
#include "planner/embedding/internal/hot_rows.h"
#include "planner/embedding/internal/options_of_table.h"
#include "planner/embedding/migration.h"
#include "planner/embedding/shard_bytes.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::planner::internal {
namespace {

/// Cuts at the prices that levels have at the size of the cut before.
constexpr int kRecuts = 3;

/// "264", "12.6k", "40M": a number of rows to three digits.
std::string shown_rows(std::int64_t rows) {
  constexpr std::array<std::string_view, 4> kUnits{"", "k", "M", "G"};
  double shown = real(rows);
  std::size_t unit = 0;
  for (; shown >= 999.5 && unit + 1 < kUnits.size(); ++unit) {
    shown /= 1000;
  }
  return fmt::format("{:.3g}{}", shown, kUnits[unit]);
}

/// Options of one table. Levels as in FlexShard (arXiv 2301.02959), with the measured price of each
/// link level in the place of byte counts.
class RowTierOptions : private OptionsOfTable {
 public:
  RowTierOptions(const Job& job, std::size_t t, const EmbeddingPrices& prices,
                 const RoutePrices& routes, const RoutePrices& choice,
                 const PlanSpaceOptions& options)
      : OptionsOfTable(job, t, prices, routes), choice_(choice), options_(options) {}

  Made all() {
    if (options_.row_tiers) {
      row_tiers();
    }
    if (!options_.in_use.empty() && options_.in_use[t_] != nullptr) {
      as_it_is(*options_.in_use[t_]);
    }
    return std::move(made_);
  }

 private:
  /// Levels by group size: 1, then the groups, then all ranks (one copy).
  [[nodiscard]] std::vector<std::int64_t> groups() const {
    std::vector<std::int64_t> sizes{1};
    for (const std::int64_t g : options_.group_sizes) {
      if (g > 1 && g < job_.devices) {
        sizes.push_back(g);
      }
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.push_back(job_.devices);
    return sizes;
  }

  /// Seconds of a row where `rows` rows with copies are summed together; 0: as many as fill
  /// buckets.
  [[nodiscard]] double per_row(std::int64_t group, std::int64_t rows) const {
    const std::int64_t copies = job_.devices / group;
    if (copies == 1) {
      return 0;
    }
    const double row = real(table_.dim) / real(group);
    const double bucket =  // elements
        rows > 0 ? row * real(rows) : std::max(row, job_.parallel.bucket.base());
    return (choice_.replica_sync(bucket, copies, group) * (row / bucket) +
            choice_.replica_update(row, table_.dim)) /
               real(job_.sync_interval) -
           update_start();
  }

  /// Seconds of the optimizer of a level that has copies, before its first row.
  [[nodiscard]] double update_start() const {
    return choice_.replica_update(0, table_.dim) / real(job_.sync_interval);
  }

  [[nodiscard]] RowLevel level(std::int64_t group) const {
    RowLevel l;
    const double devices = real(job_.devices);
    if (group > 1) {
      const double row =
          unpooled() ? real(table_.dim) : 0;  // pooled partial sums do not grow with accesses
      l.per_access =
          (choice_.group_exchange(group, row, true) + choice_.group_exchange(group, row, false) +
           choice_.group_ids(table_, group, 1)) /
          devices;
    }
    l.per_row = per_row(group, 0);
    const BytesByPurpose row =
        held_bytes(job_, table_, {EmbeddingRoute::kReplicated, 1, table_.dim, 0});
    l.memory =
        (row.weights + row.optimizer + (group < job_.devices ? row.gradients : 0)) / real(group);
    l.access_memory = (exchanged_bytes(group, 1) - exchanged_bytes(group, 0)) / lookups_;
    return l;
  }

  [[nodiscard]] EmbeddingRoute route(std::int64_t group) const {
    const bool one_copy = group == job_.devices;
    return group == 1   ? EmbeddingRoute::kReplicated
           : unpooled() ? (one_copy ? EmbeddingRoute::kSequence : EmbeddingRoute::kGroupSequence)
           : one_copy   ? EmbeddingRoute::kReduce
                        : EmbeddingRoute::kGroupReduce;
  }

  /// Buffers of a rank where `share` of all lookups go to one level, evenly over its holders.
  [[nodiscard]] double exchanged_bytes(std::int64_t group, double share) const {
    return held_bytes(job_, table_,
                      {route(group), 0, table_.dim, share / real(job_.devices), group})
               .buffers +
           arriving_bytes(job_, table_, {route(group), 0, table_.dim, share});
  }

  /// Cost of a level because it exists, however few rows it has: pooled partial sums. Each
  /// group reduces those of its own samples only.
  [[nodiscard]] double presence(const RoutePrices& routes, std::int64_t group) const {
    if (unpooled() || group == 1) {
      return 0;
    }
    const double sent = global_ * real(table_.output_columns());
    if (group == job_.devices) {
      return routes.exchange(EmbeddingRoute::kReduce, sent);
    }
    return routes.exchange_inside(sent * real(group) / real(job_.devices), group);
  }

  /// Sets the levels to what they cost with the rows of a cut.
  [[nodiscard]] RowTierCost cost_at_size(const RowTierCut& cut,
                                         const std::vector<std::int64_t>& groups,
                                         std::vector<RowLevel>& levels,
                                         const AccessCounting& count) const {
    for (std::size_t i = 0; i < levels.size(); ++i) {
      levels[i].per_row = per_row(groups[i], cut.ends[i] - (i > 0 ? cut.ends[i - 1] : 0));
    }
    return cost_of(access_, lookups_, cut, levels, count);
  }

  [[nodiscard]] std::vector<TierCut> best_cuts(const std::vector<std::int64_t>& sizes,
                                               const AccessCounting& count) const {
    std::vector<RowLevel> all_levels;
    for (const std::int64_t g : sizes) {
      all_levels.push_back(level(g));
    }
    // Prices of memory from none to one that leaves a single copy.
    const double top = all_levels.back().per_access * lookups_ /
                       std::max(1.0, all_levels.front().memory * real(table_.rows));
    std::vector<TierCut> cuts;
    std::set<std::vector<std::int64_t>> seen;
    for (const double lambda : {0.0, 0.01 * top, 0.1 * top, top, 10 * top, 1000 * top}) {
      std::optional<std::pair<double, TierCut>> best;
      for (unsigned set = 1; set < 1U << sizes.size(); ++set) {
        std::vector<RowLevel> levels;
        std::vector<std::int64_t> chosen;
        double cost = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          if ((set >> i & 1U) != 0) {
            levels.push_back(all_levels[i]);
            chosen.push_back(sizes[i]);
            cost += presence(choice_, sizes[i]) + (sizes[i] < job_.devices ? update_start() : 0);
          }
        }
        if (chosen.size() < 2) {
          continue;  // whole-table kinds
        }
        RowTierCut cut = cut_rows(access_, lookups_, level_thresholds(levels, count, lambda));
        RowTierCost c = cost_at_size(cut, chosen, levels, count);
        for (int again = 0; again < kRecuts; ++again) {
          // `levels` cost what they do at the size of the last cut.
          RowTierCut next = cut_rows(access_, lookups_, level_thresholds(levels, count, lambda));
          const RowTierCost other = cost_at_size(next, chosen, levels, count);
          if (clearly_less(other.cost + lambda * other.memory, c.cost + lambda * c.memory)) {
            cut = std::move(next);
            c = other;
          }
        }
        cost += c.cost + lambda * c.memory;
        if (!best || clearly_less(cost, best->first)) {
          best.emplace(cost, TierCut{std::move(cut), std::move(chosen), std::move(c.touches)});
        }
      }
      if (best && seen.insert(best->second.rows.ends).second) {
        cuts.push_back(std::move(best->second));
      }
    }
    return cuts;
  }

  void row_tiers() {
    const std::vector<std::int64_t> sizes = groups();
    // Ids of pooled tables travel with every lookup.
    const AccessCounting count{options_.dedup && unpooled() ? real(job_.devices) : 0};
    for (const TierCut& cut :
         prices_.tier_cuts(t_, sizes, options_.dedup, [&] { return best_cuts(sizes, count); })) {
      add_cut(cut);
    }
  }

  /// Effect of a plan in use on the lookups of now.
  struct InUse {
    const PlanTable* table = nullptr;
    std::vector<std::pair<Access, double>> laws;  ///< by level, and its share of the lookups
    std::vector<double> hottest;                  ///< by level: share of lookups of its hottest row
    /// The hottest rows of now, in an order that is not that of their popularity; else empty.
    std::vector<workloads::HotRow> hot;
  };

  /// The ranges and groups of rows by popularity that are on all ranks alike: level by level.
  [[nodiscard]] std::optional<TierCut> levels_of(const PlanTable& used) const {
    std::vector<const PlanShard*> shards;
    for (const PlanShard& s : used.shards) {
      shards.push_back(&s);
    }
    std::sort(shards.begin(), shards.end(),
              [](const auto* a, const auto* b) { return a->rows[0] < b->rows[0]; });
    TierCut cut;
    std::int64_t first = 0;
    for (const PlanShard* s : shards) {
      const auto size = static_cast<std::int64_t>(s->groups.front().size());
      const bool everywhere = s->split == Split::kReplicate && size == job_.devices;
      const bool striped = s->split == Split::kStripe && size > 1;
      if (s->rows[0] != first || s->columns[1] - s->columns[0] != table_.dim || s->tier != "hbm" ||
          (!everywhere && !striped) || !in_line(*s, size)) {
        return std::nullopt;
      }
      first = s->rows[1];
      cut.rows.ends.push_back(first);
      cut.groups.push_back(everywhere ? 1 : size);
    }
    return cut;
  }

  /// Groups of consecutive ranks that together are all of them.
  [[nodiscard]] bool in_line(const PlanShard& s, std::int64_t size) const {
    std::int32_t next = 0;
    for (const auto& group : s.groups) {
      for (const std::int32_t rank : group) {
        if (static_cast<std::int64_t>(group.size()) != size || rank != next++) {
          return false;
        }
      }
    }
    return next == job_.devices;
  }

  /// The row tiers that a plan in use has for the table, whatever order its rows stand in: an
  /// option, unless the options from the table's law have the same.
  void as_it_is(const PlanTable& used) {
    auto cut = used.frequency_order && job_.devices > 1 ? levels_of(used) : std::nullopt;
    const bool known = std::any_of(made_.begin(), made_.end(), [&](const auto& made) {
      PlanTable same;
      if (made.second.row_tiers) {
        add_row_tiers(job_, table_, made.second, same);
      }
      return same_placement(same, used);
    });
    if (!cut || known) {
      return;
    }
    const AccessCounting count{options_.dedup && unpooled() ? real(job_.devices) : 0};
    const auto order = workloads::own_order(used, table_);
    std::optional<LookupsInOrder> lookups;
    if (order) {
      lookups.emplace(access_, *order, used.hot_rows());
    }
    InUse in_use{&used, {}, {}, {}};
    std::int64_t first = 0;
    for (const std::int64_t end : cut->rows.ends) {
      const auto [law, mass] = lookups ? lookups->range(first, end) : access_.ranks(first, end);
      cut->rows.accesses.push_back(mass);
      const double here = lookups_ * mass;
      cut->touches.push_back(count.dedup_over > 0
                                 ? count.dedup_over * law.unique(here / count.dedup_over).value
                                 : here);
      in_use.hottest.push_back(mass * law.probability(0));
      in_use.laws.emplace_back(law, mass);
      first = end;
    }
    if (lookups) {
      in_use.hot = workloads::hot_rows_of(*lookups);
    }
    add_cut(*cut, &in_use);
  }

  /// Seconds and bytes of a rank, over the levels of a cut.
  struct LevelSums {
    double arrival = 0, exchange = 0, synchronised = 0, update = 0, bytes = 0;
  };
  struct CutLevel {
    std::int64_t group, rows;
    double accesses;  ///< share of the lookups
    double touched;   ///< rows that move, per rank
    double hottest;   ///< share of a rank's hottest row
  };

  void add_level(LevelSums& sums, const CutLevel& l) const {
    const std::int64_t copies = job_.devices / l.group;
    const std::int64_t held = (l.rows + l.group - 1) / l.group;
    if (unpooled() && l.group > 1) {
      const double sent = l.touched * real(table_.dim);
      sums.exchange += routes_.group_exchange(l.group, sent, true) +
                       routes_.group_exchange(l.group, sent, false);
    }
    if (l.group > 1) {
      sums.arrival += routes_.group_ids(table_, l.group, l.touched);
    }
    sums.exchange += presence(routes_, l.group);
    if (copies > 1) {
      const double elements = real(held) * real(table_.dim);
      sums.synchronised +=
          routes_.replica_sync(elements, copies, l.group) / real(job_.sync_interval);
      sums.update += routes_.replica_update(elements, table_.dim) / real(job_.sync_interval);
    }
    HeldPiece piece{route(l.group), held, table_.dim, l.accesses / real(job_.devices) + l.hottest,
                    l.group};
    sums.bytes += std::ceil(held_bytes(job_, table_, piece).total());
    piece.share = l.accesses;
    sums.bytes += std::ceil(arriving_bytes(job_, table_, piece));
  }

  /// Seconds of a rank's kernels for the rows of one level, forward and backward: a group of ranks
  /// looks up its own samples, and gathers gradients where there are other copies. Rows that every
  /// rank has are pooled where they are looked up. `travel`: the share of lookups that are asked.
  [[nodiscard]] std::pair<double, double> lookups_of_level(std::int64_t group, const Access& law,
                                                           double mass, double travel) const {
    const bool here = group == 1;
    const EmbeddingPrices::Lookups lookups{t_,
                                           global_ * real(group) / real(job_.devices),
                                           (here ? 1 : travel) / real(group),
                                           table_.dim,
                                           unpooled() && !here,
                                           &law,
                                           mass};
    const LineFit fit = routes_.fit();
    return {prices_.forward(lookups, fit),
            group < job_.devices ? prices_.gradient(lookups, fit) : prices_.backward(lookups, fit)};
  }

  void add_cut(const TierCut& of, const InUse* used = nullptr) {
    const auto& [cut, groups_used, touches] = of;
    PlacementOption o;
    o.group = static_cast<std::int32_t>(job_.devices);
    double looked_up = 0;
    LevelSums sums{.bytes = remap_bytes(table_)};
    std::int64_t first = 0;
    o.label = used != nullptr ? "row tiers in use" : "row tiers";
    for (std::size_t i = 0; i < groups_used.size(); ++i) {
      const std::int64_t g = groups_used[i];
      const std::int64_t rows = cut.ends[i] - first;
      if (rows > 0) {
        o.routes |= routes_.charges(route(g), g);
        o.label += fmt::format(" {}/{}", shown_rows(rows), g);
        // Bound of the ledger: a stripe's first member has at most its hottest row more than the
        // mean.
        const double hottest =
            (used != nullptr ? used->hottest[i] : access_.probability(real(cut.ends[i] - rows))) /
            real(job_.devices / g);
        add_level(sums, {g, rows, cut.accesses[i], touches[i] / real(job_.devices), hottest});
        const auto [law, mass] =
            used != nullptr ? used->laws[i] : access_.ranks(first, cut.ends[i]);
        const auto [forward, update] =
            lookups_of_level(g, law, mass, mass > 0 ? touches[i] / (lookups_ * mass) : 1);
        looked_up += forward;
        sums.update += update;
      }
      first = cut.ends[i];
    }
    o.load[kArrival] = to_load(sums.arrival);
    const EmbeddingRoute travels = route(job_.devices);
    o.load[lookup_phase(travels)] = to_load(looked_up);
    o.synchronised = to_load(sums.synchronised);
    o.load[exchange_phase(travels)] = to_load(sums.exchange) + o.synchronised;
    o.load[kUpdate] = to_load(sums.update);
    if (!(unpooled() && job_.embedding_dedup)) {
      std::array<bool, kPhases> grows{};
      grows.fill(true);
      grows[kGroupExchange] = false;
      spread_load(o, spread_of(shares_of_ranks(cut, groups_used, used)), grows, routes_.fit());
    }
    o.bytes[0] =
        rounded_up(sums.bytes) + 4096 * static_cast<std::int64_t>(groups_used.size());  // rounding
    OptionMeaning m;
    m.kind = ShardingKind::kRowWise;
    m.group = job_.devices;
    m.split = Split::kStripe;
    m.row_tiers = cut;
    m.level_groups = groups_used;
    if (used != nullptr) {
      m.in_use = used->table;
    }
    made_.emplace_back(std::move(o), std::move(m));
  }

  /// Share of all lookups that each rank serves, over its levels: a range in order of popularity
  /// lies in stripes, so the first member of a group has the hottest row.
  [[nodiscard]] std::vector<double> shares_of_ranks(const RowTierCut& cut,
                                                    const std::vector<std::int64_t>& groups_used,
                                                    const InUse* used) const {
    const bool stale = used != nullptr && !used->hot.empty();
    const std::vector<workloads::HotRow> none;
    std::vector<double> shares(static_cast<std::size_t>(job_.devices));
    std::int64_t first = 0;
    for (std::size_t i = 0; i < groups_used.size(); ++i) {
      const std::vector<double> of_group = workloads::RowShares(&access_,
                                                                {.first_row = first,
                                                                 .rows = cut.ends[i] - first,
                                                                 .table_rows = table_.rows,
                                                                 .split = Split::kStripe,
                                                                 .members = groups_used[i],
                                                                 .frequency_order = !stale,
                                                                 .own_order = stale},
                                                                stale ? used->hot : none)
                                               .by_member();
      const double copies = real(job_.devices / groups_used[i]);
      for (std::size_t r = 0; r < shares.size(); ++r) {
        shares[r] += of_group[r % of_group.size()] / copies;
      }
      first = cut.ends[i];
    }
    return shares;
  }

  const RoutePrices& choice_;  ///< what decides where rows are cut
  const PlanSpaceOptions& options_;
};

}  // namespace

std::vector<std::pair<PlacementOption, OptionMeaning>> row_tier_options(
    const Job& job, std::size_t table, const EmbeddingPrices& prices, const RoutePrices& routes,
    const RoutePrices& choice, const PlanSpaceOptions& options) {
  return RowTierOptions(job, table, prices, routes, choice, options).all();
}

void add_row_tiers(const Job& job, const EmbeddingTable& table, const OptionMeaning& m,
                   PlanTable& to) {
  to.frequency_order = true;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < m.level_groups.size(); ++i) {
    const std::int64_t end = m.row_tiers->ends[i];
    if (end == first) {
      continue;
    }
    const std::int64_t group = m.level_groups[i];
    PlanShard s;
    s.rows = {first, end};
    s.columns = {0, table.dim};
    s.sharding = group == 1 ? ShardingKind::kDataParallel : ShardingKind::kRowWise;
    s.split = group == 1 ? Split::kReplicate : Split::kStripe;
    s.groups = workloads::groups_of(job.devices, group == 1 ? job.devices : group);
    to.shards.push_back(std::move(s));
    first = end;
  }
  if (m.in_use != nullptr) {
    to.order = m.in_use->order;
    to.order_file = m.in_use->order_file;
  } else {
    workloads::name_hot_rows(table, to);
  }
}

}  // namespace stepcast::planner::internal
