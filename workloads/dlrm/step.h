#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/layers.h"
#include "workloads/embedding_plan/embedding_tiers.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/embedding_plan/shard_laws.h"
#include "workloads/op_writer.h"

namespace stepcast::workloads {

/// How many times fewer columns towers put out.
inline std::int64_t compression_of(const Job& job) {
  return static_cast<std::int64_t>(job.tower_compression);
}

/// Indices of the communicators of a DLRM graph; each is used by one stream.
struct DlrmCommunicators {
  DlrmCommunicators(const EmbeddingPlacement& layout, const LayerList& list, bool towers);
  std::int32_t input = 0;     ///< lengths and ids
  std::int32_t exchange = 1;  ///< pooled rows and their gradients
  std::int32_t data = 2;      ///< dense gradients
  /// Two of one size of groups: its members, and ranks of equal place in their groups.
  struct Grid {
    std::int32_t inside = -1, across = -1;
  };
  Grid tower;                     ///< ranks of a node; only with towers
  std::vector<Grid> node;         ///< row splits inside groups, by size; -1 where the plan has none
  std::vector<Grid> group;        ///< several copies of rows, one a group
  std::int32_t first_group = -1;  ///< ranks that share a sample: the list's groups in order
  std::int32_t items = -1;        ///< items that all ranks' queries are scored against
};

constexpr double kLengthBytes = 4;  ///< of a bag, int32

/// Elements that every rank sends, and that all send alike: sums over the holder's slices.
struct SentToHolders {
  /// With the indices, by holder, to rows of one copy. `by_row`: ids that are sent one by one.
  struct Indices {
    double lengths = 0, ids = 0, weights = 0, by_row = 0;
  };
  std::vector<Indices> indices;
  /// Gradients of the slices of a route, by holder.
  std::map<std::pair<EmbeddingRoute, std::int32_t>, double> gradients;
  std::map<std::int32_t, KeyedRows> keyed;  ///< by table
};

/// Writes the program of one class of ranks. The dense half is a list of layers: its parameters in
/// layers/dense.cpp, its ops in layers/. The sparse half is in
/// sparse.cpp.
class LayeredStep {
 public:
  /// `rank`: lowest of its class; `shared`: the class has more ranks.
  LayeredStep(const Job& job, const LayerList& list, const EmbeddingPlacement& layout,
              ShardLaws& laws, SentToHolders& sent, std::int32_t rank, bool shared);
  OpWriter::Written build() &&;

