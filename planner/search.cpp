#include "planner/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "core/error.h"
#include "planner/internal/branch_and_bound.h"
#include "planner/internal/local_search.h"
#include "planner/placement_state.h"

namespace stepcast::planner {
namespace {

/// Placements of a table tried in the hope of a proof.
constexpr std::uint64_t kProofSteps = 200'000;
constexpr std::uint64_t kCertainSteps = 4'000'000;  // for spaces that this surely exhausts
constexpr double kCertainSpace = 1e9;               // placements, before any are cut off
constexpr double kProofTables = 12;
constexpr double kFewTables = 6;           // times the effort, where an evaluation costs little
constexpr std::size_t kLargeTables = 100;  // one per cent of the bound is good enough
constexpr double kDecisive = 0.3;          // of the bound: load of the table's cheapest option
constexpr std::size_t kHomes = 3;          // local optima that kicks start from

/// Load of an option averaged over ranks, all phases, and its bytes as a share of all memory.
struct Price {
  double mean = 0;
  double memory = 0;
  double piece = 0;
};

std::vector<std::vector<Price>> prices_of(const PlacementProblem& problem) {
  std::vector<double> capacity;
  for (const TierCapacity& tier : problem.tiers) {
    capacity.push_back(std::accumulate(tier.capacity.begin(), tier.capacity.end(), 1.0));
  }
  std::vector<std::vector<Price>> prices;
  for (const PlacementTable& table : problem.tables) {
    auto& row = prices.emplace_back();
    for (const PlacementOption& o : table.options) {
      Price p;
      const double share = static_cast<double>(o.pieces) * o.group / problem.ranks;
      for (std::size_t phase = 0; phase < kPhases; ++phase) {
        double load = load_seconds(o.load[phase]);
        for (const Load& extra : o.skew) {
          load += load_seconds(extra[phase]) / o.group;
        }
        p.mean += share * load + load_seconds(o.everywhere[phase]);
      }
      for (std::size_t t = 0; t < problem.tiers.size(); ++t) {
        p.memory = std::max(p.memory, problem.ranks *
                                          (share * static_cast<double>(o.bytes[t]) +
                                           static_cast<double>(o.bytes_everywhere[t])) /
                                          capacity[t]);
      }
      p.piece = load_seconds(o.piece_total());
      row.push_back(p);
    }
  }
  return prices;
}

/// The cheapest option of each table whose piece stays under a threshold; the smallest piece where
/// none does.
std::vector<std::int32_t> cheapest(const std::vector<std::vector<Price>>& prices, double threshold,
                                   double memory_price) {
  std::vector<std::int32_t> choose;
  for (const auto& row : prices) {
    std::size_t best = 0;
    for (std::size_t o = 1; o < row.size(); ++o) {
      const bool under = row[o].piece <= threshold;
      const bool best_under = row[best].piece <= threshold;
      const double cost = row[o].mean + memory_price * row[o].memory;
      const double best_cost = row[best].mean + memory_price * row[best].memory;
      if (under != best_under ? under : under ? cost < best_cost : row[o].piece < row[best].piece) {
        best = o;
      }
    }
    choose.push_back(static_cast<std::int32_t>(best));
  }
  return choose;
}

}  // namespace

double SearchResult::gap() const {
  return best.empty() ? std::numeric_limits<double>::infinity()
                      : static_cast<double>(best.front().first) /
                                static_cast<double>(std::max<Ticks>(bound.value, 1)) -
                            1;
}

bool place_greedily(PlacementState& state, const std::vector<std::int32_t>& choose) {
  const PlacementProblem& problem = state.problem();
  std::vector<std::size_t> order(problem.tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto option = [&](std::size_t t) -> const PlacementOption& {
    return problem.tables[t].options[static_cast<std::size_t>(choose[t])];
  };
  // What lies on all ranks first: it takes room everywhere.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool all_a = option(a).group == problem.ranks;
    const bool all_b = option(b).group == problem.ranks;
    return all_a != all_b ? all_a : option(a).piece_total() > option(b).piece_total();
  });
  for (const std::size_t t : order) {
    state.add(t, {choose[t], state.least_loaded(option(t))});
  }
  return state.fits();
}

