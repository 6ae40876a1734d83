#include "planner/embedding/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "core/error.h"
#include "planner/embedding/internal/annealing.h"
#include "planner/embedding/internal/greedy_start.h"
#include "planner/embedding/internal/local_search.h"
#include "planner/embedding/internal/many_tables.h"
#include "planner/embedding/internal/phase_bound.h"
#include "planner/embedding/overlapped_arrival.h"
#include "planner/embedding/placement_state.h"

namespace stepcast::planner {
namespace {

constexpr std::size_t kDescents = 3;    // from greedy starts, and from placements of others
constexpr std::uint64_t kNodes = 1000;  // of the bound of phases
// Moves of a run of annealing: a table's, at few ranks, and at least so many in all.
constexpr std::uint64_t kQuickMoves = 1000;
constexpr std::uint64_t kMoves = 4000;
constexpr std::uint64_t kLeastMoves = 20'000;
constexpr double kCooler = 0.3;  // temperatures of every second run
constexpr std::size_t kFewTables = 12;
constexpr double kHotFew = 0.1, kColdFew = 1e-3;  // temperatures for so few tables
constexpr std::uint64_t kLastDescent = 20'000;    // evaluations of the descent after a run

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
        const std::int64_t need = bytes_on_a_unit(problem, o, t);
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

/// Objective where no placement is known.
constexpr Femtoseconds kNoPlan = std::numeric_limits<Femtoseconds>::max();

/// Evaluations of a search's descents. One costs more with more ranks to choose from.
std::uint64_t evaluations_of(const PlacementProblem& problem) {
  return static_cast<std::uint64_t>((80'000 + 25 * static_cast<double>(problem.tables.size())) *
                                    64 / (64 + static_cast<double>(problem.ranks)));
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
  const double step = tables <= kLargeTables ? 0.62 : tables <= kManyTables ? 0.4 : 0.25;
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

/// The best placements of others that fit, all of them offered.
std::vector<Placement> proposed_starts(const PlacementProblem& problem,
                                       const SearchOptions& options,
                                       internal::Incumbents& best_found) {
  std::vector<std::pair<Femtoseconds, Placement>> all;
  for (const Placement& p : options.starts) {
    if (fits(problem, p)) {
      all.emplace_back(objective_of(problem, p), p);
      best_found.offer(all.back().first, p);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<Placement> best;
  for (std::size_t i = 0; i < std::min(all.size(), kDescents); ++i) {
    best.push_back(std::move(all[i].second));
  }
  return best;
}

/// Descends from the best of the greedy starts and from those proposed.
void descend_from_starts(const PlacementProblem& problem, double scale,
                         const SearchOptions& options, internal::LocalSearch& local,
                         internal::Budget& budget, internal::Incumbents& best_found) {
  std::vector<Start> starts = greedy_starts(problem, scale, budget, best_found);
  std::vector<Placement> from = proposed_starts(problem, options, best_found);
  if (starts.empty() && from.empty()) {
    repair_smallest(problem, local);
    return;
  }
  starts.resize(std::min(starts.size(), kDescents));
  for (const Start& start : starts) {
    PlacementState state(problem);
    place_greedily(state, start.choose);
    from.push_back(state.placement());
  }
  for (const Placement& start : from) {
    if (budget.spent()) {
      break;
    }
    PlacementState state(problem, start);
    local.descend(state);
  }
}

/// Runs of annealing from the best placement in hand, every second one cooler, each with a descent
/// at its end; as many as there is time for, where a clock decides. Moves made.
std::uint64_t anneal(const PlacementProblem& problem, const SearchOptions& options,
                     Femtoseconds enough, internal::LocalSearch& local, internal::Budget& budget,
                     internal::Incumbents& best_found) {
  const bool quick = options.effort == SearchEffort::kQuick;
  internal::Annealing run;
  run.moves = std::max(kLeastMoves, (quick ? kQuickMoves : kMoves) * problem.tables.size() * 64 /
                                        (56 + static_cast<std::uint64_t>(problem.ranks)));
  if (problem.tables.size() <= kFewTables) {
    run.hot = kHotFew;
    run.cold = kColdFew;
  }
  run.stop = [&budget] { return budget.ended(); };
  const std::uint64_t runs = runs_of(options.effort);
  const double hot = run.hot;
  const double cold = run.cold;
  std::uint64_t moves = 0;
  for (std::uint64_t i = 0; best_found.best() > enough; ++i) {
    if (budget.ended() || (!budget.timed() && i >= runs)) {
      break;
    }
    const double heat = i % 2 == 0 ? 1 : kCooler;
    run.hot = heat * hot;
    run.cold = heat * cold;
    PlacementState state(problem, run.run(problem, best_found.front(), local.random()));
    moves += run.moves;
    budget.allow(kLastDescent);
    local.descend(state);
  }
  return moves;
}

/// Result of the search; if nothing fits, what a repair of the smallest options finds.
void finish(const PlacementProblem& problem, const internal::Budget& budget,
            internal::LocalSearch& local, internal::Incumbents& best_found, SearchResult& result) {
  result.best = best_found.take();
  result.evaluations += budget.evaluations();
  result.cut = budget.cut();
  if (result.best.empty()) {
    repair_smallest(problem, local);
    result.best = best_found.take();
    result.shortage = local.closest_shortage();
  }
}

/// Up to kLargeTables tables.
void search_few(const PlacementProblem& problem, const SearchOptions& options, double scale,
                internal::LocalSearch& local, internal::Budget& budget,
                internal::Incumbents& best_found, SearchResult& result) {
  descend_from_starts(problem, scale, options, local, budget, best_found);
  if (best_found.best() == kNoPlan) {
    return;
  }
  const Femtoseconds in_hand = best_found.best();
  const Femtoseconds by_phases = internal::PhaseBound(problem, 0).raise(in_hand, in_hand, kNodes);
  if (by_phases > result.bound.value) {
    result.bound.value = by_phases;
    result.bound.reason = "slowest rank of each phase";
  }
  const auto enough = static_cast<Femtoseconds>(static_cast<double>(result.bound.value) *
                                                (1 + options.good_enough));
  result.evaluations += anneal(problem, options, enough, local, budget, best_found);
}

/// More tables than sweeps of a local search are worth: a smooth descent places them.
void search_large(const PlacementProblem& problem, const SearchOptions& options, double scale,
                  internal::LocalSearch& local, internal::Budget& budget,
                  internal::Incumbents& best_found, SearchResult& result) {
  greedy_starts(problem, scale, budget, best_found);
  proposed_starts(problem, options, best_found);
  if (best_found.best() == kNoPlan) {
    repair_smallest(problem, local);
  }
  if (best_found.best() < kNoPlan) {
    internal::search_many(problem, options, budget, best_found, local, result);
  }
}

}  // namespace

std::size_t runs_of(SearchEffort effort) {
  return effort == SearchEffort::kQuick ? 1 : effort == SearchEffort::kNormal ? 4 : 32;
}

SearchResult search(const PlacementProblem& problem, const SearchOptions& options) {
  if (problem.arrival_overlaps) {
    return search_overlapped(problem, options);
  }
  SearchResult result;
  if ((result.shortage = shortage_of(problem))) {
    return result;
  }
  result.bound = options.bound ? *options.bound : lower_bound(problem);
  internal::Budget budget(options, evaluations_of(problem));
  internal::Incumbents best_found(options.keep);
  internal::LocalSearch local(problem, options.seed, result.bound.value, budget, best_found);
  const double scale = std::max(load_seconds(result.bound.value), 1e-12);
  const auto way = problem.tables.size() > kLargeTables ? search_large : search_few;
  way(problem, options, scale, local, budget, best_found, result);
  finish(problem, budget, local, best_found, result);
  return result;
}

}  // namespace stepcast::planner
