#pragma once
#include <CLI/CLI.hpp>

namespace stepcast::cli {

/// Checks of option values that say what was found and what is expected.
CLI::Validator positive_number();  ///< finite and above 0; CLI11's own lets NaN pass
/// The same, also as 15T, 300B, 1.5M or 20k (powers of 1000): to be given to transform().
CLI::Validator positive_count();

}  // namespace stepcast::cli
