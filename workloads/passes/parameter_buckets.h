#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/graph/optimizer_state.h"
#include "core/job/job.h"
#include "workloads/passes/program_editor.h"

namespace stepcast::workloads {

/// Parameters whose gradients are complete at about the same time, one buffer for weights and one
/// for gradients: the unit of gradient exchange and of the optimizer.
struct Bucket {
  GradientSum sum = GradientSum::kNone;
  Replicas replicas = Replicas::kData;
  bool matrices = false;              ///< each is orthogonalised as a whole
  std::vector<MatrixBlock> dealt;     ///< of them, those of the rank with most to do
  std::vector<TensorId> gradient_of;  ///< by parameter
  std::vector<const DeclaredParameter*> parameters;
  std::int64_t unit = kHeadUnit;
  Format stored = Format::kBf16;  ///< of its weights
  std::int64_t elements = 0;      ///< with ZeRO padded to a multiple of the shards
  std::int64_t shard = 0;         ///< elements this rank's optimizer works on
  bool spread = false;            ///< over ranks, which then gather weights
  TensorId weights = 0, gradients = 0;
  TensorId weight_shard = 0, gradient_shard = 0;  ///< the whole without ZeRO
  std::vector<TensorId> states;
  bool trained = true;                 ///< else it has weights alone
  std::int64_t first_use = kHeadUnit;  ///< of its units, the first in a forward pass
  bool gathered = false;               ///< ZeRO 3: weights are gathered before they are used
  AsyncHandle ahead = kNoTransfer;     ///< ZeRO 1, 2: their gather at the begin of the step
  bool scattered = false;  ///< ZeRO 2, 3: gradients leave as shards after each micro-batch
  TensorId fresh = 0;      ///< scattered: what one of several micro-batches adds to the shard
  bool on_host = false;    ///< the host keeps the shard of weights ...
  TensorId loaded = 0;     ///< ... and it comes here before it is gathered
  AsyncHandle gradients_free = kNoTransfer;  ///< scattered: their buffer may be used again
  bool exchanged = false;                    ///< the backward passes do all of its exchange
  AsyncHandle synchronised = kNoTransfer;
};

/// The parameters of a program: storage in buckets, gradient exchange, gathers of sharded weights,
/// optimizer.
///
/// Exchanges and gathers over n shards, per bucket of P elements:
///   ZeRO 0  all-reduce of the gradients, once a step
///   ZeRO 1  reduce-scatter of the gradients and all-gather of the weights, once a step; with
///           overlap.parameters the gathers are issued at the begin of the next step, on all
///           pipeline stages at once, in the order in which its first forward pass uses them
///   ZeRO 2  reduce-scatter after each micro-batch's backward pass (DeepSpeed, Megatron-FSDP),
///           all-gather once a step; the gradients' buffer is shared by all layers. Beside pipeline
///           stages as ZeRO 1 (exchanged_zero)
///   ZeRO 3  all-gather before forward and again before backward of each micro-batch,
///           reduce-scatter after backward; weights and gradients of a layer exist while it is
///           worked on. Ends (embedding, head) stay gathered between the passes. Without
///           resharding: one all-gather before the first forward pass, one reduce-scatter, once a
///           step.
/// HSDP adds an all-reduce of P / n gradients across the replicas, once a step. With overlap.data
/// these run on the stream "data", the next unit's gather overlapped with the work on this one:
/// buffers are double then. A sum over tensor ranks keeps its (small) parameters as in ZeRO 1.
/// With offload.optimizer states lie in the memory of the host, which does the update; with
/// offload.parameters shards of weights lie there too and are loaded before each gather.
/// Source: Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277 (FSDP, HSDP).
class ParameterBuckets {
 public:
  ParameterBuckets(ProgramEditor& edit, const Job& job, const ParameterHolders& holders)
      : edit_(edit),
        writer_(edit.writer()),
        job_(job),
        holders_(holders),
        traits_(job.system.framework),
        trains_(job.phase == JobPhase::kTrain) {}

  /// Declares buckets, with the parameters as views of them. Buckets close at parallel.bucket bytes
  /// of gradients when there are replicas to exchange them with; a larger parameter has its own.
  /// With ZeRO 2 and 3 a bucket is a unit.
  void declare();
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Whether any rank holds the same parameters.
  [[nodiscard]] bool exchanges() const {
    return holders_.data.replicas > 1 || holders_.experts.replicas > 1;
  }

  /// Whether weights must be gathered before each use, or only before the first of a step.
  [[nodiscard]] bool gathers_each_pass() const;
  [[nodiscard]] bool gathers_first_pass() const;
  /// Whether the first pass of a step gathers the weights of a bucket.
  [[nodiscard]] bool gathers_first_pass(const Bucket& bucket) const;
  /// ZeRO 1, 2 with overlap.parameters: gathers what the first forward pass uses first in `unit`.
  void gather_ahead(std::int64_t unit);
  /// A pass over `units`, in that order, begins; the first gather starts. Without `gather` their
  /// weights are there already.
  void begin_pass(std::vector<std::int64_t> units, bool gather);
  /// The weights of `unit` are needed from here on; the gather of the unit after it starts.
  void use(std::int64_t unit);

