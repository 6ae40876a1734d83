#include "planner/embedding/internal/annealing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/numbers.h"
#include "core/split_mix.h"

namespace stepcast::planner::internal {
namespace {

constexpr int kTries = 8;                   // draws of a place or piece before a move is given up
constexpr std::uint64_t kMovesAtOnce = 64;  // at one temperature
constexpr std::size_t kRanksTogether = 16;  // ranks whose slowest is kept
constexpr std::uint64_t kDeal = 16;         // one change of so many deals tables anew
constexpr std::size_t kMostDealt = 64;      // tables

using Vector = std::array<double, kPhases>;  // femtoseconds by phase: whole, so sums are exact

void add(Vector& to, double times, const Vector& load) {
  for (std::size_t p = 0; p < kPhases; ++p) {
    to[p] += times * load[p];
  }
}

Vector vector_of(const Load& load) {
  Vector v{};
  for (std::size_t p = 0; p < kPhases; ++p) {
    v[p] = static_cast<double>(load[p]);
  }
  return v;
}

/// An option as the inner loop reads it.
struct Way {
  Vector piece{};  ///< of one piece, on each member
  Vector all{};    ///< on every rank
  /// Beyond that, by position among the members of all pieces.
  std::vector<std::pair<std::int32_t, Vector>> skew;
  double mean = 0;          ///< all phases, averaged over ranks
  std::int32_t pieces = 0;  ///< that have a place; 0 for options on all ranks
  std::int32_t group = 1;
  std::uint32_t routes = 0;
  TierBytes bytes{};
  TierBytes bytes_all{};

  Way(const PlacementOption& o, std::int32_t ranks)
      : all(vector_of(o.everywhere)), group(o.group), routes(o.routes) {
    const bool everywhere = o.group == ranks;
    for (const PlacementOption::Skew& s : o.skew) {
      skew.emplace_back(s.position, vector_of(o.extra(s)));
    }
    bytes_all = o.bytes_everywhere;
    if (everywhere) {
      add(all, o.pieces, vector_of(o.load));
      for (std::size_t t = 0; t < kMaxTiers; ++t) {
        bytes_all[t] += o.pieces * o.bytes[t];
      }
    } else {
      pieces = o.pieces;
      piece = vector_of(o.load);
      bytes = o.bytes;
    }
    const double share = everywhere ? 1 : static_cast<double>(o.pieces);
    for (std::size_t p = 0; p < kPhases; ++p) {
      mean += all[p] + share * o.group / ranks * piece[p];
      for (const auto& [position, extra] : skew) {
        mean += extra[p] / ranks;
      }
    }
  }
};

/// Place of a table.
struct Spot {
  std::int32_t option = 0;
  std::vector<std::int32_t> groups;
};

class State {
 public:
  State(const PlacementProblem& problem, const Placement& from, std::uint64_t seed)
      : problem_(problem),
        random_(seed),
        load_(index(problem.ranks)),
        most_((load_.size() + kRanksTogether - 1) / kRanksTogether),
        stale_(most_.size(), false),
        sums_(load_.size()) {
    for (const TierCapacity& tier : problem.tiers) {
      free_.push_back(tier.capacity);
    }
    uses_.assign(problem.fixed.size(), 0);
    charges_ = static_cast<double>(problem.constant);
    for (std::size_t t = 0; t < from.size(); ++t) {
      auto& ways = ways_.emplace_back();
      for (const PlacementOption& o : problem.tables[t].options) {
        ways.emplace_back(o, problem.ranks);
      }
      at_.push_back({from[t].option, from[t].groups});
      apply(t, 1);
    }
  }

  [[nodiscard]] Placement placement() const {
    Placement all;
    for (const Spot& s : at_) {
      all.push_back({s.option, s.groups});
    }
    return all;
  }

  [[nodiscard]] double objective() {
    const auto raise = [](Vector& to, const Vector& by) {
      for (std::size_t p = 0; p < kPhases; ++p) {
        to[p] = to[p] < by[p] ? by[p] : to[p];
      }
    };
    for (const std::size_t block : changed_blocks_) {
      most_[block] = load_[block * kRanksTogether];
      for (std::size_t r = block * kRanksTogether;
           r < std::min((block + 1) * kRanksTogether, load_.size()); ++r) {
        raise(most_[block], load_[r]);
      }
      stale_[block] = false;
    }
    changed_blocks_.clear();
    Vector most = most_.front();
    for (const Vector& here : most_) {
      raise(most, here);
    }
    double sum = charges_;
    for (std::size_t p = 0; p < kPhases; ++p) {
      sum += most[p] + all_[p];
    }
    return sum;
  }

