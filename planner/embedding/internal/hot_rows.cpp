#include "planner/embedding/internal/hot_rows.h"

#include <algorithm>

#include "core/clearly_less.h"

namespace stepcast::planner::internal {

HotRows hot_rows(const EmbeddingTable& table, std::span<const workloads::HotRow> hottest,
                 std::int64_t members, std::optional<Split> split, std::int64_t blocks) {
  struct Way {
    std::vector<workloads::RowShares> blocks;
    double most = 0;
  };
  const auto over = [&](Split by) {
    Way way;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t first = first_row_of(table, b, blocks);
      way.blocks.emplace_back(table.access.get(),
                              RowSplit{.first_row = first,
                                       .rows = first_row_of(table, b + 1, blocks) - first,
                                       .table_rows = table.rows,
                                       .split = by,
                                       .members = members},
                              hottest);
      way.most = std::max(way.most, way.blocks.back().most());
    }
    return way;
  };
  Way best = over(split.value_or(Split::kBlock));
  Split by = split.value_or(Split::kBlock);
  if (!split && !hottest.empty() && members > 1) {
    Way striped = over(Split::kStripe);
    if (clearly_less(striped.most, best.most)) {
      best = std::move(striped);
      by = Split::kStripe;
    }
  }
  std::vector<double> shares;
  for (const workloads::RowShares& block : best.blocks) {
    const std::vector<double> of_block = block.by_member();
    shares.insert(shares.end(), of_block.begin(), of_block.end());
  }
  return {by, spread_of(shares), best.most};
}

Spread spread_of(std::span<const double> shares) {
  constexpr double kAlike = 1.001;
  const double alike = kAlike * *std::min_element(shares.begin(), shares.end());
  double base = 0;
  double count = 0;
  for (const double share : shares) {
    base += share <= alike ? share : 0;
    count += share <= alike ? 1 : 0;
  }
  base /= count;
  const auto members = static_cast<double>(shares.size());
  std::vector<PlacementOption::Skew> skew;
  skew.reserve(shares.size() - static_cast<std::size_t>(count));
  for (std::size_t m = 0; m < shares.size(); ++m) {
    if (shares[m] > alike) {
      skew.push_back(
          {static_cast<std::int32_t>(m), static_cast<float>((shares[m] - base) * members)});
    }
  }
  return {base, members, PlacementOption::Skews(std::move(skew))};
}

void spread_load(PlacementOption& o, const Spread& spread, const std::array<bool, kPhases>& grows,
                 LineFit fit) {
  o.skew = spread.skew;
  for (std::size_t p = 0; p < kPhases && !o.skew.empty(); ++p) {
    if (grows[p]) {
      const bool kernels =
          p == kLookup || p == kGroupLookup || p == kSequenceLookup || p == kUpdate;
      o.skewed[p] = kernels && fit == LineFit::kBelow ? 0 : o.load[p];
      o.load[p] =
          static_cast<Femtoseconds>(static_cast<double>(o.load[p]) * spread.base * spread.members);
    }
  }
}

}  // namespace stepcast::planner::internal
