#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/job.h"
#include "models/cost_model.h"
#include "models/kernel_memo.h"
#include "planner/parallel/plan_point.h"
#include "planner/parallel/rank_walk.h"

namespace stepcast::planner {

/// Which ends of the model a chunk (the layers of one virtual stage) holds.
enum class ChunkRole : std::uint8_t { kMiddle, kFirst, kLast, kWhole };
constexpr std::size_t kChunkRoles = 4;

/// A quantity of a chunk as a function of its number of layers.
struct Line {
  double base = 0, layer = 0;
  double dense = 0;  ///< of a layer without experts, where others have some
  [[nodiscard]] double at(std::int64_t layers, std::int64_t of_them_dense) const {
    return base + layer * static_cast<double>(layers - of_them_dense) +
           dense * static_cast<double>(of_them_dense);
  }
};

/// The passes of a chunk: seconds on the rank's own clock, ops issued, bytes. Those of weight
/// gradients are 0 unless the schedule makes them in a pass of their own.
struct PassCosts {
  Line forward, backward, weights;
  Line forward_ops, backward_ops, weights_ops;
  Line kept;             ///< of a micro-batch, from its forward to its backward
  Line kept_to_weights;  ///< likewise, from its forward to its weight gradients
  Line gradients_kept;   ///< from its backward to its weight gradients
  Line forward_only, backward_only, weights_only;  ///< of a micro-batch, during one pass
  Line beside;  ///< seconds of gathers and reductions on a stream of their own, of a micro-batch
  Line forward_temporaries, backward_temporaries, weights_temporaries;
};

/// What a chunk's parameters add to the step, whatever the micro-batch: bytes, and seconds of the
/// segments before and after the passes.
struct StateCosts {
  Line parameters, gradients, optimizer;
  Line buffers;      ///< those of communicators included
  Line temporaries;  ///< of the segments below
  Line begin;        ///< load the batch, zero gradients
  Line first;        ///< what the first forward pass takes more: gathering weights
  Line exchange;     ///< gradients, before the tied embeddings of both ends meet
  Line after_ends;   ///< gradients, from that meeting on, its transfer included
  Line update;       ///< optimizer, and gathering weights
  Line ops;          ///< issued by these segments
  bool meets_ends = false;
};

template <class T>
using ByRole = std::array<T, kChunkRoles>;

struct Passes {
  ByRole<PassCosts> role;
  Op forward_message, backward_message;  ///< the receives between stages
  std::uint32_t levels = 0;              ///< fabric levels that collectives inside use, as bits
};

/// Costs of a job's step by chunk, from the graph the job itself would have: a reduced job (few
/// layers over few stages, one micro-batch) goes through workloads::build_graph, its ops are priced
/// by the cost model with the groups of the real mesh, and what one more layer adds is read off. So
/// an op that is added to the builder is in here too. One per thread; answers are made anew each
/// time (the search keeps them).
///
/// With Clock::kLeast seconds are those below which the simulator cannot come, whatever runs beside
/// what: RankWalk's least, and transfers between stages on streams of their own take none.
class ReducedStep {
 public:
  ReducedStep(const Job& job, const models::CostModel& model, Clock clock = Clock::kUsual);

  /// Passes under the point's tensor, context, expert, micro, sequence_parallel, recompute (kNone,
  /// kSelective or kFull; the first k layers are a mixture of none and full), and whether its
  /// schedule makes weight gradients apart. Errors: InputError where the builder refuses the split.
  Passes passes(const PlanPoint& point);
  /// Parameters under the point's tensor, context, expert, pipeline, data, zero and
  /// sequence_parallel; virtual_stages where states_use_chunks; with parallel.overlap.data also
  /// micro and recompute, because the exchange then runs beside the last backward pass.
  /// `hidden`: as if all that is exchanged beside passes were hidden by them.
  ByRole<StateCosts> states(const PlanPoint& point, bool hidden = false);
  /// Seconds of a message from one stage to the next: `crossing` is the sending stage, stages - 1
  /// is the way back to stage 0 of an interleaved pipeline.
  struct Hop {
    double seconds = 0;
    std::uint32_t levels = 0;  ///< fabric levels it uses, as bits
  };
  Hop hop(const Op& message, const PlanPoint& point, std::int32_t crossing) const;

  /// Do passes depend on the data-parallel group (weights gathered, gradients scattered inside)?
  [[nodiscard]] bool passes_use_data(const PlanPoint& point) const;
  /// And on which pass follows which, as gathers beside one hold up the next?
  [[nodiscard]] bool passes_use_order(const PlanPoint& point) const;
  [[nodiscard]] bool states_use_passes() const;
  /// Does the exchange depend on how layers are dealt out to virtual stages? `states` are those of
  /// the same split with one per stage.
  [[nodiscard]] bool states_use_chunks(const PlanPoint& point,
                                       const ByRole<StateCosts>& states) const;

 private:
  struct Stage;
  Passes passes_of(const PlanPoint& point);
  ByRole<StateCosts> states_of(const PlanPoint& point);
  std::vector<Stage> stages_of(const PlanPoint& point, std::int32_t stages,
                               std::int64_t layers) const;
  void fit_to_mesh(const PlanPoint& point, Job& reduced) const;
  std::vector<double> price(const Stage& stage, const PlanPoint& point, bool passes);
  std::uint32_t levels_ = 0;  // of the collectives priced last
  template <class T, std::size_t N>
  ByRole<T> lines(const PlanPoint& key, const PlanPoint& point, std::int64_t fewer,
                  std::int64_t more, T (ReducedStep::*costs)(const Stage&, const PlanPoint&),
                  const std::array<Line T::*, N>& fields);
  [[nodiscard]] Mesh mesh_of(const PlanPoint& point) const {
    return {point.tensor, point.context, point.pipeline, point.data, job_.parallel.order};
  }
  [[nodiscard]] bool layers_share_buckets(const ByRole<StateCosts>& states) const;
  [[nodiscard]] std::int64_t most_layers(const PlanPoint& point) const;
  void time_passes(const Program& program, std::span<const double> seconds, ScheduleKind schedule,
                   PassCosts& costs) const;
  PassCosts pass_costs(const Stage& stage, const PlanPoint& point);
  StateCosts state_costs(const Stage& stage, const PlanPoint& point);
  std::vector<std::int32_t> real_ranks(const Stage& stage, const PlanPoint& point,
                                       std::int32_t communicator) const;
  double exchange(const Stage& stage, const PlanPoint& point, const Op& op) const;

  /// Runs `make` on the job as if none of its layers had experts.
  template <class Make>
  auto without_experts(const Make& make);

  Job job_;
  const models::CostModel& model_;
  Clock clock_;
  bool hidden_ = false;  // what is exchanged beside passes
  models::KernelMemo memo_;
  std::int64_t dense_layers_ = 0;
  double dispatch_ = 0, slowdown_ = 1;
};

}  // namespace stepcast::planner
