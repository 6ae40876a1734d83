#include "cli/checks.h"

#include <fmt/format.h>

#include <cmath>

namespace stepcast::cli {

CLI::Validator positive_number() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        const bool good =
            CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value > 0;
        return good ? std::string() : fmt::format("found '{}', expected a number above 0", text);
      },
      "above 0");
}

}  // namespace stepcast::cli
