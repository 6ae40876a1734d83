#include "planner/embedding/internal/rebalance.h"

#include <algorithm>

#include "core/numbers.h"

namespace stepcast::planner::internal {
namespace {

constexpr std::int32_t kAllPartners = 64;  // ranks: beyond, some are asked in turn
constexpr std::size_t kMostPieces = 24;    // of a rank that are considered
constexpr std::size_t kTried = 3;          // exchanges tried where a capacity forbids the first

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
    to.push_back({t, &o});
  }
}

void Rebalance::bundles_of(const std::vector<Piece>& pieces, std::size_t measure,
                           std::vector<Bundle>& to) {
  const auto load = [measure](const Piece& p) {
    return measure == kPhases ? total(p.option->load) : p.option->load[measure];
  };
  to.clear();
  to.push_back({});
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& a = pieces[i];
    to.push_back({load(a), a.option, nullptr, a.table, -1});
    for (std::size_t j = i + 1; j < pieces.size(); ++j) {
      const Piece& b = pieces[j];
      to.push_back({load(a) + load(b), a.option, b.option, a.table, b.table});
    }
  }
  std::sort(to.begin(), to.end(), [](const Bundle& a, const Bundle& b) {
    return a.load != b.load     ? a.load < b.load
           : a.first != b.first ? a.first < b.first
                                : a.second < b.second;
  });
}

void Rebalance::find_slowest() {
  for (const std::size_t p : state_.measures()) {
    if (p == kPhases) {
      continue;
    }
    auto& top = slowest_[p];
    top = {-1, -1, -1};
    for (std::int32_t r = 0; r < state_.problem().ranks; ++r) {
      const Femtoseconds load = state_.own_load(r, p);
      std::int32_t candidate = r;
      for (std::int32_t& at : top) {
        if (at < 0 ||
            (candidate == r ? load : state_.own_load(candidate, p)) > state_.own_load(at, p)) {
          std::swap(at, candidate);
        }
        if (candidate < 0) {
          break;
        }
      }
    }
  }
}

void Rebalance::consider(std::size_t measure, std::int32_t rank, std::int32_t partner,
                         std::vector<Exchange>& found) {
  const Femtoseconds own = state_.own_load(rank, measure);
  const Femtoseconds other = state_.own_load(partner, measure);
  Load others{};  // of the other ranks
  Femtoseconds before = 0;
  Femtoseconds least = 0;  // after any exchange of the two
  for (const std::size_t p : state_.measures()) {
    if (p == kPhases) {
      continue;
    }
    for (const std::int32_t r : slowest_[p]) {
      if (r >= 0 && r != rank && r != partner) {
        others[p] = state_.own_load(r, p);
        break;
      }
    }
    before += std::max({others[p], state_.own_load(rank, p), state_.own_load(partner, p)});
    const Femtoseconds both = state_.own_load(rank, p) + state_.own_load(partner, p);
    least += std::max(others[p], both / 2);
  }
  if (before == least || before - least < most_gain_) {
    return;
  }
  pieces_of(rank, partner, mine_);
  pieces_of(partner, rank, theirs_);
  bundles_of(mine_, measure, give_);
  bundles_of(theirs_, measure, take_);
  std::optional<Exchange> best;
  // Moving `net` away leaves max(own - net, other + net): for each bundle given, what is taken is
  // one of those whose net is nearest to half the difference.
  std::size_t j = 0;
  for (const Bundle& g : give_) {
    while (j + 1 < take_.size() && g.load - take_[j].load > (own - other) / 2) {
      ++j;
    }
    for (std::size_t k = j > 1 ? j - 2 : 0; k < std::min(j + 2, take_.size()); ++k) {
      const Femtoseconds net = g.load - take_[k].load;
      const Femtoseconds slower = std::max(own - net, other + net);
      if (slower >= own) {
        continue;
      }
      Femtoseconds after = 0;
      for (const std::size_t p : state_.measures()) {
        if (p != kPhases) {
          const Femtoseconds moved = g.in(p)-take_[k].in(p);
          after += std::max(
              {others[p], state_.own_load(rank, p) - moved, state_.own_load(partner, p) + moved});
        }
      }
      const Exchange e{before - after, slower, partner, g, take_[k]};
      if (e.gain > 0 && (!best || e.better_than(*best))) {
        best = e;
      }
    }
  }
  if (best) {
    found.push_back(*best);
    most_gain_ = std::max(most_gain_, best->gain);
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

bool Rebalance::improve(std::size_t measure, std::uint64_t& cursor) {
  const std::int32_t ranks = state_.problem().ranks;
  const std::int32_t rank = state_.busiest(measure);
  std::vector<Exchange> found;
  most_gain_ = 0;
  const std::int32_t asked = std::min(ranks, kAllPartners);
  for (std::int32_t i = 0; i < asked; ++i) {
    const auto partner = static_cast<std::int32_t>((cursor + static_cast<std::uint64_t>(i)) %
                                                   static_cast<std::uint64_t>(ranks));
    if (partner != rank) {
      consider(measure, rank, partner, found);
    }
  }
  cursor += ranks > kAllPartners ? static_cast<std::uint64_t>(asked) : 0;
  std::stable_sort(found.begin(), found.end(),
                   [](const Exchange& a, const Exchange& b) { return a.better_than(b); });
  found.resize(std::min(found.size(), kTried));
  return std::any_of(found.begin(), found.end(), [&](const Exchange& e) { return apply(rank, e); });
}

bool Rebalance::run(Femtoseconds enough, std::uint64_t& cursor, std::uint64_t most) {
  bool gained = false;
  bool again = true;
  const std::uint64_t before = state_.evaluations();
  while (again && state_.objective() > enough && state_.evaluations() - before <= most) {
    find_slowest();
    again = std::any_of(state_.measures().rbegin(), state_.measures().rend(),
                        [&](std::size_t measure) { return improve(measure, cursor); });
    gained = gained || again;
  }
  return gained;
}

}  // namespace stepcast::planner::internal
