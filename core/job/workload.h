#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/formats.h"
#include "core/graph/op_enums.h"
#include "core/graph/step_inputs.h"
#include "core/job/recurrent_mixer.h"

namespace stepcast {

class Access;  // core/access/access.h

/// Feed-forward layers of many experts of which a router picks a few per token (Shazeer et al.,
/// arXiv 1701.06538; Fedus et al., arXiv 2101.03961). Experts and shared experts have no biases.
struct MixtureOfExperts {
  std::int64_t experts = 0;
  std::int64_t per_token = 0;   ///< experts a token is sent to
  std::int64_t shared = 0;      ///< experts every token passes, of the same width each
  std::int64_t ffn_hidden = 0;  ///< width of one expert
  /// Width of the vectors that routed experts read and make (LatentMoE, Nemotron 3 Super): tokens
  /// are projected to it before their copies are made, and back once they are combined. 0: hidden.
  std::int64_t latent = 0;
  std::int64_t first_dense_layers = 0;  ///< layers before the first with experts
  /// Neighbouring experts form `groups` equal groups; all experts of a token lie in at most
  /// `groups_per_token` of them (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
  /// Most copies an expert takes of one rank's tokens, relative to an even spread; the rest is
  /// dropped. 0: nothing is dropped.
  double capacity_factor = 0;
  std::shared_ptr<const Access> routing;  ///< popularity of the experts; none: all alike
  std::string routing_file;               ///< the file behind `routing`, if any
  /// True if routing is uniform over experts and their combinations.
  [[nodiscard]] bool even() const;
  /// True if the router limits a token to some groups of experts.
  [[nodiscard]] bool limits_groups() const { return groups_per_token < groups; }
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): queries, keys and
/// values are projected up from narrow vectors; of a head's query and key `nope_dim` columns carry
/// no positions and `rope_dim` do, and all heads share those of the key.
struct LatentAttention {
  std::int64_t q_rank = 0;  ///< 0: queries come straight from the hidden state
  std::int64_t kv_rank = 0;
  std::int64_t rope_dim = 0;
  std::int64_t nope_dim = 0;
  std::int64_t v_dim = 0;
  [[nodiscard]] std::int64_t query_dim() const { return nope_dim + rope_dim; }
};

/// Sparse attention (DeepSeek-V3.2, arXiv 2512.02556, section 2.1): an indexer scores all keys
/// before a query with heads of its own, and the query attends to those that score highest. Latent
/// vectors are then the keys and values of all heads. Sequences of `top_k` tokens at most have
/// dense attention.
struct SparseAttention {
  std::int64_t top_k = 0;           ///< keys a query sees, itself included
  std::int64_t index_heads = 0;     ///< of the indexer
  std::int64_t index_head_dim = 0;  ///< and its keys, which these heads share
};

/// Attention to compressed keys (DeepSeek-V4 technical report, section 2.3). One vector of
/// `head_dim` columns is a token's key and value for all heads. Beside its window a query sees keys
/// that each stand for several tokens. Outputs of each of `groups` groups of heads are projected to
/// `output_rank` columns, and all of these to the hidden width.
struct CompressedAttention {
  std::int64_t q_rank = 0;  ///< queries are projected up from so many columns
  std::int64_t rope_dim = 0;
  std::int64_t groups = 1;
  std::int64_t output_rank = 0;
  std::int64_t ratio = 4;          ///< tokens a key stands for where an indexer chooses keys
  std::int64_t heavy_ratio = 128;  ///< and where a query sees all of them
};

/// Part of a layer that mixes the tokens of a sequence.
enum class MixerKind : std::uint8_t {
  kNone,
  kAttention,          ///< to all tokens before
  kWindow,             ///< to those in the model's window
  kRecurrent,          ///< TransformerWorkload::recurrent
  kCompressedSparse,   ///< to the window's and to chosen keys of several tokens each
  kHeavilyCompressed   ///< to the window's and to keys of many tokens each
};
/// Part of a layer that works on each token by itself.
enum class FeedForwardKind : std::uint8_t { kNone, kDense, kExperts };
/// A kind of layer: a mixer, a feed-forward block or one after the other, each with a norm before
/// it and added to the residual stream.
struct BlockKind {
  MixerKind mixer = MixerKind::kAttention;
  FeedForwardKind feed_forward = FeedForwardKind::kDense;
  auto operator<=>(const BlockKind&) const = default;
  [[nodiscard]] bool attends() const {
    return mixer != MixerKind::kNone && mixer != MixerKind::kRecurrent;
  }
  /// True if layers of both kinds have parameters of the same sizes.
  [[nodiscard]] bool like(const BlockKind& other) const {
    const auto plain = [](MixerKind m) {
      return m == MixerKind::kWindow ? MixerKind::kAttention : m;
    };
    return feed_forward == other.feed_forward && plain(mixer) == plain(other.mixer);
  }
};

/// Facts that training depends on and no forecast does: launch scripts have them.
struct ModelDetails {
  std::optional<double> rotary_base, rotary_share, norm_epsilon;
  bool qk_norms = false, qkv_biases = false;
  std::string rope_scaling;  ///< its type, "llama3"; "": none
  std::optional<double> rope_factor;
};

/// A decoder-only transformer. Defaults follow CONTRACT section 3.
struct TransformerWorkload {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< = heads for multi-head attention
  std::int64_t head_dim = 0;  ///< = hidden / heads unless given
  std::int64_t ffn_hidden = 0;
  Activation activation = Activation::kGelu;
  std::int64_t vocabulary = 0;
  bool tied_embeddings = false;
  std::int64_t window = 0;  ///< keys a query sees, itself included; 0: all before it
  /// A query sees the keys of its own chunk of `window` tokens, up to itself, not the last ones
  /// (Llama 4).
  bool chunked = false;
  /// With `window`: every n-th layer (n, 2n, ..., counted from 1) sees all keys before it; 0: none
  /// does. Gemma 3 has n = 6, gpt-oss n = 2.
  std::int64_t full_attention_every = 0;
  std::optional<RecurrentMixer> recurrent;
  /// Kinds of layers in order, over and over until there are `layers`. Empty: attention in each,
  /// as `window` and `full_attention_every` say, and a feed-forward block or, after
  /// `moe->first_dense_layers`, experts.
  std::vector<BlockKind> pattern;
  /// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): so many layers more in
  /// training, each after the one before. Each reads the hidden states and the embedding of the
  /// next token, both after norms and through a projection to `hidden`, and predicts one token
  /// further with the model's head.
  std::int64_t predictions = 0;
  BlockKind prediction_kind;
  /// Predicts so many further tokens in layers like the last, which also have attention and a
  /// feed-forward block where that has none.
  void predict_further(std::int64_t tokens) {
    predictions = 0;
    prediction_kind = kind_of(layers - 1);
    if (prediction_kind.mixer == MixerKind::kNone) {
      prediction_kind.mixer = MixerKind::kAttention;
    }
    if (prediction_kind.feed_forward == FeedForwardKind::kNone) {
      prediction_kind.feed_forward = moe ? FeedForwardKind::kExperts : FeedForwardKind::kDense;
    }
    predictions = tokens;
  }
  /// The kind of a layer, counted from 0; those after the last are of predictions.
  [[nodiscard]] BlockKind kind_of(std::int64_t layer) const {
    if (predictions > 0 && layer >= layers) {
      return prediction_kind;
    }
    if (!pattern.empty()) {
      return pattern[static_cast<std::size_t>(layer) % pattern.size()];
    }
    const bool all = full_attention_every > 0 && (layer + 1) % full_attention_every == 0;
    return {window > 0 && !all ? MixerKind::kWindow : MixerKind::kAttention,
            moe && layer >= moe->first_dense_layers ? FeedForwardKind::kExperts
                                                    : FeedForwardKind::kDense};
  }
  /// Keys a query of this layer sees one by one; 0: all before it.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    const BlockKind kind = kind_of(layer);
    return kind.attends() && kind.mixer != MixerKind::kAttention ? window : 0;
  }
  /// Attention probabilities, both branches and the embedding lose values in training.
  bool dropout = false;
  /// Attention's output is multiplied by a gate, a projection of its input (Qwen3-Next).
  bool output_gate = false;
  bool parallel_block = false;  ///< attention and feed-forward block read one norm, side by side
  std::optional<LatentAttention> mla;     ///< then kv_heads and head_dim say nothing
  std::optional<SparseAttention> sparse;  ///< with mla, or of compressed keys
  /// Attention of all layers, whose pattern says which keys they see.
  std::optional<CompressedAttention> compressed;
  /// Streams of `hidden` columns that the residual path has, with mappings between them around each
  /// block (hyper-connections, arXiv 2409.19606; as constrained in arXiv 2512.24880).
  std::int64_t residual_streams = 1;
  [[nodiscard]] std::int64_t residual_width() const { return residual_streams * hidden; }
  /// Numbers of a token that the mappings around a block make: of streams into the block, of its
  /// output into streams, and from streams to streams.
  [[nodiscard]] std::int64_t stream_mappings() const {
    return residual_streams * (2 + residual_streams);
  }
  /// True if queries of so long a sequence see a part of the keys before them.
  [[nodiscard]] bool sparse_over(std::int64_t tokens) const {
    return sparse && tokens > sparse->top_k;
  }
  std::optional<MixtureOfExperts> moe;
  std::optional<ModelDetails> details;  ///< none: not known
  /// Features of the model it was made from that this description leaves out or simplifies, each as
  /// a phrase: "multi-token prediction (left out)". Predictions repeat them as warnings.
  std::vector<std::string> approximated;
  /// Columns of the vectors that routed experts read and make.
  [[nodiscard]] std::int64_t expert_width() const {
    return moe && moe->latent > 0 ? moe->latent : hidden;
  }
  /// True if this layer has experts instead of one feed-forward block.
  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    return kind_of(layer).feed_forward == FeedForwardKind::kExperts;
  }
  /// GPT style (LayerNorm with bias, learned positions, biased projections) when the activation is
  /// gelu; Llama style (RMSNorm, rotary positions, no biases) otherwise.
  [[nodiscard]] bool llama_style() const { return activation != Activation::kGelu; }
  [[nodiscard]] bool gated() const { return is_gated(activation); }
  [[nodiscard]] std::int64_t query_width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return kv_heads * head_dim; }
};

