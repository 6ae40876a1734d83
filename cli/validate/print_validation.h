#pragma once
#include <ostream>
#include <vector>

#include "cli/print/report.h"
#include "validation/runtime.h"
#include "validation/validation.h"

namespace stepcast::cli {

/// Suites as text, as the JSON of CONTRACT section 7, or one CSV line per row.
void print_validation(const std::vector<validation::ValidationSuite>& suites, OutputFormat format,
                      std::ostream& out);
/// How every suite of a document begins.
void begin_suite(Report& report, std::string_view name, std::string_view bound, bool pass);
/// What is predicted of each case; `bounds`: and which bound it was drawn for.
DataTable case_predictions(const std::vector<validation::RuntimeCase>& cases, bool bounds);
/// Writes a CSV file of predictions before the predicted cases are run, and reports the path.
void write_predictions(const std::string& file, const DataTable& predictions,
                       const std::string& what);

}  // namespace stepcast::cli
