#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "core/job/job.h"
#include "models/cost_model.h"
#include "planner/parallel/chunk_costs.h"
#include "planner/parallel/plan_point.h"
#include "planner/parallel/rank_timeline.h"
#include "planner/parallel/stage_costs.h"

namespace stepcast::planner {

/// Costs of a job's step by chunk, from the graph the job itself would have: a reduced job (few
/// layers over few stages, one micro-batch) goes through workloads::build_graph, and its ops are
/// priced by the cost model with the groups of the real mesh. So an op that is added to the builder
/// is in here too. Passes are read by layer, from one graph with a layer of each kind (Op::layer);
/// states, whose buckets layers share, from graphs of one layer more, kind by kind. One per thread;
/// answers are made anew each time (the search keeps them).
///
/// With Clock::kLeast seconds are those below which the simulator cannot come, whatever overlaps
/// with what: RankTimeline's least, and transfers between stages on streams of their own take none.
class LayerCostProbe {
 public:
  LayerCostProbe(const Job& job, const models::CostModel& model,
                 CostBasis clock = CostBasis::kUsual);
  /// The same job by another clock, from the same graphs.
  LayerCostProbe(const LayerCostProbe& other, CostBasis clock);
  /// Takes over what another probe of the job, of any thread, finds out about attention.
  void share_algorithms(const LayerCostProbe& other) { algorithms_ = other.algorithms_; }

  /// The algorithm of the point's context ranks: the job's, and where that is `auto` the legal one
  /// under which attention of a layer takes least, without recomputation and by the usual clock.
  ContextAlgorithm context_algorithm(const PlanPoint& point);
  /// Passes under the point's tensor, context, expert, micro, sequence_parallel, recompute (kNone,
  /// kSelective or kFull; the first k layers are a mixture of none and full), and whether its
  /// schedule makes weight gradients apart. Errors: InputError where the builder rejects the split.
  Passes passes(const PlanPoint& point);
  /// Parameters under the point's tensor, context, expert, pipeline, data, zero and
  /// sequence_parallel; virtual_stages where states_use_chunks; with parallel.overlap.data also
  /// micro and recompute, because the exchange then overlaps with the last backward pass.
  /// `hidden`: as if all exchanges that overlap with passes were hidden by them. `ends`: also of
  /// chunks without layers, which are distinguished where the point has some.
  ByRole<StateCosts> states(const PlanPoint& point, bool hidden = false, bool ends = false);
  /// Seconds of a message from one stage to the next: `crossing` is the sending stage, stages - 1
  /// is the way back to stage 0 of an interleaved pipeline.
  struct Hop {
    double seconds = 0;
    std::uint32_t levels = 0;  ///< fabric levels it uses, as bits
  };
  Hop hop(const Op& message, const PlanPoint& point, std::int32_t crossing) const;

  [[nodiscard]] bool least() const { return clock_ == CostBasis::kLowerBound; }
  /// All layers of the model, by block_kinds().
  [[nodiscard]] const LayerCounts& counts() const { return counts_; }
  /// True if passes depend on the data-parallel group (they gather weights or scatter gradients).
  [[nodiscard]] bool passes_use_data(const PlanPoint& point) const;
  /// True if it also depends on the order of passes, as gathers that overlap with one delay the
  /// next.
  [[nodiscard]] bool passes_use_order(const PlanPoint& point) const;
  /// Part of the mesh that passes depend on if parameters are whole: splits that agree in it have
  /// groups of the same shapes on the fabric.
  struct Placement {
    std::int32_t context = 0, data = 0, pipeline = 0;  ///< strides, where units of the fabric cut
    std::int32_t second = 0, last = 0;                 ///< offset of that stage inside such a unit
    auto operator<=>(const Placement&) const = default;
  };
  [[nodiscard]] Placement placement(const PlanPoint& point) const;
  /// Points that agree in it have equal passes.
  struct PassKey {
    PlanPoint point;  ///< without what no pass depends on
    Placement placement;
    std::int64_t most_layers = 0;
    bool empty_ends = false;
    auto operator<=>(const PassKey&) const = default;
  };
  [[nodiscard]] PassKey pass_key(const PlanPoint& point) const;
  /// The point's ranks with all layers on one stage, if its passes tell what those of its stages
  /// take together: where their groups lie on the fabric as the first one's.
  [[nodiscard]] std::optional<PlanPoint> on_one_stage(const PlanPoint& point) const;
  [[nodiscard]] bool states_use_passes() const;
  /// True if several ranks hold the same parameters: of replicas, or of tensor ranks that have
  /// experts of their own.
  [[nodiscard]] bool has_copies(const PlanPoint& point) const;
  /// True if its first chunk or its last has no layers.
  [[nodiscard]] bool empty_ends(const PlanPoint& point) const;
  /// Most layers of a chunk: what is left of virtual_stages where passes or states depend on it.
  [[nodiscard]] std::int64_t most_layers(const PlanPoint& point) const;
  /// The same of what states depend on, where the exchange overlaps with passes or chunks share
  /// buckets. `states` are as for states_use_chunks.
  [[nodiscard]] std::int64_t state_layers(const PlanPoint& point,
                                          const ByRole<StateCosts>& states) const;
  /// Passes of chunks of so many layers are like those of more.
  static constexpr std::int64_t kMostToldApart = 6;
  /// Number of layers that show how an exchange overlapped with a pass goes on, if layers do not
  /// share buckets: it falls behind by as much with each, or catches up.
  static constexpr std::int64_t kSettled = 4;
  /// With Clock::kLeast: true if the passes hide the exchange of the point's states in full. Then
  /// they do not depend on the passes.
  [[nodiscard]] bool states_hide_exchange(const PlanPoint& point) const;
  /// True if the exchange depends on the assignment of layers to virtual stages. `states` are those
  /// of the same split with one per stage.
  [[nodiscard]] bool states_use_chunks(const PlanPoint& point,
                                       const ByRole<StateCosts>& states) const;

