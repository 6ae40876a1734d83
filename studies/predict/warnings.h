#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "studies/predict/predict.h"

namespace stepcast::studies {

/// Warnings that may change a decision, of a prediction that is whole otherwise: rates, plan,
/// constants, placement, memory, range.
std::vector<std::string> warnings_of(const StepPrediction& prediction);
/// Warning that the framework starts stages that the layers do not divide with a layout only; ""
/// where the job says what the ends count as, or there is no such framework.
std::string uneven_stages(const Job& job, std::string_view framework);

}  // namespace stepcast::studies
