#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/graph/program_fwd.h"

namespace stepcast {

/// Kind of a kernel's work, whoever wrote it: coarse enough that a recorded name tells it, while an
/// OpKind also promises a shape.
enum class KernelKind : std::uint8_t {
  kOther,        ///< none of these, or nothing tells
  kGemm,         ///< matrix products, their split-K sums and epilogues
  kConvolution,  ///< with what serves them alone: transforms of Winograd and FFT, offsets, im2col
  kAttention,
  kNorm,     ///< layer, RMS, batch and group norm
  kSoftmax,  ///< and the losses made of it
  kEmbedding,
  kOptimizer,
  kElementwise,   ///< maps of one or several tensors, dropout and random numbers included
  kReduction,     ///< sums, means, pooling, scans and sorts
  kLayoutChange,  ///< transposes, NCHW to NHWC and back, permutations of tokens
  kCopy,          ///< copies, fills, casts, concatenations, gathers
  kCommunication,
  kCount
};

/// "gemm", "layout_change", ... as printed and accepted.
std::string_view name_of(KernelKind kind);
std::optional<KernelKind> kernel_kind_named(std::string_view name);

/// The kind of our own ops.
KernelKind kernel_kind_of(OpKind kind);
/// The same; recorded work says it itself.
KernelKind kernel_kind_of(const Op& op);
/// Name of an op's kind for people: the op kind, of recorded work the kernel kind.
std::string_view shown_kind(OpKind kind, KernelKind kernel);

}  // namespace stepcast
