#include "studies/traces/step_times.h"

#include <algorithm>

namespace stepcast::studies {

StepTimes::StepTimes(const traces::MeasuredStep& chain) {
  for (const traces::MeasuredRank& rank : chain.ranks) {
    ranks_.push_back(traces::recorded_step_ends(rank));
  }
  join();
}

StepTimes::StepTimes(const traces::MeasuredStep& chain, const simulator::Timeline& simulated) {
  for (std::size_t r = 0; r < chain.ranks.size(); ++r) {
    ranks_.push_back(
        traces::simulated_step_ends(chain.ranks[r], static_cast<std::int32_t>(r), simulated.ops()));
  }
  join();
}

void StepTimes::join() {
  run_ = ranks_.front();
  for (const std::vector<std::int64_t>& ends : ranks_) {
    run_[0] = std::min(run_[0], ends[0]);
    for (std::size_t s = 1; s < run_.size(); ++s) {
      run_[s] = std::max(run_[s], ends[s]);
    }
  }
}

Seconds StepTimes::step() const {
  return to_seconds(SimTime{run_.back() - run_[first_counted()]}) /
         static_cast<double>(steps() - first_counted());
}

Seconds StepTimes::step(std::size_t s) const { return to_seconds(SimTime{run_[s + 1] - run_[s]}); }

std::vector<Seconds> wall_times(const traces::MeasuredRun& run) {
  std::vector<Seconds> walls;
  if (const traces::MeasuredStep* chain = run.chain()) {
    const StepTimes times(*chain);
    for (std::size_t s = 0; s < times.steps(); ++s) {
      walls.push_back(times.step(s));
    }
  } else {
    for (const traces::MeasuredStep& step : run.steps) {
      walls.push_back(to_seconds(SimTime{step.wall}));
    }
  }
  return walls;
}

}  // namespace stepcast::studies
