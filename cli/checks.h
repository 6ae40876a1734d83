#pragma once
#include <CLI/CLI.hpp>

namespace stepcast::cli {

/// Checks of option values that say what was found and what is expected.
CLI::Validator positive_number();  ///< finite and above 0; CLI11's own lets NaN pass

}  // namespace stepcast::cli