std::optional<Shortage> shortage_of(const PlacementProblem& problem) {
  const auto capacity_of = [&](std::size_t tier) {
    const auto& c = problem.tiers[tier].capacity;
    return *std::max_element(c.begin(), c.end());
  };
  // With one tier the needs of tables add up; with several each table may use another.
  std::vector<std::int64_t> least(problem.tiers.size(), 0);
  for (const PlacementTable& table : problem.tables) {
    std::optional<Shortage> closest;
    bool possible = table.options.empty();
    std::vector<std::int64_t> smallest(problem.tiers.size(),
                                       std::numeric_limits<std::int64_t>::max());
    for (const PlacementOption& o : table.options) {
      std::optional<Shortage> lacks;
      for (std::size_t t = 0; t < problem.tiers.size(); ++t) {
        const std::int32_t shared = problem.tiers[t].shared_by;
        const bool all = o.group == problem.ranks;
        const std::int64_t members = std::min({shared, o.group, problem.ranks});
        const std::int64_t need = members * o.bytes[t] * (all ? o.pieces : 1) +
                                  std::min(shared, problem.ranks) * o.bytes_everywhere[t];
        if (need > capacity_of(t) && (!lacks || need - capacity_of(t) > lacks->missing())) {
          lacks = Shortage{table.name, problem.tiers[t].name, need, capacity_of(t)};
        }
        const std::int64_t whole = static_cast<std::int64_t>(o.pieces) * o.group * o.bytes[t] +
                                   problem.ranks * o.bytes_everywhere[t];
        smallest[t] = std::min(smallest[t], whole);
      }
      possible = possible || !lacks;
      if (lacks && (!closest || lacks->missing() < closest->missing())) {
        closest = lacks;
      }
    }
    if (!possible) {
      return closest;
    }
    for (std::size_t t = 0; t < least.size(); ++t) {
      least[t] += smallest[t];
    }
  }
  for (std::size_t t = 0; t < least.size(); ++t) {
    const auto& c = problem.tiers[t].capacity;
    const std::int64_t sum = std::accumulate(c.begin(), c.end(), std::int64_t{0});
    if (least[t] > sum) {
      return Shortage{"", problem.tiers[t].name, least[t], sum};
    }
  }
  return std::nullopt;
}

namespace {

/// Number of placements.
double space_of(const PlacementProblem& problem) {
  double space = 1;
  for (const PlacementTable& table : problem.tables) {
    double ways = 0;
    for (const PlacementOption& o : table.options) {
      double choices = 1;
      const std::int32_t groups = problem.ranks / o.group;
      for (std::int32_t p = 0; p < o.pieces && groups > 1; ++p) {
        choices *= static_cast<double>(groups - p) / (p + 1);
      }
      ways += choices;
    }
    space *= ways;
  }
  return space;
}

struct Start {
  Ticks objective;
  std::vector<std::int32_t> choose;
};

/// Greedy starts: thresholds from pieces of the whole bound down to a hundredth; a price on memory
/// where what is cheapest does not fit.
std::vector<Start> greedy_starts(const PlacementProblem& problem, double scale,
                                 internal::Budget& budget, internal::Incumbents& incumbents) {
  const auto prices = prices_of(problem);
  std::vector<Start> starts;
  std::set<std::vector<std::int32_t>> seen;
  const double step = problem.tables.size() > kLargeTables ? 0.25 : 0.62;
  for (double memory_price = 0; memory_price < 1e6 * scale && starts.empty();
       memory_price = memory_price == 0 ? 0.01 * scale : memory_price * 8) {
    for (double threshold = scale; threshold > 0.005 * scale; threshold *= step) {
      std::vector<std::int32_t> choose = cheapest(prices, threshold, memory_price);
      if (!seen.insert(choose).second || (budget.spent() && !starts.empty())) {
        continue;
      }
      PlacementState state(problem);
      if (place_greedily(state, choose)) {
        starts.push_back({state.objective(), std::move(choose)});
        incumbents.offer(state);
      }
      budget.add(state.evaluations());
    }
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Start& x, const Start& y) { return x.objective < y.objective; });
  return starts;
}

