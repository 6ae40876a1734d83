#include "runtime/cpu/op_context.h"

namespace stepcast::runtime::cpu {

Matrix OpContext::tensor(TensorId id) const {
  const Tensor& t = program.tensors[id];
  return {storage[id][t.per_microbatch ? microbatch : 0], t.rows, t.columns};
}

float* OpContext::scratch_floats(std::size_t count) const {
  if (scratch.size() < count) {
    scratch.resize(count);  // grows during warm-up, then stays
  }
  return scratch.data();
}

float learning_rate(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0.1F;
    case OptimizerKind::kAdam:
      return 0.001F;
    case OptimizerKind::kRowwiseAdagrad:
    case OptimizerKind::kAdagrad:
      return 0.05F;
  }
  return 0.01F;
}

}  // namespace stepcast::runtime::cpu
