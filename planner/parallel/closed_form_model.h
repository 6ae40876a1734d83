#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "planner/parallel/in_flight.h"
#include "planner/parallel/layer_cost_probe.h"
#include "planner/parallel/pipeline_layout.h"
#include "planner/parallel/pipeline_time.h"

namespace stepcast::planner {

/// Seconds of a message by the stage that sends it.
struct StageMessageTimes {
  std::vector<double> forward, backward;
  std::uint32_t levels = 0;  ///< fabric levels they use, as bits
};
StageMessageTimes message_times_of(const LayerCostProbe& reduced, const Passes& passes,
                                   const PlanPoint& point);

/// A step in closed form.
struct StepForecast {
  double seconds = 0;
  double bytes = 0;  ///< of the fullest device, with what the allocator loses; without the reserve
};

/// The closed-form step time and memory of one point after another: stage times from the costs of
/// layers, the pipeline's closed form, then gradient exchange and optimizer of the stage that ends
/// last.
///
/// Within 1 % of the event simulator (tests/planner/closed_form_test.cpp) where `applies` says so:
///   ranks are equally fast (no straggler constants), the host has its own core, and no collective
///   costs more after a rest;
///   nothing overlaps with compute but tensor-parallel collectives, and those only without
///   replicas: pipeline transfers and gradient exchange would share links with them; issuing takes
///   less than three quarters of a stage's time; messages between stages cannot meet other
///   transfers of a rank: they use fabric levels of their own and take less than a twentieth of the
///   stage's time, or less than a hundredth of it.
/// Elsewhere it orders candidates, and the simulator decides. Where nothing overlaps with compute,
/// all that it leaves out is waiting: the simulator is then nowhere more than 1 % faster.
///
/// With Clock::kLeast it is no forecast but a bound of the simulator (also to 1 %) whatever
/// overlaps with compute: transfers on streams of their own cost only what later work waits for, or
/// what their stream has to do in all, and slow nothing.
class ClosedFormModel {
 public:
  ClosedFormModel(const Job& job, const models::CostModel& model,
                  CostBasis clock = CostBasis::kUsual);
  /// The same by another clock; both read the same graphs and are used by one thread.
  ClosedFormModel(const ClosedFormModel& other, CostBasis clock);

  /// One pass of every virtual stage and the memory of activations. `recomputed` are the passes of
  /// layers that are recomputed: those of `kept` again unless the point recomputes the first k.
  /// Arguments must stay until the next call.
  void set_passes(const PlanPoint& point, const PipelineLayout& layout, const Passes& kept,
                  const Passes& recomputed, const StageMessageTimes& message_times);
  /// A lower bound of the time of a step with the passes set last, whatever its states cost.
  [[nodiscard]] double bound();
  /// A lower bound of the step's time (pipeline_bound), for the passes set last.
  [[nodiscard]] double bound(const ByRole<StateCosts>& states);
  /// Its memory, and a part of it that grows with no further layer recomputed: temporaries,
  /// which the first recomputed layer of a chunk can raise, are not in it.
  [[nodiscard]] double bytes(const ByRole<StateCosts>& states);
  [[nodiscard]] double lasting_bytes(const ByRole<StateCosts>& states);
  /// True if recomputing one layer more only saves lasting bytes and only costs time.
  [[nodiscard]] bool trades_memory_for_time() const;
  /// The step itself; walks the pipeline once for all states.
  [[nodiscard]] double step(const ByRole<StateCosts>& states);
  /// A lower bound of the time of every plan of the point's split and micro-batch, however layers
  /// are scheduled, assigned, recomputed and sharded: some stage has the mean work of all. `passes`
  /// are those of 1f1b, whole parameters and no recomputation; in the second form those of
  /// LayerCostProbe::on_one_stage.
  [[nodiscard]] double split_bound(const PlanPoint& point, const Passes& passes) const;
  [[nodiscard]] double one_stage_bound(const PlanPoint& point, const Passes& passes) const;

  /// The same whatever the micro-batch: all samples in one take at most kLargerCosts times as long
  /// as in several. 0 where there are more than a micro-batch may have.
  [[nodiscard]] double any_micro_bound(PlanPoint point);
  static constexpr double kLargerCosts = 1.1;  ///< tests/studies/larger_batch_test.cpp
  /// Splits that agree in it have the same any_micro_bound.
  [[nodiscard]] PlanPoint any_micro_key(PlanPoint point) const;

  /// All of it for one point, nothing kept: for tests and single answers. Errors: InputError.
  StepForecast forecast(const PlanPoint& point);
  /// Refers to the passes set last.
  [[nodiscard]] bool applies();
  /// True if the simulator is at most 1 % faster: where `applies`, and where nothing overlaps with
  /// compute: waiting for hosts, for other ranks or for a link only adds time.
  [[nodiscard]] bool bounds_simulator();
  [[nodiscard]] std::int64_t microbatches() const { return passes_.microbatches; }
  [[nodiscard]] LayerCostProbe& reduced() { return reduced_; }
  [[nodiscard]] const LayerCostProbe& reduced() const { return reduced_; }
  [[nodiscard]] CostBasis clock() const { return clock_; }

 private:
  void time();
  void share_of_messages(const Passes& kept, const StageMessageTimes& message_times);
  void pass_times(const Passes& kept, const Passes& recomputed,
                  const StageMessageTimes& message_times);
  void activations();
  [[nodiscard]] double end_of(const ByRole<StateCosts>& states,
                              const std::vector<double>& ends) const;
  [[nodiscard]] double bytes_of(const ByRole<StateCosts>& states, bool with_temporaries) const;
  [[nodiscard]] double seconds_of(const ByRole<StateCosts>& states,
                                  const std::vector<double>& ends) const;
  [[nodiscard]] double host_end(const ByRole<StateCosts>& states) const;
  [[nodiscard]] double work_of(const Passes& passes, ChunkRole role, double share) const;
  [[nodiscard]] double mean_bound(const PlanPoint& point, double all) const;

  Job job_;
  const models::CostModel& model_;
  LayerCostProbe reduced_;
  InFlight in_flight_;
  CostBasis clock_;
  double issue_ = 0, step_ = 0;
  double fragmentation_ = 0;  // bytes lost for one of activations
  double more_buffers_ = 0;   // of communicators that a reduced graph does not have
  PlanPoint point_;
  const PipelineLayout* layout_ = nullptr;
  const Passes* kept_ = nullptr;
  const Passes* again_ = nullptr;
  const StageMessageTimes* message_times_ = nullptr;
  bool timed_ = false, counted_ = false;  // are times and activations those of the passes set?
  PipelinePasses passes_;
  std::vector<std::int32_t> recomputed_;  // layers, by virtual stage
  std::vector<double> pass_ops_;          // by stage, of one micro-batch
  std::vector<double> overlapped_;        // seconds of transfers by stage, with Clock::kLeast
  std::vector<double> bound_ends_;        // of the last backward pass, by stage: at least ...
  std::vector<double> ends_;              // ... and exactly, once it was asked for
  ScheduleTimeline walk_;
  std::vector<double> keeps_, during_;  // scratch of activations(), by chunk
  std::vector<double> at_moment_;       // by moment
  struct Activations {
    std::int32_t stage = 0;
    double bytes = 0, temporaries = 0;
  };
  double message_share_ = 0;              // of a stage's time, at most
  bool shares_levels_ = false;            // messages and collectives
  std::vector<Activations> activations_;  // of the layout's fullest stages
};

}  // namespace stepcast::planner