 private:
  struct DenseParameter {
    std::string name;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    double scale = 0;
    std::int32_t slice = -1;  ///< a replicated table's gradient; else a dense parameter
    double constant = 0;      ///< where scale is 0
    bool added = false;       ///< ops add to the gradient
    std::size_t bucket = 0;
    TensorId weight = 0;
    TensorId gradient = 0;
  };
  /// Owner of a gradient: the dense model, tables replicated on every rank, copies of a
  /// group's rows, the tower of a node.
  enum class Scope : std::uint8_t { kDense, kTables, kCopies, kTower };
  /// Buckets of tables are gradients only.
  static bool holds_weights(Scope s) { return s == Scope::kDense || s == Scope::kTower; }
  /// Gradients that are all-reduced together; of dense parameters also the weights, which one
  /// optimizer op updates.
  struct Bucket {
    Scope scope = Scope::kDense;
    std::int32_t communicator = 0;  ///< ranks that sum them
    bool full = false;
    std::int64_t elements = 0;
    std::size_t waiting = 0;  ///< parameters whose gradient is still to come
    TensorId weights = 0;
    TensorId gradients = 0;
  };
  using OpEdit = ProgramBuilder::OpEdit;
  static constexpr TensorId kNoTensor = static_cast<TensorId>(-1);
  /// Tensors that the forward pass of a layer leaves for its backward pass.
  struct LayerState {
    std::vector<std::size_t> parameters;  ///< indices into parameters_
    TensorId saved = 0;                   ///< statistics, scores, the product of a cross layer
    TensorId projected = 0;
    TensorId statistics = 0;  ///< of a norm beside `saved`
    std::vector<TensorId> frames;
  };
  struct Target {
    TensorId tensor = 0;
    bool accumulate = false;
  };
  /// Rows that move between one slower tier and the caches of a route's slices.
  struct Fetch {
    std::uint8_t tier = 0;  ///< Program::tiers[tier - 1]
    RowTraffic expected;
  };
  /// One embedding op pair and the tensors between it and the assembled columns.
  struct Route {
    std::vector<std::int32_t> slices;  ///< held by this rank
    Format format = Format::kFp32;     ///< of their rows; the job's where they differ
    std::int64_t width = 0;
    std::int32_t group = -1;
    double lookups = 0, bags = 0;
    TensorId output = 0;   ///< of the embedding op
    TensorId arrived = 0;  ///< what the assembly reads, in the layout of `blocks`
    TensorId d_arrived = 0;
    TensorId d_output = 0;
    TensorId between = 0,
             d_between = 0;  ///< node reduce: between its two collectives; sequence: exchanged rows
    OpId ready = kNoOp, d_ready = kNoOp;  ///< the last exchange
    OpId fetched = kNoOp;                 ///< the last fetch from a slower tier
    bool present = false;                 ///< some rank uses it
    std::vector<Fetch> fetches;           ///< of its slices in slower tiers, tier by tier
    std::vector<TensorId> weights;        ///< of the slices
  };
  /// Columns of a slice in a route's `arrived` tensor.
  struct Place {
    std::int32_t slice = 0;
    std::int64_t offset = 0;
    std::int64_t pitch = 0;
  };

  /// Tensors that the index exchange leaves behind.
  struct Indices {
    TensorId sent_lengths = 0, lengths = 0, ids = 0;
    std::optional<TensorId> weights{};  ///< of ids, of tables whose lookups have them
    /// What an op on bags reads, after `first` where it has one.
    [[nodiscard]] std::vector<TensorId> read(std::optional<TensorId> first = std::nullopt) const;
  };

  /// The local batch's rows of sequence tables: looked up, and as they travel.
  struct SequenceSizes {
    double lookups = 0, bags = 0, looked_up_elements = 0, row_elements = 0, bag_elements = 0;
  };

  // dense.cpp
  void declare_parameters();
  void declare_replicas();
  std::size_t add_parameter(std::string name, std::int64_t rows, std::int64_t columns, double scale,
                            std::int32_t slice = -1, bool tower = false);
  std::size_t bucket_for(Scope scope, std::int32_t communicator);
  /// Ranks that share one of several copies.
  [[nodiscard]] std::int32_t group_of(EmbeddingRoute r) const {
    return comm_.group.at(level_of(r)).inside;
  }
  /// Ranks that hold the same rows of different copies.
  [[nodiscard]] std::int32_t copies_of(EmbeddingRoute r) const {
    return comm_.group.at(level_of(r)).across;
  }
  [[nodiscard]] std::string bucket_name(std::size_t i) const;
  [[nodiscard]] Scope scope_of(std::int32_t slice_id) const;
  [[nodiscard]] std::vector<std::int64_t> offsets_in_buckets() const;
  void declare_buckets();
  void zero_gradients();
  /// Notes that the op written last completes the gradients of these parameters; all-reduces the
  /// buckets they were the last of.
  void gradients_done(const std::vector<std::size_t>& parameters);
  void optimizers();
  void fused_optimizer(OptimizerKind dense);
  [[nodiscard]] bool fuses_tables(OptimizerKind dense) const {
    return interval_ == 1 && job_.embedding_optimizer == dense;
  }
  void optimizer(const std::string& name, OptimizerKind kind, TensorId weights, TensorId gradients,
                 std::int64_t state_rows, std::int64_t state_columns, std::int64_t row_width,
                 std::uint8_t flags);
  /// Flag of ops that wait for the last step between two synchronisations of replicas.
  [[nodiscard]] std::uint8_t at_interval() const {
    return interval_ > 1 ? op_flags::kEveryInterval : std::uint8_t{0};
  }
  [[nodiscard]] TensorId weight(std::size_t p) const { return parameters_[p].weight; }
  [[nodiscard]] TensorId gradient(std::size_t p) const { return parameters_[p].gradient; }

