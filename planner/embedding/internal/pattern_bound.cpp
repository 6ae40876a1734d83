#include "planner/embedding/internal/pattern_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "planner/embedding/internal/covering_program.h"
#include "planner/embedding/internal/rank_patterns.h"

namespace stepcast::planner::internal {
namespace {

constexpr std::size_t kCoarse = 832;  // distinct loads while patterns are priced
constexpr std::size_t kFine = 8192;   // in the final check
constexpr double kTolerance = 1e-6;
constexpr double kClose = 1e-3;  // of the program's optimum: near enough
constexpr double kPoor = 0.6;    // of the mean worth of a second: such items are in no good pattern
constexpr double kTowardsCentre = 0.6;  // smoothing of the dual values

double sum_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) {
    sum += v;
  }
  return sum;
}

/// The largest load, on a curve's grid, that values prove too small for all ranks.
template <typename Number>
std::size_t proven_cells(std::span<const Number> curve, double ranks, double sum) {
  const auto at = std::partition_point(curve.begin(), curve.end(), [&](Number v) {
    return ranks * static_cast<double>(v) < sum * (1 - kTolerance);
  });
  return static_cast<std::size_t>(at - curve.begin());
}

struct LeastLoad {
  double value = 0;
  std::vector<std::vector<double>> covered;  ///< by table, item
};
/// Bound that the values prove on a fine grid of loads rounded down, and the mix of the program.
LeastLoad checked(const PatternItems& items, double ranks, double known, double most,
                  const std::vector<double>& values, const CoveringProgram& program) {
  const double fine = most / static_cast<double>(kFine);
  PatternKnapsack<double> exact(items, kFine, fine, 0, false);
  const std::size_t cells = proven_cells<double>(exact.solve(values), ranks, sum_of(values));
  LeastLoad found;
  found.value = std::max(known, std::min(most, static_cast<double>(cells) * fine));
  for (std::size_t t = 0; t < items.tables().size(); ++t) {
    auto& to = found.covered.emplace_back();
    for (std::size_t i = 0; i < items.tables()[t].size(); ++i) {
      to.push_back(program.covered(t, static_cast<std::int32_t>(i)));
    }
  }
  return found;
}

/// The least load of the busiest rank that one set of charges leaves possible, `most` at most.
LeastLoad least_load(const PatternItems& items, double ranks, double known, double most,
                     std::uint64_t knapsacks) {
  const double step = most / static_cast<double>(kCoarse);
  PatternKnapsack<float> coarse(items, kCoarse, step, 0.5, true);
  CoveringProgram program(items);
  const std::size_t n = items.tables().size();
  // From the values of the mean load: the loads of whole tables.
  std::vector<double> centre(n);
  for (std::size_t t = 0; t < n; ++t) {
    centre[t] = std::numeric_limits<double>::infinity();
    for (const PatternItem& i : items.tables()[t]) {
      centre[t] = std::min(centre[t], i.load / i.part);
    }
    centre[t] /= most;
  }
  std::vector<double> best = centre;
  auto cell = static_cast<std::size_t>(std::clamp(known / step, 1.0, static_cast<double>(kCoarse)));
  std::size_t best_proven = 0;
  double best_share = 0;  // sum of values over ranks times the best pattern, at the cell
  std::vector<double> values(n);
  while (knapsacks > 0 && cell < kCoarse) {
    const std::vector<double> exact = program.duals();
    const auto slack = std::find_if(exact.begin(), exact.end(), [](double v) { return v < -1e-9; });
    if (slack != exact.end()) {
      --knapsacks;
      if (!program.enter_slack(static_cast<std::size_t>(slack - exact.begin()))) {
        break;
      }
      continue;
    }
    const bool suffice = program.value() <= ranks * (1 + 1e-9);
    if (suffice && program.value() <= ranks * best_share * (1 + kClose)) {
      break;
    }
    bool entered = false;
    for (const double smooth : {kTowardsCentre, 0.0}) {
      for (std::size_t t = 0; t < n; ++t) {
        values[t] = std::max(0.0, smooth * centre[t] + (1 - smooth) * exact[t]);
      }
      --knapsacks;
      const double mean_worth = sum_of(values) / (ranks * static_cast<double>(cell) * step);
      const auto curve = coarse.solve(values, kPoor * mean_worth);
      const double top = curve[cell];
      const double share = sum_of(values) / (ranks * std::max(top, 1e-30));
      const std::size_t proven = proven_cells<float>(curve, ranks, sum_of(values));
      if (proven > best_proven) {
        best_proven = proven;
        best = values;
      }
      if (share > best_share) {
        best_share = share;
        for (std::size_t t = 0; t < n; ++t) {
          centre[t] = values[t] / std::max(top, 1e-30);
        }
        if (proven > cell && !suffice) {
          cell = std::min(proven, kCoarse);
          best_share = sum_of(values) / (ranks * std::max<double>(curve[cell], 1e-30));
        }
      }
      const Pattern p = coarse.at(cell, values);
      if (program.worth(p, exact) > 1 + 1e-6) {
        entered = program.enter(p);
        break;
      }
      if (knapsacks == 0) {
        break;
      }
    }
    if (!entered) {
      break;
    }
  }
  return checked(items, ranks, known, most, best, program);
}

}  // namespace

