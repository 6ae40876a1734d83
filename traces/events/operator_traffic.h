#pragma once
#include <optional>

#include "core/formats.h"
#include "core/graph/kernel_kind.h"
#include "traces/events/operators.h"

namespace stepcast::traces {

/// Least bytes and FLOPs of an operator that is none of our ops.
struct OperatorTraffic {
  double flops = 0;  ///< of convolutions; of others nothing is counted: their memory bounds them
  double bytes = 0;
  Format format = Format::kFp32;  ///< of the first tensor
};

/// By the kind of its kernels and the sizes of its inputs:
///   convolution   2 N K P C R S FLOPs, P output positions, C input channels of a group; of the
///                 backward pass twice that (gradients of input and weight); inputs and output once
///   norm, softmax, elementwise, layout_change, copy, optimizer
///                 its inputs, and an output as large as the largest of them
///   reduction     its inputs
/// nullopt for other kinds, without shapes, and for a convolution whose output they do not tell
/// (forward: padding, stride and dilation are concrete values, which older profilers left out).
std::optional<OperatorTraffic> traffic_of(const OperatorCall& call, KernelKind kind);

}  // namespace stepcast::traces
