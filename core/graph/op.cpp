#include "core/graph/op.h"

#include <algorithm>

#include "core/graph/epilogue.h"
#include "core/error.h"

namespace stepcast {
namespace {

struct KindInfo {
  std::string_view name;
  OpClass op_class;
};

constexpr std::array<KindInfo, static_cast<std::size_t>(OpKind::kCount)> kKinds{{
    {"gemm", OpClass::kGemm},
    {"attention_forward", OpClass::kAttention},
    {"attention_backward", OpClass::kAttention},
    {"index_pack", OpClass::kEmbedding},
    {"index_unpack", OpClass::kEmbedding},
    {"embedding_forward", OpClass::kEmbedding},
    {"embedding_backward", OpClass::kEmbedding},
    {"embedding_gradient", OpClass::kEmbedding},
    {"tier_fetch", OpClass::kEmbedding},
    {"tier_write_back", OpClass::kEmbedding},
    {"sequence_pool_forward", OpClass::kEmbedding},
    {"sequence_pool_backward", OpClass::kEmbedding},
    {"dot_interaction_forward", OpClass::kGemm},
    {"dot_interaction_backward", OpClass::kGemm},
    {"cross_forward", OpClass::kMemoryBound},
    {"cross_backward", OpClass::kMemoryBound},
    {"bias_activation_forward", OpClass::kMemoryBound},
    {"bias_activation_backward", OpClass::kMemoryBound},
    {"activation_forward", OpClass::kMemoryBound},
    {"activation_backward", OpClass::kMemoryBound},
    {"norm_forward", OpClass::kMemoryBound},
    {"norm_backward", OpClass::kMemoryBound},
    {"rope_forward", OpClass::kMemoryBound},
    {"rope_backward", OpClass::kMemoryBound},
    {"add", OpClass::kMemoryBound},
    {"copy_columns", OpClass::kMemoryBound},
    {"fill", OpClass::kMemoryBound},
    {"cast", OpClass::kMemoryBound},
    {"route_forward", OpClass::kMemoryBound},
    {"route_backward", OpClass::kMemoryBound},
    {"dispatch_forward", OpClass::kMemoryBound},
    {"dispatch_backward", OpClass::kMemoryBound},
    {"combine_forward", OpClass::kMemoryBound},
    {"combine_backward", OpClass::kMemoryBound},
    {"token_embedding_forward", OpClass::kMemoryBound},
    {"token_embedding_backward", OpClass::kMemoryBound},
    {"cross_entropy_max", OpClass::kMemoryBound},
    {"cross_entropy_sum", OpClass::kMemoryBound},
    {"cross_entropy_loss", OpClass::kMemoryBound},
    {"binary_cross_entropy", OpClass::kMemoryBound},
    {"mean_squared_error", OpClass::kMemoryBound},
    {"connectionist_loss", OpClass::kMemoryBound},
    {"transpose", OpClass::kMemoryBound},
    {"multiply_forward", OpClass::kMemoryBound},
    {"multiply_backward", OpClass::kMemoryBound},
    {"softmax_forward", OpClass::kMemoryBound},
    {"softmax_backward", OpClass::kMemoryBound},
    {"mean_rows_forward", OpClass::kMemoryBound},
    {"mean_rows_backward", OpClass::kMemoryBound},
    {"modulate_forward", OpClass::kMemoryBound},
    {"modulate_backward", OpClass::kMemoryBound},
    {"gate_forward", OpClass::kMemoryBound},
    {"gate_backward", OpClass::kMemoryBound},
    {"convolution_forward", OpClass::kGemm},
    {"convolution_input_gradient", OpClass::kGemm},
    {"convolution_weight_gradient", OpClass::kGemm},
    {"optimizer", OpClass::kMemoryBound},
    {"load_batch", OpClass::kMemoryBound},
    {"recorded", OpClass::kRecorded},
    {"all_reduce", OpClass::kCollective},
    {"all_gather", OpClass::kCollective},
    {"reduce_scatter", OpClass::kCollective},
    {"all_to_all", OpClass::kCollective},
    {"all_to_all_v", OpClass::kCollective},
    {"broadcast", OpClass::kCollective},
    {"send", OpClass::kCollective},
    {"recv", OpClass::kCollective},
    {"barrier", OpClass::kCollective},
}};

constexpr std::array<std::string_view, static_cast<std::size_t>(Phase::kCount)> kPhases{
    "input", "forward", "recompute", "backward", "gradient_sync", "optimizer"};
constexpr std::array<std::string_view, static_cast<std::size_t>(OpClass::kCount)> kClasses{
    "gemm", "attention", "embedding", "memory_bound", "recorded", "collective"};

/// Work of a row-wise op: elements read and written per output element, FLOPs per output element.
struct PerElement {
  double read, written, flops;
};

/// FLOPs per element are nominal (a transcendental counts 1): these ops are bound by memory.
PerElement elementwise_work(const Op& op) {
  const bool two = op.variant <= static_cast<std::uint8_t>(Activation::kGeGlu) &&
                   is_gated(static_cast<Activation>(op.variant));
  switch (op.kind) {
    case OpKind::kCrossForward:
      return {3, 1, 3};
    case OpKind::kCrossBackward:
      return {4, 3, 6};  // x0, u, dy, dx accumulated
    case OpKind::kBiasActivationForward:
      return {1, 1, 2};
    case OpKind::kBiasActivationBackward:
      return {2, 1, 2};
    case OpKind::kActivationForward:
      return {two ? 2.0 : 1.0, 1, two ? 5.0 : 8.0};
    case OpKind::kActivationBackward:
      return {two ? 3.0 : 2.0, two ? 2.0 : 1.0, two ? 10.0 : 12.0};
    case OpKind::kNormForward:
      return {1, 1, 8};
    case OpKind::kNormBackward:
      return {2, 1, 14};
    case OpKind::kAdd:
      return {2, 1, 1};
    case OpKind::kCopyColumns:
      return {1, 1, 0};
    case OpKind::kCast:
      return {1, 1, 0};
    case OpKind::kFill:
      return {0, 1, 0};
    case OpKind::kCrossEntropyMax:
      return {1, 0, 1};
    case OpKind::kCrossEntropySum:
      return {1, 0, 2};
    case OpKind::kCrossEntropyLoss:
      return {1, 1, 3};
    case OpKind::kBinaryCrossEntropy:
      return {2, 1, 8};
    case OpKind::kMeanSquaredError:
      return {2, 1, 4};
    case OpKind::kMultiplyForward:
      return {2, 1, 1};
    case OpKind::kMultiplyBackward:
      return {3, 2, 2};
    case OpKind::kSoftmaxForward:
      return {1, 1, 5};
    case OpKind::kSoftmaxBackward:
      return {2, 1, 4};
    case OpKind::kModulateForward:
      return {1, 1, 2};
    case OpKind::kModulateBackward:
      return {2, 1, 4};
    case OpKind::kGateForward:
      return {2, 1, 2};
    case OpKind::kGateBackward:
      return {2, 1, 3};
    default:
      return {1, 1, 0};
  }
}

/// Reads and writes per parameter element; gradients and state are counted in the op's format.
PerElement optimizer_work(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return {2, 1, 2};
    case OptimizerKind::kAdam:
      return {4, 3, 14};
    case OptimizerKind::kRowwiseAdagrad:
    case OptimizerKind::kAdagrad:
      return {3, 2, 7};
  }
  return {2, 1, 2};
}

void fill_attention(Op& op, double per_element) {
  const auto [batch, heads, kv_heads, queries, keys, dim] = op.shape;
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  // A causal window w leaves query i min(i + 1, w) keys: w - w^2 / 2k of k on average.
  const double reach =
      op.detail > 0 ? std::min(1.0, op.detail / d(std::max<std::int64_t>(keys, 1))) : 1.0;
  const double scores = d(batch) * d(heads) * d(queries) * d(keys) *
                        ((op.flags & op_flags::kCausal) != 0 ? reach * (1 - reach / 2) : 1.0);
  const double query_elements = d(batch) * d(queries) * d(heads) * d(dim);
  const double kv_elements = 2 * d(batch) * d(keys) * d(kv_heads) * d(dim);
  const double statistics = 4 * d(batch) * d(heads) * d(queries);  // fp32 log-sum-exp
  const bool backward = op.kind == OpKind::kAttentionBackward;
  const bool unfused = (op.flags & op_flags::kUnfused) != 0;
  // Forward: Q K^T and P V. Backward: dV, dP, dQ, dK; the fused kernel recomputes Q K^T.
  const double products = backward ? (unfused ? 4 : 5) : 2;
  op.flops = Flops(products * 2 * scores * d(dim));
  const double score_traffic =
      unfused ? d(batch) * d(heads) * d(queries) * d(keys) * per_element : 0;
  // Forward: scores written, read and written by the softmax, read by the second product. Backward:
  // probabilities read for dV and by the softmax, dP written and read, dS written and read twice.
  if (backward) {
    op.bytes_read =
        Bytes((3 * query_elements + kv_elements) * per_element + statistics + 5 * score_traffic);
    op.bytes_written = Bytes((query_elements + kv_elements) * per_element + 2 * score_traffic);
  } else {
    op.bytes_read = Bytes((query_elements + kv_elements) * per_element + 2 * score_traffic);
    op.bytes_written = Bytes(query_elements * per_element + statistics + 2 * score_traffic);
  }
}

template <typename Names>
auto index_of(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) - names.begin();
}

}  // namespace

