#include "planner/internal/hot_rows.h"

#include <algorithm>

namespace stepcast::planner::internal {

HotRows hot_rows(const EmbeddingTable& table, std::span<const workloads::HotRow> hottest,
                 std::int64_t members, std::optional<Split> split) {
  const auto over = [&](Split by) {
    return HotRows{by, workloads::RowShares(table.access.get(),
                                            {.first_row = 0,
                                             .rows = table.rows,
                                             .table_rows = table.rows,
                                             .split = by,
                                             .members = members},
                                            hottest)};
  };
  HotRows best = over(split.value_or(Split::kBlock));
  if (!split && !hottest.empty()) {
    HotRows striped = over(Split::kStripe);
    if (striped.shares.most() < best.shares.most()) {
      return striped;
    }
  }
  return best;
}

void spread_by_shares(PlacementOption& o, std::span<const double> shares,
                      const std::array<bool, kPhases>& grows) {
  constexpr double kAlike = 1.001;
  const double alike = kAlike * *std::min_element(shares.begin(), shares.end());
  double base = 0;
  double count = 0;
  for (const double share : shares) {
    base += share <= alike ? share : 0;
    count += share <= alike ? 1 : 0;
  }
  base /= count;
  const auto members = static_cast<double>(shares.size());  // priced: one of so many equal shares
  for (std::size_t m = 0; m < shares.size(); ++m) {
    if (shares[m] > alike) {
      o.skew.push_back(
          {static_cast<std::int32_t>(m), static_cast<float>((shares[m] - base) * members)});
    }
  }
  for (std::size_t p = 0; p < kPhases && !o.skew.empty(); ++p) {
    if (grows[p]) {
      o.skewed[p] = o.load[p];
      o.load[p] = static_cast<Ticks>(static_cast<double>(o.load[p]) * base * members);
    }
  }
}

}  // namespace stepcast::planner::internal
