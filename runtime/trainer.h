#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/observer.h"
#include "core/graph/program.h"
#include "core/graph/step_traffic.h"
#include "core/system.h"
#include "runtime/checkpoint/checkpoints.h"
#include "runtime/mpi/session.h"
#include "runtime/step_executor.h"

namespace stepcast::runtime {

/// One executed step over all ranks.
struct StepRecord {
  std::int64_t step = 0;            ///< of the run, warm-up included
  double loss = 0;                  ///< of the global batch
  Seconds time;                     ///< wall time from a common start, of the slowest rank
  double involuntary_switches = 0;  ///< times a rank was pushed off its core, of the worst rank
  Seconds cpu;                      ///< CPU time of the rank that used least
  Seconds lease_wait;               ///< time compute ops waited for a core, of the worst rank
};

/// Makes this rank's executor on another backend than the CPU, with collectives of its own.
/// `epoch_ns`: steady clock at the beginning of the run.
using ExecutorFactory = std::function<std::unique_ptr<StepExecutor>(
    const ExecutionGraph& graph, MpiSession& session, std::int64_t epoch_ns, Observer* observer)>;

struct RunOptions {
  ExecutorFactory executor;  ///< empty: the CPU backend
  std::int64_t steps = 20;
  std::int64_t warmup = 3;
  std::uint64_t seed = 0;
  const System* emulate = nullptr;  ///< paces collectives to this system's fabric; CPU only
  std::string data_file;            ///< Criteo TSV or text; empty: drawn from the workload's laws
  /// Folder of the saved state, and a checkpoint to go on from, which `first_step` steps led to.
  CheckpointOptions checkpoint;
  std::filesystem::path resume;
  std::int64_t first_step = 0;
  bool real_time = false;  ///< round-robin real-time scheduling where permitted
  std::function<void(const StepRecord&)> on_step;  ///< called on rank 0 after each step
};

struct RunResult {
  std::vector<StepRecord> warmup;
  std::vector<StepRecord> steps;
  Bytes allocated;            ///< tensors, of the fullest rank, in the backend's memory
  Bytes peak_resident;        ///< whole process, of the fullest rank
  std::int64_t epoch_ns = 0;  ///< steady clock at time 0 of what the observer was told
  int ranks = 1;
  std::string attention;  ///< library that computed it on this rank, where one did
  KernelUse epilogues;    ///< of this rank
  /// Mean of a step after the warm-up; where the backend counts.
  std::optional<StepTraffic> traffic;
  /// By slower memory tier in use: a step after the warm-up, of all ranks; tensors of the fullest
  /// rank.
  struct TierUse {
    RowTraffic step;
    Bytes allocated;
  };
  std::map<std::string, TierUse> tiers;
  CheckpointUse checkpoints;
};

/// A run that goes on step by step, so that several can be kept ready and take turns. All ranks
/// make, continue and end their runs in the same order, the last one made first to end.
class ContinuedRun {
 public:
  /// `options.steps` and `on_step` are not used; steps after `options.warmup` are observed.
  /// Graph, system, options and session must outlive it. Errors: as run_training.
  ContinuedRun(const ExecutionGraph& graph, const System& system, const RunOptions& options,
               MpiSession& session, Observer* observer = nullptr);
  ~ContinuedRun();
  ContinuedRun(const ContinuedRun&) = delete;
  ContinuedRun& operator=(const ContinuedRun&) = delete;
  /// The next step, on all ranks together.
  StepRecord step();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Trains for real: this rank of every rank of the session executes its program of the graph, step
/// after step, on batches drawn between the steps. The observer sees the steps after the warm-up,
/// numbered from 0, with times since the run began (one clock for all ranks of a machine).
/// All ranks return the same records.
/// Errors: InputError when graph and session differ in ranks or data does not fit; RunError when a
/// rank has too little memory. With several ranks an error on one ends the run on all.
RunResult run_training(const ExecutionGraph& graph, const System& system, const RunOptions& options,
                       MpiSession& session, Observer* observer = nullptr);

}  // namespace stepcast::runtime
