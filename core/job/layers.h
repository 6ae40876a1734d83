#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/graph/length_law.h"
#include "core/graph/op_enums.h"
#include "core/graph/program_fwd.h"
#include "core/job/workload.h"

namespace stepcast {

// A model as the list of its layers' forward pass. workloads/ derives the backward pass, gradient
// exchange and update; every data-parallel dense half is such a list, written by hand (kind graph)
// or by one of the builders at the end.

/// Shapes are those of one sample: [rows, columns]; a batch stands under one another.
enum class LayerKind : std::uint8_t {
  kTables,          ///< [x |] columns of all embedding tables side by side
  kLinear,          ///< x W [+ bias], then the activation
  kActivation,      ///< of each element; gated ones halve the columns
  kNorm,            ///< of each row
  kAdd,             ///< a + b
  kMultiply,        ///< a * b, element by element
  kConcatenate,     ///< columns of all inputs side by side
  kColumns,         ///< some neighbouring columns
  kReshape,         ///< the same elements in other rows
  kTranspose,       ///< rows become columns
  kMatmul,          ///< a b of each sample; either may be transposed
  kDot,             ///< pairwise dots of rows, after the first row
  kCross,           ///< x0 * (x V U + bias) + x (DCNv2, arXiv 2008.13535, eq. 2)
  kAttention,       ///< columns query | key | value -> heads side by side
  kGatedAttention,  ///< columns gate | query | key | value -> norm(attention) * gate
  kSoftmax,         ///< of each row
  kMeanRows,        ///< mean of neighbouring rows
  kModulate,        ///< x * (1 + scale) + shift; shift and scale are columns of another tensor
  kGate,            ///< x + gate * branch
  kPositions,       ///< x + a parameter of x's shape
  kRope,            ///< rotary positions of the query and key heads
  kTokenEmbedding,  ///< ids -> rows of a dense table
  kConvolution,     ///< rows are a grid, columns channels
  kTimeMajor,       ///< rows of all samples, frame by frame
  kSampleMajor,     ///< and back
  kRecurrent,       ///< h_t = act(x_t + h_(t-1) U), over the rows; forwards or backwards
  kAllReduce,       ///< over a group: the parts of a product are summed
  kCopyToGroup,     ///< its counterpart: nothing forward, gradients are summed
  kAllGather,       ///< over a group: columns side by side
  kReduceScatter,   ///< over a group: summed, each rank keeps its columns
  kAllToAll,        ///< over a group: parts of the columns change places
  kBinaryCrossEntropy,
  kMeanSquaredError,
  kCrossEntropy,
  kConnectionist,   ///< CTC (Graves et al., ICML 2006)
  kInBatchSoftmax,  ///< queries against the items of all samples, and negatives
  kCount
};
std::string_view name_of(LayerKind kind);
inline bool is_loss(LayerKind kind) { return kind >= LayerKind::kBinaryCrossEntropy; }

struct LayerTensor {
  std::string name;
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  bool needs_gradient = false;  ///< some parameter stands before it
  bool time_major = false;
  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
};

/// Properties, for attention and rope, of the heads that stand side by side in their input.
struct LayerHeads {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  ///< 0: as heads
  bool causal = false;
  std::int64_t window = 0;
  std::optional<LengthLaw> lengths{};  ///< within sequences of these lengths
  std::int64_t targets =
      0;                 ///< last rows of a sequence, which see those before them and themselves
  bool silu = false;     ///< weights are SiLU of scores over the rows of a sample, not softmax
  std::int64_t dim = 0;  ///< follows from the columns
  double pairs = 0;      ///< with lengths: of a query and a key, expected in a sample
};

struct Layer {
  LayerKind kind = LayerKind::kLinear;
  std::string name;
  std::vector<std::int32_t> in;  ///< indices of tensors
  std::int32_t out = -1;         ///< a loss has none
  bool bias = false;
  Activation activation = Activation::kNone;
  Norm norm = Norm::kLayerNorm;
  bool affine = true;  ///< norm, also in attention: with scale (and shift) to learn
  bool transpose_a = false, transpose_b = false;
  bool reverse = false;  ///< recurrent: from the last row to the first
  LayerHeads heads{};
  std::int64_t dim = 0;         ///< dot: width of a vector
  std::int64_t rank = 0;        ///< cross: width between the two products
  std::int64_t first = 0;       ///< columns: the first; modulate, gate: where shift or gate begins
  std::int64_t vocabulary = 0;  ///< token embedding
  std::int64_t labels = 0;      ///< connectionist: labels of a sample; in-batch softmax:
                                ///< corrections (minus log Q) that its logits take
  std::array<std::int64_t, 2> grid{}, kernel{}, stride{};  ///< convolution: height, width
  std::int32_t group = -1;  ///< collectives: index into LayerList::groups
};

/// Ranks that work on one sample together; neighbours, the first group innermost.
struct LayerGroup {
  std::string name;
  std::int64_t size = 1;
};

struct LayerParameter {
  std::string name;  ///< layer name and role, "top.0.weight"
  std::int64_t rows = 0, columns = 0;
  double scale = 0;     ///< uniform in [-scale, scale]
  double constant = 0;  ///< where scale is 0
  bool added = false;   ///< the backward pass adds to the gradient, so it is zeroed first
};

struct LayerList {
  std::vector<LayerTensor> tensors;
  std::vector<std::int32_t> inputs;  ///< tensors read from the data set
  std::vector<Layer> layers;         ///< each after all it reads
  std::vector<LayerGroup> groups;
  [[nodiscard]] const LayerTensor& tensor(std::int32_t t) const {
    return tensors[static_cast<std::size_t>(t)];
  }
  [[nodiscard]] const LayerTensor& input(const Layer& l, std::size_t i = 0) const {
    return tensor(l.in[i]);
  }
  [[nodiscard]] const LayerTensor& output(const Layer& l) const { return tensor(l.out); }
  [[nodiscard]] std::int64_t group_size(const Layer& l) const {
    return l.group < 0 ? 1 : groups[static_cast<std::size_t>(l.group)].size;
  }
  /// Ranks that share a sample.
  [[nodiscard]] std::int64_t ranks_per_sample() const;
  /// Real values of a sample the data set gives: inputs.
  [[nodiscard]] std::int64_t input_width() const;
};

/// Targets of a loss for one sample, [rows, columns]: of a kind's own shape.
std::array<std::int64_t, 2> label_shape(const LayerList& list, const Layer& loss);
/// Values of all targets of a sample.
std::int64_t label_width(const LayerList& list);
/// Learned parameters of a layer on one rank, in the order in which the backward pass completes
/// their gradients.
std::vector<LayerParameter> parameters_of(const LayerList& list, const Layer& layer);
/// Parameters of the list on one rank.
std::int64_t parameter_count(const LayerList& list);
/// The forward op of an attention layer on `samples` samples: kind, sizes, attributes and mask. Its
/// backward op has the same (OpTraits::backward).
Op attention_op(const LayerList& list, const Layer& layer, std::int64_t samples);
/// Vectors of a sample that the queries of all samples are scored against; 0 of any other layer.
std::int64_t scored_items(const LayerList& list, const Layer& layer);
/// FLOPs of the forward pass of one sample on one rank, scores of other samples apart: matrix
/// products, attention, dots and convolutions; a multiply-add counts 2.
double forward_flops(const LayerList& list, const Layer& layer);
double forward_flops(const LayerList& list);
/// Forward and backward: each product twice more, once where its input needs no gradient.
double training_flops(const LayerList& list);

/// Wukong (Zhang et al., arXiv 2403.02545, section 3): `layers` times
///   X <- norm(concat(FMB(X), LCB(X)) + X)
/// FMB: X X^T Y of rank `rank`, norm, an MLP of `mlp` hidden widths to `fmb` embeddings; LCB: `lcb`
/// linear combinations of the embeddings. X starts as [dense | tables], equal widths.
struct WukongModel {
  std::int64_t layers = 0, fmb = 0, lcb = 0, rank = 0;
  std::vector<std::int64_t> mlp;
};

/// DHEN (Zhang et al., arXiv 2203.11014, section 3): each layer runs its modules on the same
/// [features, width], brings each to `features` x width, sums them and the shortcut, and norms.
struct DhenModel {
  enum class Module : std::uint8_t { kDot, kAttention, kLinear, kCross };
  std::int64_t layers = 0;
  std::int64_t features = 0;  ///< embeddings a layer puts out
  std::int64_t heads = 1;     ///< of attention
  std::int64_t rank = 0;      ///< of cross
  std::vector<Module> modules;
};

/// Diffusion transformer with adaLN-Zero conditioning on patchified latents (Peebles, Xie, arXiv
/// 2212.09748, section 3).
struct DitModel {
  std::int64_t layers = 0, hidden = 0, heads = 0, ffn_hidden = 0;
  std::array<std::int64_t, 3> latent{};  ///< frames, height, width
  std::int64_t channels = 0;
  std::array<std::int64_t, 3> patch{1, 2, 2};
  std::int64_t classes = 0;        ///< 0: no class table, conditioned on time alone
  std::int64_t frequencies = 256;  ///< of the time embedding
  bool learned_variance = true;    ///< predicts twice the channels
  [[nodiscard]] std::int64_t tokens() const {
    return latent[0] / patch[0] * (latent[1] / patch[1]) * (latent[2] / patch[2]);
  }
};

/// Deep Speech 2 (Amodei et al., arXiv 1512.02595, section 3): 2-D convolutions over (time,
/// frequency), recurrent layers, one fully connected layer, CTC.
struct RecurrentCtcModel {
  struct Convolution {
    std::int64_t channels = 0;
    std::array<std::int64_t, 2> kernel{}, stride{1, 1};  ///< time, frequency
  };
  std::int64_t frames = 0, frequencies = 0;
  std::vector<Convolution> convolutions;
  std::int64_t layers = 0, hidden = 0;
  bool bidirectional = true;
  std::int64_t symbols = 0;
  std::int64_t labels = 0;  ///< of a sample
};

/// Ops listed by hand: the list, and the text it was read from, to write it again.
struct ListedModel {
  LayerList list;
  std::string text;  ///< JSON of inputs, groups and ops
};

/// The dense half of workloads that are not transformers.
struct LayerModel {
  std::variant<WukongModel, DhenModel, DitModel, RecurrentCtcModel, ListedModel> spec;
  [[nodiscard]] std::string_view kind() const;
  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&spec);
  }
};

/// The layers of a workload with tables, also of a plain DLRM, split over `tensor` ranks where the
/// kind can be (dit); the columns of the tables are `tower_compression` times fewer. Errors:
/// InputError naming `place` for shapes that do not fit.
LayerList layers_of(const LayeredWorkload& workload, std::int64_t tensor = 1,
                    const std::string& place = "workload", std::int64_t tower_compression = 1);

}  // namespace stepcast