enum class InteractionKind : std::uint8_t { kDot, kCat, kDcnV2 };
struct Interaction {
  InteractionKind kind = InteractionKind::kDot;
  std::int64_t layers = 0;  ///< dcnv2
  std::int64_t rank = 0;    ///< dcnv2
};

struct LayerModel;  // core/job/layers.h

/// A model that is a list of layers, all but its embedding tables data-parallel. Kinds wukong,
/// dhen, dit, rnn_ctc and graph bring the list (`layers`), with tables or without; the other fields
/// are empty then. A deep-learning recommendation model (arXiv 1906.00091) gives the widths its
/// MLPs put out, and its list follows from them (core/job/layers.h: layers_of).
struct LayeredWorkload {
  std::int64_t dense_features = 0;
  std::vector<std::int64_t> bottom_mlp;
  std::vector<std::int64_t> top_mlp;
  Interaction interaction;
  std::vector<EmbeddingTable> tables;
  std::shared_ptr<const LayerModel> layers;
};

struct Workload {
  std::string name;
  std::variant<TransformerWorkload, LayeredWorkload> model;
  std::optional<Batch> default_batch;
  [[nodiscard]] const TransformerWorkload* transformer() const {
    return std::get_if<TransformerWorkload>(&model);
  }
  [[nodiscard]] const LayeredWorkload* layered() const {
    return std::get_if<LayeredWorkload>(&model);
  }
};

}  // namespace stepcast
