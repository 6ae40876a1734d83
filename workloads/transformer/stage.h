#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "workloads/op_writer.h"
#include "workloads/transformer/shape.h"
#include "workloads/transformer/split_attention.h"
#include "workloads/transformer/stage_parameters.h"

namespace stepcast::workloads {

/// Indices into ExecutionGraph::communicators; -1 where the job needs none.
struct TransformerCommunicators {
  std::int32_t tensor = -1;
  std::int32_t forward = -1,
               backward = -1;  ///< along the pipeline; two when they have streams of their own
  std::int32_t context = -1;
  std::int32_t ring = -1;       ///< what stands for neighbours of the context ring
  std::int32_t expert = -1;     ///< ranks with different experts
  std::int32_t key_value = -1;  ///< tensor ranks with the same key and value heads
};

/// Writes the program of one pipeline stage (all tensor and data ranks of a stage have equal
/// programs). Row-major activations [tokens, width]; the residual stream has `rows` rows: all
/// tokens, or this rank's part under sequence parallelism, where gathers and reduce-scatters stand
/// in the place of all-reduces.
class TransformerStage {
 public:
  TransformerStage(const Job& job, const TransformerShape& shape,
                   const TransformerCommunicators& communicators, std::int32_t stage,
                   Format products);
  OpWriter::Written write() &&;

 private:
  /// Tensors that the backward pass of a layer's experts reads.
  struct ExpertTensors {
    TensorId logits = 0, probabilities = 0;  ///< of all experts, by token
    TensorId input = 0, fc1 = 0, activated = 0;
    TensorId unweighted = 0;            ///< activated, before probabilities by a kernel of its own
    TensorId output = 0;                ///< copies back on the rank of their tokens
    TensorId latent = 0, combined = 0;  ///< rows into and out of experts of latent vectors
    TensorId shared_fc1 = 0, shared_activated = 0;
    std::int32_t routing = -1;
  };
  /// Tensors that the backward pass of latent attention reads: narrow vectors before and after
  /// their norms, those of the key with its rotary columns.
  struct LatentTensors {
    TensorId query = 0, query_norm = 0, query_statistics = 0;
    TensorId key = 0, key_norm = 0, key_statistics = 0;
    // Sparse attention: queries before they are projected, the core's outputs, the indexer's
    // queries, its keys and weights of heads, and the keys it chose.
    TensorId queries = 0, attended = 0, index_query = 0, index_key = 0, chosen = 0;
    TensorId summary = 0;  ///< keys of several tokens each
  };
  /// Tensors that the backward pass of a mixer with a state reads (recurrent.cpp).
  struct RecurrentTensors {
    TensorId in = 0, convolved = 0;  ///< before and after the convolution
    TensorId scanned = 0, statistics = 0;
    TensorId inverse = 0;  ///< of delta rules, by chunk
    TensorId gated = 0;    ///< into the projection out
    std::vector<TensorId> narrow_gates, gates;
  };
  using Masks = std::vector<TensorId>;  ///< none without dropout
  /// The streams around a block of a layer; nothing where there is one stream.
  struct StreamBlock {
    std::string name{};              ///< of its parameters: "layer.3.streams.mixer"
    std::string left_gradient{};     ///< of what weight gradients that wait read
    TensorId entered = 0, left = 0;  ///< into the block and out of it
  };
  /// A low-rank adapter: what the backward pass reads of it.
  struct Adapter {
    std::string parameter, op;  ///< "layer.3.attention.qkv", "lora.qkv"
    std::int64_t inputs = 0, outputs = 0;
    bool by_rows = false;  ///< tensor ranks hold rows of its first matrix, as of the base's
    TensorId low = 0;      ///< between its two matrices
    TensorId dropped = 0, mask = 0;  ///< its input, with dropout
  };
  struct Adapters {
    std::optional<Adapter> qkv, projection, fc1, fc2;
  };
  /// Tensors that the backward pass of a layer reads, per micro-batch; temporaries where nothing of
  /// it does.
  struct LayerTensors {
    TensorId input = 0, norm1 = 0, norm1_statistics = 0, qkv = 0, attention = 0;
    TensorId gate = 0, gated = 0;  ///< of attention's output, and their product
    TensorId log_sum_exp = 0;      ///< of fused attention
    TensorId scores = 0;           ///< of unfused attention
    /// For dropout: what it leaves of the scores, and a byte of mask for each value it acts on.
    Masks dropped_scores, attention_masks, mlp_masks;
    TensorId cache = 0;  ///< inference: keys and values, those of this pass appended
    TensorId middle = 0, norm2 = 0, norm2_statistics = 0, fc1 = 0, activated = 0;
    LatentTensors latent;
    StreamBlock first, second;  ///< around the mixer and around what follows it
    RecurrentTensors recurrent;
    ExpertTensors experts;
    Adapters adapters;
    BlockKind kind;
    std::int64_t layer = 0;
    std::int32_t window = 0;  ///< keys a query sees; 0: all before it
  };
  /// Tensors that the backward pass of a further token's prediction reads.
  struct Prediction {
    TensorId hidden = 0, hidden_norm = 0, hidden_statistics = 0;
    TensorId embedded = 0, embedded_norm = 0, embedded_statistics = 0;
    TensorId output = 0;
    LayerTensors layer;
  };
  /// Residual stream into and out of a chunk, and its gradients; sent and received instances are
  /// per micro-batch.
  struct ChunkTensors {
    TensorId input = 0, output = 0, output_gradient = 0, input_gradient = 0;
    std::vector<LayerTensors> layers;
  };
  struct EndTensors {
    TensorId norm = 0, norm_statistics = 0, logits = 0;
    TensorId input_gradient = 0, weight_gradient = 0;  ///< of a loss in chunks
    TensorId embedding_mask = 0;                       ///< of dropout after the embedding
    StreamBlock streams;                               ///< into the norm
  };
  /// All rows of a tensor split by rows: itself without sequence parallelism.
  struct Gathered {
    TensorId tensor;
    OpWriter::Event ready = -1;
    std::vector<OpWriter::Event> pieces = {};  ///< of the other ranks' rows, where they are cut up
    std::optional<TensorId> own = {};          ///< the rows that were gathered
  };
  struct NormGradient {
    TensorId branch, input, statistics, residual, out;
    std::vector<TensorId> more_inputs = {}, more_outs = {};  ///< rows behind those of the first
  };

