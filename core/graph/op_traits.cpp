#include "core/graph/op_traits.h"

#include "core/error.h"

namespace stepcast {
namespace {

constexpr auto kOpKinds = static_cast<std::size_t>(OpKind::kCount);

std::array<OpTraits, kOpKinds> make_op_traits() {
  std::array<OpTraits, kOpKinds> table;
  for (const std::span<const OpTraits> rows :
       {attention_traits(), collective_op_traits(), embedding_traits(), expert_traits(),
        gemm_traits(), layer_traits(), loss_traits(), row_wise_traits(), scan_traits(),
        step_traits()}) {
    for (const OpTraits& row : rows) {
      OpTraits& of_kind = table.at(static_cast<std::size_t>(row.kind));
      STEPCAST_CHECK(of_kind.name.empty(), "two rows of traits for '{}' and '{}'", of_kind.name,
                     row.name);
      of_kind = row;
    }
  }
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    STEPCAST_CHECK(!table[i].name.empty() && table[i].work != nullptr,
                   "op kind {} has no row of traits", i);
  }
  return table;
}

}  // namespace

const OpTraits& traits_of(OpKind kind) {
  static const std::array<OpTraits, kOpKinds> table = make_op_traits();
  return table.at(static_cast<std::size_t>(kind));
}

std::string_view name_of(OpKind kind) { return traits_of(kind).name; }
OpClass class_of(OpKind kind) { return traits_of(kind).op_class; }

std::optional<OpKind> op_kind_named(std::string_view name) {
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (traits_of(kind).name == name) {
      return kind;
    }
  }
  return std::nullopt;
}

void fill_work(Op& op) {
  const OpTraits& traits = traits_of(op.kind);
  op.flops = Flops{};
  op.bytes_read = op.bytes_written = Bytes{};
  traits.work(traits, op);
}

Bytes tier_bytes(const Op& op) {
  return traits_of(op.kind).pass == OpPass::kForward ? op.bytes_read : op.bytes_written;
}

}  // namespace stepcast