  /// Gradients of the unit begin at zero in this pass, where they leave it as shards.
  [[nodiscard]] bool opens_gradients(std::int64_t unit) const;
  void open_gradients(std::int64_t unit);
  /// All gradients of the bucket are there, `last` of the last micro-batch: exchanges them over the
  /// replicas if that is done by micro-batch, or overlaps.
  void finished(std::size_t bucket, bool last);

  void zero_gradients();
  /// Sums what the backward passes have not summed yet: over replicas, and over other ranks before.
  void synchronise();
  /// Updates the weights of all buckets; with ZeRO 1 and 2 gathers them.
  void optimize();

 private:
  using Group = std::vector<const DeclaredParameter*>;
  /// Parameters of one bucket are summed and updated alike.
  struct Kind {
    Replicas replicas = Replicas::kData;
    GradientSum sum = GradientSum::kNone;
    bool matrices = false;
    auto operator<=>(const Kind&) const = default;
  };
  static Kind kind_of(const DeclaredParameter& p) {
    return {p.replicas, p.sum, !p.matrices.empty()};
  }
  static Kind kind_of(const Group& g) { return kind_of(*g.front()); }
  /// Buffers that units share: (layers or ends, which, kind).
  using SlotKey = std::tuple<bool, std::int64_t, Kind>;
  struct Slot {
    std::int64_t elements = 0;
    Format stored = Format::kBf16;
    TensorId weights = 0, gradients = 0, fresh = 0;
    TensorId loaded = 0;  ///< a shard that the host keeps, on its way to the gather
    AsyncHandle gradients_free = kNoTransfer;
  };

  // Storage (bucket_storage.cpp).
  void group(const DependencyInfo::Chunk& chunk, std::vector<Group>& groups) const;
  void plan_slots(const std::vector<Group>& groups);
  [[nodiscard]] std::vector<SlotKey> slot_keys(const std::vector<Group>& groups) const;
  void open_bucket(const Group& group, const Slot& slot);
  void declare_whole(Bucket& bucket, const Slot& slot);
  std::vector<Tensor::Source> declare_views(Bucket& bucket, const Slot& slot);
  void add_shards(Bucket& bucket);
  void add_states(Bucket& bucket);
  [[nodiscard]] std::string name_in(const char* what) const;
  [[nodiscard]] const ReplicaGroup& replicas(Replicas r) const {
    return r == Replicas::kData ? holders_.data : holders_.experts;
  }
  [[nodiscard]] bool sharded(Kind kind, int stage) const;
  /// The rule that updates its elements; Adam where Muon leaves them.
  [[nodiscard]] OptimizerKind rule_of(const Bucket& bucket) const {
    return bucket.matrices || !job_.orthogonalises() ? dense_rule(job_.dense_optimizer)
                                                     : OptimizerKind::kAdam;
  }
  [[nodiscard]] std::int64_t padded(const Group& group) const;
  [[nodiscard]] const Tensor& weight_of(const DeclaredParameter& p) const {
    return edit_.program().tensors[p.weight];
  }
  [[nodiscard]] std::int64_t microbatches() const { return edit_.program().microbatches; }

  // Whole matrices (orthogonalize.cpp).
  /// Elements of the rank with most of them, and matrices of the one with most to do.
  using Deal = std::pair<std::int64_t, std::vector<MatrixBlock>>;
  [[nodiscard]] Deal deal(const Group& group, std::int64_t ranks) const;
  void deal_over_tensor(std::span<Bucket> of_chunk);
  void orthogonalize(const Bucket& bucket);
  void orthogonalize(const MatrixBlock& block, TensorId in);
  void exchange_parts(const Bucket& bucket);

  // Exchanges (parameter_exchange.cpp).
  [[nodiscard]] bool gathers_ahead() const;
  AsyncHandle gather(const std::vector<const Bucket*>& together, AsyncHandle after = kNoTransfer);
  void gather_updated(Bucket& bucket, AsyncHandle after);
  AsyncHandle update_on_host(const Bucket& bucket, Bytes touched);
  void gather_unit(std::size_t index);
  void exchange(Bucket& bucket, bool last);
  void sum_replicas(Bucket& bucket);
  void sum_others(const Bucket& bucket);
  void complete_exchange(Bucket& bucket);
  void copy_gathered(std::int64_t unit);
  void pass_over_gradients(const Bucket& bucket);

  ProgramEditor& edit_;
  OpWriter& writer_;
  const Job& job_;
  const ParameterHolders& holders_;
  FrameworkTraits traits_;
  bool trains_;
  std::vector<Bucket> buckets_;
  std::map<SlotKey, Slot> slots_;
  std::vector<std::int64_t> pass_;                       ///< units of the current pass
  std::vector<std::vector<AsyncHandle>> gather_events_;  ///< by position in `pass_`
  std::size_t next_ = 0;                                 ///< first unit of it not used yet
  /// Temporaries of orthogonalisations, elements: a gathered matrix, an iterate, a square.
  std::int64_t whole_ = 0, iterate_ = 0, square_ = 0;
};

}  // namespace stepcast::workloads
