#include "planner/embedding/internal/slow_tier_options.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/job/tier_units.h"
#include "core/numbers.h"
#include "planner/embedding/internal/hot_rows.h"
#include "planner/embedding/internal/options_of_table.h"
#include "planner/embedding/shard_bytes.h"
#include "workloads/embedding_plan/embedding_tiers.h"
#include "workloads/embedding_plan/plan_layout.h"

namespace stepcast::planner::internal {
namespace {

constexpr std::array kCachedRows{0.0, 0.05, 0.2, 0.5};  // of a shard
/// Rows more than the ledger counts, whose members are not all the fullest.
constexpr double kMoreRows = 64;

class SlowTierOptions : private OptionsOfTable {
 public:
  SlowTierOptions(const Job& job, std::size_t t, const EmbeddingPrices& prices,
                  const RoutePrices& routes, std::optional<Split> row_split,
                  const std::vector<TierCapacity>& tiers)
      : OptionsOfTable(job, t, prices, routes),
        row_split_(row_split),
        tiers_(tiers),
        row_(workloads::cached_row_bytes(job, table_, table_.dim)),
        distinct_(workloads::list_shares(job, table_)) {}

  Made all() {
    const bool alone = job_.devices == 1;
    for (std::size_t tier = 1; tier < tiers_.size(); ++tier) {
      for (const std::int64_t members :
           alone ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{1, job_.devices}) {
        const Shard shard = shard_over(members);
        for (const double fraction : kCachedRows) {
          add(tier, shard, fraction);
        }
      }
    }
    return std::move(made_);
  }

 private:
  /// Rows and lookups of each member.
  struct Shard {
    std::int64_t members = 1;
    HotRows hot;
    std::int64_t rows = 0;
    Access law;
  };
  struct Cache {
    double bytes = 0;
    workloads::CacheShape shape;
    RowCachePolicy policy = RowCachePolicy::kLru;
  };

  [[nodiscard]] Shard shard_over(std::int64_t members) const {
    const std::int64_t rows = (table_.rows + members - 1) / members;
    return {members, members > 1 ? prices_.hot_rows(t_, members, row_split_) : HotRows{}, rows,
            members > 1 ? access_.random_subset(rows) : access_};
  }

  /// The cache of a member to which a share of the lookups falls.
  [[nodiscard]] workloads::CacheShape shape(const Shard& shard, double share, double bytes,
                                            RowCachePolicy policy) const {
    return workloads::cache_shape(job_, table_, shard.law, shard.rows, table_.dim, lookups_ * share,
                                  bytes, policy);
  }

  /// A cache of a share of the rows, under the policy that fetches less.
  [[nodiscard]] Cache cache_of(const Shard& shard, double fraction) const {
    const double bytes = std::ceil(fraction * real(shard.rows)) * row_;
    Cache cache{bytes, shape(shard, shard.hot.most, bytes, RowCachePolicy::kLru),
                RowCachePolicy::kLru};
    if (auto counted = shape(shard, shard.hot.most, bytes, RowCachePolicy::kLfu);
        bytes > 0 && counted.expected.fetched_bytes < cache.shape.expected.fetched_bytes) {
      cache.policy = RowCachePolicy::kLfu;
      cache.shape = counted;
    }
    return cache;
  }

  void add(std::size_t tier, const Shard& shard, double fraction) {
    const std::optional<Tier> slow = tier_named(job_.system, tiers_[tier].name);
    STEPCAST_CHECK(slow, "tier '{}'", tiers_[tier].name);
    const Cache cache = cache_of(shard, fraction);
    const bool alone = job_.devices == 1;
    const bool all = shard.members > 1;
    const bool once =
        alone ? workloads::pays_to_pool_locally(distinct_, table_)
              : workloads::pays_to_pool_once(job_, distinct_, shard.members, job_.devices);
    const EmbeddingRoute route = alone                ? EmbeddingRoute::kLocal
                                 : unpooled() || once ? EmbeddingRoute::kSequence
                                 : all                ? EmbeddingRoute::kReduce
                                                      : EmbeddingRoute::kExchange;
    PlacementOption o;
    o.group = static_cast<std::int32_t>(shard.members);
    o.label = fmt::format("{} in {}{}", all ? "row_wise" : "table_wise", slow->name,
                          fraction > 0 ? fmt::format(", cache {:.0f} %", 100 * fraction) : "");
    load(o, shard, route, once);
    // Rows that the busiest member moves; in a bound one with least lookups.
    const RowTraffic moved =
        routes_.fit() == LineFit::kNear
            ? cache.shape.expected
            : shape(shard, shard.hot.spread.base, cache.bytes, cache.policy).expected;
    o.load[lookup_phase(route)] += to_load(routes_.tier_move(*slow, moved.fetched_bytes));
    o.load[kUpdate] += to_load(routes_.tier_move(*slow, moved.written_bytes));
    set_bytes(o, tier, shard, cache, route, once);
    o.routes = routes_.charges(route);
    OptionMeaning m;
    m.kind = all ? ShardingKind::kRowWise : ShardingKind::kTableWise;
    m.group = shard.members;
    m.split = shard.hot.split;
    m.tier = slow->name;
    m.cache_bytes = std::ceil(cache.bytes);
    m.cache_policy = cache.policy;
    made_.emplace_back(std::move(o), std::move(m));
  }

