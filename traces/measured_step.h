#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/observer.h"
#include "core/graph/program_fwd.h"
#include "traces/events/operator_traffic.h"
#include "traces/events/recording.h"
#include "traces/trace.h"

namespace stepcast::traces {

/// Work of one rank in one recorded step, waits taken out: what a replay is built from. Times are
/// in ticks (core/graph/observer.h) from the begin of the step on the rank that began first.
struct MeasuredRank {
  /// By op template of its program: mean over its executions; -1 where none was recorded. Device
  /// time of an op; of a collective the transfer, [ready, end).
  std::vector<std::int64_t> duration;
  /// By op template: host time from the previous issue to this op's, without what the host spent
  /// blocked; before the first op, from the begin of the step.
  std::vector<std::int64_t> issue;
  /// By op template: from its issue until it could begin on an idle stream; empty: at once.
  std::vector<std::int64_t> latency;
  /// By op template: from when it could begin until it did, where nothing recorded says why; empty:
  /// none.
  std::vector<std::int64_t> delay;
  /// By op template, where a framework recorded which operator launched it, with shapes: the first
  /// op of that operator's call, itself where it is; -1 elsewhere. All ops of a call carry the kind
  /// and the shape of the whole of it; empty: nothing recorded.
  std::vector<std::int32_t> part_of;
  /// The operator, else the kernel, of device work that is none of our ops or was recorded without
  /// a shape; and what the whole call moves and multiplies, where its inputs tell it.
  struct Unshaped {
    std::string name;
    std::optional<OperatorTraffic> traffic;
  };
  std::vector<Unshaped> unshaped;         ///< each once
  std::vector<std::int32_t> unshaped_of;  ///< by op template: index into these, -1 elsewhere
  /// By op: ranks of a collective not all of which are in the trace. What was recorded of it is its
  /// transfer after this rank's wait for the others.
  std::map<std::uint32_t, std::vector<std::int32_t>> partial;
  std::int32_t world = 0;     ///< ranks of the run; 0: the trace does not say
  std::int64_t dispatch = 0;  ///< mean gap of a stream between two ops that nothing held up
  std::int64_t finish = 0;    ///< host, from the end of its last op or call to the end of the step
  std::int64_t begin = 0, end = 0;  ///< step marks
  std::int64_t stripped = 0;        ///< host time removed: full queues and synchronising calls
  std::vector<OpSpan> spans;        ///< in issue order; for scoring, never an input
  std::vector<HostSpan> host;       ///< of our own runtime
  /// Captures: the op at which the host ends each step, and when it did. Ops up to it, and after
  /// the mark before, are the step's; the first `carried` stand for work launched before the first.
  struct StepEnd {
    std::uint32_t op = 0;
    std::int64_t end = 0;
  };
  std::vector<StepEnd> step_marks;
  std::uint32_t carried = 0;
};

/// From, to, in ticks.
using TimeSpan = std::pair<std::int64_t, std::int64_t>;
using TimeSpans = std::vector<TimeSpan>;
/// Ticks of [begin, end) that spans cover which are sorted and apart.
std::int64_t covered(const TimeSpans& spans, std::int64_t begin, std::int64_t end);

/// The step that launched an op of a capture, counted from 1; 0 for what was carried over.
std::size_t step_of(const MeasuredRank& rank, std::uint32_t op);
/// First and last op, exclusive, of a capture's step, counted from 0.
std::pair<std::uint32_t, std::uint32_t> ops_of_step(const MeasuredRank& rank, std::size_t step);

/// When the steps of a rank are done, by step, in ticks: once the host has ended it and all device
/// work that it launched has run. The first entry is the begin of the first step: when the work
/// launched before it has run. A step takes from the entry before its own to its own, so that
/// steps which run into each other are counted once (the distance of like events).
///
/// `spans` are those of all ranks as simulated, or as recorded: then the host's marks are too.
/// For a rank of a capture; others have no marks.
std::vector<std::int64_t> simulated_step_ends(const MeasuredRank& rank, std::int32_t number,
                                              std::span<const OpSpan> spans);
std::vector<std::int64_t> recorded_step_ends(const MeasuredRank& rank);

/// One recorded step, or all of a capture back to back: the graph that ran and what every rank did.
struct MeasuredStep {
  std::shared_ptr<const ExecutionGraph> graph;  ///< steps that ran the same graph share it
  std::int32_t number = 0;
  std::int64_t wall = 0;  ///< first begin to last end; for scoring, never an input of a replay
  std::vector<MeasuredRank> ranks;
};

/// A recorded run as replay reads it, whatever format it came from.
struct MeasuredRun {
  /// In order. A capture's are one, back to back: work of a step that runs into the next holds it
  /// up as it did. Its ranks' step_marks say where each ends.
  std::vector<MeasuredStep> steps;
  /// Marks of the steps ("ProfilerStep#", ...); empty: nothing marks them.
  std::string marked_by;
  std::string job;     ///< JSON text of the job, if the trace carries one
  std::string device;  ///< as the profiler calls it; empty where not said
  /// For a run of our own runtime: as GraphRun has them.
  std::string op_clock, op_clock_reason;
  Seconds core_probe;
  struct RankClock {
    std::uint64_t dropped = 0;
    SimTime offset{};
    Seconds residual;
  };
  std::vector<RankClock> clocks;  ///< by rank
  /// The graph of the steps is the one that ran, not one that was told from events.
  [[nodiscard]] bool of_our_own() const { return !clocks.empty(); }
  /// All steps of a capture back to back; null: a run of our own.
  [[nodiscard]] const MeasuredStep* chain() const {
    return of_our_own() ? nullptr : &steps.front();
  }
  [[nodiscard]] std::size_t step_count() const {
    return of_our_own() ? steps.size() : steps.front().ranks.front().step_marks.size();
  }
  bool shares_core = false;  ///< host thread and compute of a rank took turns on one core
  bool collectives_hold_core = false;
  std::uint64_t dropped = 0;
  std::vector<std::string> warnings;
};

/// For a captured trace of any program (traces/graph/step_graph.h says how a rank's step is
/// rebuilt), steps are what traces/graph/step_marks.h finds.
///
/// Collectives meet across ranks by communicator and order. Clocks of ranks are aligned by the ends
/// of symmetric collectives (all-reduce, all-gather, reduce-scatter, barrier), when a rank has at
/// least ten of them; transfer is what is left of a collective after its last member came. Where
/// the trace lacks some members of a communicator, or members disagree on what they ran, a
/// collective is an op of its own rank, its wait included, and a warning says so.
///
/// For a run of our own, whose clocks are aligned: host gaps are those between issues, minus
/// full queues (reference: profiling-and-traces, rule R2). Steps that lack a rank or any record are
/// left out, with a warning.
///
/// Errors: InputError for execution graphs without times, when no step remains or has device work,
/// when steps overlap on the host, and for a `mark` where steps are known without.
MeasuredRun measured_run(const Recording& recording, std::string_view mark = {});
MeasuredRun measured_run(const GraphRun& trace);

}  // namespace stepcast::traces
