#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program.h"
#include "simulator/reports/timeline.h"
#include "simulator/simulate.h"

namespace stepcast::simulator {

/// Share of one op template in the step of its rank: the ticks for which it is the one that a
/// part is put down to.
struct OpShare {
  std::int64_t executions = 0;
  SimTime compute{}, exposed_communication{}, bubble{};
  [[nodiscard]] SimTime total() const {
    return SimTime{ticks(compute) + ticks(exposed_communication) + ticks(bubble)};
  }
};

/// Parts of the time of one rank. Every tick of [begin, end) falls into exactly one part, so the
/// parts sum to the step exactly. The first that applies counts:
///   compute                some stream computes
///   exposed_communication  a collective of the rank transfers
///   bubble                 a collective of the rank waits for other ranks, or all its work is done
///   host                   the next op to begin was not issued yet, or the host holds the core
///                          that it shares with the streams
///   other                  gaps nothing else explains: dispatch, final synchronisation
/// A tick of the first three is also put down to one op: of the ops that run then, the one on the
/// first stream.
struct Breakdown {
  std::int32_t rank = 0;
  SimTime compute{}, exposed_communication{}, bubble{}, host{}, other{};
  std::vector<OpShare> by_op;  ///< by op template of the rank's program
  /// Part of `bubble` that no op waits in: the rank is done and others are not.
  SimTime done{};
  [[nodiscard]] SimTime total() const {
    return SimTime{ticks(compute) + ticks(exposed_communication) + ticks(bubble) + ticks(host) +
                   ticks(other)};
  }
};

struct BreakdownOptions {
  SimTime begin{};           ///< of the step; recorded runs do not begin at 0
  SimTime end{};             ///< of the step
  SimTime rank_end{};        ///< after it the rank waits for the others
  bool shares_core = false;  ///< StepCosts::shares_core
  Repetition repetition{};   ///< in the timeline; `end` and `rank_end` are those of the whole step
};

/// For any timeline: a simulated step or a recorded one.
Breakdown breakdown(const Program& program, const Timeline& timeline, std::int32_t rank,
                    const BreakdownOptions& options);

}  // namespace stepcast::simulator