  /// Formats of a product's operands, and the part of it that tensor ranks repeat.
  enum class ProductPlace : std::uint8_t {
    kLayer,          ///< in the format of products
    kQueryKeyValue,  ///< by columns; some tensor ranks hold the same keys and values
    kWholeOnEach,    ///< by columns, and not split over tensor ranks
    kRouter,         ///< as wide as activations, and not split
    kHead,           ///< as wide as activations unless the job says otherwise
    kWide            ///< as wide as activations: adapters
  };
  struct Product {
    std::string name;
    std::int64_t m, n, k;
    TensorId a, b, c;
    std::uint8_t flags = 0;
    ProductPlace place = ProductPlace::kLayer;
  };
  /// A matrix W [inputs, outputs] of a layer and its three products of so many rows: y = x W,
  /// dx = dy W', dW += x' dy.
  struct Linear {
    std::string name;  ///< of the first; of the others with "_input_gradient", "_weight_gradient"
    const ProgramBuilder::Parameter& matrix;
    std::int64_t rows, inputs, outputs;
    ProductPlace place;
  };

  // Parameters (parameters.cpp).
  void declare_parameters();
  std::vector<ParameterSpec> chunk_parameters(std::int64_t chunk) const;
  void add_layer_parameters(std::int64_t layer, std::vector<ParameterSpec>& specs) const;
  void add_embedding_parameters(std::vector<ParameterSpec>& specs) const;
  void add_norm(const std::string& name, std::int64_t columns,
                std::vector<ParameterSpec>& specs) const;
  /// Columns over tensor ranks, so many on each, of a matrix with so many inputs.
  void add_columns(const std::string& name, std::int64_t rows, std::int64_t columns,
                   std::vector<ParameterSpec>& specs) const;
  /// One matrix below the other for each group of heads here, read as wide as activations.
  void add_group_matrices(const std::string& name, std::int64_t groups, std::int64_t rows,
                          std::int64_t columns, std::vector<ParameterSpec>& specs) const;
  /// Whole on every tensor rank.
  void add_whole_matrix(const std::string& name, std::int64_t rows, std::int64_t columns,
                        std::vector<ParameterSpec>& specs) const;

  // Layers (layer.cpp, layer_backward.cpp).
  void layer_forward(const LayerTensors& t, TensorId output);
  void attention_block(const std::string& at, const LayerTensors& t, TensorId output);
  void second_norm_forward(const std::string& at, const LayerTensors& t);
  void attention_forward(const LayerTensors& t);

  // Low-rank adapters (lora.cpp).
  void freeze(std::vector<ParameterSpec>& specs, std::size_t first, bool of_layer) const;
  void add_adapter_parameters(const std::string& at, std::vector<ParameterSpec>& specs) const;
  Adapter adapter(bool keep, const std::string& at, const char* name, std::int64_t inputs,
                  std::int64_t outputs, bool by_rows);
  void adapter_tensors(const std::string& at, bool keep, LayerTensors& t);
  /// Sizes of an adapter's ops: columns between its matrices, tokens, rows of its output, bytes of
  /// an element.
  struct AdapterExtent {
    const Adapter& adapter;
    std::int64_t rank, tokens, rows;
    double each;
  };
  [[nodiscard]] AdapterExtent extent_of(const Adapter& a) const;
  void pass_over(const std::string& name, std::int64_t rows, std::int64_t columns,
                 const std::vector<TensorId>& in, const std::vector<TensorId>& out, double read,
                 double written);
  /// One of an adapter's two matrices, "a" or "b".
  [[nodiscard]] Linear adapter_matrix(const Adapter& a, const char* which, std::int64_t rows) {
    return linear(a.op + "." + which, parameter(a.parameter + ".lora_" + which), rows,
                  ProductPlace::kWide);
  }
  void adapter_forward(const std::optional<Adapter>& adapter, TensorId in, TensorId out);
  void adapter_backward(const std::optional<Adapter>& adapter, TensorId in,
                        TensorId output_gradient, TensorId input_gradient);
  /// True if the backward pass reads the input of this matrix, for its own gradient or for an
  /// adapter's.
  [[nodiscard]] bool keeps_input(bool Lora::*adapter) const {
    return !job_.lora || ((*job_.lora).*adapter && job_.lora->dropout == 0);
  }
  [[nodiscard]] bool trains(const std::string& name) const {
    return parameter(name).gradient != kNoGradient;
  }

