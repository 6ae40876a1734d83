#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "planner/embedding/placement_state.h"

namespace stepcast::planner::internal {

/// Moves pieces between the ranks that are busiest in a phase, or in all together, and others,
/// options as they are: at most two pieces for at most two. For each bundle given, the bundles
/// taken are those that leave the pair nearest to each other in that phase; of these exchanges the
/// one that lowers the objective most. Repeats while there is one and the placement stays within
/// capacities; true when it gained. Sums of pieces are sorted and walked from both ends, so a pair
/// costs a few hundred steps; pairs that could not gain as much as one in hand are not looked at.
/// Only pieces on single ranks, without skew, are considered.
class Rebalance {
 public:
  explicit Rebalance(PlacementState& state) : state_(state) {}
  /// `most`: tables that change ranks, about.
  bool run(Femtoseconds enough, std::uint64_t& cursor,
           std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

 private:
  struct Piece {
    std::int32_t table;
    const PlacementOption* option;
  };
  /// Up to two pieces that change ranks together.
  struct Bundle {
    Femtoseconds load = 0;  ///< in the measure looked at
    const PlacementOption *a = nullptr, *b = nullptr;
    std::int32_t first = -1, second = -1;  ///< tables
    [[nodiscard]] Femtoseconds in(std::size_t phase) const {
      return (a != nullptr ? a->load[phase] : 0) + (b != nullptr ? b->load[phase] : 0);
    }
  };
  struct Exchange {
    Femtoseconds gain;    ///< in the objective
    Femtoseconds slower;  ///< of the pair, in the measure looked at
    std::int32_t partner;
    Bundle give, take;
    [[nodiscard]] bool better_than(const Exchange& o) const {
      return gain != o.gain ? gain > o.gain : slower < o.slower;
    }
  };
  void pieces_of(std::int32_t rank, std::int32_t other, std::vector<Piece>& to) const;
  static void bundles_of(const std::vector<Piece>& pieces, std::size_t measure,
                         std::vector<Bundle>& to);
  /// Notes the three ranks with most load of each phase.
  void find_slowest();
  void consider(std::size_t measure, std::int32_t rank, std::int32_t partner,
                std::vector<Exchange>& found);
  bool improve(std::size_t measure, std::uint64_t& cursor);
  bool apply(std::int32_t rank, const Exchange& e);
  void change(std::int32_t table, std::int32_t from, std::int32_t to);

  PlacementState& state_;
  std::array<std::array<std::int32_t, 3>, kPhases> slowest_{};
  Femtoseconds most_gain_ = 0;  ///< of the exchanges found for one rank
  std::vector<Piece> mine_, theirs_;
  std::vector<Bundle> give_, take_;
};

}  // namespace stepcast::planner::internal
