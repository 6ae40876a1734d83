#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "models/cost_model.h"
#include "planner/parallel/chunk_costs.h"
#include "planner/parallel/probe_graph.h"
#include "planner/parallel/rank_timeline.h"
#include "simulator/pricer.h"

namespace stepcast::planner {

/// Fabric levels on which the members of a group lie apart, as bits.
std::uint32_t levels_of(const GroupShape& shape);

/// The kinds of a graph's layers, as indices of their costs. A stage has `alike` layers of each
/// kind that it has.
struct LayerKinds {
  std::vector<std::size_t> of_layer;
  std::int64_t alike = 1;
  /// False for an op of no layer, or of one that predicts further tokens.
  [[nodiscard]] bool has(std::int16_t layer) const {
    return layer != kNoLayer && static_cast<std::size_t>(layer) < of_layer.size();
  }
  [[nodiscard]] std::size_t of(std::int16_t layer) const {
    return of_layer[static_cast<std::size_t>(layer)];
  }
  /// Adds to a line what one layer has of it, or what belongs to none.
  void add(Line& line, std::int16_t layer, double value) const {
    (has(layer) ? line.layer[of(layer)] : line.base) +=
        has(layer) ? value / static_cast<double>(alike) : value;
  }
};

/// A temporary that lives throughout passes: of the ends, or of the layers of some kinds.
struct Temporary {
  std::string_view name;
  double bytes = 0;
  std::array<std::size_t, 3> kinds{};  ///< by pass, as bits, and kOfEnds
};
constexpr std::size_t kOfEnds = std::size_t{1} << kMostBlockKinds;
struct StagePasses {
  PassCosts costs;
  std::vector<Temporary> temporaries;  ///< named by the graph
  /// Most bytes of the other temporaries that live at once, by pass, in layers of a kind; last those
  /// of the ends.
  std::array<std::array<double, kMostBlockKinds + 1>, 3> most_live{};
};
/// Fills in the temporaries of the costs, with layers like those of the stage or of one in the
/// middle.
void share_temporaries(StagePasses& stage, const StagePasses& middle);

/// Time and memory of a stage of a reduced graph: its ops priced by the cost model with the
/// groups of the real mesh, its segments walked by one rank's clock. One per thread.
class StageCosts {
 public:
  /// `overlapped`: gradients are exchanged during passes (parallel.overlap.data). `several_kinds`:
  /// layers of the job are of several kinds.
  StageCosts(const models::CostModel& model, CostBasis clock, bool overlapped, bool several_kinds);
  /// The same by another clock; both ask one pricer and are used by one thread.
  StageCosts(const StageCosts& other, CostBasis clock) : StageCosts(other) { clock_ = clock; }

  /// Lines hold what a layer of each kind adds: of several alike, one that comes after another.
  StagePasses passes(const ReducedStage& stage, const Mesh& mesh, ScheduleKind schedule,
                     const LayerKinds& kinds);
  /// Only the bases of the lines are set. `hidden`: as if all exchanges that overlap with passes
  /// were hidden by them.
  StateCosts states(const ReducedStage& stage, const Mesh& mesh, bool hidden);
  /// Fabric levels of the collectives priced since the last call, as bits.
  std::uint32_t take_levels() { return std::exchange(levels_, 0); }

 private:
  std::vector<double> price(const ReducedStage& stage, const Mesh& mesh, bool passes);
  void time_passes(const Program& program, std::span<const double> seconds, ScheduleKind schedule,
                   const LayerKinds& kinds, PassCosts& costs) const;
  [[nodiscard]] Line line_of(std::span<const double> by_layer, const LayerKinds& kinds,
                             bool ascending) const;
  [[nodiscard]] RankTimeline walk_of(const Program& program,
                                     std::span<const double> seconds) const {
    return {program, seconds, dispatch_, slowdown_, clock_};
  }

  CostBasis clock_;
  bool overlapped_, several_kinds_;
  std::shared_ptr<simulator::Pricer> pricer_;
  models::HostCost host_;
  double dispatch_ = 0, slowdown_ = 1;
  std::uint32_t levels_ = 0;
};

}  // namespace stepcast::planner
