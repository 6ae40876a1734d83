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
  /// `threads` draw together; the batch does not depend on how many.
  DlrmSource(const StepInputs& inputs, SampleRange range, std::uint64_t seed, int threads = 1);
  ~DlrmSource() override;
  void draw(std::int64_t step, HostBatch& batch) override;

 private:
  struct Part;
  void divide();
  void draw_part(std::int64_t step, Part& part) const;
  void join(std::size_t table, HostBatch& batch) const;
  /// Calls f(i) for every i below `count`, on all threads.
  template <class F>
  void on_threads(std::size_t count, F f) const;

  const StepInputs& inputs_;
  SampleRange range_;
  std::uint64_t seed_;
  int threads_;
  std::vector<AccessSampler> samplers_;  ///< per table
  std::vector<Part> parts_;              ///< in order of table and sample
  std::vector<double> logits_;
};

/// Effect of a row of a table on the planted logit, uniform in [-1, 1).
double planted_effect(std::size_t table, std::int64_t row);

}  // namespace stepcast::runtime