  /// Changes something at random; false, and nothing changed, where that may not be.
  bool change() {
    changes_ = 0;
    bool made = false;
    if (random() % kDeal == 0) {
      made = deal();
    } else {
      switch (random() % 4) {
        case 0:
          made = change_option();
          break;
        case 1:
          made = move_piece();
          break;
        case 2:
          made = trade_pieces();
          break;
        default:
          made = trade_spots();
      }
    }
    if (made && overfull_ > 0) {
      undo();
      made = false;
    }
    return made;
  }
  void undo() {
    while (changes_ > 0) {
      auto& [t, before] = changed_[--changes_];
      apply(t, -1);
      std::swap(at_[t], before);
      apply(t, 1);
    }
  }
  std::uint64_t random() { return next_split_mix(random_); }

 private:
  [[nodiscard]] const Way& way(std::size_t t) const { return ways_[t][index(at_[t].option)]; }

  void add_to(std::int32_t rank, int sign, const Vector& load) {
    add(load_[index(rank)], sign, load);
    const std::size_t block = index(rank) / kRanksTogether;
    if (!stale_[block]) {
      stale_[block] = true;
      changed_blocks_.push_back(block);
    }
  }

  void apply(std::size_t t, int sign) {
    const Way& w = way(t);
    add(all_, sign, w.all);
    if (w.pieces == 0) {
      for (const auto& [position, extra] : w.skew) {
        add_to(position, sign, extra);
      }
    }
    for (const std::int32_t g : at_[t].groups) {
      for (std::int32_t i = 0; i < w.group; ++i) {
        add_to(g * w.group + i, sign, w.piece);
      }
    }
    for (const auto& [position, extra] : w.skew) {
      if (w.pieces > 0) {
        const std::int32_t g = at_[t].groups[index(position / w.group)];
        add_to(g * w.group + position % w.group, sign, extra);
      }
    }
    for (std::size_t tier = 0; tier < free_.size(); ++tier) {
      take(t, w, tier, sign);
    }
    for (std::size_t f = 0; f < uses_.size(); ++f) {
      if ((w.routes >> f & 1U) != 0) {
        const std::int32_t before = uses_[f];
        uses_[f] += sign;
        charges_ += (before == 0     ? 1
                     : uses_[f] == 0 ? -1
                                     : 0) *
                    static_cast<double>(problem_.fixed[f]);
      }
    }
  }
  void take(std::size_t t, const Way& w, std::size_t tier, int sign) {
    const std::int32_t shared = problem_.tiers[tier].shared_by;
    const auto from = [&](std::size_t unit, std::int64_t bytes) {
      std::int64_t& free = free_[tier][unit];
      overfull_ -= free < 0 ? 1 : 0;
      free -= sign * bytes;
      overfull_ += free < 0 ? 1 : 0;
    };
    for (std::size_t u = 0; w.bytes_all[tier] != 0 && u < free_[tier].size(); ++u) {
      const auto first = static_cast<std::int64_t>(u) * shared;
      from(u, w.bytes_all[tier] * std::min<std::int64_t>(shared, problem_.ranks - first));
    }
    for (const std::int32_t g : at_[t].groups) {
      for (std::int32_t r = g * w.group; w.bytes[tier] != 0 && r < (g + 1) * w.group; ++r) {
        from(index(r / shared), w.bytes[tier]);
      }
    }
  }

  /// Copy of the spot of table t, to be edited and put in its place.
  Spot& edit(std::size_t t) {
    if (changes_ == changed_.size()) {
      changed_.emplace_back();
    }
    auto& [table, spot] = changed_[changes_];
    table = t;
    spot = at_[t];
    return spot;
  }
  void commit() {
    auto& [t, spot] = changed_[changes_++];
    apply(t, -1);
    std::swap(at_[t], spot);
    apply(t, 1);
  }

