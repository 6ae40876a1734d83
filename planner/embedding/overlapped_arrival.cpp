#include "planner/embedding/overlapped_arrival.h"

#include <algorithm>

#include "core/error.h"

namespace stepcast::planner {
namespace {

constexpr int kHalvings = 2;
constexpr std::array kExchanges{kExchange, kGroupExchange, kSequenceExchange};

/// Takes from the exchanges of an option what may not use the links that ids arrive over: sums
/// inside a group of ranks, exchanges of ranges of rows that have copies, kernels that pool rows.
void leave_links(PlacementOption& o, std::int32_t ranks) {
  for (const LoadPhase p : kExchanges) {
    const bool inside = p == kGroupExchange && o.group > 1 && o.group < ranks;
    if (inside || o.synchronised > 0) {
      o.load[p] = std::min(o.load[p], inside ? 0 : o.synchronised);
      o.skewed[p] = 0;
    }
    o.everywhere[p] = 0;
  }
}

LoadPhase lookups_before(LoadPhase exchange) {
  return exchange == kExchange        ? kLookup
         : exchange == kGroupExchange ? kGroupLookup
                                      : kSequenceLookup;
}

void add(Load& to, const Load& load, const std::array<double, kPhases>& weight) {
  for (std::size_t p = 0; p < kPhases; ++p) {
    to[p] += static_cast<Femtoseconds>(static_cast<double>(load[p]) * weight[p]);
  }
}

/// Every load times the weight of its phase, and what of it enters ranks by the links that ids
/// enter them by times that weight, rounded down.
PlacementProblem weighted(const PlacementProblem& problem,
                          const std::array<double, kPhases>& weight,
                          const std::array<double, kPhases>& on_links, double charges) {
  PlacementProblem plain = problem;
  plain.arrival_overlaps.reset();
  for (PlacementTable& table : plain.tables) {
    for (PlacementOption& o : table.options) {
      PlacementOption links = o;
      leave_links(links, problem.ranks);
      if (o.group < problem.ranks) {  // outputs leave the ranks that ids enter
        for (const LoadPhase p : kExchanges) {
          for (Load PlacementOption::*load : {&PlacementOption::load, &PlacementOption::skewed}) {
            (links.*load)[p] = static_cast<Femtoseconds>(problem.returning *
                                                         static_cast<double>((links.*load)[p]));
          }
        }
      }
      for (Load PlacementOption::*load :
           {&PlacementOption::load, &PlacementOption::everywhere, &PlacementOption::skewed}) {
        Load sum{};
        add(sum, o.*load, weight);
        add(sum, links.*load, on_links);
        o.*load = sum;
      }
    }
  }
  for (Femtoseconds& charge : plain.fixed) {
    charge = static_cast<Femtoseconds>(static_cast<double>(charge) * charges);
  }
  plain.constant = static_cast<Femtoseconds>(static_cast<double>(plain.constant) * charges);
  return plain;
}

class OverlappedSearch {
 public:
  OverlappedSearch(const PlacementProblem& problem, const SearchOptions& options)
      : problem_(problem), options_(options), begin_(now()) {}