/// Starts, descents, kicks on one problem.
void explore(const PlacementProblem& problem, const SearchOptions& options, double scale,
             Ticks enough, std::size_t descents, std::size_t homes_kicked, double share,
             internal::Budget& budget, internal::Incumbents& incumbents) {
  std::vector<Start> starts = greedy_starts(problem, scale, budget, incumbents);
  internal::LocalSearch local(problem, options.seed, enough, budget, incumbents);
  if (starts.empty()) {
    local.repair(cheapest(prices_of(problem), std::numeric_limits<double>::infinity(), 1e9));
    return;
  }
  if (starts.size() > descents) {
    starts.resize(descents);
  }
  std::vector<std::pair<Ticks, Placement>> homes;
  for (const Start& start : starts) {
    if (budget.spent()) {
      break;
    }
    PlacementState state(problem);
    place_greedily(state, start.choose);
    local.descend(state);
    homes.emplace_back(state.objective(), state.placement());
  }
  std::stable_sort(homes.begin(), homes.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  homes_kicked = std::min(homes.size(), homes_kicked);
  for (std::size_t h = 0; h < homes_kicked && incumbents.best() > enough; ++h) {
    local.kick(homes[h].second, share / static_cast<double>(homes_kicked));
  }
}

/// The table of largest cheapest mean load, where a piece of it is a good part of the bound: its
/// option decides what the others can do, and local search rarely changes it.
std::optional<std::size_t> decisive_table(const PlacementProblem& problem, double bound) {
  const auto prices = prices_of(problem);
  std::size_t heaviest = 0;
  double most = -1;
  for (std::size_t t = 0; t < prices.size(); ++t) {
    double least = std::numeric_limits<double>::infinity();
    for (const Price& p : prices[t]) {
      least = std::min(least, p.mean);
    }
    if (least > most && problem.tables[t].options.size() > 1) {
      most = least;
      heaviest = t;
    }
  }
  const bool decides = most * problem.ranks > kDecisive * bound;
  return decides ? std::optional(heaviest) : std::nullopt;
}

/// Explores the options of the decisive table one by one, by rising bound; what cannot beat the
/// best in hand is left out. The bound of the whole is the least of the options' bounds.
void explore_options(const PlacementProblem& problem, const SearchOptions& options,
                     std::size_t table, Ticks enough, internal::Budget& budget,
                     internal::Incumbents& incumbents, LowerBound& bound) {
  struct Branch {
    LowerBound bound;
    PlacementProblem problem;
    std::int32_t option = 0;
  };
  std::vector<Branch> branches;
  for (std::size_t o = 0; o < problem.tables[table].options.size(); ++o) {
    Branch& b = branches.emplace_back();
    b.problem = problem;
    b.option = static_cast<std::int32_t>(o);
    b.problem.tables[table].options = {problem.tables[table].options[o]};
    if (shortage_of(b.problem)) {
      branches.pop_back();
    } else {
      b.bound = lower_bound(b.problem);
    }
  }
  std::stable_sort(branches.begin(), branches.end(),
                   [](const Branch& x, const Branch& y) { return x.bound.value < y.bound.value; });
  if (!branches.empty() && branches.front().bound.value > bound.value) {
    bound.value = branches.front().bound.value;
    bound.reason = "heaviest table";
  }
  for (const Branch& b : branches) {
    if (b.bound.value >= incumbents.best() || incumbents.best() <= enough || budget.spent()) {
      continue;
    }
    internal::Incumbents own(options.keep, enough);
    explore(b.problem, options, load_seconds(b.bound.value), enough, 4, 2,
            static_cast<double>(problem.tables.size()) <= kProofTables ? 0.5 * kFewTables : 0.5,
            budget, own);
    for (auto& [objective, placement] : own.take()) {
      placement[table].option = b.option;
      incumbents.offer(objective, phased_of(problem, placement), placement);
    }
  }
}

}  // namespace

SearchResult search(const PlacementProblem& problem, const SearchOptions& options) {
  SearchResult result;
  if ((result.shortage = shortage_of(problem))) {
    return result;
  }
  result.bound = lower_bound(problem);
  const std::size_t tables = problem.tables.size();
  // An evaluation costs more with more ranks to choose from.
  const bool few = static_cast<double>(tables) <= kProofTables;
  const double evaluations = options.effort * (few ? kFewTables : 1) *
                             (40'000 + 25 * static_cast<double>(tables)) * 64 /
                             (64 + static_cast<double>(problem.ranks));
  internal::Budget budget(options, static_cast<std::uint64_t>(evaluations));
  const bool large = tables > kLargeTables;
  const double tolerance =
      large && options.good_enough > 0 ? std::max(options.good_enough, 0.01) : options.good_enough;
  const auto enough = static_cast<Ticks>(static_cast<double>(result.bound.value) * (1 + tolerance));
  internal::Incumbents incumbents(options.keep, enough);
  const double scale = std::max(load_seconds(result.bound.value), 1e-12);
  const auto decisive = large || options.effort <= 0
                            ? std::nullopt
                            : decisive_table(problem, load_seconds(result.bound.value));
  explore(problem, options, scale, enough,
          large      ? 2
          : decisive ? 3
                     : 10,
          decisive ? 1 : kHomes, (decisive ? 0.2 : 1.0) * (few ? kFewTables : 1), budget,
          incumbents);
  if (decisive && incumbents.best() > enough) {
    explore_options(problem, options, *decisive, enough, budget, incumbents, result.bound);
  }
  const bool small = static_cast<double>(problem.tables.size()) <= kProofTables;
  if (small && options.effort > 0 && incumbents.best() > enough && !budget.cut()) {
    const Ticks in_hand = incumbents.best();
    const auto steps = static_cast<std::uint64_t>(
        options.effort *
        static_cast<double>(space_of(problem) <= kCertainSpace ? kCertainSteps : kProofSteps));
    if (auto proof = internal::branch_and_bound(problem, in_hand, steps)) {
      if (proof->better) {
        incumbents.offer(proof->better->first, phased_of(problem, proof->better->second),
                         proof->better->second);
      }
      if (incumbents.best() < std::numeric_limits<Ticks>::max()) {
        if (static_cast<double>(incumbents.best()) >
            static_cast<double>(result.bound.value) * (1 + 1e-6)) {
          result.bound.reason = "proven optimal";
        }
        result.bound.value = std::max(result.bound.value, incumbents.best());
      }
      budget.add(proof->steps);
    } else {
      budget.add(steps);
    }
  }
  result.best = incumbents.take();
  result.evaluations = budget.evaluations();
  result.cut = budget.cut();
  if (result.best.empty()) {
    internal::LocalSearch local(problem, options.seed, enough, budget, incumbents);
    local.repair(cheapest(prices_of(problem), std::numeric_limits<double>::infinity(), 1e9));
    result.best = incumbents.take();
    result.shortage = local.closest_shortage();
  }
  return result;
}

}  // namespace stepcast::planner
