#include "planner/parallel/task_costs.h"

namespace stepcast::planner {

const Passes& TaskCosts::passes(PlanPoint point, RecomputeKind kind) {
  point.recompute = kind;
  const LayerCostProbe::PassKey key = path_.reduced().pass_key(point);
  auto& known = table_.passes;
  auto it = known.find(key);
  if (it == known.end()) {
    it = known.emplace(key, path_.reduced().passes(point)).first;
    if (other_ != nullptr && !path_.reduced().passes_use_order(point) &&
        !of_other_->passes.contains(key)) {
      of_other_->passes.emplace(key, other_->reduced().passes(point));
    }
  }
  return it->second;
}

const States& TaskCosts::states(const PlanPoint& point, const States& of_split) {
  // Those of the split are for several micro-batches.
  LayerCostProbe& reduced = path_.reduced();
  const bool hidden = reduced.states_hide_exchange(point);
  const bool other = reduced.passes_use_data(point) && path_.microbatches() == 1;
  const bool overlapped = reduced.states_use_passes() && !hidden;
  const bool by_chunk = !hidden && reduced.states_use_chunks(point, of_split);
  if (!overlapped && !other && !by_chunk) {
    return of_split;
  }
  PlanPoint of = point;
  if (overlapped && reduced.least() && of.recompute == RecomputeKind::kFirstLayers) {
    of.recompute = RecomputeKind::kFull;  // of any number of layers it hides most
    of.recompute_layers = 0;
  }
  const std::tuple key{
      overlapped ? of.recompute : RecomputeKind::kNone,
      plain_schedule(overlapped && splits_weights(point.schedule)),
      overlapped || by_chunk ? reduced.state_layers(point, of_split) : std::int64_t{1},
      point.pipeline,
      point.data,
      point.zero,
      point.shard_level,
      reduced.empty_ends(point)};
  auto& known = table_.states;
  auto it = known.find(key);
  if (it == known.end()) {
    it = known.emplace(key, reduced.states(of)).first;
  }
  return it->second;
}

const StageMessageTimes& TaskCosts::message_times(const Passes& passes, const PlanPoint& point) {
  auto& known = table_.message_times;
  auto it = known.find(point.pipeline);
  if (it == known.end()) {
    it = known.emplace(point.pipeline, message_times_of(path_.reduced(), passes, point)).first;
  }
  return it->second;
}

}  // namespace stepcast::planner
