#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/job/framework_traits.h"
#include "core/job/job.h"
#include "workloads/op_writer.h"
#include "workloads/transformer/shape.h"

namespace stepcast::workloads {

/// How the gradient of a parameter becomes that of the whole model, besides the sum over data
/// replicas.
enum class GradientSum : std::uint8_t {
  kNone,          ///< every tensor rank already has all of its part
  kOverTensor,    ///< tensor ranks hold partial sums (sequence parallelism: each saw its own rows)
  kOverKeyValue,  ///< tensor ranks with the same key and value heads each saw their own queries
  kOverEnds,      ///< first and last stage each hold a copy of the tied embedding
  kFrozen,        ///< there is none: the parameter is not trained
  kFrozenNarrow,  ///< frozen, and it is kept in RoleFormats::frozen
};

/// ProgramBuilder::Parameter::gradient of a parameter that is not trained.
constexpr TensorId kNoGradient = std::numeric_limits<TensorId>::max();

/// Ranks that hold the same part of a parameter and sum its gradient.
enum class Replicas : std::uint8_t { kData, kExperts };

/// Units of a stage that are not layers (those go by their number).
constexpr std::int64_t kHeadUnit = -1;
constexpr std::int64_t kEmbeddingUnit = -2;

struct ParameterSpec {
  std::string name;  ///< global: the same whatever the split
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<ParameterPiece> pieces;
  GradientSum sum = GradientSum::kNone;
  Replicas replicas = Replicas::kData;
  std::int64_t unit = kHeadUnit;  ///< used together: the unit that ZeRO 2 and 3 hold at a time
  bool of_product = false;        ///< read by products in their format
};

/// Where a parameter is used.
struct ParameterUse {
  std::int64_t unit = kHeadUnit;
  bool of_product = false;
  [[nodiscard]] bool in_layer() const { return unit >= 0; }
};

/// Parameters whose gradients are complete at about the same time, one buffer for weights and one
/// for gradients: the unit of gradient exchange and of the optimizer.
struct Bucket {
  GradientSum sum = GradientSum::kNone;
  Replicas replicas = Replicas::kData;
  std::int64_t unit = kHeadUnit;
  std::int64_t elements = 0;  ///< with ZeRO padded to a multiple of the shards
  std::int64_t shard = 0;     ///< elements this rank's optimizer works on
  TensorId weights = 0, gradients = 0;
  TensorId weight_shard = 0, gradient_shard = 0;  ///< the whole without ZeRO
  std::vector<TensorId> states;
  bool trained = true;                 ///< else it has weights alone
  std::int64_t first_use = kHeadUnit;  ///< of its units, the first in a forward pass
  bool gathered = false;               ///< ZeRO 3: weights are gathered before they are used
  bool gathered_ahead = false;  ///< ZeRO 1, 2: before the step's first forward pass needs them
  bool scattered = false;       ///< ZeRO 2, 3: gradients leave as shards after each micro-batch
  TensorId fresh = 0;           ///< scattered: what one of several micro-batches adds to the shard
  OpWriter::Event gradients_free = -1;  ///< scattered: the buffer of gradients may be used again
  std::int32_t open = 0;  ///< parameters whose gradient the backward pass has not finished yet
  std::int32_t parameters = 0;
  bool exchanged = false;  ///< the backward passes do all of its exchange
  OpWriter::Event synchronised = -1;
};

/// Ranks that hold the same parameters, and where they meet (-1: one rank only).
struct ReplicaGroup {
  std::int64_t replicas = 1;
  std::int64_t shards = 1;  ///< over which ZeRO shards
  std::int32_t all = -1;
  std::int32_t inside = -1;  ///< ranks that hold the shards of one copy; `all` without HSDP
  std::int32_t across = -1;  ///< HSDP: ranks that hold the same shard
};

/// The parameters of one pipeline stage of one rank: storage in buckets, gradient exchange,
/// gathers of sharded weights, optimizer.
///
/// Exchanges and gathers over n shards, per bucket of P elements:
///   ZeRO 0  all-reduce of the gradients, once a step
///   ZeRO 1  reduce-scatter of the gradients and all-gather of the weights, once a step; with
///           overlap.parameters the gathers of the last step overlap with the first forward pass
///   ZeRO 2  reduce-scatter after each micro-batch's backward pass, all-gather once a step; the
///           gradients' buffer is shared by all layers
///   ZeRO 3  all-gather before forward and again before backward of each micro-batch,
///   reduce-scatter
///           after backward; weights and gradients of a layer exist while it is worked on. Ends
///           (embedding, head) stay gathered between the passes. Without resharding: one all-gather
///           before the first forward pass, one reduce-scatter, once a step.
/// HSDP adds an all-reduce of P / n gradients across the replicas, once a step. With overlap.data
/// these run on the stream "data", the next unit's gather overlapped with the work on this one:
/// buffers are double then. A sum over tensor ranks keeps its (small) parameters as in ZeRO 1.
/// Source: Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277 (FSDP, HSDP).
class StageParameters {
 public:
  StageParameters(OpWriter& writer, const Job& job, const TransformerShape& shape,
                  const ReplicaGroup& data, const ReplicaGroup& experts)
      : writer_(writer),
        job_(job),
        shape_(shape),
        traits_(framework_traits(job.system)),
        replicas_{data, experts} {}