  // Context parallelism and cached tokens (context.cpp).
  struct Attend {
    OpKind kind;
    std::int64_t batch, heads, kv_heads;
    std::vector<TensorId> in, out;
  };
  /// The core of a part of split attention; `a` says sequences of the micro-batch and heads.
  void attend(Attend a, const SplitAttention::Part& part, std::int32_t window);
  void attend_within(const Attend& a, std::int32_t window);
  void context_forward(const LayerTensors& t);
  void pass_queries(Attend a, const SplitAttention& split, const LayerTensors& t);
  void exchange_heads(Attend a, const SplitAttention& split, const LayerTensors& t);
  void context_backward(const LayerTensors& t, TensorId d_attention, TensorId d_qkv);
  OpWriter::Event shift(const char* name, std::int64_t elements, TensorId from, TensorId to);
  /// In the format of attention, or another.
  void exchange_context(OpKind kind, const char* name, std::int64_t elements, TensorId from,
                        TensorId to, std::optional<Format> format = {});
  void merge_partial(TensorId partial, TensorId into, std::int64_t rows);
  TensorId ring_block(std::int64_t step, std::int64_t elements, std::optional<Format> format = {});
  void layer_backward(const LayerTensors& t, TensorId output_gradient, TensorId input_gradient);
  void feed_forward_forward(const std::string& prefix, const LayerTensors& t, TensorId output);
  void feed_forward_backward(const std::string& prefix, const LayerTensors& t,
                             TensorId output_gradient, TensorId d_middle);
  /// The matrices of one feed-forward block, on all tokens.
  struct FeedForward {
    std::string name;       ///< of its ops: "layer.mlp"
    std::string parameter;  ///< of its parameters: "layer.3.mlp"
    TensorId fc1, activated;
    std::int64_t width;  ///< of this rank's part
    bool biases;
    std::uint8_t flags;  ///< kAccumulate: adds to what its last product writes
    const Adapters* adapters = nullptr;
    TensorId own_gradient = 0;  ///< of the block's output, this rank's rows
  };
  void mlp_in(const FeedForward& f, const Gathered& input);
  /// The second product, and what `sum` names: the sum over tensor ranks.
  Gathered mlp_out(const FeedForward& f, TensorId partial, const char* sum = nullptr);
  void attention_backward(const std::string& prefix, const LayerTensors& t, TensorId d_middle,
                          TensorId input_gradient);
  void parallel_backward(const std::string& prefix, const LayerTensors& t, TensorId output_gradient,
                         TensorId input_gradient);
  [[nodiscard]] Linear query_key_value(const std::string& at) {
    return linear("layer.attention.qkv", at + "attention.qkv", shape_.tokens,
                  ProductPlace::kQueryKeyValue);
  }
  void qkv_forward(const std::string& prefix, const LayerTensors& t);
  /// From the gradient of the layer's middle, whole and this rank's rows, to that of the
  /// attention's q, k and v.
  TensorId core_backward(const std::string& prefix, const LayerTensors& t, const Gathered& dy,
                         TensorId d_middle);
  /// Through the matrix of q, k and v; the input's gradient is added to or written into `partial`
  /// and, with `reduces`, its adapters, summed over tensor ranks.
  Gathered qkv_backward(const std::string& prefix, TensorId d_qkv, const Gathered& x,
                        TensorId partial, const Adapters* reduces);
  /// Gradient of the gate of attention's output.
  TensorId gate_gradient() { return gradient("gradient.gate", shape_.tokens, shape_.query_width); }

