#include "runtime/cuda/op_context.h"

#include "core/error.h"

namespace stepcast::runtime::cuda {

float* OpContext::floats(const kernels::MatrixView& m) const {
  STEPCAST_CHECK(m.format == Format::kFp32 || m.format == Format::kTf32,
                 "'{}' has an operand in {} where fp32 is needed", program.name(op),
                 name_of(m.format));
  return static_cast<float*>(m.data);
}

}  // namespace stepcast::runtime::cuda
