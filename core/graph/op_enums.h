#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace stepcast {

/// Part of the step that an op belongs to.
enum class Phase : std::uint8_t {
  kInput,
  kForward,
  kRecompute,
  kBackward,
  kGradientSync,
  kOptimizer,
  kCount
};

/// Purpose of a collective's bytes.
enum class TrafficKind : std::uint8_t {
  kIds,          ///< lengths and ids of lookups
  kOutputs,      ///< rows or partial sums of the forward pass
  kGradients,    ///< their gradients
  kReplicaSync,  ///< gradients of table rows with several copies
  kDenseSync,    ///< gradients of the dense model
  kExperts,      ///< copies of tokens on their way to experts and back
  kOther,        ///< of a transformer
  kCount
};

/// The class of model that costs an op; also the row of a breakdown.
enum class OpClass : std::uint8_t {
  kGemm,
  kAttention,
  kScan,  ///< of state-space layers and linear attention
  kEmbedding,
  kMemoryBound,
  kRecorded,
  kCollective,
  kCount
};

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
/// kMuon: of matrices alone, two ops around an orthogonalisation; one with a state takes it in, one
/// without takes the step.
enum class OptimizerKind : std::uint8_t { kSgd, kAdam, kRowwiseAdagrad, kAdagrad, kMuon };
/// Rule by which the state of a scan takes in a token.
enum class ScanRule : std::uint8_t {
  kDecay,         ///< decays and adds
  kDelta,         ///< and first takes out what the key held
  kDeltaByColumn  ///< and decays each column of the key by itself
};
/// Function that an all-reduce computes of the members' elements.
enum class Reduction : std::uint8_t { kSum, kMax };

std::string_view name_of(OptimizerKind kind);
std::string_view name_of(Activation activation);
std::string_view name_of(Norm norm);
std::string_view name_of(ScanRule rule);

/// The part of a product that every rank of a tensor group does alike.
enum class Repeated : std::uint8_t { kNothing, kKeysAndValues, kAll };

std::string_view name_of(Phase phase);
std::string_view name_of(OpClass op_class);
std::optional<Phase> phase_named(std::string_view name);

}  // namespace stepcast
