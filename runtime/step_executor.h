#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/execution_order.h"
#include "core/graph/observer.h"
#include "core/graph/program.h"
#include "runtime/host_batch.h"

namespace stepcast::runtime {

/// Which kernels compute something of a run, where a backend has a choice: "own", a library's
/// ("cublasLt 13.0.0"), or both; and why not the library's, where it was not. Empty: no choice.
struct KernelUse {
  std::string kernels, reason;
};

/// Executes one rank's program of an execution graph for real, step after step. What every backend
/// has in common is here: the order of ops, the current batch and the next one of a pipelined
/// program, what the observer is told. A backend adds streams, memory and the ops themselves.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  /// Whether a step also works on the batch of the next one (ops of op_flags::kNextBatch).
  [[nodiscard]] bool pipelined() const { return pipelined_; }
  /// Fills the pipeline: runs the ops that work ahead, for the batch of the first step. All ranks
  /// call it once, before the first step of a pipelined program.
  void fill_pipeline(const HostBatch& first);
  /// Brings the batch of a step to where its ops read it: outside of the step's time, before
  /// run_step of the same arguments, which does it itself where this was not called.
  void stage(std::int64_t step, const HostBatch& batch, const HostBatch* next = nullptr);
  /// Runs one step; returns this rank's share of the loss. `step` counts all steps of the run,
  /// `observed_step` is what the observer is told (negative: this step is not observed). `next`:
  /// the batch of the next step, which a pipelined program needs.
  double run_step(std::int64_t step, const HostBatch& batch, std::int32_t observed_step,
                  const HostBatch* next = nullptr);

  /// Bytes of all tensors in the device's own memory.
  [[nodiscard]] virtual Bytes allocated() const = 0;
  /// Bytes this rank has sent in all steps so far: by TrafficKind, then by level of the
  /// fabric. Empty where the backend does not count.
  [[nodiscard]] virtual std::vector<double> sent() const { return {}; }
  /// Rows moved between memory tiers in all steps so far, by tier of the program. Empty where the
  /// backend does not count.
  [[nodiscard]] virtual std::vector<RowTraffic> tier_traffic() const { return {}; }
  /// Bytes of tensors in slower tiers, by tier of the program.
  [[nodiscard]] virtual std::vector<double> allocated_in_tiers() const { return {}; }
  // State of the program, for checkpoints; between steps.
  /// Numbers of a tensor, fp32, in memory of the host, at one place as long as take_numbers() is
  /// not called: its own, or a copy of what a device holds.
  virtual float* numbers(TensorId id) = 0;
  /// Brings what steps left to numbers(): rows that caches hold, what a device holds.
  virtual void settle() {}
  /// Makes numbers() that were changed those of the tensors, and ends copies of them.
  virtual void take_numbers() {}
  /// Whether narrow weights are stored so, beside masters of fp32.
  [[nodiscard]] virtual bool keeps_masters() const { return false; }
  /// Library that computes fused attention, "cudnn 9.19.0". Empty: no library.
  [[nodiscard]] virtual std::string attention() const { return {}; }
  /// Use of kernels for what products do besides multiplying (core/graph/epilogue.h).
  [[nodiscard]] virtual KernelUse epilogues() const { return {}; }
  /// Time compute ops of the last step waited for a core, summed over streams.
  [[nodiscard]] virtual Seconds lease_wait() const { return {}; }

 protected:
  StepExecutor(const ExecutionGraph& graph, std::int32_t rank, std::int64_t epoch_ns,
               Observer* observer);

  /// Does what stage() does, for the step that is set. The batches are not read again.
  virtual void stage_batches() {}
  /// Runs the ops of one step to their end; returns the loss.
  virtual double run_ops() = 0;
  /// Makes what a pipelined step prepared for the next batch that of the current batch.
  virtual void begin_next_batch() = 0;

  /// False for ops of this batch while the pipeline fills, and for those of another step.
  [[nodiscard]] bool does_work(const Op& op) const {
    return filling_ ? works_ahead(op) : program_.done_in(op, step_);
  }
  [[nodiscard]] const HostBatch& batch_of(const Op& op) const {
    return works_ahead(op) ? *next_batch_ : *batch_;
  }
  [[nodiscard]] bool observed() const { return observer_ != nullptr && observed_step_ >= 0; }
  /// Nanoseconds of the steady clock as time since the run began.
  [[nodiscard]] SimTime at(std::int64_t ns) const { return SimTime{(ns - epoch_ns_) * 1000}; }
  void report_host(HostSpan::Kind kind, std::int64_t begin, std::int64_t end);

  const ExecutionGraph& graph_;
  const Program& program_;
  const std::int32_t rank_;
  Observer* const observer_;
  const IssueList order_;
  // State of the current step.
  std::int64_t step_ = 0;
  std::int32_t observed_step_ = -1;

 private:
  static bool works_ahead(const Op& op) { return (op.flags & op_flags::kNextBatch) != 0; }

  const std::int64_t epoch_ns_;
  const bool pipelined_;
  const HostBatch* batch_ = nullptr;
  const HostBatch* next_batch_ = nullptr;
  bool filling_ = false;
  bool filled_ = false;
  bool staged_ = false;
};

}  // namespace stepcast::runtime
