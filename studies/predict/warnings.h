#pragma once
#include <string>
#include <vector>

#include "studies/predict/predict.h"

namespace stepcast::studies {

/// Warnings that may change a decision, of a prediction that is whole otherwise: rates, plan,
/// constants, placement, memory, range.
std::vector<std::string> warnings_of(const StepPrediction& prediction);

}  // namespace stepcast::studies
