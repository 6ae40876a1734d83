#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "core/formats.h"
#include "core/graph/op_attributes.h"
#include "core/units.h"

namespace stepcast {

/// Kind of an op's work. `shape` is read by kind; [x] marks an optional operand. Matrices are
/// row-major [rows, columns]. All else that depends on the kind is its row of traits
/// (core/graph/op_traits.h).
enum class OpKind : std::uint8_t {
  // Matrix products and attention.
  kGemm,  ///< {m, n, k, batch}: C = op(A) op(B) [+ C]; flags transpose_a, transpose_b, accumulate
  kAttentionForward,   ///< {batch, heads, kv_heads, query_length, kv_length, head_dim}: qkv -> out,
                       ///< log-sum-exp
  kAttentionBackward,  ///< same shape: qkv, out, log-sum-exp, d_out -> d_qkv
  kJaggedAttentionForward,   ///< {samples, heads, kv_heads, rows of a sample, pairs of a query and
                             ///< a key it sees expected in all samples, head_dim}: rows attend
                             ///< within sequences of drawn lengths; qkv -> out, log-sum-exp
  kJaggedAttentionBackward,  ///< same shape: qkv, out, log-sum-exp, d_out -> d_qkv
  // Mixers with a state of constant size (core/job/recurrent_mixer.h).
  kScanForward,  ///< {tokens, heads, key_dim, value_dim, key_heads, chunk}: convolved queries, keys
                 ///< and values, gates -> out, states between chunks
  kScanBackward,               ///< same shape: the same, d_out -> d_convolved, d_gates
  kCausalConvolutionForward,   ///< {tokens, channels, taps}: of each channel by itself
  kCausalConvolutionBackward,  ///< same shape: dy, x, weights -> dx, d_weights
  // Embedding bags.
  kIndexPack,  ///< {lookups, bags, peers, lookups whose owner depends on the row}: sorts the local
               ///< batch's ids by owner into the send buffer
  kIndexUnpack,       ///< {lookups, bags, peers}: received ids -> one bag list per local shard
  kEmbeddingForward,  ///< {lookups, bags, total_dim}: gather and pool all local shards of the group
  kEmbeddingBackward,  ///< {lookups, bags, total_dim}: sort, accumulate per unique row, optimizer
                       ///< fused
  kEmbeddingGradient,  ///< {lookups, bags, total_dim}: dense gradient of data-parallel tables
  kTierFetch,  ///< {rows, distinct rows, lookups}: rows of a slower tier that the cache lacks, with
               ///< their state, into the device's memory
  kTierWriteBack,         ///< {rows}: updated rows that leave the cache, back to their tier
  kSequencePoolForward,   ///< {lookups, bags, total_dim}: mean of exchanged rows per bag
  kSequencePoolBackward,  ///< {lookups, bags, total_dim}
  // Feature interaction of DLRM.
  kDotInteractionForward,   ///< {batch, features, dim}: pairwise dots without self-pairs, after the
                            ///< dense vector
  kDotInteractionBackward,  ///< same shape
  kCrossForward,            ///< {rows, width}: x0 * (u + bias) + x
  kCrossBackward,           ///< {rows, width}
  // Memory-bound ops.
  kBiasActivationForward,   ///< {rows, width}: y = act(x + bias)
  kBiasActivationBackward,  ///< {rows, width}: dx = dy * act'(y), dbias = column sums
  kActivationForward,       ///< {rows, width of the output}: gelu, swiglu, ...
  kActivationBackward,      ///< {rows, width of the output}
  kNormForward,             ///< {rows, width}
  kNormBackward,            ///< {rows, width}
  kRopeForward,             ///< {tokens, heads, head_dim, rotated width}: rotary positions in place
  kRopeBackward,            ///< same shape
  kSelectKeys,              ///< {queries, keys, chosen}: scores (fp32) -> the highest of each row
  kAdd,                     ///< {rows, width}: y = a + b
  kCopyColumns,  ///< {rows, width}: assembles or splits column blocks of row-major matrices;
                 ///< accumulate adds to the outputs
  kFill,         ///< {elements}: zeroes gradients
  kCast,         ///< {elements}: change of number format
  // Experts. Rows are copies of tokens; `copies` of one token at most. Shapes are what is expected;
  // how many rows there are follows from `Op::routing`.
  kRouteForward,      ///< {rows, experts, copies}: router logits (fp32) -> chosen experts and their
                      ///< weights
  kRouteBackward,     ///< same shape: gradient of the weights -> gradient of the logits
  kDispatchForward,   ///< {copies written, width}: rows in the order of their experts; with one
                      ///< input copies as they came, in that order, or back
  kDispatchBackward,  ///< {rows, width, copies read in all}: sums the gradients of each row's
                      ///< copies
  kCombineForward,    ///< {rows, width, copies read in all}: weighted sum of each row's copies
  kCombineBackward,   ///< {copies written, width}: gradients of the copies and of their weights
  kTokenEmbeddingForward,   ///< {tokens, hidden, local vocabulary rows} (+ learned positions)
  kTokenEmbeddingBackward,  ///< same shape: scatter-add into the dense gradient
  kCrossEntropyMax,         ///< {tokens, local vocabulary}: row maxima of the logits
  kCrossEntropySum,  ///< {tokens, local vocabulary}: sum of exp(logit - max) and the target's logit
  kCrossEntropyLoss,    ///< {tokens, local vocabulary}: loss and gradient of the logits, in place
  kBinaryCrossEntropy,  ///< {rows}: loss of logits against labels and its gradient
  kMeanSquaredError,    ///< {rows, width}: mean of (x - target)^2 and its gradient
  kConnectionistLoss,   ///< {frames, symbols, labels of a sample}: CTC over all alignments, and the
                        ///< gradient of the logits
  // Layers of models given as lists (core/job/layers.h).
  kTranspose,         ///< {elements / inner, inner, rows, columns}: swaps rows and columns of
                      ///< matrices of `inner` elements
  kMultiplyForward,   ///< {rows, width}: y = a * b
  kMultiplyBackward,  ///< {rows, width}: dy, a, b -> da, db
  kSoftmaxForward,    ///< {rows, width}: of each row
  kSoftmaxBackward,   ///< {rows, width}: dy, y -> dx
  kMeanRowsForward,   ///< {rows read, width, group}: mean of each `group` neighbouring rows
  kMeanRowsBackward,  ///< same shape
  kModulateForward,  ///< {rows, width, group}: y = x * (1 + scale) + shift, one pair of vectors for
                     ///< `group` neighbouring rows
  kModulateBackward,           ///< same shape: dy, x, scale -> dx, d_shift, d_scale
  kGateForward,                ///< {rows, width, group}: y = x + gate * branch, gate as in modulate
  kGateBackward,               ///< same shape: dy, branch, gate -> d_branch, d_gate
  kConvolutionForward,         ///< {positions out, channels out, channels in * kernel, 1}
  kConvolutionInputGradient,   ///< {positions out, channels in * kernel, channels out, 1}
  kConvolutionWeightGradient,  ///< {channels in * kernel, channels out, positions out, 1}
  kOptimizer,                  ///< {elements}
  kOrthogonalize,  ///< {sides of the squares, other sides, matrices, iterations, first column}: the
                   ///< matrices, one below the other in columns of x, in place
  kLoadBatch,      ///< {bytes}: the next batch becomes visible to the device (host-to-device copy)
  // Traces of other programs.
  kRecorded,  ///< {}: a kernel, copy or host call known by name and time only
  // Collectives: {elements} per the NCCL convention of each (docs/architecture.md).
  kAllReduce,      ///< elements of the buffer
  kAllGather,      ///< elements of the gathered output
  kReduceScatter,  ///< elements of the input
  kAllToAll,       ///< elements of one rank's send buffer, equal parts
  kAllToAllV,  ///< {elements of this rank's send buffer, elements of a row}, parts by the Exchange
  kBroadcast,  ///< elements of the buffer; peer = root
  kSend,       ///< {elements, tag}; asynchronous: the stream goes on once the send is posted
  kRecv,       ///< {elements, tag}; the stream waits for the data
  kBarrier,
  kCount
};

namespace op_flags {
constexpr std::uint8_t kTransposeA = 1;
constexpr std::uint8_t kTransposeB = 2;
constexpr std::uint8_t kAccumulate = 4;
constexpr std::uint8_t kCausal = 8;
constexpr std::uint8_t kUnfused = 16;  ///< attention that materialises the score matrix
constexpr std::uint8_t kHostWaits =
    32;  ///< the host thread waits for the op's events before it issues it (a synchronising call)
constexpr std::uint8_t kNextBatch = 64;  ///< works on the batch of the next step, not of this one
constexpr std::uint8_t kEveryInterval = 128;  ///< done once in Program::interval steps: fills in
                                              ///< the first of them, all else in the last
static_assert((kTransposeA | kTransposeB | kAccumulate | kCausal | kUnfused | kHostWaits |
               kNextBatch | kEveryInterval) == 255,
              "every flag has a bit of its own");
}  // namespace op_flags

/// Op::layer of an op that belongs to none, or is not known to.
constexpr std::int16_t kNoLayer = -1;

/// One op template of a program. Operands, waits and side tables live in the program's contiguous
/// arrays.
struct Op {
  OpKind kind = OpKind::kFill;
  Phase phase = Phase::kForward;
  Format format =
      Format::kFp32;  ///< of the main operand: compute format, or wire format of a collective
  std::uint8_t flags = 0;
  std::uint8_t stream = 0;
  TrafficKind traffic = TrafficKind::kOther;  ///< of a collective
  std::uint16_t inputs = 0;
  std::uint16_t outputs = 0;
  std::int16_t layer = kNoLayer;   ///< of the model, that it belongs to
  std::int32_t communicator = -1;  ///< index into ExecutionGraph::communicators
  std::int32_t peer = -1;     ///< position in the communicator: root, or partner of a send or recv
  std::int32_t routing = -1;  ///< index into Program::routings: rows are copies of routed tokens
  std::int32_t record = -1;   ///< event recorded when the op ends
  std::uint32_t name = 0;     ///< index into Program::names, e.g. "layer.attention.qkv"
  std::uint32_t first_operand = 0;
  std::uint32_t first_wait = 0;
  std::uint32_t waits = 0;
  OpAttributes attributes{};
  std::array<std::int64_t, 6> shape{};
  Flops flops;
  Bytes bytes_read;
  Bytes bytes_written;

  /// The attributes of its kind, or their defaults where none were set.
  template <class Attributes>
  [[nodiscard]] Attributes as() const {
    const auto* set = std::get_if<Attributes>(&attributes);
    return set != nullptr ? *set : Attributes{};
  }
};
static_assert(std::is_trivially_copyable_v<Op> && sizeof(Op) <= 136);

std::string_view name_of(OpKind kind);
std::optional<OpKind> op_kind_named(std::string_view name);
OpClass class_of(OpKind kind);
inline bool is_collective(OpKind kind) { return class_of(kind) == OpClass::kCollective; }

/// Fills flops, bytes_read and bytes_written of an op from kind, shape, format, flags and
/// attributes, as OpTraits::work says. Embedding kinds are filled by their builder (they depend on
/// the group's tables). FLOPs count a multiply-add as 2. Attention with the causal flag counts half
/// of the score matrix (executed work); full-attention conventions are the report's business.
void fill_work(Op& op);

}  // namespace stepcast