  [[nodiscard]] double sum(std::int32_t rank) const {
    double all = 0;
    for (const double l : load_[index(rank)]) {
      all += l;
    }
    return all;
  }
  static bool holds(const Spot& s, std::int32_t group) {
    return std::find(s.groups.begin(), s.groups.end(), group) != s.groups.end();
  }
  /// The less loaded of two groups that hold none of it; -1 where none was found.
  std::int32_t place(const Way& w, const Spot& taken) {
    const auto groups = static_cast<std::uint64_t>(problem_.ranks / w.group);
    std::int32_t best = -1;
    for (int tries = 0, found = 0; tries < kTries && found < 2; ++tries) {
      const auto g = static_cast<std::int32_t>(random() % groups);
      if (!holds(taken, g)) {
        ++found;
        best = best < 0 || sum(g * w.group) < sum(best * w.group) ? g : best;
      }
    }
    return best;
  }
  /// A table takes an option, of two drawn the one of less mean load; pieces stay where they are
  /// as far as they go, most times.
  bool change_option() {
    const std::size_t t = random() % at_.size();
    const std::size_t a = random() % ways_[t].size();
    const std::size_t b = random() % ways_[t].size();
    const std::size_t o = ways_[t][a].mean < ways_[t][b].mean ? a : b;
    const Way& w = ways_[t][o];
    if (w.pieces == 0 && o == index(at_[t].option)) {
      return false;
    }
    Spot& to = edit(t);
    if (w.pieces == 0 || way(t).group != w.group || random() % 4 == 0) {
      to.groups.clear();
    }
    to.option = static_cast<std::int32_t>(o);
    while (to.groups.size() > index(w.pieces)) {
      std::swap(to.groups[random() % to.groups.size()], to.groups.back());
      to.groups.pop_back();
    }
    while (to.groups.size() < index(w.pieces)) {
      const std::int32_t g = place(w, to);
      if (g < 0) {
        return false;
      }
      to.groups.push_back(g);
    }
    commit();
    return true;
  }
  /// A table with pieces, and one of these.
  bool draw_piece(std::size_t& t, std::size_t& piece) {
    for (int tries = 0; tries < kTries; ++tries) {
      t = random() % at_.size();
      if (!at_[t].groups.empty()) {
        piece = random() % at_[t].groups.size();
        return true;
      }
    }
    return false;
  }
  bool move_piece() {
    std::size_t t = 0;
    std::size_t piece = 0;
    if (!draw_piece(t, piece)) {
      return false;
    }
    const std::int32_t g = place(way(t), at_[t]);
    if (g < 0) {
      return false;
    }
    edit(t).groups[piece] = g;
    commit();
    return true;
  }
  bool trade_pieces() {
    std::size_t a = 0;
    std::size_t b = 0;
    std::size_t i = 0;
    std::size_t j = 0;
    if (!draw_piece(a, i) || !draw_piece(b, j) || way(a).group != way(b).group) {
      return false;
    }
    if (a == b) {  // only pieces that differ
      if (i == j || way(a).skew.empty()) {
        return false;
      }
      auto& groups = edit(a).groups;
      std::swap(groups[i], groups[j]);
      commit();
      return true;
    }
    const std::int32_t from = at_[a].groups[i];
    const std::int32_t to = at_[b].groups[j];
    if (holds(at_[a], to) || holds(at_[b], from)) {
      return false;
    }
    edit(a).groups[i] = to;
    commit();
    edit(b).groups[j] = from;
    commit();
    return true;
  }
  /// Two tables trade options and places: what is split alike often weighs alike in an exchange.
  bool trade_spots() {
    const std::size_t a = random() % at_.size();
    const std::size_t b = random() % at_.size();
    const std::int32_t of_a = at_[a].option;
    const std::int32_t of_b = at_[b].option;
    const auto has = [&](std::size_t t, std::int32_t o, const Way& like) {
      return index(o) < ways_[t].size() && ways_[t][index(o)].pieces == like.pieces &&
             ways_[t][index(o)].group == like.group;
    };
    if (a == b || (of_a == of_b && way(a).pieces == 0) || !has(a, of_b, way(b)) ||
        !has(b, of_a, way(a))) {
      return false;
    }
    const Spot was = at_[a];
    edit(a) = at_[b];
    commit();
    edit(b) = was;
    commit();
    return true;
  }

