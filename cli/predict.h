#pragma once
#include <string>

#include "cli/command.h"
#include "core/graph/program.h"
#include "studies/predict/chosen_plan.h"
#include "studies/predict/memory_fix.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// A job as a command line names it, and its step.
struct PredictedJob {
  Job job;
  ExecutionGraph graph;
  studies::StepPrediction prediction;
  std::string default_framework;  ///< config::JobOnFramework
  std::string framework = "";     ///< likewise
  studies::PlanChoice choice;
  std::vector<studies::Fix> fixes;
};
struct PredictedHow {
  studies::PredictOptions step;
  bool as_is = false;  ///< nothing is chosen
  bool fixes = false;  ///< where it does not fit, look for changes after which it does
};
/// With what the job leaves open chosen (studies/predict/chosen_plan.h).
PredictedJob predicted(const JobOptions& options, const Context& context, const PredictedHow& how);

}  // namespace stepcast::cli
