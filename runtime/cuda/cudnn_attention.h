#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "runtime/cuda/attention_problem.h"

namespace stepcast::runtime::cuda {

/// Attention that never stores its scores, by cuDNN. There is one of it a process: the library is
/// opened at run time and asked once for a plan of each problem on a device, whoever needs it.
///
///   CudnnAttention& attention = CudnnAttention::open();
///   attention.prepare(problems);                                       // at set-up
///   attention.run(problem, tensors, scratch(attention.workspace_bytes(problem)), stream);
class CudnnAttention {
 public:
  /// Never ends. Errors: EnvironmentError where this build or this machine has no cuDNN, with the
  /// remedies.
  static CudnnAttention& open();
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// "cudnn 9.19.0"
  [[nodiscard]] const std::string& version() const;
  /// Plans problems for the current device, half a second each, on the cores that this process may
  /// use and shares with so many `ranks` of its machine, itself among them. Errors: InputError
  /// where cuDNN has no plan for one.
  void prepare(std::span<const AttentionProblem> problems, int ranks = 1);
  /// The same without errors: `prepare` has them.
  void plan_all(std::span<const AttentionProblem> problems, int ranks = 1);
  /// Workspace of a planned problem.
  [[nodiscard]] std::size_t workspace_bytes(const AttentionProblem& problem) const;
  /// Enqueues a planned problem. Errors: RunError when cuDNN fails.
  void run(const AttentionProblem& problem, const AttentionTensors& tensors,
           kernels::Workspace workspace, cudaStream_t stream) const;

 private:
  struct Impl;
  /// Asks for a plan on the current device, or remembers what came of it; empty, or why there is
  /// none. Threads may ask at once.
  std::string plan(const AttentionProblem& problem);
  explicit CudnnAttention(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stepcast::runtime::cuda