  /// Loads as in device memory. `once`: distinct lists are pooled once.
  void load(PlacementOption& o, const Shard& shard, EmbeddingRoute route, bool once) const {
    const workloads::ListShares lists = once ? distinct_ : workloads::ListShares{};
    const bool here = is_local(route);
    const double share = here ? 1 : travelling() / real(shard.members);
    const double sent = unpooled() ? lookups_ * share * real(table_.dim)
                                   : global_ * lists.lists * real(table_.output_columns());
    const EmbeddingPrices::Lookups lookups{t_, global_ * lists.ids, share, table_.dim,
                                           unpooled() && !here};
    o.load[lookup_phase(route)] = to_load(prices_.forward(lookups, routes_.fit()));
    o.load[kUpdate] = to_load(prices_.backward(lookups, routes_.fit()));
    if (here) {
      return;
    }
    o.load[kArrival] = to_load(routes_.ids(table_, lookups_ * lists.ids * share));
    o.load[exchange_phase(route)] = to_load(routes_.exchange(route, sent));
    if (shard.members > 1 && !(unpooled() && job_.embedding_dedup)) {
      std::array<bool, kPhases> grows{};
      grows.fill(true);
      grows[kGroupExchange] = false;
      grows[kSequenceExchange] = !once;
      spread_load(o, shard.hot.spread, grows, routes_.fit());
    }
    o.load[kArrival] += to_load(routes_.lengths(global_ * real(table_.feature_count())));
    if (once) {
      const double local = global_ / real(job_.devices) * real(table_.dim);
      const auto [there, back] = routes_.pool_rows(local * real(shard.members), local);
      o.everywhere[kSequenceExchange] += to_load(there + back);
    }
  }

  void set_bytes(PlacementOption& o, std::size_t tier, const Shard& shard, const Cache& cache,
                 EmbeddingRoute route, bool once) const {
    // The fullest member holds so many; in a bound each at least.
    const bool fullest = routes_.fit() == LineFit::kNear;
    HeldPiece piece{route,         fullest ? shard.rows : table_.rows / shard.members,
                    table_.dim,    fullest ? shard.hot.most : 1 / real(shard.members),
                    shard.members, once};
    const BytesByPurpose held = held_bytes(job_, table_, piece);
    const double fetched = fullest ? real(cache.shape.slots - cache.shape.capacity) + kMoreRows : 0;
    o.bytes[0] = rounded_up(held.buffers + cache.bytes + fetched * row_);
    o.bytes[tier] = rounded_up(held.weights + held.optimizer);
    for (std::size_t host = 1; cache.policy == RowCachePolicy::kLfu && host < tiers_.size();
         ++host) {
      o.bytes[host] +=
          tiers_[host].name == kHostTier ? rounded_up(real(piece.rows) * kCounterBytes) : 0;
    }
    piece.share = 1;
    const double rows_back = once ? distinct_.lists * real(shard.members) : real(shard.members);
    o.bytes_everywhere[0] = rounded_up(arriving_bytes(job_, table_, piece, rows_back));
  }

  std::optional<Split> row_split_;
  const std::vector<TierCapacity>& tiers_;
  double row_;  ///< bytes of a cached row
  workloads::ListShares distinct_;
};

}  // namespace

std::vector<std::pair<PlacementOption, OptionMeaning>> slow_tier_options(
    const Job& job, std::size_t table, const EmbeddingPrices& prices, const RoutePrices& routes,
    std::optional<Split> row_split, const std::vector<TierCapacity>& tiers) {
  return SlowTierOptions(job, table, prices, routes, row_split, tiers).all();
}

}  // namespace stepcast::planner::internal