PatternBound::PatternBound(const PlacementProblem& problem) : problem_(problem) {
  std::uint32_t used = 0;
  for (const PlacementTable& table : problem.tables) {
    for (const PlacementOption& o : table.options) {
      used |= o.routes;
    }
  }
  for (std::uint32_t set = used;; set = (set - 1) & used) {
    double fixed = load_seconds(problem.constant);
    for (std::size_t f = 0; f < problem.fixed.size(); ++f) {
      fixed += (set >> f & 1U) != 0 ? load_seconds(problem.fixed[f]) : 0;
    }
    const PatternItems items(problem, set, std::numeric_limits<double>::infinity());
    if (items.possible()) {
      charges_.push_back(
          {set, fixed, fixed + items.common() + items.mean(problem.ranks), false, {}});
    }
    if (set == 0) {
      break;
    }
  }
}

void PatternBound::solve(Charges& charges, Femtoseconds known, Femtoseconds in_hand,
                         std::uint64_t knapsacks) {
  charges.solved = true;
  const PatternItems items(problem_, charges.routes, load_seconds(in_hand) - charges.fixed);
  const double fixed = charges.fixed + items.common();
  const double most = load_seconds(in_hand) - fixed;
  if (!items.possible() || most <= 0) {
    charges.least = load_seconds(in_hand);
    return;
  }
  const double mean = items.mean(problem_.ranks);
  const double from = std::max({0.0, load_seconds(known) - fixed, mean * (1 - 1e-9)});
  const LeastLoad least = least_load(items, problem_.ranks, from, most, knapsacks);
  charges.least = std::max(charges.least, fixed + least.value);
  for (std::size_t t = 0; t < problem_.tables.size(); ++t) {
    auto& to = charges.mix.emplace_back(problem_.tables[t].options.size(), 0.0);
    for (std::size_t i = 0; i < items.tables()[t].size(); ++i) {
      to[items.tables()[t][i].option] = least.covered[t][i];
    }
  }
}

const PatternBound::Charges* PatternBound::decisive(Femtoseconds known, Femtoseconds in_hand,
                                                    std::uint64_t knapsacks) {
  while (!charges_.empty()) {
    const auto least =
        std::min_element(charges_.begin(), charges_.end(),
                         [](const Charges& a, const Charges& b) { return a.least < b.least; });
    if (least->solved || least->least >= load_seconds(in_hand)) {
      return &*least;
    }
    solve(*least, known, in_hand, knapsacks);
  }
  return nullptr;
}

Mix PatternBound::mix(Femtoseconds known, Femtoseconds in_hand, std::uint64_t knapsacks) {
  const Charges* c = decisive(known, in_hand, knapsacks);
  return c == nullptr ? Mix{} : c->mix;
}

Femtoseconds PatternBound::value(Femtoseconds known, Femtoseconds in_hand,
                                 std::uint64_t knapsacks) {
  const Charges* c = decisive(known, in_hand, knapsacks);
  const double bound = std::min(load_seconds(in_hand), c == nullptr ? 0 : c->least);
  return std::clamp(static_cast<Femtoseconds>(std::floor(bound * (1 - 1e-9) * 1e15)),
                    std::min(known, in_hand), in_hand);
}

}  // namespace stepcast::planner::internal
