#pragma once
#include <functional>
#include <string>

#include "cli/print/report.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// Facts of a prediction that its job does not carry.
struct PredictionContext {
  std::string framework;             ///< that the job runs on; "" none
  bool implied = false;              ///< it was taken because the job names none
  bool details = false;              ///< for programs: named ops, finer lines of memory
  std::function<std::string()> job;  ///< the job as a document
};

/// One prediction: for people on a screen step, rates, plan, where the time goes, memory; for
/// programs CONTRACT section 4.
void add_prediction(const studies::StepPrediction& prediction, const PredictionContext& context,
                    Report& report);
/// The framework that a step runs on, and whether it was implied; nothing without one.
void add_framework(const std::string& framework, bool implied, Report& report);
Json split_json(const studies::TimeSplit& split);
/// Time of the critical rank: of the one that waits least, whose work decides the step.
Json split_json(const studies::StepPrediction& prediction);
Json memory_json(const studies::StepPrediction& prediction);

}  // namespace stepcast::cli