  // Multi-head latent attention (mla.cpp).
  LatentTensors latent_tensors(const std::string& at, bool keep);
  void add_latent_parameters(const std::string& at, std::vector<ParameterSpec>& specs) const;
  /// Queries of `rank` columns, their norm, and `queries` columns made of it.
  void query_tensors(const std::string& at, bool keep, std::int64_t rank, LatentTensors& t);
  void add_query_parameters(const std::string& at, std::int64_t rank, std::int64_t queries,
                            std::vector<ParameterSpec>& specs) const;
  [[nodiscard]] Linear query_down(const std::string& at) {
    return whole_linear("layer.attention.query_down", at + "attention.query_down");
  }
  [[nodiscard]] Linear query_up(const std::string& at) {
    return linear("layer.attention.query_up", at + "attention.query_up", shape_.tokens);
  }
  [[nodiscard]] Linear latent_down(const std::string& at) {
    return whole_linear("layer.attention.latent_down", at + "attention.latent_down");
  }
  [[nodiscard]] Linear latent_up(const std::string& at) {
    return linear("layer.attention.latent_up", at + "attention.latent_up", shape_.tokens);
  }
  void query_down_forward(const std::string& at, const LayerTensors& t);
  void query_up_forward(const std::string& at, const Gathered& from, TensorId queries);
  TensorId query_backward(const std::string& at, const LayerTensors& t, TensorId d_query);
  void latent_forward(const std::string& at, const LayerTensors& t);
  TensorId cached_keys_values(const LayerTensors& t, const SplitAttention& split);
  void absorb_queries(const LayerTensors& t, TensorId query, TensorId key);
  void absorbed_output(const LayerTensors& t, TensorId attended);
  void gemm_of_heads(const char* name, std::int64_t n, std::int64_t k, TensorId rows,
                     const LayerTensors& t, TensorId out);
  TensorId latent_backward(const std::string& at, const LayerTensors& t, TensorId d_qkv);

  // Attention to compressed keys (compressed.cpp).
  /// How keys of several tokens are made: `columns` of each token are summed, weighed by as many.
  struct Compressor {
    std::int64_t ratio = 0;  ///< 0: there are none
    std::int64_t columns = 0;
    std::int64_t inputs = 0;  ///< columns of the projection down, those of single keys too
    [[nodiscard]] std::int64_t keys(std::int64_t tokens) const;
  };
  [[nodiscard]] Compressor compressor(MixerKind mixer) const;
  LatentTensors compressed_tensors(const std::string& at, MixerKind mixer);
  void add_compressed_parameters(const std::string& at, MixerKind mixer,
                                 std::vector<ParameterSpec>& specs) const;
  TensorId exchange_summary(OpKind kind, const std::string& name, TensorId from, std::int64_t rows);
  void compressed_forward(const std::string& at, const LayerTensors& t);
  void compress_index(const std::string& at, TensorId keys, bool backward);
  void grouped_output(const std::string& at, const LayerTensors& t);
  TensorId grouped_output_backward(const std::string& at, const LayerTensors& t,
                                   TensorId d_attention);
  TensorId compressed_backward(const std::string& at, const LayerTensors& t, TensorId d_qkv);

  // Several residual streams (residual_streams.cpp).
  StreamBlock stream_block(const std::string& at, const char* site);
  void add_stream_parameters(const std::string& name, std::int64_t mappings, std::int64_t scales,
                             std::vector<ParameterSpec>& specs) const;
  void pass_over_streams(const char* name, const std::vector<TensorId>& in,
                         const std::vector<TensorId>& out, std::int64_t read, std::int64_t written);
  TensorId enter(const StreamBlock& b, TensorId streams);
  void leave(const StreamBlock& b, TensorId streams, TensorId branch, TensorId output);
  void streams_again(const LayerTensors& t);
  [[nodiscard]] bool recomputes(std::int64_t layer) const;
  /// The input of the norm before a block.
  [[nodiscard]] TensorId entered(const StreamBlock& b, TensorId streams) const {
    return b.name.empty() ? streams : b.entered;
  }
  /// The backward pass of a block, from the gradient of what follows it to that of what it reads.
  void around_block(const StreamBlock& b, TensorId streams, TensorId output_gradient,
                    TensorId input_gradient,
                    const std::function<void(TensorId output, TensorId input)>& block);
  void spread(TensorId embedded, TensorId streams);
  TensorId spread_backward(TensorId streams);