  /// Declares the parameters of each chunk, in the order in which its backward pass finishes their
  /// gradients. Buckets close at parallel.bucket bytes of gradients when there are replicas to
  /// exchange them with; a larger parameter has its own. With ZeRO 2 and 3 a bucket is a unit.
  void declare(const std::vector<std::vector<ParameterSpec>>& chunks);
  [[nodiscard]] const ProgramBuilder::Parameter& at(const std::string& name) const {
    return parameters_.at(name);
  }
  [[nodiscard]] const std::map<std::string, ParameterUse>& uses() const { return uses_; }

  /// A pass over `units`, in that order, begins; the first gather starts. Without `gather` their
  /// weights are there already.
  void begin_pass(std::vector<std::int64_t> units, bool gather);
  /// The weights of `unit` are needed from here on; the gather of the unit after it starts.
  void use(std::int64_t unit);
  /// Whether weights must be gathered before each use, or only before the first of a step.
  [[nodiscard]] bool gathers_each_pass() const;
  [[nodiscard]] bool gathers_first_pass() const;
  /// Whether that first gather stands for the one after the last update.
  [[nodiscard]] bool gathers_ahead() const;

  /// A backward pass begins; in that of the last micro-batch `finished` exchanges each bucket over
  /// the data replicas as soon as it is complete, if exchanges overlap.
  void begin_backward(bool last_microbatch);
  /// Gradients of the unit begin at zero in this pass, where they leave it as shards.
  void open_gradients(std::int64_t unit);
  void finished(const std::string& name);
  /// While held, `finished` only takes names down; `release` makes good for the first `count` of
  /// them. A pass that leaves weight gradients to a later one holds.
  void hold(bool held);
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  void release(std::size_t count);
  void end_backward() { in_backward_ = overlapping_ = false; }

  void zero_gradients();
  /// What of a bucket's exchange the backward passes left; sums over other ranks are the caller's,
  /// before.
  void complete_exchange(Bucket& bucket);
  /// Updates the weights of all buckets; with ZeRO 1 and 2 gathers them.
  void optimize();
  std::vector<Bucket>& buckets() { return buckets_; }

 private:
  using Group = std::vector<const ParameterSpec*>;
  /// Parameters of one bucket are summed alike.
  using Kind = std::pair<Replicas, GradientSum>;
  static Kind kind_of(const Group& g) { return {g.front()->replicas, g.front()->sum}; }
  /// Buffers that units share: (layers or ends, which, kind).
  using SlotKey = std::tuple<bool, std::int64_t, Kind>;
  struct Slot {
    std::int64_t elements = 0;
    TensorId weights = 0, gradients = 0, fresh = 0;
    OpWriter::Event gradients_free = -1;
  };

  // Storage (stage_parameters.cpp).
  void group(const std::vector<ParameterSpec>& specs, std::vector<Group>& groups) const;
  void plan_slots(const std::vector<Group>& groups);
  [[nodiscard]] std::vector<SlotKey> slot_keys(const std::vector<Group>& groups) const;
  void open_bucket(const Group& specs, const Slot& slot);
  void add_shards(Bucket& bucket, std::size_t number);
  void add_states(Bucket& bucket, std::size_t number);
  [[nodiscard]] const ReplicaGroup& replicas(Replicas r) const {
    return replicas_.at(static_cast<std::size_t>(r));
  }
  [[nodiscard]] std::int64_t data_ranks(Replicas r) const;
  [[nodiscard]] bool sharded(Kind kind, int stage) const;
  [[nodiscard]] Format weight_format(GradientSum sum) const;
  [[nodiscard]] std::int64_t padded(const Group& specs) const;

  // Exchanges (stage_exchange.cpp).
  void gather(Bucket& bucket);
  void gather_unit(std::size_t index);
  void exchange(Bucket& bucket);
  void sum_replicas(Bucket& bucket);
  void copy_gathered(std::int64_t unit);
  void pass_over_gradients(const Bucket& bucket);

  OpWriter& writer_;
  const Job& job_;
  const TransformerShape& shape_;
  FrameworkTraits traits_;
  std::array<ReplicaGroup, 2> replicas_;
  std::unordered_map<std::string, ProgramBuilder::Parameter> parameters_;
  std::map<std::string, ParameterUse> uses_;
  std::unordered_map<std::string, std::size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  std::map<SlotKey, Slot> slots_;
  bool in_backward_ = false, overlapping_ = false, holding_ = false;
  std::vector<std::string> held_;
  std::size_t released_ = 0;
  std::vector<std::int64_t> pass_;                           ///< units of the current pass
  std::vector<std::vector<OpWriter::Event>> gather_events_;  ///< by position in `pass_`
  std::size_t next_ = 0;                                     ///< first unit of it not used yet
};

}  // namespace stepcast::workloads
