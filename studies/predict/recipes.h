#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "models/cost_model.h"
#include "planner/parallel/closed_form_model.h"

namespace stepcast::studies {

/// A plan of a job, and its step in closed form.
struct Recipe {
  planner::PlanPoint point;
  Seconds seconds;  ///< at the ideal rate
  Bytes bytes;      ///< of the fullest device
};

/// Plans that people would try first, made from the model and the machine, for jobs that train a
/// transformer and do not say how it is split. From each number of tensor ranks inside a machine,
/// with as many stages as the states need, and from fully sharded weights; then from the fastest
/// of these, and the next fastest, one change after another: tensor ranks, stages and their chunks, layers of the ends, ranks that
/// share sequences or experts, micro-batches, ZeRO; at each as few layers recomputed as fit.
/// Deterministic; no more than kMostRecipes are costed, so that all take less than half a second.
class RecipeSearch {
 public:
  static constexpr std::int64_t kMostRecipes = 50;
  /// Share of a device that plans leave free, where any can: forecasts of memory err by about as
  /// much (docs/explanation/accuracy.md).
  static constexpr double kHeadroom = 0.05;
  /// Memory of a device without it.
  static Bytes usable(const Device& device) { return (1 - kHeadroom) * device.memory; }
  /// `job` is unsplit, on all its devices, on its framework.
  RecipeSearch(const Job& job, const models::CostModel& model);
  /// Bytes of weights, gradients and optimizer states, each kept once.
  static Bytes least_states(const Job& job);

  /// Recipes that fit, the fastest first. `tight`: where none leaves kHeadroom free, those that
  /// leave less, the smallest first.
  std::vector<Recipe> best(bool tight = true);
  /// Recipes costed so far.
  [[nodiscard]] std::int64_t tried() const { return static_cast<std::int64_t>(costed_.size()); }

 private:
  using Point = planner::PlanPoint;
  [[nodiscard]] bool legal(const Point& point) const;
  [[nodiscard]] std::int32_t stages_for_states(std::int32_t tensor, std::int32_t expert) const;
  [[nodiscard]] double state_bytes(const Point& point) const;
  std::optional<Recipe> costed(const Point& point);
  std::optional<Recipe> fitted(Point point, const std::optional<Recipe>& rival);
  [[nodiscard]] std::vector<Point> first_points() const;
  [[nodiscard]] std::vector<Point> neighbours(const Point& of) const;
  void search();

  Job job_;  ///< without fits
  planner::ClosedFormModel closed_form_;
  Bytes capacity_, reserve_;
  std::int32_t devices_, inside_;
  std::int32_t head_;  ///< what the LM head counts as, in layers
  std::int64_t parameters_ = 0, expert_parameters_ = 0;
  std::map<Point, std::optional<Recipe>> costed_;
};

/// Whether plans of the job leave RecipeSearch::kHeadroom free: a transformer that trains.
inline bool leaves_headroom(const Job& job) {
  return job.workload.transformer() != nullptr && job.phase == JobPhase::kTrain;
}

/// Recipes that forecasts simulate, and passes through a layer that all of them may have: what
/// takes longer to simulate is ordered by its closed form alone.
constexpr std::size_t kSimulatedRecipes = 3;
constexpr std::int64_t kSimulatedPasses = 50'000;
inline std::int64_t passes_of(const Job& job) {
  return job.microbatches() * job.workload.transformer()->layers;
}
/// A slower schedule or end of one another.
inline bool alike(const planner::PlanPoint& p, const planner::PlanPoint& q) {
  return q.tensor == p.tensor && q.pipeline == p.pipeline && q.data == p.data &&
         q.expert == p.expert && q.zero == p.zero;
}

/// The batch next below the job's, or above, with as many samples for each device.
inline std::int64_t divisible_batch(const Job& job) {
  return std::max(job.batch.global / job.devices, std::int64_t{1}) * job.devices;
}

/// The job without a plan: all degrees 1, nothing sharded, nothing recomputed.
Job unsplit(Job job);

/// A plan as `--set` takes it after a job that is split as `from`: keys whose value differs.
std::vector<std::string> recipe_settings(const planner::PlanPoint& point, const Job& from);

}  // namespace stepcast::studies
