#include "planner/embedding/internal/many_tables.h"

#include <algorithm>
#include <cmath>

#include "planner/embedding/internal/phase_bound.h"
#include "planner/embedding/internal/smooth_descent.h"

namespace stepcast::planner::internal {
namespace {

// Nodes of the bound before the search, as many after it: as long as they raise it.
constexpr std::uint64_t kMostNodes = 800;
constexpr std::uint64_t kNodesAtOnce = 100;
constexpr double kWorthNodes = 1.002;
constexpr std::uint64_t kManyTableNodes = 3'000'000;  // nodes times tables, where very many
constexpr double kDescent = 10'000;  // evaluations of a descent, fewer with many ranks
constexpr double kQuickGap = 0.015;  // a plan so near its bound is good enough
constexpr double kGap = 0.003;
constexpr double kThoroughGap = 0.0005;
constexpr double kLittle = 1e-3;

constexpr SmoothDescent::Schedule kPlace{.soft = 200, .sharp = 700, .sweeps = 2};
constexpr SmoothDescent::Schedule kChoose{.soft = 100, .sharp = 2000, .sweeps = 6};

std::uint32_t routes_of(const PlacementProblem& problem, const std::vector<std::int32_t>& choose) {
  std::uint32_t routes = 0;
  for (std::size_t t = 0; t < choose.size(); ++t) {
    routes |= problem.tables[t].options[static_cast<std::size_t>(choose[t])].routes;
  }
  return routes;
}

std::vector<std::int32_t> options_of(const Placement& placement) {
  std::vector<std::int32_t> choose;
  std::transform(placement.begin(), placement.end(), std::back_inserter(choose),
                 [](const Choice& c) { return c.option; });
  return choose;
}

void raise(PhaseBound& phases, Femtoseconds in_hand, std::size_t tables, SearchResult& result) {
  const std::uint64_t most = std::min<std::uint64_t>(kMostNodes, kManyTableNodes / tables);
  for (std::uint64_t nodes = 0; nodes < most; nodes += kNodesAtOnce) {
    const auto before = static_cast<double>(result.bound.value);
    const Femtoseconds bound = phases.raise(in_hand, in_hand, std::min(kNodesAtOnce, most - nodes));
    if (bound > result.bound.value) {
      result.bound.value = bound;
      result.bound.reason = "slowest rank of each phase";
    }
    if (static_cast<double>(bound) < before * kWorthNodes) {
      break;
    }
  }
}

/// The gap at which the effort asked for ends.
double good_gap(const SearchOptions& options) {
  return options.effort == SearchEffort::kQuick    ? kQuickGap
         : options.effort == SearchEffort::kNormal ? kGap
                                                   : kThoroughGap;
}

bool near(const SearchOptions& options, const SearchResult& result, Femtoseconds in_hand) {
  return static_cast<double>(result.bound.value) * (1 + good_gap(options)) >=
         static_cast<double>(in_hand);
}

}  // namespace

bool leave_to_rival(const PlacementProblem& problem, PhaseBound& phases,
                    const SearchOptions& options, SearchResult& result) {
  if (options.rival && !near(options, result, *options.rival)) {
    raise(phases, *options.rival, problem.tables.size(), result);
  }
  result.left = options.rival && near(options, result, *options.rival);
  return result.left;
}

void search_many(const PlacementProblem& problem, const SearchOptions& options,
                 const std::vector<Placement>& proposed, PhaseBound& phases, Budget& budget,
                 Incumbents& best_found, LocalSearch& local, SearchResult& result) {
  const auto in_hand = [&] {
    return options.rival ? std::min(*options.rival, best_found.best()) : best_found.best();
  };
  const auto close = [&] { return near(options, result, in_hand()); };
  raise(phases, best_found.best(), problem.tables.size(), result);
  std::vector<std::vector<std::int32_t>> starts = phases.starts();
  if (problem.tables.size() > kManyTables && starts.size() > 3) {
    starts.erase(starts.begin() + 2, starts.end() - 1);  // two of the least, and phases cut most
  }
  if (close()) {
    return;
  }
  // The same whatever the effort, so that more effort goes on from what less has found.
  local.settle_for(
      static_cast<Femtoseconds>(static_cast<double>(result.bound.value) * (1 + kThoroughGap)));
  SmoothDescent smooth(problem, load_seconds(result.bound.value));
  const auto stop = [&] { return budget.ended(); };
  // Relaxations as they are, placed in a hurry, say which of them are worth a run.
  std::vector<std::pair<Femtoseconds, Placement>> placed;
  for (const std::vector<std::int32_t>& choose : starts) {
    if (stop()) {
      break;
    }
    smooth.fix(choose);
    if (Placement found = smooth.run(kPlace, local.random(), {}, stop); !found.empty()) {
      const Femtoseconds objective = objective_of(problem, found);
      best_found.offer(objective, found);
      placed.emplace_back(objective, std::move(found));
    }
  }
  for (const Placement& start : proposed) {
    PlacementState state(problem, start);
    budget.allow(static_cast<std::uint64_t>(kDescent * 64 / (64 + problem.ranks)));
    local.descend(state);
    placed.emplace_back(state.objective(), state.placement());
  }
  smooth.fix({});
  result.evaluations += smooth.evaluations();
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::size_t runs = runs_of(options.effort);
  const std::size_t patience = std::max<std::size_t>(2, runs / 4);
  std::size_t idle = 0;  // runs in a row that gained little
  for (std::size_t i = 0; !close() && !stop(); ++i) {
    if (!budget.timed() && (i >= runs || idle >= patience)) {
      break;
    }
    const auto before_run = static_cast<double>(best_found.best());
    const Placement from = i < placed.size() ? placed[i].second : best_found.front();
    const std::uint64_t before = smooth.evaluations();
    smooth.allow(routes_of(problem, options_of(from)));
    const Placement found = smooth.run(kChoose, local.random(), from, stop);
    result.evaluations += smooth.evaluations() - before;
    if (found.empty()) {
      ++idle;
      continue;
    }
    PlacementState state(problem, found);
    best_found.offer(state);
    budget.allow(static_cast<std::uint64_t>(kDescent * 64 / (64 + problem.ranks)));
    local.descend(state);
    idle = static_cast<double>(best_found.best()) < before_run * (1 - kLittle) ? 0 : idle + 1;
  }
  raise(phases, in_hand(), problem.tables.size(), result);
}

}  // namespace stepcast::planner::internal