  SearchResult run() {
    const bool late = explore(relaxed(problem_, 1), true);
    if (result_.best.empty()) {
      return std::move(result_);
    }
    LowerBound mean = lower_bound(relaxed(problem_, 0.5));
    mean.value += relaxed_constant(problem_, 0.5);
    mean.without_memory += relaxed_constant(problem_, 0.5);
    raise(mean);
    std::array<double, kPhases> weight{};
    weight.fill(1);
    explore(weighted(problem_, weight, {}, 1), false);
    // Arrivals beyond the lookups delay the exchanges by as much: with weights in between the
    // lookups may grow until they hide the arrival.
    double low = 0;
    double high = 1;
    for (int i = 0; i < kHalvings && late && !result_.cut && result_.gap() > options_.good_enough;
         ++i) {
      weight[kArrival] = (low + high) / 2;
      for (const std::size_t p : {kLookup, kGroupLookup, kSequenceLookup}) {
        weight[p] = 1 - weight[kArrival];
      }
      (explore(weighted(problem_, weight, {}, 1), false) ? low : high) = weight[kArrival];
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] double now() const { return options_.clock ? options_.clock() : 0; }

  void raise(const LowerBound& bound) {
    if (bound.value > result_.bound.value) {
      result_.bound = bound;
    }
  }

  /// Searches a plain problem; whether ids delay the best placement of it. `relaxed`: its bound is
  /// one of the problem.
  bool explore(const PlacementProblem& plain, bool relaxed) {
    SearchOptions options = options_;
    if (!relaxed) {
      options.bound.reset();
    }
    if (options.time_limit) {
      options.time_limit = std::max(0.0, *options.time_limit - (now() - begin_)) / 2;
    }
    SearchResult found = search(plain, options);
    result_.evaluations += found.evaluations;
    result_.cut = result_.cut || found.cut;
    if (relaxed) {
      raise(found.bound);
    }
    if (found.best.empty()) {
      result_.shortage = result_.shortage ? result_.shortage : found.shortage;
      return false;
    }
    const Placement& first = found.best.front().second;
    const bool late = arrival_delay(problem_, first) > 0;
    if (!relaxed && !result_.paid) {
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
    return late;
  }

  const PlacementProblem& problem_;
  const SearchOptions& options_;
  double begin_;
  SearchResult result_;
};

}  // namespace

Femtoseconds arrival_delay(const PlacementProblem& problem, const Placement& placement) {
  PlacementProblem links;  // of the options chosen alone
  links.ranks = problem.ranks;
  Placement on_links = placement;
  Femtoseconds sums = 0;  // of copies' gradients, which only go back
  for (std::size_t t = 0; t < placement.size(); ++t) {
    PlacementOption o = problem.tables[t].options[static_cast<std::size_t>(placement[t].option)];
    leave_links(o, problem.ranks);
    sums += o.group == problem.ranks ? o.synchronised : 0;
    links.tables.push_back({"", {std::move(o)}});
    on_links[t].option = 0;
  }
  const Load slowest = slowest_of(problem, placement);
  const Load shared = slowest_of(links, on_links);
  const Load mean = mean_of(links, on_links);
  Femtoseconds left = slowest[kArrival];
  Femtoseconds delay = 0;
  const auto leave = [&left](Femtoseconds time) { left = std::max<Femtoseconds>(0, left - time); };
  const auto share = [&left, &delay](Femtoseconds time) {
    const Femtoseconds arrives = std::min(left, time);
    delay += arrives;
    left -= arrives;
  };
  Femtoseconds back = 0;
  Femtoseconds apart = 0;
  for (const LoadPhase p : kExchanges) {
    const auto forward = [&](Femtoseconds load) {
      const Femtoseconds rows = std::max<Femtoseconds>(0, load - (p == kExchange ? sums : 0));
      return rows - static_cast<Femtoseconds>(problem.returning * static_cast<double>(rows));
    };
    const Femtoseconds there = forward(shared[p]);
    const Femtoseconds entering = std::min(there, forward(mean[p]));
    const Femtoseconds alone = (slowest[p] - shared[p]) / 2;
    leave(slowest[lookups_before(p)] + alone + there - entering);
    share(entering);
    back += shared[p] - there;
    apart += slowest[p] - shared[p] - alone;
  }
  leave(*problem.arrival_overlaps);
  share(back);
  leave(apart + slowest[kUpdate]);
  return delay + left;
}

PlacementProblem relaxed(const PlacementProblem& problem, double chain) {
  STEPCAST_CHECK(problem.arrival_overlaps, "nothing overlaps");
  std::array<double, kPhases> weight{};
  weight.fill(chain);
  weight[kArrival] = 1 - chain;
  std::array<double, kPhases> on_links{};
  for (const LoadPhase p : kExchanges) {
    on_links[p] = 1 - chain;
  }
  return weighted(problem, weight, on_links, chain);
}

Femtoseconds relaxed_constant(const PlacementProblem& problem, double chain) {
  return -static_cast<Femtoseconds>((1 - chain) * static_cast<double>(*problem.arrival_overlaps));
}

SearchResult search_overlapped(const PlacementProblem& problem, const SearchOptions& options) {
  return OverlappedSearch(problem, options).run();
}

}  // namespace stepcast::planner