  // layers/layer_table.cpp: how a kind of layer is built
  struct LayerRow {
    LayerKind kind;
    void (LayeredStep::*forward)(const Layer&, LayerState&);
    void (LayeredStep::*backward)(const Layer&, LayerState&, TensorId dy);
  };
  static const LayerRow& layer_row(LayerKind kind);
  void layer_forward(std::size_t index);
  void layer_backward(std::size_t index);

  // layers/layers.cpp
  [[nodiscard]] std::int64_t output_rows(const Layer& l) const {
    return batch_ * list_.output(l).rows;
  }
  OpEdit layer_op(OpKind kind, const std::string& name, std::initializer_list<std::int64_t> shape);
  TensorId make_value(std::int32_t t, const std::string& name);
  TensorId rows_of(TensorId whole, const std::string& name, std::int64_t first, std::int64_t rows,
                   std::int64_t columns);
  TensorId as_row(const Layer& l, TensorId x);
  void copy_block(const std::string& name, TensorId from, TensorId to, ColumnBlock block,
                  std::int64_t rows, bool accumulate);
  void transpose(const Layer& l, const std::string& name, TensorId from, TensorId to, bool back);
  OpEdit convolution(const Layer& l, OpKind kind, const std::string& name,
                     const std::vector<TensorId>& in, TensorId out);
  OpEdit collective(OpKind kind, const std::string& name, const Layer& l, TensorId from,
                    TensorId to);
  void tables_forward(const Layer& l, LayerState& s);
  void linear_forward(const Layer& l, LayerState& s);
  void activation_forward(const Layer& l, LayerState& s);
  void norm_forward(const Layer& l, LayerState& s);
  void elementwise_forward(const Layer& l, LayerState& s);
  void concatenate_forward(const Layer& l, LayerState& s);
  void columns_forward(const Layer& l, LayerState& s);
  void reshape_forward(const Layer& l, LayerState& s);
  void transpose_forward(const Layer& l, LayerState& s);
  void matmul_forward(const Layer& l, LayerState& s);
  void dot_forward(const Layer& l, LayerState& s);
  void cross_forward(const Layer& l, LayerState& s);
  void attention_forward(const Layer& l, LayerState& s);
  void gated_attention_forward(const Layer& l, LayerState& s);
  void softmax_forward(const Layer& l, LayerState& s);
  void mean_rows_forward(const Layer& l, LayerState& s);
  void modulate_forward(const Layer& l, LayerState& s);
  void gate_forward(const Layer& l, LayerState& s);
  void positions_forward(const Layer& l, LayerState& s);
  void rope_forward(const Layer& l, LayerState& s);
  void token_embedding_forward(const Layer& l, LayerState& s);
  void convolution_forward(const Layer& l, LayerState& s);
  void recurrent_forward(const Layer& l, LayerState& s);
  void group_forward(const Layer& l, LayerState& s);
  void loss(std::size_t index);
  void softmax_loss(const Layer& l, TensorId logits, std::optional<TensorId> labels);
  void score_items(const Layer& l, LayerState& s, std::optional<TensorId> corrections);
  void scored_items_backward(const Layer& l, const LayerState& s);
  /// The op that core/job/layers.h describes, or its backward kind.
  OpEdit attention(OpKind kind, const std::string& name, const Op& like);
  void write_attention(const Layer& l, LayerState& s, TensorId out);
  void write_attention_gradient(const Layer& l, const LayerState& s, TensorId out, TensorId dy,
                                TensorId dx);
  TensorId& value(std::int32_t t) { return values_[static_cast<std::size_t>(t)]; }

