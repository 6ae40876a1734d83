#include "planner/embedding/internal/phase_items.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

namespace stepcast::planner::internal {
namespace {

constexpr std::size_t kBlock = 64;  // tables that are relaxed together

struct SplitItem {
  PhaseItem item;
  PhaseVector even{};  ///< by phase
};

SplitItem split_item(const PlacementOption& o, std::size_t option, std::int32_t ranks) {
  SplitItem split;
  PhaseItem& item = split.item;
  item.routes = o.routes;
  item.option = static_cast<std::int32_t>(option);
  const bool everywhere = o.group == ranks;
  const double copies = everywhere ? o.pieces : 1;
  const double share = static_cast<double>(o.pieces) * o.group / ranks;
  const Load most_extra = o.most_extra();
  const Load extras = o.sum_of_extras();
  for (std::size_t p = 0; p < kPhases; ++p) {
    const Femtoseconds most = most_extra[p];
    const double sum = load_seconds(extras[p]);
    const double even = everywhere ? copies * load_seconds(o.load[p]) : 0;
    const double mean = share * load_seconds(o.load[p]) + sum / ranks;
    split.even[p] = load_seconds(o.everywhere[p]) + even;
    item.even += split.even[p];
    item.local[p] = std::max(0.0, mean - even);
    item.piece[p] = std::max(0.0, copies * load_seconds(o.load[p] + most) - even);
    item.pieces += item.piece[p];
  }
  return split;
}

bool no_worse(const SplitItem& a, const SplitItem& b) {
  bool better = (a.item.routes & ~b.item.routes) == 0;
  for (std::size_t p = 0; p < kPhases && better; ++p) {
    better = a.even[p] <= b.even[p] && a.even[p] + a.item.local[p] <= b.even[p] + b.item.local[p] &&
             a.even[p] + a.item.piece[p] <= b.even[p] + b.item.piece[p];
  }
  return better;
}

/// Whether `a` costs no more than `b`, whatever the weights:
///
///   even_a - even_b + max over 0 <= w <= 1 of  sum over phases of  w (local_a - local_b)  <=  0
bool undercuts(const PhaseItem& a, const PhaseItem& b) {
  double most = a.even - b.even;
  for (std::size_t p = 0; p < kPhases; ++p) {
    most += std::max(0.0, a.local[p] - b.local[p]);
  }
  return most <= 0;
}

std::vector<PhaseItem> items_of(const PlacementProblem& problem, const PlacementTable& table) {
  std::vector<SplitItem> kept;
  const std::int32_t ranks = problem.ranks;
  for (std::size_t o = 0; o < table.options.size(); ++o) {
    if (left_out(problem, table, table.options[o])) {
      continue;
    }
    const SplitItem item = split_item(table.options[o], o, ranks);
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const SplitItem& other) { return no_worse(other, item); })) {
      std::erase_if(kept, [&](const SplitItem& other) { return no_worse(item, other); });
      kept.push_back(item);
    }
  }
  std::vector<PhaseItem> items;
  std::transform(kept.begin(), kept.end(), std::back_inserter(items),
                 [](const SplitItem& split) { return split.item; });
  return items;
}

}  // namespace

PhaseItems::PhaseItems(const PlacementProblem& problem, std::size_t few)
    : blocks_(problem.tables.size() > few) {
  for (const PlacementTable& table : problem.tables) {
    tables_.push_back(items_of(problem, table));
    for (const PhaseItem& item : tables_.back()) {
      routes_ |= item.routes;
      for (std::size_t p = 0; p < kPhases; ++p) {
        pieces_[p].push_back(item.piece[p]);
      }
    }
  }
  for (std::vector<double>& pieces : pieces_) {
    std::sort(pieces.begin(), pieces.end());
    pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
  }
}

std::pair<double, double> PhaseItems::pieces_around(std::size_t phase, double seconds) const {
  const std::vector<double>& pieces = pieces_[phase];
  const auto next = std::upper_bound(pieces.begin(), pieces.end(), seconds);
  return {next == pieces.begin() ? 0 : *std::prev(next),
          next == pieces.end() ? std::numeric_limits<double>::infinity() : *next};
}

/// The item of a table that undercuts all others on these routes; null where there is none.
const PhaseItem* PhaseItems::cheapest(std::size_t table, std::uint32_t routes) const {
  const PhaseItem* best = nullptr;
  const auto& items = tables_[table];
  for (const PhaseItem& item : items) {
    if ((item.routes & ~routes) == 0 && (best == nullptr || !undercuts(*best, item))) {
      best = &item;
    }
  }
  const bool all = std::all_of(items.begin(), items.end(), [&](const PhaseItem& item) {
    return (item.routes & ~routes) != 0 || undercuts(*best, item);
  });
  return all ? best : nullptr;
}

const PhaseItems::Grouped& PhaseItems::grouped(std::uint32_t routes) {
  const auto known = grouped_.find(routes);
  if (known != grouped_.end()) {
    return known->second;
  }
  Grouped& to = grouped_[routes];
  std::vector<std::pair<std::size_t, const PhaseItem*>> sure;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (const PhaseItem* item = blocks_ ? cheapest(t, routes) : nullptr; item != nullptr) {
      sure.emplace_back(t, item);
    } else {
      to.others.push_back(t);
    }
  }
  const auto size = [](const PhaseItem& item) {
    return std::accumulate(item.piece.begin(), item.piece.end(), 0.0);
  };
  std::stable_sort(sure.begin(), sure.end(),
                   [&](const auto& a, const auto& b) { return size(*a.second) < size(*b.second); });
  for (const auto& [table, item] : sure) {
    if (to.blocks.empty() || to.blocks.back().tables.size() == kBlock) {
      to.blocks.emplace_back();
    }
    Block& block = to.blocks.back();
    block.tables.emplace_back(table, item);
    block.even += item->even;
    for (std::size_t p = 0; p < kPhases; ++p) {
      block.local[p] += item->local[p];
      block.piece[p] = std::max(block.piece[p], item->piece[p]);
    }
  }
  return to;
}

}  // namespace stepcast::planner::internal
