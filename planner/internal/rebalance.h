#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/placement_state.h"

namespace stepcast::planner::internal {

/// Moves pieces between the busiest rank and others, options as they are: of all exchanges of at
/// most two pieces for at most two, with any of `partners`, the one that leaves the pair's slower
/// rank least. Repeats while the busiest rank gains and the placement stays within capacities;
/// true when it gained. Sums of pieces are sorted and walked from both ends, so a pair costs a few
/// hundred steps. Takes part: pieces on single ranks, without skew.
class Rebalance {
 public:
  explicit Rebalance(PlacementState& state) : state_(state) {}
  bool run(Ticks enough, std::uint64_t& cursor);

 private:
  struct Piece {
    std::int32_t table;
    Ticks load;
  };
  /// Up to two pieces that change ranks together.
  struct Bundle {
    Ticks load = 0;
    std::int32_t first = -1, second = -1;  ///< tables
  };
  struct Exchange {
    Ticks slower;
    std::int32_t partner;
    Bundle give, take;
  };
  void pieces_of(std::int32_t rank, std::int32_t other, std::vector<Piece>& to) const;
  static void bundles_of(const std::vector<Piece>& pieces, std::vector<Bundle>& to);
  void consider(std::int32_t rank, std::int32_t partner, std::vector<Exchange>& found);
  bool apply(std::int32_t rank, const Exchange& e);
  void change(std::int32_t table, std::int32_t from, std::int32_t to);

  PlacementState& state_;
  std::vector<Piece> mine_, theirs_;
  std::vector<Bundle> give_, take_;
};

}  // namespace stepcast::planner::internal
