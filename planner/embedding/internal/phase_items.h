#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

using PhaseVector = std::array<double, kPhases>;  ///< seconds by phase; a weight by phase

/// An option of a table, as the bound of phases sees it.
struct PhaseItem {
  double even = 0;      ///< on every rank at least, all phases
  PhaseVector local{};  ///< beyond that, averaged over ranks
  PhaseVector piece{};  ///< beyond that, on the rank that has most of a phase
  double pieces = 0;    ///< of all phases
  std::uint32_t routes = 0;
  std::int32_t option = 0;
};

/// The options of all tables, without those that are no better than another one in any phase.
class PhaseItems {
 public:
  /// Tables that each have one item which costs no more than any other, whatever the weights of
  /// phases, and what these add up to. Where no piece of them is too large for a phase, a
  /// relaxation takes them without a look at each.
  struct Block {
    std::vector<std::pair<std::size_t, const PhaseItem*>> tables;
    double even = 0;
    PhaseVector local{}, piece{};  ///< piece: the largest
  };
  /// The tables under one set of routes.
  struct Grouped {
    std::vector<Block> blocks;
    std::vector<std::size_t> others;
  };

  /// With up to `few` tables there are no blocks: they cost more than they save.
  PhaseItems(const PlacementProblem& problem, std::size_t few);
  [[nodiscard]] const std::vector<std::vector<PhaseItem>>& tables() const { return tables_; }
  [[nodiscard]] std::uint32_t routes() const { return routes_; }
  const Grouped& grouped(std::uint32_t routes);
  /// The pieces in a phase: the largest that is at most `seconds` (0 without one), and the
  /// smallest that is larger (infinity without one).
  [[nodiscard]] std::pair<double, double> pieces_around(std::size_t phase, double seconds) const;

 private:
  [[nodiscard]] const PhaseItem* cheapest(std::size_t table, std::uint32_t routes) const;

  std::vector<std::vector<PhaseItem>> tables_;
  std::uint32_t routes_ = 0;  ///< of all
  bool blocks_;
  std::map<std::uint32_t, Grouped> grouped_;         ///< by routes
  std::array<std::vector<double>, kPhases> pieces_;  ///< of all items, ascending
};

}  // namespace stepcast::planner::internal
