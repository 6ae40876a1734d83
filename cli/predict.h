#pragma once
#include <string>

#include "cli/command.h"
#include "core/graph/program.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// A job as a command line names it, and its step.
struct PredictedJob {
  Job job;
  ExecutionGraph graph;
  studies::StepPrediction prediction;
  std::string default_framework;  ///< config::JobOnFramework
  std::string framework = "";     ///< likewise
};
PredictedJob predicted(const JobOptions& options, const Context& context,
                       studies::PredictOptions how);

}  // namespace stepcast::cli
