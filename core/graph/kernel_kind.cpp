#include "core/graph/kernel_kind.h"

#include <algorithm>
#include <array>

#include "core/graph/op_traits.h"

namespace stepcast {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(KernelKind::kCount)>
    kKernelKindNames{"other",         "gemm",      "convolution",  "attention",   "norm",
                     "softmax",       "embedding", "optimizer",    "elementwise", "reduction",
                     "layout_change", "copy",      "communication"};

}  // namespace

std::string_view name_of(KernelKind kind) {
  return kKernelKindNames.at(static_cast<std::size_t>(kind));
}

std::optional<KernelKind> kernel_kind_named(std::string_view name) {
  const auto found = std::find(kKernelKindNames.begin(), kKernelKindNames.end(), name);
  return found == kKernelKindNames.end()
             ? std::nullopt
             : std::optional(static_cast<KernelKind>(found - kKernelKindNames.begin()));
}

KernelKind kernel_kind_of(OpKind kind) { return traits_of(kind).kernel; }
KernelKind kernel_kind_of(const Op& op) {
  return op.kind == OpKind::kRecorded ? op.as<RecordedAttributes>().kernel
                                      : kernel_kind_of(op.kind);
}

std::string_view shown_kind(OpKind kind, KernelKind kernel) {
  return kind == OpKind::kRecorded && kernel != KernelKind::kOther ? name_of(kernel)
                                                                   : name_of(kind);
}

}  // namespace stepcast
