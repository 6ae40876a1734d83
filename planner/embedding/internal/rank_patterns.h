#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

/// One piece of an option: its load on a rank, and the part of the table it is.
struct PatternItem {
  double load = 0;
  double part = 1;
  std::size_t option = 0;
};

/// Items of a rank: item by table, -1 for none.
using Pattern = std::vector<std::int32_t>;

/// The tables' items under one set of charges.
class PatternItems {
 public:
  /// Options that keep to the routes and load no rank with more than `most` seconds.
  PatternItems(const PlacementProblem& problem, std::uint32_t routes, double most);
  [[nodiscard]] bool possible() const { return possible_; }
  /// Load that every placement puts on every rank.
  [[nodiscard]] double common() const { return common_; }
  /// Mean load of the cheapest options.
  [[nodiscard]] double mean(double ranks) const;
  [[nodiscard]] const std::vector<std::vector<PatternItem>>& tables() const { return tables_; }

 private:
  std::vector<std::vector<PatternItem>> tables_;
  double common_ = 0;
  bool possible_ = true;
};

/// Most value by load, on a grid of `cells` steps of `step` seconds.
template <typename Number>
class PatternKnapsack {
 public:
  /// `traced`: patterns will be asked for.
  PatternKnapsack(const PatternItems& items, std::size_t cells, double step, double rounding,
                  bool traced)
      : items_(items), cells_(cells) {
    for (const auto& table : items.tables()) {
      auto& to = weights_.emplace_back();
      for (const PatternItem& i : table) {
        to.push_back(static_cast<std::size_t>(
            std::max(0.0, std::floor(i.load / step * (1 - 1e-12) + rounding))));
      }
    }
    best_.assign(traced ? items.tables().size() + 1 : 2, std::vector<Number>(cells + 1, 0));
  }

  /// The curve V(values, .) by grid cell; items worth less than `poor` a second are left out.
  std::span<const Number> solve(std::span<const double> values, double poor = 0) {
    std::fill(best_[0].begin(), best_[0].end(), Number{0});
    for (std::size_t t = 0; t < weights_.size(); ++t) {
      const Number* from = best_[t % best_.size()].data();
      Number* to = best_[(t + 1) % best_.size()].data();
      bool first = true;
      for (std::size_t i = 0; i < weights_[t].size(); ++i) {
        const std::size_t w = weights_[t][i];
        const auto value = static_cast<Number>(values[t] * items_.tables()[t][i].part);
        if (w > cells_ || value <= 0 ||
            static_cast<double>(value) < poor * items_.tables()[t][i].load) {
          continue;
        }
        const Number* without = first ? from : to;
        for (std::size_t c = 0; c <= cells_ - w; ++c) {
          to[c + w] = std::max(without[c + w], from[c] + value);
        }
        if (first) {
          std::copy_n(from, w, to);
        }
        first = false;
      }
      if (first) {
        std::copy_n(from, cells_ + 1, to);
      }
    }
    return best_[weights_.size() % best_.size()];
  }

  /// The pattern that attains the curve at a cell.
  [[nodiscard]] Pattern at(std::size_t cell, std::span<const double> values) const {
    Pattern pattern(weights_.size(), -1);
    for (std::size_t t = weights_.size(); t-- > 0;) {
      if (best_[t + 1][cell] == best_[t][cell]) {
        continue;
      }
      for (std::size_t i = 0; i < weights_[t].size(); ++i) {
        const std::size_t w = weights_[t][i];
        const auto value = static_cast<Number>(values[t] * items_.tables()[t][i].part);
        if (w <= cell && best_[t][cell - w] + value == best_[t + 1][cell]) {
          pattern[t] = static_cast<std::int32_t>(i);
          cell -= w;
          break;
        }
      }
    }
    return pattern;
  }

 private:
  const PatternItems& items_;
  std::size_t cells_;
  std::vector<std::vector<std::size_t>> weights_;
  std::vector<std::vector<Number>> best_;
};

}  // namespace stepcast::planner::internal