std::string_view name_of(OpKind kind) { return kKinds.at(static_cast<std::size_t>(kind)).name; }
std::string_view name_of(Phase phase) { return kPhases.at(static_cast<std::size_t>(phase)); }
std::string_view name_of(OpClass op_class) {
  return kClasses.at(static_cast<std::size_t>(op_class));
}
OpClass class_of(OpKind kind) { return kKinds.at(static_cast<std::size_t>(kind)).op_class; }

std::string_view name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kRowwiseAdagrad:
      return "rowwise_adagrad";
    case OptimizerKind::kAdagrad:
      return "adagrad";
  }
  return "unknown";
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "none";
    case Activation::kRelu:
      return "relu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kSquaredRelu:
      return "squared_relu";
    case Activation::kSwiGlu:
      return "swiglu";
    case Activation::kGeGlu:
      return "geglu";
    case Activation::kSilu:
      return "silu";
    case Activation::kTanh:
      return "tanh";
    case Activation::kSigmoid:
      return "sigmoid";
  }
  return "unknown";
}

std::string_view name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "none";
    case Epilogue::kBias:
      return "bias";
    case Epilogue::kBiasRelu:
      return "bias_relu";
    case Epilogue::kBiasReluMask:
      return "bias_relu_mask";
    case Epilogue::kReluBackward:
      return "relu_backward";
    case Epilogue::kColumnSums:
      return "column_sums";
    case Epilogue::kGelu:
      return "gelu";
    case Epilogue::kBiasGelu:
      return "bias_gelu";
    case Epilogue::kGeluInput:
      return "gelu_input";
    case Epilogue::kBiasGeluInput:
      return "bias_gelu_input";
    case Epilogue::kGeluBackward:
      return "gelu_backward";
    case Epilogue::kGeluBackwardSums:
      return "gelu_backward_sums";
  }
  return "unknown";
}

