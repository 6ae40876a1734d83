#include "runtime/cuda/attention_problem.h"

#include <cmath>

namespace stepcast::runtime::cuda {

float AttentionShape::scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }

AttentionProblem attention_problem(const AttentionShape& shape, const AttentionTensors& t,
                                   bool backward) {
  const auto aligned = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  };
  AttentionProblem p;
  p.shape = shape;
  p.format = t.q.format;
  p.backward = backward;
  p.q = t.q.stride;
  p.k = t.k.stride;
  p.v = t.v.stride;
  p.out = t.out.stride;
  p.aligned = aligned(t.q.data) && aligned(t.k.data) && aligned(t.v.data) && aligned(t.out.data) &&
              aligned(t.log_sum_exp);
  if (backward) {
    p.d_out = t.d_out.stride;
    p.d_q = t.d_q.stride;
    p.d_k = t.d_k.stride;
    p.d_v = t.d_v.stride;
    p.aligned = p.aligned && aligned(t.d_out.data) && aligned(t.d_q.data) && aligned(t.d_k.data) &&
                aligned(t.d_v.data);
  }
  return p;
}

EnvironmentError without_cudnn(const std::string& missing) {
  return EnvironmentError(
      fmt::format("fused attention needs cuDNN 9.8 or newer (libcudnn.so.9), which is not there "
                  "({}); install it, or set the job's attention to unfused "
                  "(--set attention=unfused)",
                  missing));
}

}  // namespace stepcast::runtime::cuda
