#include "runtime/cuda/cudnn_attention.h"

namespace stepcast::runtime::cuda {

// For a build that found no cudnn_backend.h: nobody opens it.

struct CudnnAttention::Impl {
  std::string version;
};

CudnnAttention::CudnnAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudnnAttention::~CudnnAttention() = default;
CudnnAttention& CudnnAttention::open() {
  throw without_cudnn(
      "built without cuDNN: cudnn_backend.h was not found; set CUDNN_ROOT and configure again");
}
const std::string& CudnnAttention::version() const { return impl_->version; }
void CudnnAttention::prepare(std::span<const AttentionProblem> /*problems*/, int /*ranks*/) {}
void CudnnAttention::plan_all(std::span<const AttentionProblem> /*problems*/, int /*ranks*/) {}
std::size_t CudnnAttention::workspace_bytes(const AttentionProblem& /*problem*/) const { return 0; }
void CudnnAttention::run(const AttentionProblem& /*problem*/, const AttentionTensors& /*tensors*/,
                         kernels::Workspace /*workspace*/, cudaStream_t /*stream*/) const {}

}  // namespace stepcast::runtime::cuda