  // Sparse attention (sparse.cpp).
  /// Sizes of what an indexer reads and scores.
  struct IndexInputs {
    std::int64_t rank = 0;  ///< of queries
    std::int64_t rope_dim = 0;
    std::int64_t columns = 0;  ///< of hidden states
    std::int64_t ratio = 1;    ///< tokens of a key
    /// Pairs of a query and a key before it, at most so many of each query (0: all).
    [[nodiscard]] double pairs(std::int64_t positions, std::int64_t at_most) const;
  };
  [[nodiscard]] IndexInputs index_inputs() const;
  /// Each tensor rank reads the rows of all.
  [[nodiscard]] Linear index_matrix(const std::string& at, const std::string& name) {
    return linear("layer.attention." + name, at + "attention." + name, shape_.tokens,
                  ProductPlace::kWholeOnEach);
  }
  void index_tensors(const std::string& at, bool keep, LatentTensors& t);
  void add_index_parameters(const std::string& at, std::vector<ParameterSpec>& specs) const;
  void index_forward(const std::string& at, const LayerTensors& t, TensorId query_norm);
  void index_backward(const std::string& at, const LayerTensors& t, TensorId query_norm,
                      TensorId hidden);
  void index_product(const char* name, double pairs, double times, std::vector<TensorId> in,
                     std::vector<TensorId> out);
  /// Outputs of the attention core.
  [[nodiscard]] TensorId attended(const LayerTensors& t) const {
    return shape_.projects_twice() ? t.latent.attended : t.attention;
  }
  [[nodiscard]] const ProgramBuilder::Parameter& latent_up(const LayerTensors& t) const {
    return parameter(fmt::format("layer.{}.attention.latent_up.weight", t.layer));
  }
  TensorId absorbed_output_backward(const LayerTensors& t, TensorId d_attention);
  /// Both gradients of a product of each of `parts` of the rows, of `n` columns, with its `n` x `k`
  /// of the weight.
  void gradient_of_parts(const std::string& name, const ProgramBuilder::Parameter& weight,
                         std::int64_t parts, std::int64_t n, std::int64_t k, TensorId rows,
                         TensorId d_out, TensorId d_rows);
  void absorbed_queries_backward(const LayerTensors& t, TensorId d_qkv, TensorId d_query,
                                 TensorId d_latent);

  // Mixers with a state of constant size (recurrent.cpp).
  /// Columns of this rank's part.
  struct RecurrentWidths {
    std::int64_t in, convolved, values;
  };
  [[nodiscard]] RecurrentWidths recurrent_widths() const;
  /// Tokens of a chunk of the scan: no more than there are.
  [[nodiscard]] std::int64_t scan_chunk() const;
  RecurrentTensors recurrent_tensors(const std::string& at, bool keep);
  void add_recurrent_parameters(const std::string& at, std::vector<ParameterSpec>& specs) const;
  void recurrent_pass(OpKind kind, const char* name, std::int64_t columns, std::vector<TensorId> in,
                      std::vector<TensorId> out, double read, double written);
  void scan(OpKind kind, const char* name, std::vector<TensorId> in, std::vector<TensorId> out);
  TensorId convolution_input(const RecurrentTensors& t);
  TensorId convolve(const char* name, const std::string& at, TensorId from, TensorId to);
  void recurrent_forward(const std::string& at, const LayerTensors& t, TensorId output);
  void recurrent_backward(const std::string& at, const LayerTensors& t, TensorId d_middle,
                          TensorId input_gradient);
  void narrow_gate_backward(const std::string& of, const LayerTensors& t, std::size_t gate,
                            TensorId d_gate, TensorId d_norm);

  // Experts (moe.cpp).
  ExpertTensors expert_tensors(std::int64_t layer, const std::string& at, bool keep);
  void add_expert_parameters(const std::string& at, std::vector<ParameterSpec>& specs) const;
  void experts_forward(const std::string& at, const LayerTensors& t, TensorId output);
  void experts_backward(const std::string& at, const LayerTensors& t, TensorId output_gradient,
                        TensorId d_middle);
  /// Work of the shared experts overlapped with the exchanges of the routed ones; none where in
  /// order.
  struct OverlappedWork {
    std::function<void()> there = [] {}, back = [] {};
  };
  void routed_forward(const std::string& at, const LayerTensors& t, TensorId output,
                      const OverlappedWork& beside);
  void routed_backward(const std::string& at, const LayerTensors& t, TensorId output_gradient,
                       TensorId input_gradient, const OverlappedWork& beside);
  void expert_products_forward(const std::string& at, const LayerTensors& t, TensorId made,
                               std::int64_t part);
  void expert_products_backward(const std::string& at, const LayerTensors& t, TensorId rows,
                                std::int64_t part);
  void activate_experts(OpKind kind, const char* name, Activation activation,
                        std::vector<TensorId> in, std::vector<TensorId> out, const ExpertTensors& x,
                        std::int64_t part);
  TensorId probability_gradient();
  void combine_gradient(std::int64_t rows, TensorId from, TensorId to, const ExpertTensors& x,
                        std::int64_t part);
  [[nodiscard]] bool has_latent_experts() const { return shape_.model.moe->latent > 0; }
  TensorId latent_up_backward(const std::string& at, const ExpertTensors& x,
                              TensorId output_gradient);
  [[nodiscard]] Linear router(const std::string& at) {
    return linear("layer.moe.router", at + "moe.router", shape_.rows, ProductPlace::kRouter);
  }
  void router_backward(const std::string& at, const LayerTensors& t, TensorId weights,
                       TensorId input_gradient);

