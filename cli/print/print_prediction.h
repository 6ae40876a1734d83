#pragma once
#include <string>

#include "cli/print/report.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// One prediction: for people on a screen step, rates, plan, where the time goes, memory; for
/// programs CONTRACT section 4. `usual_stack`: the framework it was made for because the job names
/// none; "" where one is named or none was taken.
void add_prediction(const studies::StepPrediction& prediction, const std::string& default_framework,
                    Report& report);
Json split_json(const studies::TimeSplit& split);
Json memory_json(const studies::StepPrediction& prediction);

}  // namespace stepcast::cli