  // layers/layers_backward.cpp, layers/layer_gradients.cpp
  std::optional<TensorId>& gradient_of(std::int32_t t) {
    return gradients_[static_cast<std::size_t>(t)];
  }
  void give_gradient(std::int32_t t, TensorId id);
  TensorId gradient_like(const Layer& l, const char* what, std::int32_t t);
  void pass_on(const Layer& l, TensorId dy, TensorId dx);
  Target gradient_target(std::int32_t t, const std::string& name);
  TensorId gradient_columns(std::int32_t t);
  TensorId own(TensorId id, const std::string& name);
  void product_gradient(std::int32_t t, const std::string& name, std::array<std::int64_t, 4> shape,
                        std::uint8_t flags, TensorId a, TensorId b);
  void tables_backward(const Layer& l, LayerState& s, TensorId dy);
  void linear_backward(const Layer& l, LayerState& s, TensorId dy);
  void activation_backward(const Layer& l, LayerState& s, TensorId dy);
  void norm_backward(const Layer& l, LayerState& s, TensorId dy);
  void add_backward(const Layer& l, LayerState& s, TensorId dy);
  void multiply_backward(const Layer& l, LayerState& s, TensorId dy);
  void concatenate_backward(const Layer& l, LayerState& s, TensorId dy);
  void columns_backward(const Layer& l, LayerState& s, TensorId dy);
  void reshape_backward(const Layer& l, LayerState& s, TensorId dy);
  void transpose_backward(const Layer& l, LayerState& s, TensorId dy);
  void matmul_backward(const Layer& l, LayerState& s, TensorId dy);
  void dot_backward(const Layer& l, LayerState& s, TensorId dy);
  void cross_backward(const Layer& l, LayerState& s, TensorId dy);
  void attention_backward(const Layer& l, LayerState& s, TensorId dy);
  void gated_attention_backward(const Layer& l, LayerState& s, TensorId dy);
  void softmax_backward(const Layer& l, LayerState& s, TensorId dy);
  void mean_rows_backward(const Layer& l, LayerState& s, TensorId dy);
  void modulate_backward(const Layer& l, LayerState& s, TensorId dy);
  void gate_backward(const Layer& l, LayerState& s, TensorId dy);
  void positions_backward(const Layer& l, LayerState& s, TensorId dy);
  void rope_backward(const Layer& l, LayerState& s, TensorId dy);
  void token_embedding_backward(const Layer& l, LayerState& s, TensorId dy);
  void convolution_backward(const Layer& l, LayerState& s, TensorId dy);
  void recurrent_backward(const Layer& l, LayerState& s, TensorId dy);
  void group_backward(const Layer& l, LayerState& s, TensorId dy);

  // towers.cpp
  [[nodiscard]] bool in_towers(EmbeddingRoute r) const {
    return job_.sptt && r == EmbeddingRoute::kExchange;
  }
  /// Pooled columns of node `h`, and what its tower makes of them.
  [[nodiscard]] std::int64_t tower_width(std::int64_t h) const;
  [[nodiscard]] std::int64_t narrow_width(std::int64_t h) const;
  void declare_tower();
  void exchange_towers(bool next);
  void exchange_tower_gradients(OpId start);
  [[nodiscard]] std::vector<ColumnBlock> tower_blocks(std::int32_t operand, bool forward) const;
  OpEdit tower_exchange(const char* name, bool backward, std::int32_t communicator,
                        const std::vector<double>& sent, TensorId in, TensorId out);

  // input.cpp
  void load_batch();
  struct SentIndices {
    Exchange lengths{}, ids{}, weights{};
    double by_row = 0;  ///< ids that are sent one by one
  };
  SentIndices sent_indices();
  SentToHolders::Indices sent_with(std::int32_t id, std::int32_t holder);
  void exchange_indices();
  void find_rows(const std::vector<TensorId>& ids);
  Indices declare_indices(const std::string& prefix, const Exchange& lengths, const Indices* now);

