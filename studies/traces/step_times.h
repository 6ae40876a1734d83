#pragma once
#include <cstdint>
#include <vector>

#include "core/units.h"
#include "simulator/reports/timeline.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// The steps of a chain (traces::MeasuredRun::chain()), counted by like events: a step takes from
/// the end of the one before it to its own end, where its end is that of the host's part and of all
/// device work that it launched. Where there are several, the first is left out: it fills the
/// pipeline, and has start-up in it.
class StepTimes {
 public:
  /// Makes times as recorded.
  explicit StepTimes(const traces::MeasuredStep& chain);
  /// Makes times as simulated from its graph.
  StepTimes(const traces::MeasuredStep& chain, const simulator::Timeline& simulated);

  /// Windows of one rank, in ticks: of step s, [ends[s], ends[s + 1]).
  [[nodiscard]] const std::vector<std::int64_t>& of_rank(std::size_t r) const { return ranks_[r]; }
  /// For the run: from the first begin of any rank, to the last end of each step on any.
  [[nodiscard]] const std::vector<std::int64_t>& of_run() const { return run_; }
  [[nodiscard]] std::size_t steps() const { return run_.size() - 1; }
  [[nodiscard]] std::size_t first_counted() const { return steps() > 1 ? 1 : 0; }
  /// Mean over the steps that count: steady state.
  [[nodiscard]] Seconds step() const;
  [[nodiscard]] Seconds step(std::size_t s) const;

 private:
  void join();

  std::vector<std::vector<std::int64_t>> ranks_;
  std::vector<std::int64_t> run_;
};

/// Durations of the steps of a run, of our own or captured.
std::vector<Seconds> wall_times(const traces::MeasuredRun& run);

}  // namespace stepcast::studies