  // Exchanges with experts (moe_exchange.cpp).
  std::vector<OpWriter::Event> send_copies(const std::string& name, TensorId copies, TensorId rows);
  TensorId received(TensorId rows);
  void to_experts(const std::string& name, TensorId copies, TensorId rows, std::int64_t part);
  OpWriter::Event from_experts(const std::string& name, TensorId rows, TensorId copies,
                               std::int64_t part);
  void narrow_copies(const std::string& name, TensorId copies);
  TensorId rows_returned();
  [[nodiscard]] bool experts_are_near() const;
  [[nodiscard]] bool experts_apart() const;
  [[nodiscard]] bool hides_exchanges() const;
  [[nodiscard]] bool sorts_copies() const;
  [[nodiscard]] bool permutes_in_exchange() const {
    return shape_.experts->once && job_.parallel.fused_permutation;
  }
  OpWriter::Event exchange_copies(const std::string& name, TensorId from, TensorId to, CopyWay way,
                                  std::int64_t part);
  void move_rows(OpKind kind, const char* name, TensorId from, TensorId to, std::int64_t part);
  void sort_copies(const std::string& name, CopyWay way, TensorId from, TensorId to,
                   std::int64_t part);
  std::int32_t add_routing(std::int64_t layer);
  [[nodiscard]] FeedForward shared_experts(const std::string& at, const ExpertTensors& t) const;

  // Embedding (embedding_and_loss.cpp), head and loss (head.cpp).
  OpWriter::Event embedding_forward(TensorId output, bool alone);
  void embedding_backward(TensorId gradient);
  void head_forward(TensorId input);
  void plan_head();
  TensorId product_logits();
  void copy_logits(const char* name, TensorId from, TensorId to);
  void widen_logits(TensorId logits);
  void narrow_logits();
  void loss_and_gradient(std::int64_t rows);
  void eager_loss();
  void head_backward(TensorId input, TensorId input_gradient);

  // Multi-token prediction (prediction.cpp).
  void plan_predictions(TensorId hidden);
  void add_prediction_parameters(std::int64_t layer, std::vector<ParameterSpec>& specs) const;
  [[nodiscard]] std::int64_t lookup_unit() const;
  void predictions_forward();
  /// Hidden states of the predictions, which the head reads behind the model's.
  [[nodiscard]] std::vector<TensorId> predicted() const;
  TensorId prediction_gradient(std::size_t k);
  void predictions_backward(TensorId hidden_gradient);