std::optional<OpKind> op_kind_named(std::string_view name) {
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i].name == name) {
      return static_cast<OpKind>(i);
    }
  }
  return std::nullopt;
}

std::optional<Phase> phase_named(std::string_view name) {
  const auto i = index_of(kPhases, name);
  return i == static_cast<std::ptrdiff_t>(kPhases.size()) ? std::nullopt
                                                          : std::optional(static_cast<Phase>(i));
}

namespace {

/// What an epilogue moves beside the product: a row of bias or of its gradient (fp32), a mask, and
/// the input of a GELU.
void add_epilogue(Op& op, double e) {
  const auto epilogue = static_cast<Epilogue>(op.variant);
  const auto rows = static_cast<double>(op.shape[0]);
  const auto columns = static_cast<double>(op.shape[1]);
  const Bytes mask(rows * 4 * static_cast<double>(mask_words(op.shape[1])));
  if (adds_bias(epilogue)) {
    op.bytes_read += Bytes(columns * e);
  }
  if (sums_columns(epilogue)) {
    op.bytes_written += Bytes(columns * 4);
  }
  if (epilogue == Epilogue::kBiasReluMask) {
    op.bytes_written += mask;
  } else if (epilogue == Epilogue::kReluBackward) {
    op.bytes_read += mask;
  } else if (keeps_gelu_input(epilogue)) {
    op.bytes_written += Bytes(rows * columns * e);
  } else if (reads_gelu_input(epilogue)) {
    op.bytes_read += Bytes(rows * columns * e);
  }
}

}  // namespace

