#pragma once
#include <cstdint>
#include <string>

#include "core/program.h"
#include "simulator/reports/timeline.h"

namespace stepcast::simulator {

/// Where the time of one rank goes. Every tick of [0, end) falls into exactly one part, so the
/// parts sum to the step exactly. The first that applies counts:
///   compute                some stream computes
///   exposed_communication  a collective of the rank transfers
///   bubble                 a collective of the rank waits for other ranks, or all its work is done
///   host                   the next op to begin was not issued yet, or the host holds the shared
///   core other                  gaps nothing else explains: dispatch, final synchronisation
struct Breakdown {
  std::int32_t rank = 0;
  SimTime compute{}, exposed_communication{}, bubble{}, host{}, other{};
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
};

/// Of any timeline: a simulated step or a recorded one.
Breakdown breakdown(const Program& program, const Timeline& timeline, std::int32_t rank,
                    const BreakdownOptions& options);

/// Five lines, e.g. "compute                 12.345 ms   71.2 %".
std::string text(const Breakdown& breakdown);

}  // namespace stepcast::simulator
