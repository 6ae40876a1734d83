#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/config/config.h"
#include "core/error.h"

namespace stepcast::cli {

/// Checks of option values that say what was found and what is expected. CLI11's own let NaN pass.
CLI::Validator positive_number();  ///< finite and above 0
CLI::Validator number_from(double least, double most);
/// The same, also as 15T, 300B, 1.5M or 20k (powers of 1000): to be given to transform().
CLI::Validator positive_count();

CLI::Validator whole_number(std::int64_t least,
                            std::int64_t most = std::numeric_limits<std::int64_t>::max());
CLI::Validator not_empty();

/// Runs `work`; an InputError about `place`, which the command took from its own `option`, names
/// that option instead.
template <typename Work>
auto inferred_as(const char* option, const Work& work, std::string_view place = "--set devices") {
  try {
    return work();
  } catch (const InputError& e) {
    if (e.where() != place) {
      throw;
    }
    throw InputError(option, e.problem());
  }
}

/// The built-in system of that name, or of that file, that `option` asks for.
inline System system_of(const char* option, const std::string& name,
                        const config::Library& library) {
  return inferred_as(option, [&] { return config::load_system(name, library); }, "system");
}

}  // namespace stepcast::cli
