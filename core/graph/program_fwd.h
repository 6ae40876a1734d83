#pragma once
#include <compare>
#include <cstdint>
#include <string_view>

// Names of the parts of a step, for those who do not look into them (core/graph/program.h, op.h).
namespace stepcast {

enum class OpKind : std::uint8_t;
struct Op;
struct Tensor;
struct ParameterPiece;
struct EmbeddingShard;
struct EmbeddingGroup;
struct Exchange;
struct ExpertRouting;
struct Segment;
struct Program;
struct Communicator;
struct ExecutionGraph;

using TensorId = std::uint32_t;  ///< index into Program::tensors
/// Names one executed op of a program: the same id in predictions, runs and traces.
struct OpRef {
  std::uint32_t call = 0;
  std::uint32_t op = 0;
  auto operator<=>(const OpRef&) const = default;
};

/// Use of a tensor; decides where its bytes stand in the memory ledger.
enum class TensorRole : std::uint8_t {
  kParameter,
  kGradient,
  kOptimizerState,
  kEmbedding,
  kActivation,
  kBuffer,
  kInput,
  kCount
};
std::string_view name_of(TensorRole role);

/// Contents of a tensor, where something other than its ops asks.
enum class TensorPurpose : std::uint8_t {
  kOther,
  kDense,          ///< input: dense features
  kLabels,         ///< input: labels of a loss
  kLogits,         ///< of the loss, over the vocabulary
  kGathered,       ///< buffer of parameters or gradients that are sharded outside their use
  kKeyValueCache,  ///< buffer of keys and values of earlier tokens
  kCarried,        ///< what layers hand on to each other
};

/// Part of the step that a segment is.
enum class SegmentKind : std::uint8_t {
  kOther,
  kBegin,     ///< before the first micro-batch
  kForward,   ///< of a pipeline chunk
  kBackward,  ///< of a pipeline chunk; of input gradients alone where weight gradients come apart
  kWeights,   ///< weight gradients of a pipeline chunk
  kFinish,    ///< after the last micro-batch: synchronisation and update
};
/// Micro-batches that a segment is called for.
enum class MicrobatchRole : std::uint8_t { kAny, kFirst, kLast };

/// Property that the groups of a communicator have in common.
enum class CommunicatorRole : std::uint8_t {
  kOther,
  kReplicas,      ///< ranks that hold the same parameters, or shards of them
  kPipelineEnds,  ///< first and last stage, which share the embedding's weights
};

}  // namespace stepcast
