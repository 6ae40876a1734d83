#include "core/graph/op_codes.h"

#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/graph/op_traits.h"

namespace stepcast {
namespace {

// Sizes that hold an attribute, by what takes it.
constexpr std::size_t kLookupOrder = 3;
constexpr std::size_t kLookupRoute = 4;
constexpr std::size_t kTierRoute = 4;
constexpr std::size_t kPoolRoute = 3;
constexpr std::size_t kCollectiveRoute = 2;

/// Writes attributes into codes.
struct CodeWriter {
  OpCodes& to;

  template <class Enum>
  void variant(Enum value) const {
    to.variant = static_cast<std::uint8_t>(value);
  }
  void route(std::size_t at, EmbeddingRoute r) const {
    to.sizes[at] += static_cast<std::int64_t>(r);
  }

  void operator()(const auto&) const {}  ///< attributes without a code
  void operator()(const GemmAttributes& a) const { variant(a.epilogue); }
  void operator()(const AttentionAttributes& a) const { variant(a.dropout); }
  void operator()(const EmbeddingAttributes& a) const {
    variant(a.optimizer);
    to.sizes[kLookupOrder] += a.order;
    route(kLookupRoute, a.route);
  }
  void operator()(const TierAttributes& a) const {
    variant(a.tier);
    route(kTierRoute, a.route);
  }
  void operator()(const PoolAttributes& a) const { route(kPoolRoute, a.route); }
  void operator()(const ActivationAttributes& a) const { variant(a.activation); }
  void operator()(const NormAttributes& a) const { variant(a.norm); }
  void operator()(const ScanAttributes& a) const { variant(a.rule); }
  void operator()(const DispatchAttributes& a) const { variant(a.way); }
  void operator()(const OptimizerAttributes& a) const { variant(a.kind); }
  void operator()(const CollectiveAttributes& a) const {
    variant(a.way);
    to.variant |= static_cast<std::uint8_t>(a.reduction);
    route(kCollectiveRoute, a.route);
  }
  void operator()(const RecordedAttributes& a) const { variant(a.kernel); }
};

/// Reads attributes from codes; takes from `sizes` what is none.
struct CodeReader {
  OpKind kind;
  std::uint8_t code;
  std::array<std::int64_t, 6>& sizes;

  std::int64_t below(std::int64_t value, std::int64_t count) const {
    if (value < 0 || value >= count) {
      throw InputError("", fmt::format("{} of '{}' holds the code {}, expected 0 to {}",
                                       value == code ? "the variant" : "a size", name_of(kind),
                                       value, count - 1));
    }
    return value;
  }
  template <class Enum>
  void variant(Enum& value, Enum last) const {
    value = static_cast<Enum>(below(code, static_cast<std::int64_t>(last) + 1));
  }
  void none() const { below(code, 1); }
  void route(std::size_t at, EmbeddingRoute& r) const {
    r = static_cast<EmbeddingRoute>(below(sizes[at], kRoutes));
    sizes[at] = 0;
  }

  void operator()(auto&) const { none(); }
  void operator()(GemmAttributes& a) const { variant(a.epilogue, Epilogue::kGeluBackwardSums); }
  void operator()(AttentionAttributes& a) const { a.dropout = below(code, 2) != 0; }
  void operator()(EmbeddingAttributes& a) const {
    variant(a.optimizer, OptimizerKind::kMuon);
    a.order = static_cast<std::int32_t>(below(sizes[kLookupOrder], std::int64_t{1} << 31));
    sizes[kLookupOrder] = 0;
    route(kLookupRoute, a.route);
  }
  void operator()(TierAttributes& a) const {
    a.tier = code;
    route(kTierRoute, a.route);
  }
  void operator()(PoolAttributes& a) const {
    none();
    route(kPoolRoute, a.route);
  }
  void operator()(ActivationAttributes& a) const { variant(a.activation, Activation::kSigmoid); }
  void operator()(NormAttributes& a) const { variant(a.norm, Norm::kRmsNorm); }
  void operator()(ScanAttributes& a) const { variant(a.rule, ScanRule::kDeltaByColumn); }
  void operator()(DispatchAttributes& a) const { variant(a.way, CopyWay::kBack); }
  void operator()(OptimizerAttributes& a) const { variant(a.kind, OptimizerKind::kMuon); }
  void operator()(CollectiveAttributes& a) const {
    if (kind == OpKind::kAllReduce) {
      variant(a.reduction, Reduction::kMax);
    } else {
      variant(a.way, CopyWay::kBack);
    }
    route(kCollectiveRoute, a.route);
  }
  void operator()(RecordedAttributes& a) const { variant(a.kernel, KernelKind::kCommunication); }
};

}  // namespace

OpCodes codes_of(const Op& op) {
  OpCodes codes{0, op.shape};
  std::visit(CodeWriter{codes}, op.attributes);
  return codes;
}

void set_codes(Op& op, const OpCodes& codes) {
  op.shape = codes.sizes;
  op.attributes = traits_of(op.kind).attributes;
  std::visit(CodeReader{op.kind, codes.variant, op.shape}, op.attributes);
}

}  // namespace stepcast
