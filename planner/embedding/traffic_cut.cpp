#include "planner/embedding/traffic_cut.h"

#include <array>

#include "planner/embedding/row_tiers.h"

namespace stepcast::planner {

TrafficCut traffic_cut(const Access& access, double lookups, const TrafficQuestion& q) {
  const double v = q.row.base();
  // Per row: copies cost their sync, one copy costs every access.
  const std::array<RowLevel, 2> between{
      {{0, 2 * (q.nodes - 1) * v / q.sync_every, 0}, {2 * (q.nodes - 1) / q.nodes * v, 0, 0}}};
  const std::array<RowLevel, 2> inside{{{0, 2 * (q.per_node - 1) * q.nodes * v / q.sync_every, 0},
                                        {2 * (q.per_node - 1) / q.per_node * v, 0, 0}}};
  TrafficCut t;
  t.above_node = level_thresholds(between, {}, 0)[0];
  t.above_everywhere = q.per_node > 1 ? level_thresholds(inside, {}, 0)[0] : t.above_node;
  const RowTierCut cut =
      cut_rows(access, lookups, std::array{t.above_everywhere, t.above_node, -1.0});
  t.rows_everywhere = static_cast<double>(cut.ends[0]);
  t.rows_node = static_cast<double>(cut.ends[1] - cut.ends[0]);
  t.saved = cut.accesses[0] + cut.accesses[1];
  t.sync = (t.rows_node + t.rows_everywhere) * q.nodes / (q.sync_every * lookups);
  t.all_to_all = q.row * (2 * (q.nodes - 1) / q.nodes * lookups / (q.nodes * q.per_node));
  t.copies = q.row * (t.rows_everywhere + t.rows_node / q.per_node);
  return t;
}

}  // namespace stepcast::planner
