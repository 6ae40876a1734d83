#include "planner/embedding/overlapped_arrival.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace stepcast::planner {
namespace {

constexpr int kHalvings = 2;

bool uses_links(std::size_t phase) {
  return phase == kExchange || phase == kGroupExchange || phase == kSequenceExchange;
}

/// Every load times the weight of its phase, rounded down.
PlacementProblem weighted(const PlacementProblem& problem,
                          const std::array<double, kPhases>& weight, double charges) {
  PlacementProblem plain = problem;
  plain.arrival_overlaps.reset();
  const auto scale = [&weight](Load& load) {
    for (std::size_t p = 0; p < kPhases; ++p) {
      load[p] = static_cast<Ticks>(static_cast<double>(load[p]) * weight[p]);
    }
  };
  for (PlacementTable& table : plain.tables) {
    for (PlacementOption& o : table.options) {
      scale(o.load);
      scale(o.everywhere);
      scale(o.skewed);
    }
  }
  for (Ticks& charge : plain.fixed) {
    charge = static_cast<Ticks>(static_cast<double>(charge) * charges);
  }
  plain.constant = static_cast<Ticks>(static_cast<double>(plain.constant) * charges);
  return plain;
}

class OverlappedSearch {
 public:
  OverlappedSearch(const PlacementProblem& problem, const SearchOptions& options)
      : problem_(problem), options_(options), begin_(now()) {}

  SearchResult run() {
    const bool links_decide = explore(relaxed(problem_, 1), 0, true);
    if (result_.best.empty()) {
      return std::move(result_);
    }
    std::array<double, kPhases> all{};
    all.fill(1);
    explore(weighted(problem_, all, 1), 0, false);
    // Where the chain decides even if arrival is free, arrival is free.
    double low = 0;
    double high = 1;
    for (int i = 0;
         i < kHalvings && links_decide && !result_.cut && result_.gap() > options_.good_enough;
         ++i) {
      const double chain = (low + high) / 2;
      (explore(relaxed(problem_, chain), relaxed_constant(problem_, chain), true) ? high : low) =
          chain;
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] double now() const { return options_.clock ? options_.clock() : 0; }

  /// Whether links decide the step of the best placement of a plain problem.
  bool explore(const PlacementProblem& plain, Ticks constant, bool bounds) {
    SearchOptions options = options_;
    if (options.time_limit) {
      options.time_limit = std::max(0.0, *options.time_limit - (now() - begin_)) / 2;
    }
    if (options.rival) {
      options.rival = *options.rival - constant;
    }
    SearchResult found = search(plain, options);
    result_.evaluations += found.evaluations;
    result_.cut = result_.cut || found.cut;
    if (bounds && found.bound.value + constant > result_.bound.value) {
      result_.bound = found.bound;
      result_.bound.value += constant;
      result_.bound.without_memory += constant;
    }
    if (found.best.empty()) {
      result_.shortage = result_.shortage ? result_.shortage : found.shortage;
      return false;
    }
    PlacementProblem chain = problem_;
    chain.arrival_overlaps = std::numeric_limits<Ticks>::max() / 2;
    const Placement& first = found.best.front().second;
    const bool links_decide = objective_of(problem_, first) > objective_of(chain, first);
    if (!bounds) {
      result_.paid.emplace(objective_of(problem_, first), first);
    }
    for (auto& [objective, placement] : found.best) {
      objective = objective_of(problem_, placement);
      result_.best.push_back({objective, std::move(placement)});
    }
    std::stable_sort(result_.best.begin(), result_.best.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto last = std::unique(result_.best.begin(), result_.best.end(),
                                  [](const auto& a, const auto& b) { return a.first == b.first; });
    result_.best.erase(last, result_.best.end());
    result_.best.resize(std::min(result_.best.size(), options_.keep));
    return links_decide;
  }

  const PlacementProblem& problem_;
  const SearchOptions& options_;
  double begin_;
  SearchResult result_;
};

}  // namespace

PlacementProblem relaxed(const PlacementProblem& problem, double chain) {
  STEPCAST_CHECK(problem.arrival_overlaps, "nothing overlaps");
  std::array<double, kPhases> weight{};
  for (std::size_t p = 0; p < kPhases; ++p) {
    weight[p] = p == kArrival ? 1 - chain : uses_links(p) ? 1 : chain;
  }
  return weighted(problem, weight, chain);
}

Ticks relaxed_constant(const PlacementProblem& problem, double chain) {
  return -static_cast<Ticks>((1 - chain) * static_cast<double>(*problem.arrival_overlaps));
}

SearchResult search_overlapped(const PlacementProblem& problem, const SearchOptions& options) {
  return OverlappedSearch(problem, options).run();
}

}  // namespace stepcast::planner
