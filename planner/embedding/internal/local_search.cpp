#include "planner/embedding/internal/local_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/numbers.h"
#include "core/split_mix.h"

namespace stepcast::planner::internal {
namespace {

constexpr std::size_t kAlsoTried = 12;  // tables tried in addition to those of the busiest ranks
constexpr std::size_t kLarge = 100;     // tables: beyond, what is good enough is left alone

std::vector<std::int32_t> distinct(std::vector<std::int32_t> v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
  return v;
}

}  // namespace

Budget::Budget(const SearchOptions& options, std::uint64_t evaluations)
    : limit_(options.time_limit),
      clock_(options.clock),
      interrupted_(options.interrupted),
      allowed_(evaluations) {
  if (limit_ && clock_) {
    begin_ = clock_();
  }
}

bool Budget::ended() {
  if (!cut_ && asked_++ % 16 == 0) {
    cut_ = (interrupted_ && interrupted_()) || (limit_ && clock_ && clock_() - begin_ > *limit_);
  }
  return cut_;
}

void Incumbents::offer(const PlacementState& state) {
  if (state.fits()) {
    offer(state.objective(), state.placement());
  }
}

void Incumbents::offer(Femtoseconds objective, const Placement& placement) {
  const auto at =
      std::lower_bound(best_.begin(), best_.end(), objective,
                       [](const Entry& e, Femtoseconds value) { return e.objective < value; });
  // Equal objectives are almost always the same placement up to names of ranks.
  if (at == best_.end() ? best_.size() == keep_ : at->objective == objective) {
    return;
  }
  best_.insert(at, {objective, placement});
  if (best_.size() > keep_) {
    best_.pop_back();
  }
}

std::vector<std::pair<Femtoseconds, Placement>> Incumbents::take() {
  std::vector<std::pair<Femtoseconds, Placement>> all;
  for (Entry& e : best_) {
    all.emplace_back(e.objective, std::move(e.placement));
  }
  best_.clear();
  return all;
}

LocalSearch::LocalSearch(const PlacementProblem& problem, std::uint64_t seed, Femtoseconds enough,
                         Budget& budget, Incumbents& best_found)
    : problem_(problem),
      random_state_(seed),
      enough_(enough),
      budget_(budget),
      best_found_(best_found) {}

std::uint64_t LocalSearch::random() { return next_split_mix(random_state_); }

bool LocalSearch::improve_table(PlacementState& state, std::size_t table, Femtoseconds& at) {
  const Choice old = state.placement()[table];
  state.remove(table);
  std::optional<Choice> best;
  Femtoseconds least = at;
  const auto& options = problem_.tables[table].options;
  const bool may_return = problem_.moves.has_value();
  for (std::size_t o = 0; o < options.size() + (may_return ? 1 : 0); ++o) {
    Choice choice = o < options.size()
                        ? Choice{static_cast<std::int32_t>(o), state.least_loaded(options[o])}
                        : problem_.moves->home[table];
    if (choice.option == old.option && choice.groups == old.groups) {
      continue;
    }
    const auto& option = options[index(choice.option)];
    const Femtoseconds objective = state.with(option, choice.groups);
    if (objective >= least) {
      continue;
    }
    state.add(table, choice);
    if (state.fits()) {
      least = objective;
      best = std::move(choice);
    }
    state.remove(table);
  }
  state.add(table, best ? std::move(*best) : old);
  at = least;
  return best.has_value();
}

void LocalSearch::descend(PlacementState& state) {
  const std::uint64_t before = state.evaluations();
  Femtoseconds at = state.objective();
  const std::size_t tables = problem_.tables.size();
  std::size_t idle = 0;  // tables tried in a row without success
  while (!budget_.spent(state.evaluations() - before)) {
    if (tables > kLarge && state.fits() && state.objective() <= enough_) {
      break;
    }
    bool improved = false;
    for (std::size_t m = state.measures().size(); m-- > 0 && !improved;) {
      const std::int32_t rank = state.busiest(state.measures()[m]);
      for (const std::int32_t t : distinct(state.tables_on(rank))) {
        improved = improve_table(state, index(t), at) || improved;
      }
    }
    for (std::size_t i = 0; i < std::min(kAlsoTried, tables); ++i) {
      const bool found = improve_table(state, cursor_++ % tables, at);
      idle = found ? 0 : idle + 1;
      improved = improved || found;
    }
    if (!improved && (idle >= tables || tables > 2000)) {
      break;
    }
  }
  budget_.add(state.evaluations() - before);
  best_found_.offer(state);
}

void LocalSearch::repair(const std::vector<std::int32_t>& choose) {
  PlacementState state(problem_);
  place_greedily(state, choose);
  bool improved = true;
  while (state.excess() > 0 && improved && !budget_.spent()) {
    improved = false;
    for (std::size_t t = 0; t < problem_.tables.size() && state.excess() > 0; ++t) {
      std::int64_t least = state.excess();
      const Choice old = state.placement()[t];
      Choice best = old;
      for (std::size_t o = 0; o < problem_.tables[t].options.size(); ++o) {
        state.remove(t);
        const PlacementOption& option = problem_.tables[t].options[o];
        state.add(t, {static_cast<std::int32_t>(o), state.least_loaded(option)});
        if (state.excess() < least) {
          least = state.excess();
          best = state.placement()[t];
          improved = true;
        }
      }
      state.remove(t);
      state.add(t, best);
    }
  }
  if (state.excess() == 0) {
    best_found_.offer(state);
    descend(state);
    return;
  }
  const auto bytes = bytes_of(problem_, state.placement());
  std::optional<Shortage> worst;
  for (std::size_t tier = 0; tier < bytes.size(); ++tier) {
    for (std::size_t u = 0; u < bytes[tier].size(); ++u) {
      const TierCapacity& of = problem_.tiers[tier];
      if (bytes[tier][u] - of.capacity[u] > (worst ? worst->missing() : 0)) {
        worst = Shortage{"", of.name, bytes[tier][u], of.capacity[u]};
      }
    }
  }
  if (worst) {
    std::int64_t largest = 0;
    for (const PlacementTable& table : problem_.tables) {
      for (const PlacementOption& o : table.options) {
        if (o.bytes[0] > largest) {
          largest = o.bytes[0];
          worst->table = table.name;
        }
      }
    }
    closest_ = worst;
  }
}

}  // namespace stepcast::planner::internal
