#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "core/graph/epilogue.h"
#include "core/graph/length_law.h"
#include "core/graph/op_enums.h"

namespace stepcast {

enum class EmbeddingRoute : std::uint8_t;  // core/graph/embedding_placement.h
enum class KernelKind : std::uint8_t;      // core/graph/kernel_kind.h

// Each says what files call it and its fields.

struct GemmAttributes {
  Epilogue epilogue = Epilogue::kNone;
  Repeated repeated = Repeated::kNothing;
  static constexpr std::string_view kName = "gemm";
  static constexpr std::array<std::string_view, 2> kFields{"epilogue", "repeated"};
  bool operator==(const GemmAttributes&) const = default;
};

struct AttentionAttributes {
  std::int32_t window = 0;  ///< causal window in tokens; 0: none
  bool dropout = false;     ///< of the probabilities
  static constexpr std::string_view kName = "attention";
  static constexpr std::array<std::string_view, 2> kFields{"window", "dropout"};
  bool operator==(const AttentionAttributes&) const = default;
};

/// Sequences of drawn lengths, end to end.
struct JaggedAttributes {
  LengthLaw lengths;
  static constexpr std::string_view kName = "jagged";
  static constexpr std::array<std::string_view, 1> kFields{"lengths"};
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
  static constexpr std::string_view kName = "embedding";
  static constexpr std::array<std::string_view, 4> kFields{"group", "order", "route", "optimizer"};
  bool operator==(const EmbeddingAttributes&) const = default;
};

/// Rows that move between a slower memory tier and the cache of an EmbeddingGroup.
struct TierAttributes {
  std::int32_t group = -1;  ///< index into Program::embeddings
  EmbeddingRoute route{};
  std::uint8_t tier = 0;  ///< index into Program::tiers
  static constexpr std::string_view kName = "tier";
  static constexpr std::array<std::string_view, 3> kFields{"group", "route", "tier"};
  bool operator==(const TierAttributes&) const = default;
};

/// Pooling of exchanged rows.
struct PoolAttributes {
  EmbeddingRoute route{};
  static constexpr std::string_view kName = "pool";
  static constexpr std::array<std::string_view, 1> kFields{"route"};
  bool operator==(const PoolAttributes&) const = default;
};

struct ScanAttributes {
  ScanRule rule = ScanRule::kDecay;
  static constexpr std::string_view kName = "scan";
  static constexpr std::array<std::string_view, 1> kFields{"rule"};
  bool operator==(const ScanAttributes&) const = default;
};

struct ActivationAttributes {
  Activation activation = Activation::kNone;
  static constexpr std::string_view kName = "activation";
  static constexpr std::array<std::string_view, 1> kFields{"activation"};
  bool operator==(const ActivationAttributes&) const = default;
};

struct NormAttributes {
  Norm norm = Norm::kLayerNorm;
  static constexpr std::string_view kName = "norm";
  static constexpr std::array<std::string_view, 1> kFields{"norm"};
  bool operator==(const NormAttributes&) const = default;
};

struct ColumnAttributes {
  /// Index into Program::column_copies; -1: inputs side by side become outputs side by side.
  std::int32_t blocks = -1;
  static constexpr std::string_view kName = "columns";
  static constexpr std::array<std::string_view, 1> kFields{"blocks"};
  bool operator==(const ColumnAttributes&) const = default;
};

struct DispatchAttributes {
  CopyWay way = CopyWay::kThere;
  static constexpr std::string_view kName = "dispatch";
  static constexpr std::array<std::string_view, 1> kFields{"way"};
  bool operator==(const DispatchAttributes&) const = default;
};

struct OptimizerAttributes {
  OptimizerKind kind = OptimizerKind::kSgd;
  static constexpr std::string_view kName = "optimizer";
  static constexpr std::array<std::string_view, 1> kFields{"kind"};
  bool operator==(const OptimizerAttributes&) const = default;
};

struct CollectiveAttributes {
  std::int32_t exchange = -1;             ///< all-to-all-v: index into Program::exchanges
  Reduction reduction = Reduction::kSum;  ///< all-reduce
  CopyWay way = CopyWay::kThere;          ///< copies of tokens
  EmbeddingRoute route{};                 ///< looked-up rows and their gradients
  static constexpr std::string_view kName = "collective";
  static constexpr std::array<std::string_view, 4> kFields{"exchange", "reduction", "way", "route"};
  bool operator==(const CollectiveAttributes&) const = default;
};

/// Work of another program, known by name and time.
struct RecordedAttributes {
  KernelKind kernel{};
  static constexpr std::string_view kName = "recorded";
  static constexpr std::array<std::string_view, 1> kFields{"kernel"};
  bool operator==(const RecordedAttributes&) const = default;
};

/// Attributes of an op besides its sizes. Each kind takes one alternative (OpTraits::attributes).
using OpAttributes =
    std::variant<std::monostate, GemmAttributes, AttentionAttributes, JaggedAttributes,
                 EmbeddingAttributes, TierAttributes, PoolAttributes, ScanAttributes,
                 ActivationAttributes, NormAttributes, ColumnAttributes, DispatchAttributes,
                 OptimizerAttributes, CollectiveAttributes, RecordedAttributes>;

}  // namespace stepcast
