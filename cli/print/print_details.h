#pragma once
#include <string>
#include <vector>

#include "cli/print/report.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// Adds what stands behind the screen of `predict`: parts of the step on the critical rank and on
/// the one that waits least, the longest kinds of ops and why, memory by purpose.
void add_details(const studies::StepPrediction& prediction, Report& report);
DataTable ops_table(const std::string& key, const std::vector<studies::OpRow>& rows,
                    Visibility look);

}  // namespace stepcast::cli
