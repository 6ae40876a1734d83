#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/job.h"
#include "core/program_builder.h"
#include "workloads/embedding_plan_layout.h"

namespace stepcast::workloads {

/// Popularity laws of the rows shards hold, and their distinct rows: asked once per distinct shard,
/// whatever the number of ranks.
///
/// Row splits of up to kPlacedRanks devices know which of their ranks the hottest rows of a skewed
/// table fall to, so lookups per rank are those of the data. Beyond, and for the tail, rows are
/// taken as spread evenly, and ranks with as many rows are equal.
class ShardLaws {
 public:
  struct Law {
    std::shared_ptr<const Access> access;  ///< over the rows held, renormalised
    double mass = 0;                       ///< share of the table's lookups that go there
  };
  explicit ShardLaws(const Job& job) : workload_(*job.workload.dlrm()), devices_(job.devices) {}
  const Law& law(const EmbeddingSlice& slice, const HeldRows& held);
  /// Share of the table's lookups that the slice takes: of all members of a group together.
  double mass(const EmbeddingSlice& slice);
  /// Expected distinct rows among `lookups` lookups of the shard.
  double unique(const EmbeddingSlice& slice, const HeldRows& held, double lookups);
  /// Whether the law depends on which rows are held, not only on how many.
  [[nodiscard]] bool placed(const EmbeddingSlice& slice) const;

 private:
  static constexpr std::int64_t kPlacedRanks = 16;
  static constexpr std::int64_t kHottest = 512;
  // Table, range, rows held, first row held if placed.
  using Key = std::tuple<std::int32_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  [[nodiscard]] Key key_of(const EmbeddingSlice& slice, const HeldRows& held) const;
  [[nodiscard]] Law make(const EmbeddingSlice& slice, const HeldRows& held);
  [[nodiscard]] Law make_range(const EmbeddingSlice& slice) const;
  const Law& range(const EmbeddingSlice& slice);
  double placed_mass(const EmbeddingSlice& slice, const HeldRows& held, double range_mass);
  /// Rows and popularities of a table's hottest rows.
  const std::vector<std::pair<std::int64_t, double>>& hottest(const EmbeddingSlice& slice,
                                                              const Access& access);
  const DlrmWorkload& workload_;
  std::int64_t devices_;
  std::map<Key, Law> laws_;
  /// Laws of a slice's range and of as many random rows of it, by key without a place.
  std::map<Key, Law> ranges_, subsets_;
  std::map<std::pair<Key, double>, double> unique_;
  std::map<std::int32_t, std::vector<std::pair<std::int64_t, double>>> hottest_;
};

/// Indices of the communicators of a DLRM graph; each is used by one stream.
struct DlrmCommunicators {
  explicit DlrmCommunicators(const EmbeddingLayout& layout);
  std::int32_t input = 0;     ///< lengths and ids
  std::int32_t exchange = 1;  ///< pooled rows and their gradients
  std::int32_t data = 2;      ///< dense gradients
  std::int32_t node = -1;     ///< row splits inside nodes; only if the plan has them
  std::int32_t across = -1;   ///< ranks of equal place in their nodes
  std::int32_t group = -1;    ///< ranks that share one of several copies; only if the plan has them
  std::int32_t copies = -1;   ///< ranks that hold the same rows of different copies
};

constexpr std::string_view kComputeStream = "compute";

/// Writes the program of one class of ranks. The dense half is in dlrm_dense.cpp, the sparse half
/// in dlrm_sparse.cpp.
class DlrmStep {
 public:
  /// `rank`: lowest of its class; `shared`: the class has more ranks.
  DlrmStep(const Job& job, const EmbeddingLayout& layout, ShardLaws& laws, std::int32_t rank,
           bool shared);
  Program build() &&;

 private:
  struct DenseParameter {
    std::string name;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    double scale = 0;
    std::int32_t slice = -1;  ///< a replicated table's gradient; else a dense parameter
    std::size_t bucket = 0;
    TensorId weight = 0;
    TensorId gradient = 0;
  };
  /// What a gradient belongs to: the dense model, tables replicated on every rank, copies of a
  /// group's rows.
  enum class Scope : std::uint8_t { kDense, kTables, kCopies };
  /// Gradients that are all-reduced together; of dense parameters also the weights, which one
  /// optimizer op updates.
  struct Bucket {
    Scope scope = Scope::kDense;
    bool full = false;
    std::int64_t elements = 0;
    std::size_t waiting = 0;  ///< parameters whose gradient is still to come
    TensorId weights = 0;
    TensorId gradients = 0;
  };
  struct Layer {
    std::size_t weight = 0;  ///< indices into parameters_
    std::size_t bias = 0;
    std::int64_t in = 0;
    std::int64_t out = 0;
    Activation activation = Activation::kRelu;
    std::string name;
    TensorId x = 0;
    TensorId y = 0;
  };
  struct Cross {
    std::size_t down = 0, up = 0, bias = 0;
    std::string name;
    TensorId x = 0, projected = 0, u = 0;
  };
  /// One embedding op pair and the tensors between it and the assembled columns.
  struct Route {
    std::vector<std::int32_t> slices;  ///< held by this rank
    std::int64_t width = 0;
    std::int32_t group = -1;
    double lookups = 0, bags = 0;
    TensorId output = 0;   ///< of the embedding op
    TensorId arrived = 0;  ///< what the assembly reads, in the layout of `blocks`
    TensorId d_arrived = 0;
    TensorId d_output = 0;
    TensorId between = 0,
             d_between = 0;  ///< node reduce: between its two collectives; sequence: exchanged rows
    std::int32_t ready = -1, d_ready = -1;  ///< events of the last exchange
    bool present = false;                   ///< some rank uses it
    std::vector<TensorId> weights;          ///< of the slices
  };
  /// Where the columns of a slice stand in a route's `arrived` tensor.
  struct Place {
    std::int32_t slice = 0;
    std::int64_t offset = 0;
    std::int64_t pitch = 0;
  };

