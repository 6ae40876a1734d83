#include "planner/embedding/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/split_mix.h"
#include "planner/embedding/internal/annealing.h"
#include "planner/embedding/internal/branch_and_bound.h"
#include "planner/embedding/internal/greedy_start.h"
#include "planner/embedding/internal/local_search.h"
#include "planner/embedding/internal/many_tables.h"
#include "planner/embedding/internal/pattern_bound.h"
#include "planner/embedding/internal/phase_bound.h"
#include "planner/embedding/overlapped_arrival.h"
#include "planner/embedding/placement_state.h"

namespace stepcast::planner {
namespace {

/// Placements of a table tried in the hope of a proof.
constexpr std::uint64_t kProofSteps = 200'000;
constexpr std::uint64_t kCertainSteps = 4'000'000;  // for spaces that this surely exhausts
constexpr double kCertainSpace = 1e9;               // placements, before any are cut off
constexpr double kProofTables = 12;
constexpr double kFewTables = 6;  // times the effort, where an evaluation costs little
constexpr std::size_t kDescents = 3;
constexpr std::size_t kMixStarts = 12;
constexpr std::uint64_t kKnapsacks = 800;
constexpr std::uint64_t kNodes = 1500;
constexpr std::uint64_t kTableNodes = 20'000;  // nodes times tables, where there are many
constexpr std::size_t kNodeStarts = 8;
constexpr std::uint64_t kAnnealed = 4000;  // moves a table in a run of annealing
constexpr double kWellAbove = 1.05;        // a rival: not annealed; with many tables, no descent
constexpr std::size_t kHomes = 3;          // local optima that kicks start from
constexpr std::size_t kProposed = 3;       // placements of others that descents start from

}  // namespace

double SearchResult::gap() const {
  return best.empty() ? std::numeric_limits<double>::infinity()
                      : static_cast<double>(best.front().first) /
                                static_cast<double>(std::max<Femtoseconds>(bound.value, 1)) -
                            1;
}

std::optional<Shortage> shortage_of(const PlacementProblem& problem) {
  std::vector<std::int64_t> largest;  // by tier: capacity of a unit
  for (const TierCapacity& tier : problem.tiers) {
    largest.push_back(*std::max_element(tier.capacity.begin(), tier.capacity.end()));
  }
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
        if (need > largest[t] && (!lacks || need - largest[t] > lacks->missing())) {
          lacks = Shortage{table.name, problem.tiers[t].name, need, largest[t]};
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
  Femtoseconds objective;
  std::vector<std::int32_t> choose;
};

/// Greedy starts: thresholds from pieces of the whole bound down to a hundredth; a price on memory
/// where what is cheapest does not fit.
std::vector<Start> greedy_starts(const PlacementProblem& problem, double scale,
                                 internal::Budget& budget, internal::Incumbents& best_found) {
  const auto prices = internal::option_prices(problem);
  std::vector<Start> starts;
  std::set<std::vector<std::int32_t>> seen;
  const std::size_t tables = problem.tables.size();
  const double step = problem.moves || tables <= kLargeTables ? 0.62
                      : tables <= kManyTables                 ? 0.4
                                                              : 0.25;
  for (double memory_price = 0; memory_price < 1e6 * scale && starts.empty();
       memory_price = memory_price == 0 ? 0.01 * scale : memory_price * 8) {
    for (double threshold = scale; threshold > 0.005 * scale; threshold *= step) {
      std::vector<std::int32_t> choose =
          internal::cheapest_options(prices, threshold, memory_price);
      if (!seen.insert(choose).second || (budget.spent() && !starts.empty())) {
        continue;
      }
      PlacementState state(problem);
      if (place_greedily(state, choose)) {
        starts.push_back({state.objective(), std::move(choose)});
        best_found.offer(state);
      }
      budget.add(state.evaluations());
    }
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Start& x, const Start& y) { return x.objective < y.objective; });
  return starts;
}

/// Makes what fits of the options that need least memory.
void repair_smallest(const PlacementProblem& problem, internal::LocalSearch& local) {
  local.repair(internal::cheapest_options(internal::option_prices(problem),
                                          std::numeric_limits<double>::infinity(), 1e9));
}

using Homes = std::vector<std::pair<Femtoseconds, Placement>>;

/// Whether an objective is so far from a plan in hand that its space is not worth more effort.
bool well_above_rival(const SearchOptions& options, Femtoseconds objective) {
  return options.rival &&
         static_cast<double>(objective) >= kWellAbove * static_cast<double>(*options.rival);
}

/// The best placements of others that fit, all of them offered.
std::vector<Placement> proposed_starts(const PlacementProblem& problem,
                                       const SearchOptions& options,
                                       internal::Incumbents& best_found) {
  Homes all;
  for (const Placement& p : options.starts) {
    if (fits(problem, p)) {
      all.emplace_back(objective_of(problem, p), p);
      best_found.offer(all.back().first, p);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<Placement> best;
  for (std::size_t i = 0; i < std::min(all.size(), kProposed); ++i) {
    best.push_back(std::move(all[i].second));
  }
  return best;
}

/// Descends from the best of the greedy starts and of those proposed; local optima, best first.
/// With many tables starts well above a rival stay as they are.
Homes descend_from_starts(const PlacementProblem& problem, double scale,
                          const SearchOptions& options, internal::LocalSearch& local,
                          internal::Budget& budget, internal::Incumbents& best_found) {
  const bool large = problem.tables.size() > kLargeTables;
  std::vector<Start> starts = greedy_starts(problem, scale, budget, best_found);
  const std::vector<Placement> proposed = proposed_starts(problem, options, best_found);
  if (starts.empty() && proposed.empty()) {
    repair_smallest(problem, local);
    return {};
  }
  starts.resize(std::min(starts.size(), large ? 2 : kDescents));
  Homes local_optima;
  for (const Start& start : starts) {
    if (budget.spent()) {
      break;
    }
    PlacementState state(problem);
    place_greedily(state, start.choose);
    if (!large || !well_above_rival(options, start.objective)) {
      local.descend(state);
    }
    local_optima.emplace_back(state.objective(), state.placement());
  }
  // Descents from others' plans leave the search as many evaluations of its own.
  const std::uint64_t before = budget.evaluations();
  for (const Placement& start : proposed) {
    if (budget.spent()) {
      break;
    }
    PlacementState state(problem, start);
    local.descend(state);
    local_optima.emplace_back(state.objective(), state.placement());
  }
  budget.extend(budget.evaluations() - before);
  return local_optima;
}

/// Descends from the greedy placement of these options, where there is one.
void descend_from_options(const PlacementProblem& problem, const std::vector<std::int32_t>& choose,
                          internal::LocalSearch& local, Homes& local_optima) {
  PlacementState state(problem);
  if (place_greedily(state, choose)) {
    local.descend(state);
    local_optima.emplace_back(state.objective(), state.placement());
  }
}

/// Starts with options drawn from the mix of the pattern program, the likeliest of each table
/// first.
void descend_from_mix(const PlacementProblem& problem, const internal::Mix& mix, std::size_t starts,
                      Femtoseconds enough, internal::LocalSearch& local, internal::Budget& budget,
                      internal::Incumbents& best_found, Homes& local_optima) {
  starts = mix.empty() ? 0 : starts;
  for (std::size_t i = 0; i < starts && best_found.best() > enough && !budget.spent(); ++i) {
    std::vector<std::int32_t> choose;
    for (const std::vector<double>& of : mix) {
      std::size_t option =
          static_cast<std::size_t>(std::max_element(of.begin(), of.end()) - of.begin());
      if (i > 0) {
        double left = unit_interval(local.random()) * std::accumulate(of.begin(), of.end(), 0.0);
        for (std::size_t o = 0; o < of.size(); ++o) {
          if (of[o] > 0 && left >= 0) {
            option = o;
          }
          left -= of[o];
        }
      }
      choose.push_back(static_cast<std::int32_t>(option));
    }
    descend_from_options(problem, choose, local, local_optima);
  }
}

/// Runs of annealing from the best placement in hand, each with a descent at its end; moves made.
std::uint64_t anneal(const PlacementProblem& problem, const SearchOptions& options,
                     Femtoseconds enough, internal::LocalSearch& local, internal::Budget& budget,
                     internal::Incumbents& best_found) {
  internal::Annealing run;
  run.moves =
      kAnnealed * problem.tables.size() * 64 / (56 + static_cast<std::size_t>(problem.ranks));
  run.stop = [&budget] { return budget.ended(); };
  const std::size_t runs =
      budget.timed() ? std::max<std::size_t>(1, options.anneals) : options.anneals;
  const Placement from = runs > 0 && best_found.best() > enough ? best_found.front() : Placement{};
  std::uint64_t moves = 0;
  for (std::size_t i = 0; i < runs && best_found.best() > enough && !budget.cut(); ++i) {
    const Placement found = run.run(problem, from, local.random());
    moves += run.moves;
    PlacementState state(problem, found);
    local.descend(state);
  }
  return moves;
}

/// Evaluations to spend. One costs more with more ranks to choose from.
std::uint64_t evaluations_of(const PlacementProblem& problem, const SearchOptions& options) {
  const auto tables = static_cast<double>(problem.tables.size());
  const double by_ranks = (80'000 + 25 * tables) * 64 / (64 + static_cast<double>(problem.ranks));
  return static_cast<std::uint64_t>(options.effort *
                                    (problem.tables.size() > kLargeTables
                                         ? by_ranks / 2 + 15 * tables
                                         : (tables <= kProofTables ? kFewTables : 1) * by_ranks));
}

/// Kicks from local optima, then annealing where it is worth it; in turn while the clock decides
/// and time is left. Moves of the annealing.
std::uint64_t kick_and_anneal(const PlacementProblem& problem, const SearchOptions& options,
                              const Homes& local_optima, Femtoseconds enough,
                              internal::LocalSearch& local, internal::Budget& budget,
                              internal::Incumbents& best_found) {
  const std::size_t tables = problem.tables.size();
  const bool few = static_cast<double>(tables) <= kProofTables;
  const bool annealed = best_found.best() < std::numeric_limits<Femtoseconds>::max() &&
                        tables <= kLargeTables && !few && problem.phases().size() > 1 &&
                        !local_optima.empty() && options.effort > 0;
  std::uint64_t moves = 0;
  do {
    for (const auto& [objective, home] : local_optima) {
      local.kick(home, (few ? kFewTables : 1) / static_cast<double>(local_optima.size()));
    }
    if (annealed && !well_above_rival(options, best_found.best())) {
      moves += anneal(problem, options, enough, local, budget, best_found);
    }
  } while (budget.timed() && !budget.spent() && !local_optima.empty() &&
           best_found.best() > enough);
  return moves;
}

/// Result of the search; if nothing fits, what a repair of the smallest options finds.
void finish(const PlacementProblem& problem, const internal::Budget& budget, std::uint64_t moves,
            internal::LocalSearch& local, internal::Incumbents& best_found, SearchResult& result) {
  result.best = best_found.take();
  result.evaluations += budget.evaluations() + moves;
  result.cut = budget.cut();
  if (result.best.empty()) {
    repair_smallest(problem, local);
    result.best = best_found.take();
    result.shortage = local.closest_shortage();
  }
}

/// Branch and bound over few tables: the bound rises to the best in hand where no placement is
/// better.
void prove(const PlacementProblem& problem, const SearchOptions& options, internal::Budget& budget,
           internal::Incumbents& best_found, SearchResult& result) {
  LowerBound& bound = result.bound;
  const Femtoseconds in_hand = best_found.best();
  const auto worth = static_cast<std::uint64_t>(
      options.effort *
      static_cast<double>(space_of(problem) <= kCertainSpace ? kCertainSteps : kProofSteps));
  const std::uint64_t steps = std::min(worth, options.proof_steps.value_or(worth));
  if (auto proof = internal::branch_and_bound(problem, in_hand, steps)) {
    if (proof->better) {
      best_found.offer(proof->better->first, proof->better->second);
    }
    if (best_found.best() < std::numeric_limits<Femtoseconds>::max()) {
      if (static_cast<double>(best_found.best()) > static_cast<double>(bound.value) * (1 + 1e-6)) {
        bound.reason = "proven optimal";
      }
      bound.value = std::max(bound.value, best_found.best());
    }
    result.proof_steps = proof->steps;
  } else {
    result.proof_steps = steps;
  }
  budget.add(result.proof_steps);
}

/// More tables than sweeps of a local search are worth: a smooth descent places them.
void search_large(const PlacementProblem& problem, const SearchOptions& options, double scale,
                  internal::LocalSearch& local, internal::Budget& budget,
                  internal::Incumbents& best_found, SearchResult& result) {
  internal::PhaseBound phases(problem, internal::kManyStarts);
  if (internal::leave_to_rival(problem, phases, options, result)) {
    return;
  }
  greedy_starts(problem, scale, budget, best_found);
  const std::vector<Placement> proposed = proposed_starts(problem, options, best_found);
  if (best_found.best() == std::numeric_limits<Femtoseconds>::max()) {
    repair_smallest(problem, local);
  }
  if (best_found.best() < std::numeric_limits<Femtoseconds>::max()) {
    internal::search_many(problem, options, proposed, phases, budget, best_found, local, result);
  }
  finish(problem, budget, 0, local, best_found, result);
}

}  // namespace

SearchResult search(const PlacementProblem& problem, const SearchOptions& options) {
  if (problem.arrival_overlaps) {
    return search_overlapped(problem, options);
  }
  SearchResult result;
  if ((result.shortage = shortage_of(problem))) {
    return result;
  }
  result.bound = options.bound ? *options.bound : lower_bound(problem);
  const std::size_t tables = problem.tables.size();
  const bool large = tables > kLargeTables;
  const bool few = static_cast<double>(tables) <= kProofTables;
  internal::Budget budget(options, evaluations_of(problem, options));
  const double tolerance =
      large && options.good_enough > 0 ? std::max(options.good_enough, 0.01) : options.good_enough;
  const auto enough_of = [tolerance](Femtoseconds bound) {
    return static_cast<Femtoseconds>(static_cast<double>(bound) * (1 + tolerance));
  };
  Femtoseconds enough = enough_of(result.bound.value);
  internal::Incumbents best_found(options.keep);
  internal::LocalSearch local(problem, options.seed, enough, budget, best_found);
  const double scale = std::max(load_seconds(result.bound.value), 1e-12);
  if (large && !problem.moves && options.effort > 0) {
    search_large(problem, options, scale, local, budget, best_found, result);
    return result;
  }
  Homes local_optima = descend_from_starts(problem, scale, options, local, budget, best_found);
  const auto raise = [&](Femtoseconds bound, const char* reason) {
    if (bound > result.bound.value) {
      result.bound.value = bound;
      result.bound.reason = reason;
      enough = enough_of(bound);
      local.settle_for(enough);
    }
  };
  const auto unfinished = [&] {
    return !local_optima.empty() && options.effort > 0 && best_found.best() > enough;
  };
  bool by_phases = false;
  if (unfinished() && problem.phases().size() > 1) {
    const Femtoseconds plain = result.bound.value;
    const auto close =
        static_cast<Femtoseconds>(static_cast<double>(best_found.best()) / (1 + tolerance));
    internal::PhaseBound phases(problem, large ? 0 : kNodeStarts);
    raise(phases.raise(best_found.best(), close, large ? kTableNodes / tables : kNodes),
          "slowest rank of each phase");
    by_phases = static_cast<double>(result.bound.value) > 1.01 * static_cast<double>(plain);
    for (const auto& choose : phases.starts()) {
      if (!unfinished() || budget.spent()) {
        break;
      }
      descend_from_options(problem, choose, local, local_optima);
    }
  }
  if (unfinished() && !large && !by_phases) {
    internal::PatternBound patterns(problem);
    const internal::Mix mix = patterns.mix(result.bound.value, best_found.best(), kKnapsacks);
    raise(patterns.value(result.bound.value, best_found.best(), kKnapsacks), "rank patterns");
    descend_from_mix(problem, mix, kMixStarts, enough, local, budget, best_found, local_optima);
  }
  std::stable_sort(local_optima.begin(), local_optima.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  local_optima.resize(std::min(local_optima.size(), kHomes));
  if (large && well_above_rival(options, best_found.best())) {
    local_optima.clear();
  }
  const std::uint64_t moves =
      kick_and_anneal(problem, options, local_optima, enough, local, budget, best_found);
  if (few && options.effort > 0 && best_found.best() > enough && !budget.cut()) {
    prove(problem, options, budget, best_found, result);
  }
  finish(problem, budget, moves, local, best_found, result);
  return result;
}

}  // namespace stepcast::planner
