#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::workloads {

/// How the gradient of a parameter becomes that of the whole model, besides the sum over data
/// replicas.
enum class GradientSum : std::uint8_t {
  kNone,          ///< every tensor rank already has all of its part
  kNarrow,        ///< as kNone, and the weight is kept in the format of products
  kOverTensor,    ///< tensor ranks hold partial sums (sequence parallelism: each saw its own rows)
  kOverKeyValue,  ///< tensor ranks with the same key and value heads each saw their own queries
  kOverEnds,      ///< first and last stage each hold a copy of the tied embedding
  kFrozen,        ///< there is none: the parameter is not trained
  kFrozenNarrow,  ///< frozen, and it is kept in RoleFormats::frozen
};

/// The gradient of a parameter that is not trained.
constexpr TensorId kNoGradient = std::numeric_limits<TensorId>::max();

/// Ranks that hold the same part of a parameter and sum its gradient.
enum class Replicas : std::uint8_t { kData, kExperts };

/// Units of a stage that are not layers (those go by their number).
constexpr std::int64_t kHeadUnit = -1;
constexpr std::int64_t kEmbeddingUnit = -2;

/// Matrices of a parameter that an optimizer may orthogonalise: `count` of them one below the other
/// in these columns of it.
struct MatrixBlock {
  std::int64_t rows = 0, columns = 0;  ///< of one, on this rank
  std::int64_t count = 1;
  std::int64_t first_column = 0;
  std::int64_t row_ranks = 1, column_ranks = 1;  ///< tensor ranks that each hold such a part
  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
  [[nodiscard]] bool cut() const { return row_ranks * column_ranks > 1; }
};

/// A parameter as a builder declares it: a weight and a gradient, each a tensor of its own.
struct DeclaredParameter {
  TensorId weight = 0;
  TensorId gradient = kNoGradient;
  GradientSum sum = GradientSum::kNone;
  Replicas replicas = Replicas::kData;
  std::int64_t unit = kHeadUnit;        ///< used together: what ZeRO 2 and 3 hold at a time
  std::vector<MatrixBlock> matrices{};  ///< of layers; none of norms, embeddings and heads
};

/// Ranks that hold the same parameters, and where they meet (-1: one rank only).
struct ReplicaGroup {
  std::int64_t replicas = 1;
  std::int64_t shards = 1;  ///< over which ZeRO shards
  std::int32_t all = -1;
  std::int32_t inside = -1;     ///< ranks that hold the shards of one copy; `all` without HSDP
  std::int32_t across = -1;     ///< HSDP: ranks that hold the same shard
  std::int64_t data_ranks = 1;  ///< neighbours along data that hold different parameters
};

/// Who holds the parameters of a model and sums their gradients.
struct ParameterHolders {
  ReplicaGroup data, experts;
  std::int32_t tensor = -1;  ///< communicators, -1 where there is none
  std::int32_t ends = -1;
  Format compute = Format::kBf16;  ///< of weights that are trained
};

}  // namespace stepcast::workloads