  // Shared pieces (linear_ops.cpp).
  [[nodiscard]] const ProgramBuilder::Parameter& parameter(const std::string& name) const {
    return parameters_.at(name);
  }
  /// The parameter is NAME.weight.
  [[nodiscard]] Linear linear(std::string name, const std::string& parameter_name,
                              std::int64_t rows, ProductPlace place = ProductPlace::kLayer) {
    return linear(std::move(name), parameter(parameter_name + ".weight"), rows, place);
  }
  [[nodiscard]] Linear linear(std::string name, const ProgramBuilder::Parameter& matrix,
                              std::int64_t rows, ProductPlace place) {
    return {std::move(name),           matrix, rows, rows_of(matrix.weight),
            columns_of(matrix.weight), place};
  }
  /// Whole on every tensor rank, for the rows of this one.
  [[nodiscard]] Linear whole_linear(std::string name, const std::string& parameter_name) {
    return linear(std::move(name), parameter_name, shape_.rows, ProductPlace::kWholeOnEach);
  }
  static Product product(const Linear& l, TensorId x, TensorId y, std::uint8_t flags = 0);
  static Product gradient_of_input(const Linear& l, TensorId dy, TensorId dx,
                                   std::uint8_t flags = 0);
  static Product gradient_of_weight(const Linear& l, TensorId x, TensorId dy);
  void both_gradients(const Linear& l, TensorId x, TensorId dy, TensorId dx,
                      std::uint8_t flags = 0);
  /// Both gradients of a matrix cut by columns: dx is summed over tensor ranks while dW is made.
  Gathered columns_backward(const Linear& l, const Gathered& x, TensorId dy, TensorId dx,
                            const std::string& sum, const char* workspace = "reduced");
  [[nodiscard]] Repeated repeated_in(ProductPlace place) const;
  void gemm(const Product& p);
  void gemm(const Product& p, const Gathered& a);
  void gemm_rows(const Product& p, std::int64_t rows);
  void gemm_and_add(const Product& p);
  [[nodiscard]] std::int64_t columns_of(TensorId id) {
    return writer_.builder().tensor_at(id).columns;
  }
  /// Products of layers in a narrow format read quantised copies: of weights made once a step, of
  /// activations and their gradients where they are first used, the transposed copy for the weight
  /// gradient with them; what they write stays wide.
  void narrow(OpWriter::OpEdit& op, const Product& p, double written);
  void quantise(const std::string& name, TensorId values, std::int64_t parts = 1);
  /// A pass that reads values and writes narrow ones.
  void cast(const std::string& name, TensorId values, double bytes_read, double copies,
            std::int64_t parts = 1);
  /// Between activations and what attention in a narrower format reads and writes.
  void cast_attention(const char* name, TensorId values, Format from, Format to);
  /// The input of an activation as it is computed: a temporary where it is kept in another format.
  TensorId computed(TensorId kept);
  /// From the one to the other, or back, on so many rows; nothing where they are one.
  void keep(const std::string& name, TensorId from, TensorId to, std::int64_t rows);
  /// Products find these values in their format (FrameworkTraits::fused_quantise).
  void set_narrow(TensorId values, bool narrow);
  [[nodiscard]] bool holds_narrow(TensorId values) const { return narrowed_.contains(values); }
  [[nodiscard]] bool fuses_quantise() const {
    return traits_.fused_quantise && products_ != compute_ && !splits_;
  }
  /// ZeRO 3 holds the weights of a unit only while it is at work.
  [[nodiscard]] bool frees_weights() const;
  /// Copies for both passes, plain and transposed: of all weights, kept, or made in each pass in a
  /// buffer for a layer (FrameworkTraits::casts_each_pass, and where ZeRO 3 frees the weights).
  [[nodiscard]] bool casts_each_pass() const;
  /// Weights of layers are kept in the format of products, their transposed copies beside them
  /// (FrameworkTraits::gathers_narrow).
  [[nodiscard]] bool gathers_narrow() const;
  /// Inference keeps the matrices of layers in the format of products alone.
  [[nodiscard]] bool keeps_narrow() const;
  void quantise_weights();
  void quantise_layer(std::int64_t layer);
  void quantise_unit(std::int64_t unit);
  void dequantise_layer(std::int64_t layer);
  [[nodiscard]] bool is_narrow(ProductPlace place) const;
  [[nodiscard]] bool is_narrow(const std::string& name, const ParameterUse& use) const;
  /// Tensors that an activation inside a product reads and writes beside its operands.
  struct InProduct {
    std::vector<TensorId> in = {}, out = {};
    std::int64_t read = 0, written = 0;  ///< elements of a row
  };
  /// One product per expert held here, of the rows of a part together: m rows of each (k of each in
  /// a weight gradient).
  void expert_gemm(const Product& p, std::int64_t part) { expert_gemm(p, part, InProduct()); }
  void expert_gemm(const Product& p, std::int64_t part, const InProduct& fused);
  /// Plain GELU of experts is multiplied by probabilities by a kernel of its own, for which both
  /// are kept; the kernels of other activations do so themselves (Megatron-Core, experts.py:
  /// weighted_bias_swiglu, weighted_bias_quick_geglu, weighted_squared_relu).
  [[nodiscard]] bool weighs_apart() const {
    return traits_.probabilities_inside && shape_.model.activation == Activation::kGelu &&
           !activates_in_products();
  }
  /// Experts whose activation is recomputed apart have it apart.
  [[nodiscard]] bool activates_in_products() const {
    const Recompute& r = job_.parallel.recompute;
    return job_.parallel.fused_experts &&
           (r.kind != RecomputeKind::kSelective || !r.modules.expert_activation);
  }
  /// `narrow`: only products of layers read it, so it may be written in their format.
  void norm_forward(const char* name, const std::string& parameter_name, TensorId x, TensorId y,
                    TensorId statistics, bool narrow = false,
                    const std::vector<TensorId>& more = {});
  [[nodiscard]] std::int64_t rows_of(TensorId id) { return writer_.builder().tensor_at(id).rows; }
  void norm_backward(const char* name, const std::string& parameter_name, const NormGradient& g);
  void bias_gradient(const char* name, const std::string& parameter_name, TensorId gradient,
                     std::int64_t rows, std::int64_t columns, const Masks& masks = {});
  void drop(const char* name, TensorId values, const Masks& read, const Masks& made);
  void add(const char* name, const StreamBlock& around, TensorId residual, TensorId branch,
           const std::string& bias, TensorId out, const Masks& masks);
  Gathered mlp_backward(const FeedForward& f, const Gathered& output_gradient,
                        const Gathered& input, TensorId partial);
  TensorId mlp_middle_gradient(const FeedForward& f);
  void mlp_out_backward(const FeedForward& f, const Gathered& output_gradient);
  Gathered mlp_in_backward(const FeedForward& f, const Gathered& input, TensorId partial);
  /// Rows that are gathered; each kind has a workspace of its own.
  enum class Rows : std::uint8_t {
    kInput,      ///< of a product
    kGradient,   ///< of a layer's output
    kQuery,      ///< compressed; and its gradient
    kLatent,     ///< compressed keys and values; and their gradient
    kAdapter,    ///< gradient inside an adapter
    kEmbedding,  ///< gradient of the embedding's output
  };
  Gathered gathered(const char* name, TensorId part, Rows rows, bool cut = false,
                    Channel channel = Channel::kTensor);
  /// For a product that comes next: rank by rank where transfers are cut up.
  Gathered gathered_for_product(const char* name, TensorId part, Rows rows);
  [[nodiscard]] bool cuts_transfers() const {
    return job_.parallel.overlap.tensor_products && shape_.sequence_parallel && shape_.tensor > 1;
  }
  /// A gradient that a weight gradient needs: a workspace, or one per layer and micro-batch where
  /// weight gradients wait.
  TensorId gradient(const std::string& name, std::int64_t rows, std::int64_t columns);
  [[nodiscard]] bool deferrable(const Product& p);
  /// Operand of a weight gradient: this rank's rows if it is made later, gathered once more then.
  [[nodiscard]] TensorId kept_rows(const Gathered& g) const {
    return deferring() ? g.own.value_or(g.tensor) : g.tensor;
  }
  [[nodiscard]] bool deferring() const { return splits_ && !scope_.empty(); }
  /// Sum of partial products [tokens, hidden] over the tensor ranks; this rank's rows of it.
  Gathered reduced(const char* name, TensorId partial, const char* workspace = "reduced");
  /// The sum of what the product makes.
  Gathered reduced(const char* name, const Product& p);
  OpWriter::Event reduce_in_place(const char* name, TensorId values, std::int64_t elements,
                                  Reduction reduction);
  /// A value of a layer, of each micro-batch; a temporary where its backward pass does not read it.
  TensorId kept(bool keep, const std::string& name, std::int64_t rows, std::int64_t columns,
                Format format);

