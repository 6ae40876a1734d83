#pragma once
#include <vector>

#include "core/graph/program_fwd.h"


namespace stepcast::models {

/// The kernels that attention without a fused one runs, in order, each with its work filled in.
///
///   forward   Q K^T; softmax with scale and mask in one kernel; [dropout]; P V; context in order
///   backward  P^T dO; dO V^T; [dropout]; softmax; dS K; dS^T Q; the three gradients in order
///
/// Products are batched over samples and heads. Softmax and dropout stream the score matrix E =
/// batch heads queries keys once per operand, dropout a mask of a byte as well. A
/// device without tensor units for rows that are no multiple of 16 bytes (head_dim 150 in fp16)
/// runs such products on its vector units: their format is fp32, their bytes those of the op.
///
/// In:      an attention op with the flag kUnfused. Valid: as many key as query heads, else keys
///          and values are counted once per query head.
/// Source:  Narayanan et al., arXiv 2104.04473, section 4.2 (kernels of Megatron-LM); alignment:
///          NVIDIA, "Matrix Multiplication Background User's Guide". Checked by
///          tests/models/kernel_test.cpp.
std::vector<Op> unfused_attention_ops(const Op& op);

}  // namespace stepcast::models
