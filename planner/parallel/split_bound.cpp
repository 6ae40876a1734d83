#include <algorithm>
#include <limits>

#include "planner/parallel/closed_form_model.h"

/// Lower bounds of all plans of a split and micro-batch at once.
namespace stepcast::planner {
namespace {

/// A chunk that holds an end of the model and no layer takes at least so much of what the end adds
/// to a chunk with layers: without them a few small ops fall away (brute force of uneven plans
/// holds it, tests/planner/parallel_search_test.cpp).
constexpr double kEndsAtLeast = 0.9;

double base_of(const Passes& passes, ChunkRole role) {
  const PassCosts& c = passes.role[static_cast<std::size_t>(role)];
  return c.forward.base + c.backward.base;
}

}  // namespace

double ClosedFormModel::split_bound(const PlanPoint& point, const Passes& passes) const {
  if (point.pipeline == 1) {
    return mean_bound(point, work_of(passes, ChunkRole::kWhole, 1));
  }
  const TransformerWorkload& model = *job_.workload.transformer();
  const auto chunks = static_cast<double>(point.pipeline);
  const auto most = std::max(chunks, static_cast<double>(model.layers));
  const auto at = [&](double n) { return work_of(passes, ChunkRole::kMiddle, n - 2); };
  return mean_bound(
      point, std::min(at(chunks), at(most)) + kEndsAtLeast * (base_of(passes, ChunkRole::kFirst) +
                                                              base_of(passes, ChunkRole::kLast)));
}

double ClosedFormModel::one_stage_bound(const PlanPoint& point, const Passes& passes) const {
  return mean_bound(point, work_of(passes, ChunkRole::kWhole, kEndsAtLeast));
}

PlanPoint ClosedFormModel::any_micro_key(PlanPoint point) const {
  point.micro = static_cast<std::int32_t>(job_.batch.global);
  return reduced_.on_one_stage(point).value_or(point);
}

double ClosedFormModel::any_micro_bound(PlanPoint point) {
  if (job_.batch.global > std::numeric_limits<std::int32_t>::max()) {
    return 0;
  }
  point.micro = static_cast<std::int32_t>(job_.batch.global);
  const auto one = reduced_.on_one_stage(point);
  const Passes passes = reduced_.passes(one.value_or(point));
  return (one ? one_stage_bound(*one, passes) : split_bound(point, passes)) / kLargerCosts;
}

/// Seconds of a micro-batch: all layers of the model, and `share` of what a chunk has besides.
double ClosedFormModel::work_of(const Passes& passes, ChunkRole role, double share) const {
  const LayerCounts& layers = reduced_.counts();
  const PassCosts& c = passes.role[static_cast<std::size_t>(role)];
  double seconds = share * base_of(passes, role);
  for (const Line& line : {c.forward, c.backward}) {
    seconds += line.of(layers);
  }
  for (const Line& exposed : {c.forward_exposed, c.backward_exposed}) {
    seconds -= layers.mixed() ? exposed.most() : 0;
  }
  return seconds;
}

/// Seconds of the step where all stages together take so long for a micro-batch.
double ClosedFormModel::mean_bound(const PlanPoint& point, double all) const {
  const double microbatches = static_cast<double>(job_.batch.global) / point.data / point.micro;
  return step_ + microbatches * all / point.pipeline * (1 - 1e-9);
}

}  // namespace stepcast::planner
