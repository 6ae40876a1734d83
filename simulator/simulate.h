#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "core/graph/observer.h"
#include "core/graph/program_fwd.h"
#include "simulator/step_costs.h"

namespace stepcast::simulator {

struct SimulationOptions {
  bool presum = true;  ///< runs of compute ops as one block; off: op by op. Same ticks either way
  std::int32_t step = 0;  ///< step number written into spans
  /// Most rounds of a step that repeats itself follow from a few (steady_rounds.h). Same result
  /// either way; an observer is told of these few (RankSummary::repetition).
  bool steady = false;
  /// With `steady` and no observer, where the rounds of a long step have to be simulated after all:
  /// the observer of that, given the result of a few of them.
  std::function<Observer*(const struct SimulationResult& few)> otherwise;
  /// With `steady` and an observer: the result of the same step without one, which says the rounds
  /// to leave out; it is the result.
  const struct SimulationResult* known = nullptr;
};

/// Work in [begin, begin + length) that a rank repeats so many times, right after it. Spans
/// are told without these repetitions: later ones come as much too early.
struct Repetition {
  SimTime begin{};
  std::int64_t length = 0;
  std::int64_t times = 0;
  std::int32_t microbatches = 0;  ///< that it is the work of
  [[nodiscard]] std::int64_t left_out() const { return times * length; }
  [[nodiscard]] SimTime end() const { return SimTime{ticks(begin) + length}; }
  /// How often there is what begins at a time that is told.
  [[nodiscard]] std::int64_t count(SimTime at) const {
    return at >= begin && at < end() ? 1 + times : 1;
  }
};

/// Sums over one simulated rank. Ops on different streams overlap, so they need not add up to
/// `end`.
struct RankSummary {
  std::int32_t rank = 0;
  std::int32_t ranks = 1;  ///< real ranks it stands for
  SimTime host_end{};      ///< all ops issued
  SimTime end{};           ///< all streams drained
  SimTime compute{};
  SimTime wait{};           ///< in collectives, for other ranks
  SimTime transfer{};       ///< in collectives, once all were there
  Repetition repetition{};  ///< in the spans of an observer; the rest here is of the whole step
};

struct SimulationResult {
  SimTime makespan{};
  std::vector<RankSummary> ranks;  ///< ascending by rank
  std::size_t critical =
      0;  ///< index of the rank that ends last; of several, the one that waits least
  std::uint64_t ops = 0;  ///< executed, over all simulated ranks
};

/// One training step: deterministic, integer picoseconds, ties in order of issue.
///
/// A host thread per rank issues the ops in call order (`issue` each; blocked while the stream's
/// queue is full); a stream takes its ops in order, each beginning `dispatch` after the previous
/// one ended, it was issued and its waits are recorded. A collective starts when its last needed
/// member has arrived. With `shares_core` the host thread and compute take turns on one core, the
/// host first.
///
/// Errors: InputError when the ops of all simulated ranks, one after the other, take longer than
/// kLongestStep; InternalError naming the ops when ranks wait for each other in a circle or for
/// nobody.
/// Tests: tests/simulator/engine_test.cpp (closed forms), property_test.cpp.
SimulationResult simulate(const ExecutionGraph& graph, const StepCosts& costs,
                          const SimulationOptions& options = {}, Observer* observer = nullptr);

}  // namespace stepcast::simulator
