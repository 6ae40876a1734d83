#pragma once
#include <sched.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/graph/observer.h"
#include "core/graph/program.h"
#include "runtime/collectives.h"
#include "runtime/cpu/op_context.h"
#include "runtime/cpu/tensor_storage.h"
#include "runtime/step_executor.h"

namespace stepcast::runtime {
class CoreLease;
}

namespace stepcast::runtime::cpu {

struct ExecutorOptions {
  int core = -1;               ///< core for all threads of the rank; -1: any
  bool real_time = false;      ///< round-robin real-time scheduling where permitted
  CoreLease* lease = nullptr;  ///< compute ops hold one of its tokens; null: none needed
  TierPort* tiers = nullptr;   ///< paces moves between memory tiers; null: as fast as it goes
  std::int64_t epoch_ns = 0;   ///< steady clock at the beginning of the run
  /// Called from a worker when an op threw, before anything waits for it. Ranks of a group must
  /// end the run here: the others would wait for ever. Null: `run_step` rethrows.
  std::function<void(const std::exception&)> on_failure;
};

/// Executes one rank's program on the CPU: the calling thread is the host thread, which issues ops
/// in call order; each stream has one worker thread that executes its ops first in, first out;
/// events order the streams.
///
/// All threads of a rank usually share one core, so wake-ups are few and predictable: the host
/// wakes sleeping workers when a queue is full or everything is issued, a worker wakes the host
/// when its queue is half empty or the step is done. No thread spins, nothing is allocated in a
/// step.
class Executor final : public StepExecutor {
 public:
  /// `communicators[c]` are this rank's collectives of the graph's communicator c, null where it
  /// has none. Errors: RunError without the memory; InputError for an op no family executes.
  Executor(const ExecutionGraph& graph, std::int32_t rank, std::vector<Collectives*> communicators,
           ExecutorOptions options, Observer* observer = nullptr);
  ~Executor() override;

  [[nodiscard]] Matrix tensor(TensorId id, std::int32_t microbatch = 0) const;
  [[nodiscard]] Bytes allocated() const override { return storage_.allocated(); }
  float* numbers(TensorId id) override { return storage_.at(id, 0); }
  void settle() override;
  [[nodiscard]] Seconds lease_wait() const override;
  [[nodiscard]] std::vector<double> sent() const override;
  [[nodiscard]] std::vector<RowTraffic> tier_traffic() const override;
  [[nodiscard]] std::vector<double> allocated_in_tiers() const override {
    return storage_.allocated_in_tiers();
  }

 private:
  struct Task;
  struct Stream;
  struct Event;

  void compile(const ExecutionGraph& graph);
  double run_ops() override;
  void begin_next_batch() override;
  void worker(Stream& stream);
  void execute(Stream& stream, std::uint32_t position);
  static void count_sent(const Task& task, Stream& stream);
  void wait_for(Event& event, std::uint32_t target);
  void record(Event& event, std::uint32_t number);
  void wake_workers();
  void wait_until_done(Stream& stream, std::uint32_t target, HostSpan::Kind why);

  std::vector<Collectives*> communicators_;
  ExecutorOptions options_;
  TensorStorage storage_;
  std::vector<Task> tasks_;  ///< of order_.issues
  std::unique_ptr<Event[]> events_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<OpState>> states_;  ///< per family
  cpu_set_t affinity_before_{};                   ///< of the host thread
};

}  // namespace stepcast::runtime::cpu