  /// Tables in one of two options are dealt anew: some, at random or those that it costs least,
  /// take one, the others the other, and their pieces go where least lies, the heaviest first.
  bool deal() {
    const std::size_t t = random() % at_.size();
    const std::size_t from = index(at_[t].option);
    const std::size_t to = random() % ways_[t].size();
    const std::size_t rest = random() % 2 == 0 ? from : random() % ways_[t].size();
    const auto offers = [&](std::size_t other, std::size_t o) {
      return o < ways_[other].size() && ways_[other][o].pieces == ways_[t][o].pieces &&
             ways_[other][o].group == ways_[t][o].group;
    };
    dealt_.clear();
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const std::size_t o = index(at_[i].option);
      if ((o == from || o == to) && offers(i, to) && offers(i, rest)) {
        dealt_.emplace_back(0, i);
      }
    }
    if (dealt_.size() < 2 || dealt_.size() > kMostDealt) {
      return false;
    }
    const std::size_t many = 1 + random() % dealt_.size();
    const bool cheapest = random() % 2 == 0;
    for (auto& [weight, i] : dealt_) {
      weight = cheapest ? ways_[i][to].mean - ways_[i][rest].mean : unit_interval(random());
    }
    std::sort(dealt_.begin(), dealt_.end());
    for (std::size_t n = 0; n < dealt_.size(); ++n) {
      auto& [weight, i] = dealt_[n];
      edit(i) = at_[i];
      ++changes_;
      apply(i, -1);
      at_[i] = {static_cast<std::int32_t>(n < many ? to : rest), {}};
      weight = std::accumulate(way(i).piece.begin(), way(i).piece.end(), 0.0);
    }
    std::sort(dealt_.rbegin(), dealt_.rend());
    for (std::int32_t rank = 0; rank < problem_.ranks; ++rank) {
      sums_[index(rank)] = sum(rank);
    }
    for (const auto& [weight, i] : dealt_) {
      const Way& w = way(i);
      least_.clear();
      for (std::int32_t g = 0; w.pieces > 0 && g < problem_.ranks / w.group; ++g) {
        least_.emplace_back(sums_[index(g * w.group)], g);
      }
      std::partial_sort(least_.begin(), least_.begin() + w.pieces, least_.end());
      least_.resize(index(w.pieces));
      for (const auto& [load, g] : least_) {
        at_[i].groups.push_back(g);
      }
      apply(i, 1);
      for (const auto& [load, g] : least_) {
        for (std::int32_t rank = g * w.group; rank < (g + 1) * w.group; ++rank) {
          sums_[index(rank)] = sum(rank);
        }
      }
    }
    return true;
  }

  const PlacementProblem& problem_;
  std::uint64_t random_;
  std::vector<std::vector<Way>> ways_;
  std::vector<Vector> load_;  ///< by rank
  std::vector<Vector> most_;  ///< by block of ranks; not where stale
  std::vector<bool> stale_;
  std::vector<std::size_t> changed_blocks_;
  Vector all_{};                                 ///< on every rank
  std::vector<std::vector<std::int64_t>> free_;  ///< bytes, [tier][unit]
  std::int64_t overfull_ = 0;
  std::vector<std::int32_t> uses_;
  double charges_ = 0;
  std::vector<Spot> at_;
  std::vector<std::pair<std::size_t, Spot>> changed_;  ///< the first `changes_` count
  std::size_t changes_ = 0;
  // A deal's weights of pieces with their tables, loads of ranks and of groups.
  std::vector<std::pair<double, std::size_t>> dealt_;
  std::vector<double> sums_;
  std::vector<std::pair<double, std::int32_t>> least_;
};

}  // namespace

Placement Annealing::run(const PlacementProblem& problem, const Placement& from,
                         std::uint64_t seed) const {
  State state(problem, from, seed);
  double at = state.objective();
  Placement best = from;
  double best_objective = at;
  double temperature = hot * at;
  const double fall =
      std::pow(cold / hot, static_cast<double>(kMovesAtOnce) / static_cast<double>(moves + 1));
  for (std::uint64_t move = 0; move < moves; ++move) {
    if (move % kMovesAtOnce == 0) {
      if (stop && stop()) {
        break;
      }
      temperature *= fall;
    }
    if (!state.change()) {
      continue;
    }
    const double now = state.objective();
    const double worse = now - at;
    if (worse > 0 && (worse > 40 * temperature ||
                      std::exp(-worse / temperature) < unit_interval(state.random()))) {
      state.undo();
      continue;
    }
    at = now;
    if (at < best_objective) {
      best_objective = at;
      best = state.placement();
    }
  }
  return best;
}

}  // namespace stepcast::planner::internal
