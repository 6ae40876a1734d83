#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cli/print/report.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// Facts of a prediction that its job does not carry.
struct PredictionContext {
  std::string framework;             ///< that the job runs on; "" none
  bool implied = false;              ///< it was taken because the job names none
  bool details = false;              ///< for programs: named ops, finer lines of memory
  std::function<std::string()> job;  ///< the job as a document
  std::string plan_note = "";        ///< how the plan was chosen; "" it was said
  std::string command = "";  ///< the job as it was typed, " llama3-8b -n 8"; "" suggests nothing
  std::string plan_command = "";  ///< the same for `plan`
};

/// One prediction: for people on a screen step, rates, plan, where the time goes, memory; for
/// programs CONTRACT section 4.
void add_prediction(const studies::StepPrediction& prediction, const PredictionContext& context,
                    Report& report);
/// Arguments without those that say where and how the answer is printed.
std::vector<std::string> without_output(std::vector<std::string> arguments);
/// The arguments that name a job, as they are typed: those of `predict`; "" of standard input.
std::string typed_job(const std::vector<std::string>& arguments);
/// The same without the plan, and without what `plan` does not take.
std::string typed_plan(const std::vector<std::string>& arguments);
/// The framework that a step runs on, and whether it was implied; nothing without one.
void add_framework(const std::string& framework, bool implied, Report& report);
/// "41.2-64.0 s".
std::string interval_text(const studies::Interval& between);
Json split_json(const studies::TimeSplit& split);
/// Time of the critical rank: of the one that waits least, whose work decides the step.
Json split_json(const studies::StepPrediction& prediction);
Json memory_json(const studies::StepPrediction& prediction);

}  // namespace stepcast::cli
