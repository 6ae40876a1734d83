#include "planner/embedding/internal/branch_and_bound.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "planner/embedding/placement_state.h"

namespace stepcast::planner::internal {
namespace {

/// Load of an option summed over ranks and phases.
Femtoseconds summed(const PlacementOption& o, std::int32_t ranks) {
  Femtoseconds sum = 0;
  const Load extras = o.sum_of_extras();
  for (std::size_t p = 0; p < kPhases; ++p) {
    sum += o.load[p] * o.group * o.pieces + extras[p] + o.everywhere[p] * ranks;
  }
  return sum;
}

class Tree {
 public:
  Tree(const PlacementProblem& problem, Femtoseconds in_hand, std::uint64_t steps)
      : problem_(problem), state_(problem), best_(in_hand), steps_(steps) {
    const std::size_t n = problem.tables.size();
    order_.resize(n);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::vector<Femtoseconds> least(n);
    for (std::size_t t = 0; t < n; ++t) {
      least[t] = std::numeric_limits<Femtoseconds>::max();
      for (const PlacementOption& o : problem.tables[t].options) {
        least[t] = std::min(least[t], summed(o, problem.ranks));
      }
    }
    std::stable_sort(order_.begin(), order_.end(),
                     [&least](std::size_t a, std::size_t b) { return least[a] > least[b]; });
    rest_.assign(n + 1, 0);
    for (std::size_t i = n; i-- > 0;) {
      rest_[i] = rest_[i + 1] + least[order_[i]];
    }
    for (const TierCapacity& tier : problem.tiers) {
      used_.emplace_back(static_cast<std::size_t>(problem.ranks), 0);
      (void)tier;
    }
  }

  bool finish() { return walk(0, 0); }
  [[nodiscard]] std::uint64_t spent() const { return spent_; }
  [[nodiscard]] std::optional<std::pair<Femtoseconds, Placement>> better() const { return found_; }

 private:
  /// False when the steps ran out.
  bool walk(std::size_t depth, Femtoseconds load) {
    if (depth == order_.size()) {
      best_ = state_.objective();
      found_.emplace(best_, state_.placement());
      return true;
    }
    const std::size_t t = order_[depth];
    for (std::size_t o = 0; o < problem_.tables[t].options.size(); ++o) {
      Choice choice{static_cast<std::int32_t>(o), {}};
      const PlacementOption& option = problem_.tables[t].options[o];
      const Femtoseconds with = load + summed(option, problem_.ranks);
      if ((with + rest_[depth + 1]) / problem_.ranks + problem_.constant >= best_) {
        continue;
      }
      const bool placed = option.group < problem_.ranks;
      if (!(placed ? groups(depth, with, choice, 0) : place(depth, with, choice))) {
        return false;
      }
    }
    return true;
  }

  bool groups(std::size_t depth, Femtoseconds load, Choice& choice, std::int32_t first) {
    const std::size_t t = order_[depth];
    const PlacementOption& option =
        problem_.tables[t].options[static_cast<std::size_t>(choice.option)];
    if (static_cast<std::int32_t>(choice.groups.size()) == option.pieces) {
      return place(depth, load, choice);
    }
    std::vector<std::int32_t> tried;
    const bool ordered = option.uneven_pieces();
    for (std::int32_t g = ordered ? 0 : first; g < problem_.ranks / option.group; ++g) {
      if (ordered &&
          std::find(choice.groups.begin(), choice.groups.end(), g) != choice.groups.end()) {
        continue;
      }
      if (std::any_of(tried.begin(), tried.end(),
                      [&](std::int32_t other) { return same(other, g, option.group); })) {
        continue;
      }
      tried.push_back(g);
      choice.groups.push_back(g);
      const bool done = groups(depth, load, choice, g + 1);
      choice.groups.pop_back();
      if (!done) {
        return false;
      }
    }
    return true;
  }

  bool place(std::size_t depth, Femtoseconds load, const Choice& choice) {
    if (++spent_ > steps_) {
      return false;
    }
    const std::size_t t = order_[depth];
    state_.add(t, choice);
    count_bytes(t, choice, 1);
    bool done = true;
    if (state_.fits() && state_.objective() < best_) {
      done = walk(depth + 1, load);
    }
    count_bytes(t, choice, -1);
    state_.remove(t);
    return done;
  }

  /// Bytes by rank and a fingerprint of the tables on it: ranks that hold the same are alike.
  void count_bytes(std::size_t t, const Choice& choice, std::int64_t sign) {
    const PlacementOption& o = problem_.tables[t].options[static_cast<std::size_t>(choice.option)];
    for (const std::int32_t g : choice.groups) {
      for (std::int32_t r = g * o.group; r < (g + 1) * o.group; ++r) {
        for (std::size_t tier = 0; tier < used_.size(); ++tier) {
          used_[tier][static_cast<std::size_t>(r)] += sign * o.bytes[tier];
        }
      }
    }
  }

  /// Whether two groups are interchangeable for what is still to be placed. Larger groups and units
  /// that ranks share make places differ by where they lie: then only a group is like itself.
  [[nodiscard]] bool same(std::int32_t a, std::int32_t b, std::int32_t size) const {
    if (!symmetric()) {
      return false;
    }
    for (std::int32_t i = 0; i < size; ++i) {
      const std::int32_t ra = a * size + i;
      const std::int32_t rb = b * size + i;
      for (std::size_t p = 0; p < kPhases; ++p) {
        if (state_.load(ra, p) != state_.load(rb, p)) {
          return false;
        }
      }
      for (const auto& tier : used_) {
        if (tier[static_cast<std::size_t>(ra)] != tier[static_cast<std::size_t>(rb)]) {
          return false;
        }
      }
    }
    return true;
  }

  [[nodiscard]] bool symmetric() const {
    if (symmetric_ < 0) {
      symmetric_ = 1;
      for (const TierCapacity& tier : problem_.tiers) {
        if (tier.shared_by > 1 ||
            std::any_of(tier.capacity.begin(), tier.capacity.end(),
                        [&tier](std::int64_t c) { return c != tier.capacity.front(); })) {
          symmetric_ = 0;
        }
      }
      for (const PlacementTable& table : problem_.tables) {
        for (const PlacementOption& o : table.options) {
          // Skew over all ranks tells ranks apart already through their loads only once placed.
          if ((o.group > 1 && o.group < problem_.ranks) || !o.skew.empty()) {
            symmetric_ = 0;
          }
        }
      }
    }
    return symmetric_ == 1;
  }

  const PlacementProblem& problem_;
  PlacementState state_;
  Femtoseconds best_;
  std::uint64_t steps_;
  std::uint64_t spent_ = 0;
  std::vector<std::size_t> order_;
  std::vector<Femtoseconds> rest_;
  std::vector<std::vector<std::int64_t>> used_;
  std::optional<std::pair<Femtoseconds, Placement>> found_;
  mutable int symmetric_ = -1;
};

}  // namespace

std::optional<ProvenOptimum> branch_and_bound(const PlacementProblem& problem, Femtoseconds in_hand,
                                              std::uint64_t steps) {
  Tree tree(problem, in_hand, steps);
  if (!tree.finish()) {
    return std::nullopt;
  }
  return ProvenOptimum{tree.better(), tree.spent()};
}

}  // namespace stepcast::planner::internal
