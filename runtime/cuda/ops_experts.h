#pragma once
#include "runtime/cuda/op_context.h"

namespace stepcast::runtime::cuda {

OpFamily expert_ops();  ///< of routed tokens: ops with an Op::routing

}  // namespace stepcast::runtime::cuda
