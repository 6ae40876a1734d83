#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/simulate.h"

namespace stepcast::simulator {

/// The step as numbers: how long, which rank ends it, how busy each simulated rank is.
struct StepSummary {
  struct Rank {
    std::int32_t rank = 0;
    std::int32_t ranks = 1;  ///< real ranks it stands for
    Seconds end;
    Seconds compute;  ///< sum over streams
    Seconds transfer;
    Seconds wait;
    double busy = 0;  ///< compute / step; above 1 when streams compute side by side
  };
  Seconds step;
  std::int32_t critical_rank = 0;
  std::uint64_t ops = 0;
  /// (slowest - mean) compute over mean, weighted by real ranks.
  double imbalance = 0;
  std::vector<Rank> ranks;
};

StepSummary summarize(const SimulationResult& result);
std::string text(const StepSummary& summary);

}  // namespace stepcast::simulator