  // tiers.cpp
  EmbeddingShard::Cache declare_cache(const EmbeddingShard& shard, const EmbeddingSlice& slice);
  void fetch_rows(EmbeddingRoute r, bool next);
  /// After the update.
  void write_rows_back(EmbeddingRoute r, OpId updated);
  /// True if the fetch of slower tiers' rows overlaps with the step before.
  [[nodiscard]] bool fetched_ahead() const { return ahead(DlrmPipeline::kPrefetch); }

  // sparse.cpp
  Route& route(EmbeddingRoute r) { return routes_[static_cast<std::size_t>(r)]; }
  void declare_routes();
  EmbeddingShard shard_of(std::int32_t slice, double samples);
  /// Lookups and output exchanges of this step's batch, or of the next step's: whatever the
  /// pipeline leaves to do, or to do ahead.
  void embedding_forward(bool next);
  void lookup(EmbeddingRoute r, bool next);
  void exchange_output(EmbeddingRoute r, bool next);
  void pool_sequences();
  void pool_sequences(EmbeddingRoute r);
  TensorId assemble(TensorId bottom);
  TensorId split(TensorId d_stack);
  void exchange_gradient(EmbeddingRoute r);
  void exchange_gradients();
  void dense_gradient(EmbeddingRoute r);
  void embedding_backward();
  std::vector<Place> places(EmbeddingRoute r) const;
  /// With `first` those that hold the first rows of their columns, else the others.
  std::vector<ColumnBlock> column_blocks(EmbeddingRoute r, std::int32_t operand, bool forward,
                                         std::optional<bool> first = std::nullopt) const;
  Bytes row_bytes(const EmbeddingSlice& s) const;
  /// Format of the rows of these slices; the job's where they differ.
  [[nodiscard]] Format format_of(const std::vector<std::int32_t>& slices) const;
  double state_bytes(std::int64_t dim) const;
  SequenceSizes sequence_sizes(EmbeddingRoute r);
  /// Lookups of `samples` samples that fall to the rows of a slice on `holder`.
  [[nodiscard]] double lookups_of(std::int32_t id, std::int32_t holder, double samples);
  /// Ids that travel for them: with deduplication each rank's distinct ones of unpooled tables,
  /// those of its distinct lists of pooled ones.
  [[nodiscard]] double travelling(std::int32_t id, std::int32_t holder, double samples);
  /// Rows that come back for them on a sequence route: one for each id, or for each distinct list.
  [[nodiscard]] double rows_back(std::int32_t id, std::int32_t holder, double samples);
  /// Expected distinct rows among them, repeats inside sessions apart.
  [[nodiscard]] double distinct_rows(std::int32_t id, std::int32_t holder, double samples);
  /// Bytes of one id of a table, with its weight where it has one.
  [[nodiscard]] double id_bytes(const EmbeddingTable& t) const {
    return t.id_bytes() - (traits_.narrow_ids ? 4 : 0);
  }
  [[nodiscard]] Format id_format() const {
    return traits_.narrow_ids ? Format::kInt32 : Format::kInt64;
  }
  /// A kernel of one warp a row that reorders a route's rows (FrameworkTraits::arranged_rows).
  OpEdit arrange(EmbeddingRoute r, const char* name, TensorId rows);
  /// For the next batch, on the compute stream (FrameworkTraits::distributed_ids).
  void distribute_ids();
  [[nodiscard]] bool arranges(EmbeddingRoute r) {
    return traits_.arranged_rows > 0 && route(r).present && !is_local(r);
  }
  /// Samples whose lookups reach the shards of a route on this rank.
  [[nodiscard]] double samples_of(EmbeddingRoute r) const;
  /// Order of the bags of an embedding op (workloads/dlrm/dlrm.h).
  [[nodiscard]] std::int32_t order_of(EmbeddingRoute r) const;
  /// Lengths and ids that reach this rank.
  double arriving_lengths() const;
  double arriving_ids() const;
  /// Those with a weight; and whether there are any on some rank.
  double arriving_weights();
  [[nodiscard]] bool weighted() const;
  std::int64_t row_elements(EmbeddingRoute r) const;

