#include "planner/internal/rebalance.h"

#include <algorithm>

namespace stepcast::planner::internal {
namespace {

constexpr std::int32_t kAllPartners = 64;  // ranks: beyond, some are asked in turn
constexpr std::size_t kMostPieces = 24;    // of a rank that take part
constexpr std::size_t kTried = 3;          // exchanges tried where capacities stand in the way

std::size_t index(std::int32_t v) { return static_cast<std::size_t>(v); }

}  // namespace

void Rebalance::pieces_of(std::int32_t rank, std::int32_t other, std::vector<Piece>& to) const {
  to.clear();
  for (const std::int32_t t : state_.tables_on(rank)) {
    const Choice& c = state_.placement()[index(t)];
    const PlacementOption& o = state_.problem().tables[index(t)].options[index(c.option)];
    if (o.group != 1 || !o.skew.empty() || to.size() == kMostPieces ||
        std::find(c.groups.begin(), c.groups.end(), other) != c.groups.end()) {
      continue;
    }
    to.push_back({t, o.load[kLookup] + o.load[kOutput] + o.load[kUpdate]});
  }
}

void Rebalance::bundles_of(const std::vector<Piece>& pieces, std::vector<Bundle>& to) {
  to.clear();
  to.push_back({});
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    to.push_back({pieces[i].load, pieces[i].table, -1});
    for (std::size_t j = i + 1; j < pieces.size(); ++j) {
      to.push_back({pieces[i].load + pieces[j].load, pieces[i].table, pieces[j].table});
    }
  }
  std::sort(to.begin(), to.end(), [](const Bundle& a, const Bundle& b) {
    return a.load != b.load     ? a.load < b.load
           : a.first != b.first ? a.first < b.first
                                : a.second < b.second;
  });
}

void Rebalance::consider(std::int32_t rank, std::int32_t partner, std::vector<Exchange>& found) {
  const Ticks own = state_.group_total(rank, 1);
  const Ticks other = state_.group_total(partner, 1);
  pieces_of(rank, partner, mine_);
  pieces_of(partner, rank, theirs_);
  bundles_of(mine_, give_);
  bundles_of(theirs_, take_);
  std::optional<Exchange> best;
  // Moving `net` away leaves max(own - net, other + net): for each bundle given, what is taken is
  // the one whose net is nearest to half the difference.
  std::size_t j = 0;
  for (const Bundle& g : give_) {
    while (j + 1 < take_.size() && g.load - take_[j].load > (own - other) / 2) {
      ++j;
    }
    for (const std::size_t k : {j > 0 ? j - 1 : j, j}) {
      const Ticks net = g.load - take_[k].load;
      const Ticks slower = std::max(own - net, other + net);
      if (slower < own && (!best || slower < best->slower)) {
        best = Exchange{slower, partner, g, take_[k]};
      }
    }
  }
  if (best) {
    found.push_back(*best);
  }
}

void Rebalance::change(std::int32_t table, std::int32_t from, std::int32_t to) {
  if (table < 0) {
    return;
  }
  Choice c = state_.placement()[index(table)];
  state_.remove(index(table));
  std::replace(c.groups.begin(), c.groups.end(), from, to);
  state_.add(index(table), std::move(c));
}

bool Rebalance::apply(std::int32_t rank, const Exchange& e) {
  const auto both = [&](std::int32_t from, std::int32_t to) {
    change(e.give.first, from, to);
    change(e.give.second, from, to);
    change(e.take.first, to, from);
    change(e.take.second, to, from);
  };
  const bool fitted = state_.fits();
  both(rank, e.partner);
  if (state_.fits() || !fitted) {
    return true;
  }
  both(e.partner, rank);
  return false;
}

bool Rebalance::run(Ticks enough, std::uint64_t& cursor) {
  const std::int32_t ranks = state_.problem().ranks;
  bool gained = false;
  std::vector<Exchange> found;
  while (state_.objective() > enough) {
    const std::int32_t rank = state_.busiest(kPhases);
    found.clear();
    const std::int32_t asked = std::min(ranks, kAllPartners);
    for (std::int32_t i = 0; i < asked; ++i) {
      const auto partner = static_cast<std::int32_t>((cursor + static_cast<std::uint64_t>(i)) %
                                                     static_cast<std::uint64_t>(ranks));
      if (partner != rank) {
        consider(rank, partner, found);
      }
    }
    cursor += ranks > kAllPartners ? static_cast<std::uint64_t>(asked) : 0;
    std::stable_sort(found.begin(), found.end(),
                     [](const Exchange& a, const Exchange& b) { return a.slower < b.slower; });
    found.resize(std::min(found.size(), kTried));
    if (std::none_of(found.begin(), found.end(),
                     [&](const Exchange& e) { return apply(rank, e); })) {
      return gained;
    }
    gained = true;
  }
  return gained;
}

}  // namespace stepcast::planner::internal
