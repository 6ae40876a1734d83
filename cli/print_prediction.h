#pragma once
#include <nlohmann/json.hpp>
#include <ostream>

#include "studies/predict.h"

namespace stepcast::cli {

/// One prediction for people: step time, where it goes, the longest ops and why, memory.
void print_prediction(const studies::StepPrediction& prediction, std::ostream& out);
/// The same as JSON (CONTRACT section 4).
nlohmann::ordered_json prediction_json(const studies::StepPrediction& prediction);
nlohmann::ordered_json provenance_json();

}  // namespace stepcast::cli
