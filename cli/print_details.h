#pragma once
#include <ostream>

#include "studies/predict/predict.h"

namespace stepcast::cli {

/// What stands behind the screen of `predict`: parts of the step on the critical rank and on the one
/// that waits least, the longest kinds of ops and why, memory by purpose.
void print_details(const studies::StepPrediction& prediction, std::ostream& out);

}  // namespace stepcast::cli
