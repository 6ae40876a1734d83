#include "planner/embedding/internal/whole_table_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/numbers.h"
#include "planner/embedding/internal/hot_rows.h"

namespace stepcast::planner::internal {

WholeTableOptions::WholeTableOptions(const Job& job, std::size_t table,
                                     const EmbeddingPrices& prices, const RoutePrices& routes,
                                     std::optional<Split> row_split)
    : PricedTable(job, table, prices, routes),
      row_split_(row_split),
      lists_(workloads::list_shares(job, table_)) {}

/// Share of the table's lists that is left if distinct ones are pooled once, split over `members`
/// ranks; all of them where that does not pay.
workloads::ListShares WholeTableOptions::lists_over(std::int64_t members) const {
  return workloads::pays_to_pool_once(job_, lists_, members, job_.devices)
             ? lists_
             : workloads::ListShares{};
}

/// `share` of the lookups go to each piece: all to a part of the columns, which sends ids of its
/// own.
void WholeTableOptions::set_bytes(PlacementOption& o, const HeldPiece& piece, double share) const {
  o.bytes[0] = rounded_up(held_bytes(job_, table_, piece).total());
  const double listed = lists_.lists * real(piece.group);
  HeldPiece sent = piece;
  sent.share = share;
  o.bytes_everywhere[0] = o.pieces * rounded_up(arriving_bytes(job_, table_, sent, listed));
}

/// The route's charges; where rows arrive as lists, their pooling on every rank. Each holder of a
/// piece that pools distinct lists once sends its sum of them.
void WholeTableOptions::add_route(PlacementOption& o, const HeldPiece& piece) const {
  o.routes = routes_.charges(piece.route, piece.group);
  if (is_sequence(piece.route)) {
    const double local = real(job_.batch.global) / real(job_.devices);
    const double rows = piece.pools_lists_once ? real(piece.group) : table_.pooling;
    const auto [forward, backward] =
        routes_.pool_rows(local * rows * real(table_.dim), local * real(table_.output_columns()));
    o.everywhere[kSequenceExchange] += to_load(forward + backward);
  }
}

PlacementOption WholeTableOptions::replicated() const {
  const double local = real(job_.batch.global) / real(job_.devices);
  PlacementOption o;
  o.group = static_cast<std::int32_t>(job_.devices);
  const double looked_up =
      local * (workloads::pays_to_pool_locally(lists_, table_) ? lists_.ids : 1);
  const EmbeddingPrices::Lookups lookups{t_, looked_up, 1, table_.dim, false};
  o.load[kLookup] = to_load(prices_.forward(lookups, routes_.fit()));
  if (job_.devices == 1) {
    o.load[kUpdate] = to_load(prices_.backward(lookups, routes_.fit()));
  } else {
    const double elements = real(table_.rows) * real(table_.dim);
    o.load[kUpdate] = to_load(prices_.gradient(lookups, routes_.fit()) +
                              routes_.replica_update(elements, table_.dim) / real(job_.sync_interval));
    o.synchronised = to_load(routes_.replica_sync(elements, job_.devices, 1) / real(job_.sync_interval));
    o.load[kExchange] = o.synchronised;
  }
  const HeldPiece piece{job_.devices == 1 ? EmbeddingRoute::kLocal : EmbeddingRoute::kReplicated,
                        table_.rows, table_.dim};
  add_route(o, piece);
  set_bytes(o, piece);
  return o;
}

PlacementOption WholeTableOptions::columns(std::int64_t parts) const {
  const double global = real(job_.batch.global);
  const std::int64_t width = table_.dim / parts;
  const workloads::ListShares lists = lists_over(1);
  const bool once = lists.lists < 1;
  const EmbeddingRoute route =
      unpooled() || once ? EmbeddingRoute::kSequence : EmbeddingRoute::kExchange;
  PlacementOption o;
  o.pieces = static_cast<std::int32_t>(parts);
  o.label = parts > 1 ? fmt::format("column_wise x{}", parts) : "";
  const double asked = travelling();
  const EmbeddingPrices::Lookups lookups{t_, global * lists.ids, asked, width, unpooled()};
  const double ids = global * table_.pooling * asked * lists.ids;
  const double bags = global * real(table_.feature_count());
  const double sent = (unpooled() ? ids : bags * lists.lists) * real(width);
  o.load[kArrival] = to_load(routes_.ids(table_, ids) + routes_.lengths(bags));
  o.load[lookup_phase(route)] = to_load(prices_.forward(lookups, routes_.fit()));
  o.load[exchange_phase(route)] = to_load(routes_.exchange(route, sent));
  o.load[kUpdate] = to_load(prices_.backward(lookups, routes_.fit()));
  const HeldPiece piece{route, table_.rows, width, 1, 1, once};
  add_route(o, piece);
  set_bytes(o, piece);
  return o;
}

WholeTableOptions::SplitRows WholeTableOptions::split_rows(std::int64_t group,
                                                           std::int64_t blocks) const {
  const double global = real(job_.batch.global);
  const bool all = group == job_.devices;
  const double share = 1 / real(group * blocks);
  PlacementOption o;
  o.group = static_cast<std::int32_t>(group);
  o.pieces = static_cast<std::int32_t>(blocks);
  if (blocks > 1) {
    o.label = group > 1 ? fmt::format("row_blocks x{} over {}", blocks, group)
                        : fmt::format("row_blocks x{}", blocks);
  } else if (!all) {
    o.label = fmt::format("table_row_wise over {}", group);
  }
  const HotRows& hot = prices_.hot_rows(t_, group, row_split_, blocks);
  const workloads::ListShares lists = blocks > 1 ? workloads::ListShares{} : lists_over(group);
  const bool once = lists.lists < 1;
  const EmbeddingRoute route = unpooled() || once ? EmbeddingRoute::kSequence
                               : all              ? EmbeddingRoute::kReduce
                               : group == 1       ? EmbeddingRoute::kExchange
                                                  : EmbeddingRoute::kNodeReduce;
  const double asked = share * travelling();
  const EmbeddingPrices::Lookups lookups{t_, global * lists.ids, asked, table_.dim, unpooled()};
  const double arriving = global * table_.pooling * asked * lists.ids;
  const double bags = global * real(table_.feature_count());
  const double sent = (unpooled() ? arriving : bags * lists.lists) * real(table_.dim);
  o.load[kArrival] = to_load(routes_.ids(table_, arriving));
  o.load[lookup_phase(route)] = to_load(prices_.forward(lookups, routes_.fit()));
  const double inside =
      route == EmbeddingRoute::kNodeReduce ? routes_.reduce_inside(sent, group) : 0;
  o.load[exchange_phase(route)] = to_load(routes_.exchange(route, sent, group) - inside);
  o.load[kUpdate] = to_load(prices_.backward(lookups, routes_.fit()));
  if (!(unpooled() && job_.embedding_dedup)) {  // a hot row travels once a rank
    std::array<bool, kPhases> grows{};
    grows.fill(true);
    grows[kGroupExchange] = grows[kExchange] = false;
    grows[kSequenceExchange] = !once;
    spread_load(o, hot.spread, grows, routes_.fit());
  }
  o.load[kArrival] += to_load(routes_.lengths(bags));  // as many for every member
  o.load[kGroupLookup] += to_load(inside);
  const std::int64_t block = (table_.rows + blocks - 1) / blocks;
  const std::int64_t rows = (block + group - 1) / group;
  const HeldPiece piece{route, rows, table_.dim, std::max(share, hot.most), group, once};
  add_route(o, piece);
  set_bytes(o, piece, 1 / real(blocks));
  return {std::move(o), hot.split};
}

}  // namespace stepcast::planner::internal
