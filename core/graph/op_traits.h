#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/graph/kernel_kind.h"
#include "core/graph/link_traffic.h"
#include "core/graph/op.h"

namespace stepcast {

/// Kinds that some reader treats alike, where neither class nor kernel kind says it.
enum class OpFamily : std::uint8_t {
  kOther,
  kLookup,          ///< forward, backward and gradient of an EmbeddingGroup
  kTierMove,        ///< rows between a slower memory tier and the device
  kSequencePool,    ///< means of exchanged rows
  kDotInteraction,  ///< pairwise dots of features
  kCrossEntropy,    ///< over a row of logits
};

/// Pass of a pair of kinds, one the derivative of the other.
enum class OpPass : std::uint8_t { kNone, kForward, kBackward };

/// Which ranks an op involves, and when a rank is done with it.
enum class OpRole : std::uint8_t {
  kCompute,    ///< one rank; also a collective without partners
  kSymmetric,  ///< all members end together
  kRankwise,   ///< each member ends when its own partners are served
  kBroadcast,  ///< members wait for the root only
  kSend,
  kReceive
};

/// Elements read and written per output element, and FLOPs per output element.
struct PerElement {
  double read = 1, written = 1, flops = 0;
};

/// A part of a collective's buffer, in a group of n ranks: others (n - 1) / n + whole.
struct BufferShare {
  double others = 0;
  double whole = 0;
};

enum class CollectivePattern : std::uint8_t {
  kRing,      ///< all-reduce and its halves: any algorithm of rings, trees and switches
  kExchange,  ///< a message from each member to each other
  kRooted,    ///< one message to all
  kPair,      ///< one message to one
  kNoBytes    ///< all meet
};

/// How a collective moves its buffer (NCCL's convention of its size).
struct CollectiveTraits {
  CollectivePattern pattern = CollectivePattern::kNoBytes;
  std::optional<RingUse> ring{};
  BufferShare moved{};  ///< read or written by one rank's ports, whichever is more
  BufferShare sent{};   ///< the least that a rank puts on its links, averaged over the members
  BufferShare least{};  ///< through one port of the innermost level under any algorithm
  /// No rank leaves before the last one came, so that all members end together; in the others a
  /// rank ends by its own bytes and partners. Source: reference profiling-and-traces, section 2.
  bool ends_together = false;
  std::string_view fitted_as{};  ///< kind whose constants serve where it has none of its own
};

/// All that the toolkit knows of an op kind apart from how backends execute it: one row per kind,
/// in one file per family (core/graph/traits).
struct OpTraits {
  OpKind kind = OpKind::kCount;
  std::string_view name{};
  OpClass op_class = OpClass::kMemoryBound;
  KernelKind kernel = KernelKind::kElementwise;
  OpFamily family = OpFamily::kOther;
  OpPass pass = OpPass::kNone;
  OpKind backward = OpKind::kCount;  ///< of a forward kind
  OpRole role = OpRole::kCompute;
  OpAttributes attributes{};  ///< the alternative it takes, with its defaults

  /// Axes of the shape whose product is the number of elements of the main operand; -1 none.
  std::array<std::int8_t, 4> main{0, 1, -1, -1};
  /// FLOPs and bytes from sizes, format, flags and attributes.
  void (*work)(const OpTraits& traits, Op& op) = nullptr;
  PerElement per_element{};

  /// Distinguishes fitted constants of one kind: "adam", "gelu". Without it the format does.
  std::string_view (*fitted_by)(const Op& op) = nullptr;
  std::string_view fitted_routed{};  ///< key of its constants where rows are copies of tokens
  std::string_view fitted_as{};      ///< kind whose constants serve where it has none of its own
  /// Runs of bytes that a memory-bound kernel starts; without it one per row.
  double (*runs)(const Op& op) = nullptr;

  const CollectiveTraits* collective = nullptr;
};

const OpTraits& traits_of(OpKind kind);

inline bool looks_up(OpKind kind) { return traits_of(kind).family == OpFamily::kLookup; }
inline bool moves_between_tiers(OpKind kind) {
  return traits_of(kind).family == OpFamily::kTierMove;
}
inline bool is_backward(OpKind kind) { return traits_of(kind).pass == OpPass::kBackward; }
inline bool is_point_to_point(OpKind kind) {
  const OpRole role = traits_of(kind).role;
  return role == OpRole::kSend || role == OpRole::kReceive;
}
/// All-to-all of equal or unequal parts.
inline bool is_exchange(OpKind kind) {
  const CollectiveTraits* c = traits_of(kind).collective;
  return c != nullptr && c->pattern == CollectivePattern::kExchange;
}
/// Valid: collectives.
inline const CollectiveTraits& collective_traits(OpKind kind) {
  return *traits_of(kind).collective;
}
inline bool ends_together(OpKind kind) {
  const CollectiveTraits* c = traits_of(kind).collective;
  return c != nullptr && c->ends_together;
}
/// Valid: moves between tiers. What crosses the link to the slower tier.
Bytes tier_bytes(const Op& op);

// One per file of core/graph/traits.
std::span<const OpTraits> attention_traits();
std::span<const OpTraits> collective_op_traits();
std::span<const OpTraits> embedding_traits();
std::span<const OpTraits> expert_traits();
std::span<const OpTraits> gemm_traits();
std::span<const OpTraits> layer_traits();
std::span<const OpTraits> loss_traits();
std::span<const OpTraits> row_wise_traits();
std::span<const OpTraits> scan_traits();
std::span<const OpTraits> step_traits();

}  // namespace stepcast
