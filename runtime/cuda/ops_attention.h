#pragma once
#include "runtime/cuda/op_context.h"

namespace stepcast::runtime::cuda {

/// Whether an op is attention that never stores its scores, and what is to be planned of it.
bool is_fused_attention(const Op& op);
AttentionProblem attention_problem(const Program& program, const Op& op,
                                   const DeviceTensors& tensors, std::int32_t microbatch);

/// Fused: by cuDNN. With op_flags::kUnfused: products through cuBLASLt around a
/// softmax that keeps the whole score matrix.
void attention_forward(OpContext& c);
void attention_backward(OpContext& c);

}  // namespace stepcast::runtime::cuda
