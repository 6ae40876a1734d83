#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "runtime/cuda/attention_problem.h"

namespace stepcast::runtime::cuda {

/// cuDNN's fused attention, where this build and this machine have it. There is one of it a
/// process: the library is opened at run time and asked once for a plan of each problem on a
/// device, whoever needs it.
///
///   auto [cudnn, missing] = CudnnAttention::open();
///   if (cudnn != nullptr && cudnn->plan(problem).empty()) cudnn->run(problem, ...);
class CudnnAttention {
 public:
  struct Opened {
    CudnnAttention* library = nullptr;  ///< never ends; null: see `missing`
    std::string missing;
  };
  static Opened open();
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// "cudnn 9.19.0"
  [[nodiscard]] const std::string& version() const;
  /// Asks for a plan on the current device, or remembers what came of it; empty, or why there is
  /// none. Compiles kernels: about half a second. Threads may ask at once.
  std::string plan(const AttentionProblem& problem);
  /// Asks for all of them, on as many threads as there are cores.
  void plan_all(std::span<const AttentionProblem> problems);
  /// Workspace of a planned problem.
  [[nodiscard]] std::size_t workspace_bytes(const AttentionProblem& problem) const;
  /// Enqueues a planned problem. Errors: RunError when cuDNN fails.
  void run(const AttentionProblem& problem, const AttentionTensors& tensors,
           kernels::Workspace workspace, cudaStream_t stream) const;

 private:
  struct Impl;
  explicit CudnnAttention(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stepcast::runtime::cuda
