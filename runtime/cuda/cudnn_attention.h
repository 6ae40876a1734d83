#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "runtime/cuda/attention_problem.h"

namespace stepcast::runtime::cuda {

/// cuDNN's fused attention on the current device, where this build and this machine have it. The
/// library is opened at run time and asked for a plan of each problem.
///
///   auto [cudnn, missing] = CudnnAttention::open();
///   if (cudnn != nullptr && cudnn->plan(problem).empty()) cudnn->run(problem, ...);
class CudnnAttention {
 public:
  struct Opened {
    std::unique_ptr<CudnnAttention> library;  ///< null: see `missing`
    std::string missing;
  };
  static Opened open();
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// "cudnn 9.19.0"
  [[nodiscard]] const std::string& version() const;
  /// Asks for a plan and keeps it; empty, or why there is none. May compile kernels: seconds.
  std::string plan(const AttentionProblem& problem);
  /// Of a planned problem.
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
