#pragma once
#include <string>

#include "cli/command.h"
#include "studies/validation.h"

namespace stepcast::cli {

/// `pictures`: folder for predicted against measured, one picture per source; empty: none.
studies::ValidationSuite validate_published(const std::string& data, const std::string& calibrate,
                                            const std::string& pictures, const Context& context);

}  // namespace stepcast::cli
