#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/graph/memory_use.h"
#include "core/graph/observer.h"
#include "core/job/efficiency.h"
#include "core/job/job.h"
#include "simulator/reports/framework_memory.h"
#include "simulator/reports/memory_ledger.h"
#include "simulator/simulate.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {

/// Parts of the critical rank's step; they sum to the step exactly.
struct TimeSplit {
  Seconds compute, exposed_communication, bubble, host, other;
};

/// Time of one op kind or one named op on the critical rank, summed over its executions.
struct OpRow {
  std::string name;
  std::string kind;
  std::int64_t executions = 0;
  Seconds time;       ///< collectives: transfer only
  Seconds wait;       ///< collectives: waiting for other members
  Seconds overhead;   ///< part of `time` that does not depend on the op's size: start-up, latency
  std::string bound;  ///< what decided the prediction
  std::string model;
  Seconds outside;        ///< part of `time` of ops outside the range their model was fitted in
  bool in_range = false;  ///< true if that part is negligible
};

/// Step of a rank other than the critical one.
struct RankAccount {
  std::int32_t rank = 0;
  TimeSplit split;
  std::vector<OpRow> by_kind;  ///< descending by time
  std::vector<OpRow> by_name;
};

struct SimulatedStep;  // studies/predict/simulated_step.h

struct PredictOptions {
  bool timeline = false;   ///< keep every op's span
  bool intervals = false;  ///< p5 and p95: of the fitted residuals, and the spread of whole steps
  // Ablations: what a predictor without this part would say.
  bool data_distribution = true;  ///< off: every row equally likely
  bool host_cost = true;          ///< off: issuing ops costs nothing
  bool rendezvous = true;         ///< off: no rank waits for another
};

struct Interval {
  Seconds p5, p95;
};

/// One predicted training step (CONTRACT section 4).
struct StepPrediction {
  Job job;
  /// The best estimate: the step at the ideal rate times the efficiency of such runs, where one is
  /// known.
  Seconds iteration;
  Seconds hardware;                      ///< the step as simulated, at the ideal rate
  std::optional<Efficiency> efficiency;  ///< measured over simulated steps of such runs
  std::optional<Interval> interval;
  bool in_calibrated_range = false;  ///< little enough of the time is extrapolated
  bool all_in_range = false;         ///< every op of every rank lies where its model was measured
  double extrapolated = 0;  ///< share of the critical rank's op time that no measurement covers
  double samples_per_second = 0;
  double tokens_per_second = 0;  ///< 0 for workloads without tokens
  workloads::StepFlops flops;
  Format peak_format = Format::kFp32;
  double mfu = 0, mfu_causal = 0, hfu = 0;
  TimeSplit split;
  std::int32_t critical_rank = 0;
  MemoryUse memory;  ///< of the fullest rank
  Bytes reserve;     ///< context, library buffers, fragmentation: constants of the device
  simulator::MemoryLedger ledger;  ///< the same, by purpose
  Bytes capacity;
  std::int32_t fullest_rank = 0;
  bool fits = true;  ///< `fit` is not "no"
  simulator::Fit fit = simulator::Fit::kYes;
  std::vector<OpRow> by_kind;  ///< descending by time
  std::vector<OpRow> by_name;
  /// The rank that waits least, where it is busy a tenth longer than the critical one: the rank
  /// that ends last (the first stage of a pipeline, say) may only have waited for it.
  std::optional<RankAccount> busiest;
  std::uint64_t executed_ops = 0;
  std::vector<OpSpan> timeline;  ///< with PredictOptions::timeline
  std::vector<std::string> warnings;
};

/// Memory that context and libraries take of the device: a constant of its file, else nothing.
Bytes reserve_of(const Job& job);

/// The step to expect where a simulated one of the job's `graph` takes `hardware`: times the
/// efficiency of such runs, where one is known (core/job/efficiency.h), and no faster than 90 % of
/// the peak allows.
Seconds expected_step(const Job& job, const ExecutionGraph& graph, Seconds hardware);

/// Builds the graph, costs it, simulates one step.
StepPrediction predict(const Job& job, const PredictOptions& options = {});
StepPrediction predict(const Job& job, const ExecutionGraph& graph,
                       const PredictOptions& options = {});
/// The same from the step of the graph as it was simulated.
StepPrediction predict(const Job& job, const ExecutionGraph& graph, const SimulatedStep& step,
                       const PredictOptions& options = {});

}  // namespace stepcast::studies
