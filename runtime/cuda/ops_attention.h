#pragma once
#include "runtime/cuda/op_context.h"

namespace stepcast::runtime::cuda {

/// Fused: our flash kernels. With op_flags::kUnfused: products through cuBLASLt around a softmax
/// that keeps the whole score matrix.
void attention_forward(OpContext& c);
void attention_backward(OpContext& c);

}  // namespace stepcast::runtime::cuda
