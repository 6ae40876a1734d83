#pragma once
#include <string>
#include <vector>

#include "core/job/job.h"
#include "studies/predict/predict.h"

namespace stepcast::studies {

/// Cost of one flow in a predicted run.
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
///   state           the same plus optimizer state; dense parameters below fp32 count the full copy
///                   where their graph keeps one (transformers; HugeCTR's optimizer), state and
///                   copy in the job's formats of them
///   embedding_diff  sum over tables of U(n) rows, U(n) the expected distinct rows among the n
///                   lookups of `every` (Access::unique), with their state
/// With `bits` b a row of dim d takes ceil(b d / 8) + 4 bytes: b bits an element, fp16 scale and
/// bias (Check-N-Run, arXiv 2010.08679, section 5). The stall is 0 | moved / bandwidth of the tier
/// "ddr" | moved / bandwidth of `via`. What a flow takes from training's own transfers is not
/// modelled.
std::vector<FlowCost> flow_costs(const Job& job, Seconds step);

/// How long a run takes: by tokens, samples or steps.
struct RunLength {
  double tokens = 0, samples = 0, steps = 0;  ///< exactly one above 0
};

/// Cost of devices and how often they fail; 0 is not asked.
struct RunTerms {
  double price = 0;     ///< of a device-hour, in any currency
  Seconds device_mtbf;  ///< mean time between failures of one device, any of which stops the run
  Seconds restart;      ///< from a failure until steps are done again
};

struct TrainingRun {
  double steps = 0;
  Seconds time;   ///< steps, stalls of the flows, and what failures lose
  Seconds stall;  ///< of it: stalls of the flows
  double device_hours = 0;
  double megawatt_hours = 0;  ///< devices at their rated power all the time; 0 when not known
  double cost = 0;
  double failures = 0;         ///< expected
  Seconds between_failures;    ///< M = device_mtbf / devices
  Seconds lost_each;           ///< L, per failure
  Seconds lost;                ///< of `time`
  Seconds checkpoint_every;    ///< that of the flow that saves the state most often
  Seconds checkpoint_arrives;  ///< from its begin until it can be restarted from
  /// sqrt(2 stall M) for the stall as it is, and no less than the last one takes to arrive; 0
  /// without a stall.
  Seconds best_checkpoint_every;
};

/// Steps are rounded up. With failures, each loses on average half of the time between two
/// checkpoints, the time the last one needs to arrive where training goes on meanwhile, and the
/// restart: L. What is lost can be lost again: T = T0 / (1 - L / M). First order in L / M, with the
/// best interval of Young (CACM 17(9), 1974, "A first order approximation to the optimum checkpoint
/// interval") and Daly (FGCS 22(3), 2006).
/// Errors: InputError for tokens on a workload that has none, for failures without a flow of the
/// state to restart from, and where failures come faster than work is done (L >= M).
TrainingRun training_run(const StepPrediction& step, const std::vector<FlowCost>& flows,
                         const RunLength& length, const RunTerms& terms = {});

}  // namespace stepcast::studies