 private:
  Passes passes_of(const PlanPoint& point);
  /// Layers of a kind in a graph of passes: several where it matters which ones came before.
  [[nodiscard]] std::int64_t layers_alike(const PlanPoint& point) const;
  /// The first kind whose parameters, gradients and states a kind's are like.
  [[nodiscard]] std::size_t states_like(std::size_t kind) const;
  /// True if layers differ in their parameters.
  [[nodiscard]] bool unlike_states() const;
  /// True if ranks have whole matrices each: what the fullest holds is no sum over layers.
  [[nodiscard]] bool deals_matrices(const PlanPoint& point) const;
  [[nodiscard]] bool context_apart(const PlanPoint& point) const;
  [[nodiscard]] PlanPoint pass_point(const PlanPoint& point) const;
  [[nodiscard]] PlanPoint state_key(const PlanPoint& point) const;
  ByRole<StateCosts> states_of_kinds(const PlanPoint& point, bool hidden, bool ends);
  /// `count` layers of a kind on the only stage, or on each of three.
  [[nodiscard]] StageLayers of_kind(std::size_t kind, std::int64_t count, bool whole) const {
    return StageLayers(whole ? 1 : 3, std::vector(static_cast<std::size_t>(count), kinds_[kind]));
  }
  /// States of a model whose layers are all of the k-th kind.
  ByRole<StateCosts> states_of(PlanPoint point, std::size_t kind, bool hidden);
  ByRole<StateCosts> states_made(const PlanPoint& point, std::size_t kind, bool hidden);
  /// Into `role` what chunks cost that hold one end and no layer. `costs(stage)`.
  template <class T, class Costs>
  static void add_ends(const std::vector<ReducedStage>& stages, ByRole<T>& role,
                       const Costs& costs);
  /// One layer between ends without layers.
  [[nodiscard]] StageLayers ends_alone() const { return {{}, {kinds_.front()}, {}}; }
  /// Stages of a point of state_key(), kept: the other clock asks for them next, and points with
  /// other schedules.
  const std::vector<ReducedStage>& state_stages(const PlanPoint& key, const StageLayers& layers);
  /// The same of a point of pass_point(), kept: splits that differ in where ranks lie have other
  /// prices in one graph.
  const std::vector<ReducedStage>& pass_stages(const PlanPoint& key, const StageLayers& layers);
  [[nodiscard]] bool layers_share_buckets(const ByRole<StateCosts>& states,
                                          std::int64_t shards = 1) const;
  /// True if an exchange that overlaps with passes goes on as it began, however many layers there
  /// are.
  [[nodiscard]] bool exchange_settles(const PlanPoint& point,
                                      const ByRole<StateCosts>& states) const;
  [[nodiscard]] std::int64_t least_shards(const PlanPoint& point) const;
  void catch_up(ByRole<StateCosts>& states) const;
  /// Under which attention of a layer of the point takes least.
  [[nodiscard]] ContextAlgorithm fastest_algorithm(const PlanPoint& point) const;
  /// Runs `make` on the job with the point's context_algorithm.
  template <class Make>
  auto with_algorithm(const PlanPoint& point, const Make& make);

  Job job_;
  const models::CostModel& model_;
  CostBasis clock_;
  std::vector<BlockKind> kinds_;  ///< block_kinds() of the model
  LayerCounts counts_;            ///< of the model's layers
  StageCosts costs_;
  /// Algorithms chosen, by what attention depends on.
  struct Algorithms {
    std::mutex mutex;
    std::map<PlanPoint, ContextAlgorithm> chosen;
  };
  std::shared_ptr<Algorithms> algorithms_ = std::make_shared<Algorithms>();
  /// States of kinds without experts, for any split of the experts, and whether the exchange counts
  /// as hidden.
  ByKind<std::map<std::pair<PlanPoint, bool>, ByRole<StateCosts>>> dense_states_;
  /// The parts that a reduced graph of passes is built from, with the job.
  struct GraphKey {
    PlanPoint point;
    ContextAlgorithm context{};
    StageLayers layers;
    friend bool operator<(const GraphKey& a, const GraphKey& b) {
      return std::tie(a.point, a.context, a.layers) < std::tie(b.point, b.context, b.layers);
    }
  };
  [[nodiscard]] static GraphKey graph_key(const PlanPoint& key, const StageLayers& layers);
  using Graphs = std::map<GraphKey, std::vector<ReducedStage>>;
  std::shared_ptr<Graphs> graphs_ = std::make_shared<Graphs>();  ///< of one task: see pass_stages
  std::shared_ptr<Graphs> state_graphs_ = std::make_shared<Graphs>();  ///< of one split
};

/// The job split as the point says, and with the point's context_algorithm.
Job settled(const Job& job, const PlanPoint& point, const models::CostModel& model);

}  // namespace stepcast::planner