  // The stage's step (stage.cpp).
  void plan_tensors();
  LayerTensors layer_tensors(std::int64_t layer);
  void attention_tensors(const std::string& at, bool keep, LayerTensors& t);
  void write_begin();
  std::uint32_t write_forward(std::int64_t chunk);
  std::uint32_t write_backward(std::int64_t chunk);
  std::uint32_t write_weights(std::int64_t chunk);
  void sum_key_value_gradients();
  void call_in_order();
  void send(const char* name, TensorId tensor, std::int64_t virtual_stage, bool forward,
            OpWriter::Event after = -1);
  /// `kept`: a tensor whose life ends with the message.
  void receive(const char* name, TensorId tensor, std::int64_t virtual_stage, bool forward,
               std::optional<TensorId> kept = {});
  [[nodiscard]] std::int64_t virtual_stage(std::int64_t chunk) const {
    return shape_.stages.at(stage_, chunk);
  }
  /// The virtual stage before or after a chunk's is on this rank too: nothing is sent.
  [[nodiscard]] bool follows_own(std::int64_t chunk) const {
    return !has_embedding(chunk) && shape_.stages.stage_of(virtual_stage(chunk) - 1) == stage_;
  }
  [[nodiscard]] bool precedes_own(std::int64_t chunk) const {
    return !has_head(chunk) && shape_.stages.stage_of(virtual_stage(chunk) + 1) == stage_;
  }
  [[nodiscard]] bool has_embedding(std::int64_t chunk) const { return virtual_stage(chunk) == 0; }
  [[nodiscard]] bool has_head(std::int64_t chunk) const {
    return virtual_stage(chunk) == shape_.pipeline * shape_.chunks - 1;
  }
  /// Tied embeddings of ends on one rank are one parameter, used at both.
  [[nodiscard]] std::int64_t head_unit() const {
    return shape_.model.tied_embeddings && !shape_.ends_apart() ? kEmbeddingUnit : kHeadUnit;
  }
  [[nodiscard]] bool dropout() const { return shape_.model.dropout && !shape_.inference; }
  /// Parts of activations along the pipeline, gathered by the receiving tensor ranks.
  [[nodiscard]] bool scatter_gather() const {
    return traits_.scatter_gather && shape_.tensor > 1 && !shape_.sequence_parallel;
  }
  [[nodiscard]] const char* head_weight() const {
    return shape_.model.tied_embeddings ? "embedding.weight" : "head.weight";
  }

  const Job& job_;
  const TransformerShape& shape_;
  TransformerCommunicators communicators_;
  std::int64_t stage_;
  OpWriter writer_;
  StageParameters parameters_;
  std::vector<ChunkTensors> chunks_;
  EndTensors ends_;
  std::vector<Prediction> predictions_;
  FrameworkTraits traits_ = job_.system.framework;
  Format compute_;     ///< of activations and weights
  Format products_;    ///< of the layers' matrix products: `compute_` or narrower
  Format attention_;   ///< of fused attention: `compute_` or narrower
  Format activation_;  ///< of kept inputs of feed-forward activations, likewise
  Format cached_;      ///< of keys and values that inference keeps
  bool gpt_;
  std::unordered_set<TensorId> narrowed_;
  std::int32_t routing_ = -1;  ///< of the layer whose experts are being written

  // A schedule that splits weight gradients from the backward pass: products left to a pass of
  // their own, whose operands are per micro-batch then. (MoE and latent products stay.)
  struct Deferred {
    std::string name;
    Product product;
    std::uint32_t instead_of = 0;  ///< the op that it would stand before
    std::int64_t layer = kNoLayer;
  };
  bool splits_;
  std::string scope_;  ///< layer whose backward pass is being written
  std::vector<Deferred> deferred_;
  std::unordered_map<std::string, TensorId> gradients_;
};

}  // namespace stepcast::workloads
