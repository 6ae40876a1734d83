#pragma once
#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "cli/command.h"
#include "cli/data_table.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// One prediction for people, on a screen: step, rates, plan, where the time goes, memory.
/// `usual_stack`: the stack it was made for because the job names none; "" where one is named or none
/// was taken.
void print_prediction(const studies::StepPrediction& prediction, const std::string& usual_stack,
                      std::ostream& out);
void print_warnings(const studies::StepPrediction& prediction, std::ostream& out);
/// The same as JSON (CONTRACT section 4).
nlohmann::ordered_json prediction_json(const studies::StepPrediction& prediction);
nlohmann::ordered_json provenance_json();
/// Tables one below the other as text or CSV, or together as one JSON document.
void print_tables(const std::vector<DataTable>& tables, OutputFormat format, std::ostream& out);

}  // namespace stepcast::cli
