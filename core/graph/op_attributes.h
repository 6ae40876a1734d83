#pragma once
#include <cstdint>
#include <string_view>
#include <variant>

#include "core/graph/epilogue.h"
#include "core/graph/length_law.h"

namespace stepcast {

enum class EmbeddingRoute : std::uint8_t;  // core/graph/embedding_placement.h
enum class KernelKind : std::uint8_t;      // core/graph/kernel_kind.h

enum class Activation : std::uint8_t {
  kNone,
  kRelu,
  kGelu,
  kSquaredRelu,
  kSwiGlu,
  kGeGlu,
  kSilu,
  kTanh,
  kSigmoid
};
/// Halves the width: the product of one half of the columns and a function of the other.
constexpr bool is_gated(Activation a) {
  return a == Activation::kSwiGlu || a == Activation::kGeGlu;
}
enum class Norm : std::uint8_t { kLayerNorm, kRmsNorm };
/// Direction of exchanges and sorts of copies: to their experts, or back to their tokens.
enum class CopyWay : std::uint8_t { kThere, kBack };
enum class OptimizerKind : std::uint8_t { kSgd, kAdam, kRowwiseAdagrad, kAdagrad };
/// What an all-reduce computes of the members' elements.
enum class Reduction : std::uint8_t { kSum, kMax };

std::string_view name_of(OptimizerKind kind);
std::string_view name_of(Activation activation);
std::string_view name_of(Norm norm);

/// The part of a product that every rank of a tensor group does alike.
enum class Repeated : std::uint8_t { kNothing, kKeysAndValues, kAll };

struct GemmAttributes {
  Epilogue epilogue = Epilogue::kNone;
  Repeated repeated = Repeated::kNothing;
  bool operator==(const GemmAttributes&) const = default;
};

struct AttentionAttributes {
  std::int32_t window = 0;  ///< causal window in tokens; 0: none
  bool dropout = false;     ///< of the probabilities
  bool operator==(const AttentionAttributes&) const = default;
};

/// Sequences of drawn lengths, end to end.
struct JaggedAttributes {
  LengthLaw lengths;
  bool operator==(const JaggedAttributes&) const = default;
};

/// Lookups, updates and gradients of one EmbeddingGroup.
struct EmbeddingAttributes {
  std::int32_t group = -1;  ///< index into Program::embeddings
  /// Order of the looked-up rows: 0 the local batch; 1 the global batch by rank; n > 1 the global
  /// batch with ranks ordered by (rank mod n, rank / n), as a reduce-scatter inside groups of n
  /// ranks wants it.
  std::int32_t order = 0;
  EmbeddingRoute route{};
  OptimizerKind optimizer = OptimizerKind::kSgd;  ///< fused into the backward pass
  bool operator==(const EmbeddingAttributes&) const = default;
};

/// Rows that move between a slower memory tier and the cache of an EmbeddingGroup.
struct TierAttributes {
  std::int32_t group = -1;  ///< index into Program::embeddings
  EmbeddingRoute route{};
  std::uint8_t tier = 0;  ///< index into Program::tiers
  bool operator==(const TierAttributes&) const = default;
};

/// Pooling of exchanged rows.
struct PoolAttributes {
  EmbeddingRoute route{};
  bool operator==(const PoolAttributes&) const = default;
};

struct ActivationAttributes {
  Activation activation = Activation::kNone;
  bool operator==(const ActivationAttributes&) const = default;
};

struct NormAttributes {
  Norm norm = Norm::kLayerNorm;
  bool operator==(const NormAttributes&) const = default;
};

struct ColumnAttributes {
  /// Index into Program::column_copies; -1: inputs side by side become outputs side by side.
  std::int32_t blocks = -1;
  bool operator==(const ColumnAttributes&) const = default;
};

struct DispatchAttributes {
  CopyWay way = CopyWay::kThere;
  bool operator==(const DispatchAttributes&) const = default;
};

struct OptimizerAttributes {
  OptimizerKind kind = OptimizerKind::kSgd;
  bool operator==(const OptimizerAttributes&) const = default;
};

struct CollectiveAttributes {
  std::int32_t exchange = -1;             ///< all-to-all-v: index into Program::exchanges
  Reduction reduction = Reduction::kSum;  ///< all-reduce
  CopyWay way = CopyWay::kThere;          ///< copies of tokens
  EmbeddingRoute route{};                 ///< looked-up rows and their gradients
  bool operator==(const CollectiveAttributes&) const = default;
};

/// Work of another program, known by name and time.
struct RecordedAttributes {
  KernelKind kernel{};
  bool operator==(const RecordedAttributes&) const = default;
};

/// Attributes of an op besides its sizes. Each kind takes one alternative (OpTraits::attributes).
using OpAttributes =
    std::variant<std::monostate, GemmAttributes, AttentionAttributes, JaggedAttributes,
                 EmbeddingAttributes, TierAttributes, PoolAttributes, ActivationAttributes,
                 NormAttributes, ColumnAttributes, DispatchAttributes, OptimizerAttributes,
                 CollectiveAttributes, RecordedAttributes>;

}  // namespace stepcast
