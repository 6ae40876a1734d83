#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/job.h"
#include "studies/predict.h"

namespace stepcast::studies {

/// What one flow costs a predicted run.
struct FlowCost {
  std::string name;
  Bytes moved;               ///< each time, all devices together
  double modified = 1;       ///< of embedding_diff: share of the rows that changed since last time
  Seconds stall;             ///< each time
  double slowdown = 0;       ///< stall / every: time added per time of training
  BytesPerSecond needed;     ///< moved / every
  BytesPerSecond available;  ///< of what it goes over, all devices together
  [[nodiscard]] bool sustainable() const { return needed <= available; }
};

/// Costs of the job's flows, for steps of `step`. Moved bytes follow from the job:
///   parameters      weights in the compute format, embedding rows in theirs
///   state           the same plus optimizer state; parameters trained below fp32 count an fp32
///                   copy (mixed precision)
///   embedding_diff  sum over tables of U(n) rows, U(n) the expected distinct rows among the n
///                   lookups of `every` (Access::unique), with their state
/// With `bits` b a row of dim d takes ceil(b d / 8) + 4 bytes: b bits an element, fp16 scale and bias
/// (Check-N-Run, arXiv 2010.08679, section 5). The stall is 0 | moved / bandwidth of the tier "ddr"
/// | moved / bandwidth of `via`. What a flow takes from training's own transfers is not modelled.
std::vector<FlowCost> flow_costs(const Job& job, Seconds step);

/// How long a run takes: by tokens, samples or steps.
struct RunLength {
  double tokens = 0, samples = 0, steps = 0;  ///< exactly one above 0
};

struct TrainingRun {
  double steps = 0;
  Seconds time;  ///< steps and stalls of the flows
  double device_hours = 0;
  double megawatt_hours = 0;  ///< devices at their rated power all the time; 0 when not known
};

/// Steps are rounded up. Errors: InputError for tokens on a workload that has none.
TrainingRun training_run(const StepPrediction& step, const std::vector<FlowCost>& flows,
                         const RunLength& length);

}  // namespace stepcast::studies
