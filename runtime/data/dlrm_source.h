#pragma once
#include <vector>

#include "core/access/access.h"
#include "core/graph/step_inputs.h"
#include "runtime/data/batch_source.h"

namespace stepcast::runtime {

/// Synthetic click data: dense features around 0, lookups drawn from each table's access law with
/// exact (integer) or Poisson (fractional) pooling, values kept within sessions where a table has
/// them. Labels follow a planted model: every dense feature and every table row has a fixed effect
/// on the logit, so that a model that learns them lowers its loss.
class DlrmSource final : public BatchSource {
 public:
  DlrmSource(const StepInputs& inputs, SampleRange range, std::uint64_t seed);
  void draw(std::int64_t step, HostBatch& batch) override;

 private:
  void draw_table(std::size_t table, std::int64_t step, HostBatch& batch);

  const StepInputs& inputs_;
  SampleRange range_;
  std::uint64_t seed_;
  std::vector<AccessSampler> samplers_;  ///< per table
  std::vector<double> logits_;
};

/// Effect of a row of a table on the planted logit, uniform in [-1, 1).
double planted_effect(std::size_t table, std::int64_t row);

}  // namespace stepcast::runtime