void fill_work(Op& op) {
  const double e =
      bits_per_element(op.format, std::max<std::int64_t>(1, op.shape[1])) / 8;  // bytes per element
  const auto s = [&op](std::size_t i) { return static_cast<double>(op.shape[i]); };
  op.flops = Flops{};
  op.bytes_read = op.bytes_written = Bytes{};
  switch (op.kind) {
    case OpKind::kGemm: {
      const double batch = std::max(1.0, s(3));
      const bool accumulate = (op.flags & op_flags::kAccumulate) != 0;
      op.flops = Flops(2 * s(0) * s(1) * s(2) * batch);
      op.bytes_read =
          Bytes(batch * (s(0) * s(2) + s(2) * s(1) + (accumulate ? s(0) * s(1) : 0)) * e);
      op.bytes_written = Bytes(batch * s(0) * s(1) * e);
      add_epilogue(op, e);
      return;
    }
    case OpKind::kAttentionForward:
    case OpKind::kAttentionBackward:
      fill_attention(op, e);
      return;
    case OpKind::kDotInteractionForward:
    case OpKind::kDotInteractionBackward: {
      // F vectors of width D per sample: F (F - 1) / 2 dots of 2 D FLOPs; the backward runs each
      // dot's gradient into both vectors.
      const double pairs = s(1) * (s(1) - 1) / 2;
      const double inputs = s(0) * s(1) * s(2);
      const double outputs = s(0) * (pairs + s(2));
      const bool backward = op.kind == OpKind::kDotInteractionBackward;
      op.flops = Flops((backward ? 2 : 1) * 2 * s(0) * pairs * s(2));
      op.bytes_read = Bytes((inputs + (backward ? outputs : 0)) * e);
      op.bytes_written = Bytes((backward ? inputs : outputs) * e);
      return;
    }
    case OpKind::kRopeForward:
    case OpKind::kRopeBackward: {
      const double elements = s(0) * s(1) * s(2);
      op.flops = Flops(3 * elements);
      op.bytes_read = op.bytes_written = Bytes(elements * e);
      return;
    }
    case OpKind::kRouteForward:
    case OpKind::kRouteBackward: {
      // Forward: softmax over all experts, then the choice: weight and id of each copy. Backward
      // reads the probabilities and the gradients of the weights. All in fp32.
      const double logits = 4 * s(0) * s(1);
      const double chosen = 8 * s(0) * s(2);
      const bool backward = op.kind == OpKind::kRouteBackward;
      op.flops = Flops(5 * s(0) * s(1));
      op.bytes_read = Bytes(logits + (backward ? chosen : 0));
      op.bytes_written = Bytes(logits + (backward ? 0 : chosen));
      return;
    }
    case OpKind::kDispatchForward:  // a copy's row, its place, the row again
      op.bytes_read = Bytes(s(0) * (s(1) * e + 4));
      op.bytes_written = Bytes(s(0) * s(1) * e);
      return;
    case OpKind::kDispatchBackward:
    case OpKind::kCombineForward:
      op.flops = Flops(2 * s(2) * s(1));
      op.bytes_read = Bytes(s(2) * (s(1) * e + 8));
      op.bytes_written = Bytes(s(0) * s(1) * e);
      return;
    case OpKind::kCombineBackward:  // the row's gradient and the copy, for the weight's gradient
      op.flops = Flops(3 * s(0) * s(1));
      op.bytes_read = Bytes(s(0) * (2 * s(1) * e + 8));
      op.bytes_written = Bytes(s(0) * (s(1) * e + 4));
      return;
    case OpKind::kTokenEmbeddingForward:
      op.bytes_read = Bytes(s(0) * s(1) * e + 4 * s(0));
      op.bytes_written = Bytes(s(0) * s(1) * e);
      return;
    case OpKind::kTokenEmbeddingBackward:
      op.flops = Flops(s(0) * s(1));
      op.bytes_read = Bytes(2 * s(0) * s(1) * e + 4 * s(0));
      op.bytes_written = Bytes(s(0) * s(1) * e);
      return;
    case OpKind::kOptimizer: {
      const PerElement w = optimizer_work(static_cast<OptimizerKind>(op.variant));
      op.flops = Flops(w.flops * s(0));
      op.bytes_read = Bytes(w.read * s(0) * e);
      op.bytes_written = Bytes(w.written * s(0) * e);
      return;
    }
    case OpKind::kMeanRowsForward:
    case OpKind::kMeanRowsBackward: {
      const double rows = s(0) * s(1) * e;
      const double means = rows / std::max(1.0, s(2));
      const bool backward = op.kind == OpKind::kMeanRowsBackward;
      op.flops = Flops(s(0) * s(1));
      op.bytes_read = Bytes(backward ? means : rows);
      op.bytes_written = Bytes(backward ? rows : means);
      return;
    }
    case OpKind::kConnectionistLoss: {
      // Forward and backward variables over 2 labels + 1 states of each frame, in fp32.
      const double states = s(0) * (2 * s(2) + 1);
      op.flops = Flops(8 * states + 3 * s(0) * s(1));
      op.bytes_read = Bytes(s(0) * s(1) * e + 8 * states);
      op.bytes_written = Bytes(s(0) * s(1) * e + 8 * states);
      return;
    }
    case OpKind::kConvolutionForward:
    case OpKind::kConvolutionInputGradient:
    case OpKind::kConvolutionWeightGradient:
      op.flops = Flops(2 * s(0) * s(1) * s(2));
      return;  // bytes set by the builder: they follow from strides
    case OpKind::kLoadBatch:
      op.bytes_read = op.bytes_written = Bytes(s(0));
      return;
    case OpKind::kFill:
    case OpKind::kCast: {
      const PerElement w = elementwise_work(op);
      op.bytes_read = Bytes(w.read * s(0) * e);
      op.bytes_written = Bytes(w.written * s(0) * e);
      return;
    }
    case OpKind::kRecorded:
      return;  // unknown
    case OpKind::kIndexPack:
    case OpKind::kIndexUnpack:
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward:
    case OpKind::kEmbeddingGradient:
    case OpKind::kTierFetch:
    case OpKind::kTierWriteBack:
    case OpKind::kSequencePoolForward:
    case OpKind::kSequencePoolBackward:
      return;  // set by the builder from the group's tables
    default:
      break;
  }
  if (is_collective(op.kind)) {
    op.bytes_read = op.bytes_written = Bytes(s(0) * e);
    return;
  }
  const PerElement w = elementwise_work(op);
  const double elements = s(0) * std::max(1.0, s(1));
  op.flops = Flops(w.flops * elements);
  op.bytes_read = Bytes(w.read * elements * e);
  op.bytes_written = Bytes(w.written * elements * e);
}

}  // namespace stepcast
