#include "core/graph/kernel_kind.h"

#include <algorithm>
#include <array>

namespace stepcast {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(KernelKind::kCount)> kKernelKindNames{
    "other",     "gemm",        "convolution", "attention",     "norm", "softmax",      "embedding",
    "optimizer", "elementwise", "reduction",   "layout_change", "copy", "communication"};

}  // namespace

std::string_view name_of(KernelKind kind) { return kKernelKindNames.at(static_cast<std::size_t>(kind)); }

std::optional<KernelKind> kernel_kind_named(std::string_view name) {
  const auto found = std::find(kKernelKindNames.begin(), kKernelKindNames.end(), name);
  return found == kKernelKindNames.end() ? std::nullopt
                               : std::optional(static_cast<KernelKind>(found - kKernelKindNames.begin()));
}

KernelKind kernel_kind_of(OpKind kind) {
  switch (kind) {
    case OpKind::kGemm:
    case OpKind::kDotInteractionForward:
    case OpKind::kDotInteractionBackward:
      return KernelKind::kGemm;
    case OpKind::kConvolutionForward:
    case OpKind::kConvolutionInputGradient:
    case OpKind::kConvolutionWeightGradient:
      return KernelKind::kConvolution;
    case OpKind::kAttentionForward:
    case OpKind::kAttentionBackward:
      return KernelKind::kAttention;
    case OpKind::kNormForward:
    case OpKind::kNormBackward:
      return KernelKind::kNorm;
    case OpKind::kSoftmaxForward:
    case OpKind::kSoftmaxBackward:
    case OpKind::kCrossEntropyMax:
    case OpKind::kCrossEntropySum:
    case OpKind::kCrossEntropyLoss:
      return KernelKind::kSoftmax;
    case OpKind::kTokenEmbeddingForward:
    case OpKind::kTokenEmbeddingBackward:
      return KernelKind::kEmbedding;
    case OpKind::kOptimizer:
      return KernelKind::kOptimizer;
    case OpKind::kMeanRowsForward:
    case OpKind::kMeanRowsBackward:
    case OpKind::kMeanSquaredError:
    case OpKind::kBinaryCrossEntropy:
    case OpKind::kConnectionistLoss:
      return KernelKind::kReduction;
    case OpKind::kTranspose:
    case OpKind::kDispatchForward:
    case OpKind::kDispatchBackward:
    case OpKind::kCombineForward:
    case OpKind::kCombineBackward:
      return KernelKind::kLayoutChange;
    case OpKind::kCopyColumns:
    case OpKind::kFill:
    case OpKind::kCast:
    case OpKind::kLoadBatch:
      return KernelKind::kCopy;
    case OpKind::kRouteForward:
    case OpKind::kRouteBackward:
      return KernelKind::kOther;
    default:
      break;
  }
  switch (class_of(kind)) {
    case OpClass::kEmbedding:
      return KernelKind::kEmbedding;
    case OpClass::kCollective:
      return KernelKind::kCommunication;
    case OpClass::kMemoryBound:
      return KernelKind::kElementwise;
    default:
      return KernelKind::kOther;
  }
}

std::string_view shown_kind(OpKind kind, KernelKind kernel) {
  return kind == OpKind::kRecorded && kernel != KernelKind::kOther ? name_of(kernel)
                                                                   : name_of(kind);
}

}  // namespace stepcast
