#include "planner/embedding/internal/many_tables.h"

#include <algorithm>
#include <cmath>

#include "planner/embedding/internal/phase_bound.h"
#include "planner/embedding/internal/smooth_descent.h"

namespace stepcast::planner::internal {
namespace {

constexpr std::size_t kStarts = 8;  // of the bound of phases
// Nodes of the bound, as long as they raise it.
constexpr std::uint64_t kMostNodes = 800;
constexpr std::uint64_t kNodesAtOnce = 100;
constexpr double kWorthNodes = 1.002;
constexpr std::uint64_t kManyTableNodes = 3'000'000;  // nodes times tables, where very many
constexpr double kQuickGap = 0.015;                   // a plan so near its bound is good enough
constexpr double kGap = 0.003;
constexpr double kThoroughGap = 0.0005;
constexpr double kLittle = 1e-3;

constexpr SmoothDescent::Schedule kPlace{.soft = 200, .sharp = 700, .sweeps = 2};
constexpr SmoothDescent::Schedule kChoose{.soft = 100, .sharp = 2000, .sweeps = 6};

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
double good_gap(SearchEffort effort) {
  return effort == SearchEffort::kQuick    ? kQuickGap
         : effort == SearchEffort::kNormal ? kGap
                                           : kThoroughGap;
}

}  // namespace

void search_many(const PlacementProblem& problem, const SearchOptions& options, Budget& budget,
                 Incumbents& best_found, LocalSearch& local, SearchResult& result) {
  const auto close = [&] {
    return static_cast<double>(result.bound.value) * (1 + good_gap(options.effort)) >=
           static_cast<double>(best_found.best());
  };
  PhaseBound phases(problem, kStarts);
  raise(phases, best_found.best(), problem.tables.size(), result);
  std::vector<std::vector<std::int32_t>> starts = phases.starts();
  if (problem.tables.size() > kManyTables && starts.size() > 3) {
    starts.erase(starts.begin() + 2, starts.end() - 1);  // two of the least, and phases cut most
  }
  if (close()) {
    return;
  }
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
    if (const Placement found = smooth.run(kChoose, local.random(), from, stop); !found.empty()) {
      best_found.offer(objective_of(problem, found), found);
    }
    result.evaluations += smooth.evaluations() - before;
    idle = static_cast<double>(best_found.best()) < before_run * (1 - kLittle) ? 0 : idle + 1;
  }
}

}  // namespace stepcast::planner::internal