  /// What the index exchange leaves behind.
  struct Indices {
    TensorId sent_lengths = 0, lengths = 0, ids = 0;
  };

  /// The local batch's rows of sequence tables.
  struct SequenceSizes {
    double lookups = 0, bags = 0, row_elements = 0, bag_elements = 0;
  };

  // dlrm_dense.cpp
  void declare_parameters();
  std::size_t add_parameter(std::string name, std::int64_t rows, std::int64_t columns, double scale,
                            std::int32_t slice = -1);
  std::size_t bucket_for(Scope scope);
  [[nodiscard]] std::string bucket_name(std::size_t i) const;
  [[nodiscard]] Scope scope_of(std::int32_t slice_id) const;
  void declare_buckets();
  void add_mlp(std::vector<Layer>& layers, const std::string& name, std::int64_t in,
               const std::vector<std::int64_t>& widths, bool ends_linear);
  TensorId mlp_forward(std::vector<Layer>& layers, std::size_t first, std::size_t last, TensorId x);
  TensorId mlp_backward(const std::vector<Layer>& layers, TensorId d_y, bool input_gradient);
  TensorId interaction_forward(TensorId stack);
  TensorId interaction_backward(TensorId stack, TensorId d_out);
  TensorId cross_forward(TensorId stack);
  TensorId cross_backward(TensorId stack, TensorId d_out);
  void zero_gradients();
  /// Notes that `op`, the last written, completes the gradients of these parameters; all-reduces
  /// the buckets they were the last of.
  void gradients_done(ProgramBuilder::OpEdit op, const std::vector<std::size_t>& parameters);
  void optimizers();
  void optimizer(const std::string& name, OptimizerKind kind, TensorId weights, TensorId gradients,
                 std::int64_t state_rows, std::int64_t state_columns, std::int64_t row_width);
  [[nodiscard]] TensorId weight(std::size_t p) const { return parameters_[p].weight; }
  [[nodiscard]] TensorId gradient(std::size_t p) const { return parameters_[p].gradient; }

  // dlrm_input.cpp
  void load_batch();
  void exchange_indices();
  Indices declare_indices(const std::string& prefix, const Exchange& lengths, const Indices* now);

  // dlrm_sparse.cpp
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
  Bytes row_bytes(std::int64_t dim) const;
  double state_bytes(std::int64_t dim) const;
  SequenceSizes sequence_sizes(EmbeddingRoute r) const;
  /// Samples whose lookups reach the shards of a route on this rank.
  [[nodiscard]] double samples_of(EmbeddingRoute r) const;
  /// Order of the bags of an embedding op (workloads/dlrm.h).
  [[nodiscard]] std::int64_t order_of(EmbeddingRoute r) const;
  /// Lengths and ids that reach this rank.
  double arriving_lengths() const;
  double arriving_ids() const;
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
  static void mark(ProgramBuilder::OpEdit& op, bool next) {
    op.op().flags |= next ? op_flags::kNextBatch : std::uint8_t{0};
  }
  /// An event where two ops are on different streams, else -1.
  std::int32_t handover(std::string_view from, std::string_view to) {
    return from == to ? -1 : b_.event();
  }
  static void wait(ProgramBuilder::OpEdit& op, std::int32_t event) {
    if (event >= 0) {
      op.waits(event);
    }
  }

  const Job& job_;
  const DlrmWorkload& workload_;
  const EmbeddingLayout& layout_;
  ShardLaws& laws_;
  std::int32_t rank_;
  bool shared_;
  std::int64_t batch_;  ///< local
  std::int64_t global_batch_;
  std::int64_t stack_width_ = 0;
  Format compute_;
  ProgramBuilder b_;
  DlrmCommunicators comm_;
  std::string_view input_stream_ = kComputeStream, exchange_stream_ = kComputeStream,
                   reduce_stream_ = kComputeStream;

  std::vector<DenseParameter> parameters_;  ///< in the order of the backward pass
  std::vector<Bucket> buckets_;
  std::vector<Layer> bottom_, top_;
  std::vector<Cross> cross_;
  std::array<Route, kRoutes> routes_;
  TensorId dense_ = 0, labels_ = 0;
  Indices indices_, next_indices_;  ///< of this step's batch; of the one unpacked in this step
  std::int32_t loaded_ = -1, indexed_ = -1, unpacked_ = -1, split_ = -1, reduced_ = -1;  ///< events
};

}  // namespace stepcast::workloads
