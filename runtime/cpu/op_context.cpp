#include "runtime/cpu/op_context.h"

namespace stepcast::runtime::cpu {

Matrix OpContext::tensor(TensorId id) const {
  const Tensor& t = program.tensors[id];
  return {reinterpret_cast<float*>(storage->at(id, microbatch)), t.rows, t.columns};
}

float* OpContext::scratch_floats(std::size_t count) const {
  if (scratch.size() < count) {
    scratch.resize(count);  // grows during warm-up, then stays
  }
  return scratch.data();
}

}  // namespace stepcast::runtime::cpu
