#pragma once
#include <cstdint>
#include <memory>
#include <span>
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

/// Bytes of the stage's temporaries in the pass that needs most.
double pass_temporaries(const ReducedStage& stage);

/// Time and memory of a stage of a reduced graph: its ops priced by the cost model with the
/// groups of the real mesh, its segments walked by one rank's clock. Only the bases of the lines
/// are set. One per thread.
class StageCosts {
 public:
  /// `overlapped`: gradients are exchanged during passes (parallel.overlap.data). `two_kinds`: some
  /// layers of the job have experts and some have none.
  StageCosts(const models::CostModel& model, CostBasis clock, bool overlapped, bool two_kinds);
  /// The same by another clock; both ask one pricer and are used by one thread.
  StageCosts(const StageCosts& other, CostBasis clock) : StageCosts(other) { clock_ = clock; }

  PassCosts passes(const ReducedStage& stage, const Mesh& mesh, ScheduleKind schedule);
  /// `hidden`: as if all exchanges that overlap with passes were hidden by them.
  StateCosts states(const ReducedStage& stage, const Mesh& mesh, bool hidden);
  /// Fabric levels of the collectives priced since the last call, as bits.
  std::uint32_t take_levels() { return std::exchange(levels_, 0); }

 private:
  std::vector<double> price(const ReducedStage& stage, const Mesh& mesh, bool passes);
  void time_passes(const Program& program, std::span<const double> seconds, ScheduleKind schedule,
                   PassCosts& costs) const;
  [[nodiscard]] RankTimeline walk_of(const Program& program,
                                     std::span<const double> seconds) const {
    return {program, seconds, dispatch_, slowdown_, clock_};
  }

  CostBasis clock_;
  bool overlapped_, two_kinds_;
  std::shared_ptr<simulator::Pricer> pricer_;
  models::HostCost host_;
  double dispatch_ = 0, slowdown_ = 1;
  std::uint32_t levels_ = 0;
};

}  // namespace stepcast::planner
