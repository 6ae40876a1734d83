#pragma once
#include <sched.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/job.h"
#include "core/observer.h"
#include "core/program.h"
#include "runtime/collectives.h"
#include "runtime/cpu/op_context.h"
#include "runtime/cpu/tensor_storage.h"

namespace stepcast::runtime {
class CoreLease;
}

namespace stepcast::runtime::cpu {

struct ExecutorOptions {
  std::uint32_t queue_depth = 1024;  ///< ops issued to a stream and not yet finished, at most
  int core = -1;                     ///< core for all threads of the rank; -1: any
  bool real_time = false;            ///< round-robin real-time scheduling where permitted
  CoreLease* lease = nullptr;        ///< compute ops hold one of its tokens; null: none needed
  std::int64_t epoch_ns = 0;         ///< steady clock at the beginning of the run
  /// Called from a worker when an op threw, before anything waits for it. Ranks of a group must
  /// end the run here: the others would wait for ever. Null: `run_step` rethrows.
  std::function<void(const std::exception&)> on_failure;
};

/// Executes one rank's program of an execution graph for real: the calling thread is the host
/// thread, which issues ops in call order; each stream has one worker thread that executes its ops
/// first in, first out; events order the streams.
///
/// All threads of a rank usually share one core, so wake-ups are few and predictable: the host
/// wakes sleeping workers when a queue is full or everything is issued, a worker wakes the host
/// when its queue is half empty or the step is done. Nobody spins, nothing is allocated in a step.
class Executor {
 public:
  /// `communicators[c]` are this rank's collectives of the graph's communicator c, null where it
  /// has none. Errors: RunError without the memory; InputError for an op no family executes.
  Executor(const Job& job, const ExecutionGraph& graph, std::int32_t rank,
           std::vector<Collectives*> communicators, ExecutorOptions options,
           Observer* observer = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Whether a step also works on the batch of the next one (ops of op_flags::kNextBatch).
  [[nodiscard]] bool pipelined() const { return pipelined_; }
  /// Fills the pipeline: runs the ops that work ahead, for the batch of the first step. All ranks
  /// call it once, before the first step of a pipelined program.
  void fill_pipeline(const HostBatch& first);
  /// Runs one step; returns this rank's share of the loss. `step` counts all steps of the run,
  /// `observed_step` is what the observer is told (negative: this step is not observed). `next`:
  /// the batch of the next step, which a pipelined program needs.
  double run_step(std::int64_t step, const HostBatch& batch, std::int32_t observed_step,
                  const HostBatch* next = nullptr);

  [[nodiscard]] Matrix tensor(TensorId id, std::int32_t microbatch = 0) const;
  [[nodiscard]] Bytes allocated() const { return storage_.allocated(); }
  /// Time compute ops of the last step waited for a core, summed over streams.
  [[nodiscard]] Seconds lease_wait() const;

 private:
  struct Issue;
  struct Stream;
  struct Event;

  void compile(const ExecutionGraph& graph);
  double run_ops();
  void worker(Stream& stream);
  void execute(Stream& stream, std::uint32_t position);
  void wait_for(Event& event, std::uint32_t target);
  void record(Event& event, std::uint32_t generation);
  void wake_workers();
  void wait_until_done(Stream& stream, std::uint32_t target, HostSpan::Kind why);
  void report_host(HostSpan::Kind kind, std::int64_t begin, std::int64_t end);
  [[nodiscard]] SimTime at(std::int64_t ns) const {
    return SimTime{(ns - options_.epoch_ns) * 1000};
  }

  const Job& job_;
  const Program& program_;
  std::int32_t rank_;
  std::vector<Collectives*> communicators_;
  ExecutorOptions options_;
  Observer* observer_;
  TensorStorage storage_;
  std::vector<Issue> issues_;                ///< in issue order
  std::vector<std::uint32_t> wait_targets_;  ///< per issue: generation of each event it waits for
  std::unique_ptr<Event[]> events_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<OpState>> states_;  ///< per family
  cpu_set_t affinity_before_{};                   ///< of the host thread
  bool pipelined_ = false;
  bool filled_ = false;

  // Of the step under way; written by the host while all workers sleep.
  const HostBatch* batch_ = nullptr;
  const HostBatch* next_batch_ = nullptr;
  bool filling_ = false;  ///< only ops of the next batch do their work
  std::int64_t step_ = 0;
  std::int32_t observed_step_ = -1;
};

}  // namespace stepcast::runtime::cpu
