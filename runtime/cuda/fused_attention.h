#pragma once
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/attention_problem.h"
#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/module.h"

namespace stepcast::runtime::cuda {

/// Attention that never stores its scores, by cuDNN or by the backend's own kernels: which of them
/// is decided once for each problem, before it first runs.
///
///   FusedAttention attention(AttentionKernels::kAuto);
///   attention.prepare(problem);                                       // at set-up
///   attention.run(problem, tensors, scratch(attention.workspace_bytes(problem)), stream);
class FusedAttention {
 public:
  explicit FusedAttention(AttentionKernels wanted) : wanted_(wanted) {}

  /// Decides. Errors: EnvironmentError where cuDNN is wanted and cannot be had, InputError where it
  /// has no plan for the problem.
  void prepare(const AttentionProblem& problem);
  /// All of them; cuDNN's plans are made on several threads.
  void prepare(std::span<const AttentionProblem> problems);
  [[nodiscard]] std::size_t workspace_bytes(const AttentionProblem& problem);
  /// Enqueues the forward or the backward. Where cuDNN's plan fails in its first run the backend's
  /// own kernels take its place, unless cuDNN is insisted on.
  void run(const AttentionProblem& problem, const AttentionTensors& tensors,
           kernels::Workspace workspace, cudaStream_t stream);
  /// About the problems so far.
  [[nodiscard]] KernelUse used() const { return use_of(choices_); }
  /// About the one that ran last.
  [[nodiscard]] KernelUse last() const;

 private:
  struct Choice {
    AttentionProblem problem;
    bool cudnn = false;
    std::string why_not;  ///< cuDNN, where it was asked
    bool ran = false;     ///< by cuDNN, once at least
  };
  std::size_t choice(const AttentionProblem& problem);
  void open_library();
  [[nodiscard]] KernelUse use_of(std::span<const Choice> choices) const;

  const AttentionKernels wanted_;
  std::string missing_;
  CudnnAttention* cudnn_ = nullptr;
  std::vector<Choice> choices_;  ///< a program has few
  std::size_t last_ = 0;
};

}  // namespace stepcast::runtime::cuda