  [[nodiscard]] const EmbeddingSlice& slice(std::int32_t s) const {
    return layout_.slices[static_cast<std::size_t>(s)];
  }
  [[nodiscard]] const EmbeddingTable& table(const EmbeddingSlice& s) const {
    return workload_.tables[static_cast<std::size_t>(s.table)];
  }
  [[nodiscard]] std::int64_t devices() const { return layout_.devices; }
  /// Whether the pipeline does this stage for the next batch.
  [[nodiscard]] bool ahead(DlrmPipeline stage) const {
    return job_.parallel.dlrm_pipeline >= stage;
  }
  /// Replicated rows are updated by the dense optimizer, too late to be looked up ahead.
  [[nodiscard]] bool looked_up_ahead(EmbeddingRoute r) const {
    return ahead(DlrmPipeline::kPrefetch) && !is_synchronised(r);
  }
  [[nodiscard]] bool exchanged_ahead(EmbeddingRoute r) const {
    return ahead(DlrmPipeline::kFused) && !is_local(r) && !has_copies(r);
  }
  /// Notes that the op works on the next step's batch.
  static void mark(OpEdit& op, bool next) {
    op.op().flags |= next ? op_flags::kNextBatch : std::uint8_t{0};
  }

  const Job& job_;
  const FrameworkTraits traits_ = job_.system.framework;
  const LayeredWorkload& workload_;
  const LayerList& list_;
  const EmbeddingPlacement& layout_;
  ShardLaws& laws_;
  SentToHolders& sent_;
  std::int32_t rank_;
  bool shared_;
  std::int64_t replicas_;  ///< of the dense half
  std::int64_t batch_;     ///< local
  std::int64_t global_batch_;
  std::int64_t interval_;  ///< steps between synchronisations of replicated rows
  bool trains_ = job_.phase == JobPhase::kTrain;
  std::int64_t stack_width_ = 0;
  Format compute_;
  OpWriter w_;
  ProgramBuilder& b_;  ///< its builder
  DlrmCommunicators comm_;
  std::int64_t compression_;  ///< of towers

  std::vector<DenseParameter> parameters_;  ///< in the order of the backward pass
  std::vector<Bucket> buckets_;
  std::vector<LayerState> layer_states_;
  std::vector<TensorId> values_;                    ///< by tensor of the list
  std::vector<std::optional<TensorId>> gradients_;  ///< their gradients
  std::map<TensorId, int> holders_;                 ///< tensors of the list with this gradient
  std::int64_t before_tables_ = 0;                  ///< columns put before those of the tables
  bool reads_input_ = false;                        ///< the layer being written
  std::array<Route, kRoutes> routes_;
  std::size_t tower_ = 0;  ///< parameter, with compression
  TensorId compressed_ = 0, d_compressed_ = 0;
  std::map<std::size_t, TensorId> labels_;  ///< by layer, of losses
  Indices indices_, next_indices_;  ///< of this step's batch; of the one unpacked in this step
  OpId loaded_ = kNoOp, indexed_ = kNoOp, unpacked_ = kNoOp, split_ = kNoOp, reduced_ = kNoOp;
};

/// Ranks that share a program: they hold the same slices with as many rows each, and their loads
/// are alike. Up to 16 devices ranks whose rows are looked up unevenly have classes of one. Beyond,
/// the busiest rank of every route and of the ids has a class to itself and the others are binned
/// by their loads: 2 % wide, wider where that makes more than 64 classes. A class works on the mean
/// of its members' loads (`laws` is told so), so what all ranks look up, send and receive adds up.
std::vector<RankClass> rank_classes(const Job& job, const EmbeddingPlacement& layout,
                                    ShardLaws& laws);

}  // namespace stepcast::workloads
