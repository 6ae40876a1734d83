#pragma once
#include <ostream>
#include <vector>

#include "cli/command.h"
#include "validation/validation.h"

namespace stepcast::cli {

/// Suites as text, as the JSON of CONTRACT section 7, or one CSV line per row.
void print_validation(const std::vector<studies::ValidationSuite>& suites, OutputFormat format,
                      std::ostream& out);

}  // namespace stepcast::cli
