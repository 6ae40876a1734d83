#include "cli/support/checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "core/portable.h"

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

CLI::Validator whole_number(std::int64_t least) {
  return CLI::Validator(
      [least](std::string& text) {
        std::int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        const bool good = error == std::errc() && stop == end && value >= least;
        return good
                   ? std::string()
                   : fmt::format("found '{}', expected a whole number of at least {}", text, least);
      },
      fmt::format(">= {}", least));
}

CLI::Validator positive_count() {
  return CLI::Validator(
      [](std::string& text) {
        constexpr std::string_view kSuffixes = "kMBT";
        const std::size_t power = text.empty() ? std::string::npos : kSuffixes.find(text.back());
        const bool scaled = power != std::string_view::npos;
        double value = 0;
        const char* end = text.data() + text.size() - (scaled ? 1 : 0);
        const auto [stop, error] = read_decimal(text.data(), end, value);
        const bool good = error == std::errc() && stop == end && std::isfinite(value) && value > 0;
        if (!good) {
          return fmt::format(
              "found '{}', expected a number above 0, such as 15e12 or 15T "
              "(k, M, B, T)",
              text);
        }
        if (scaled) {
          text = fmt::format("{}", value * std::pow(1000.0, static_cast<double>(power + 1)));
        }
        return std::string();
      },
      "above 0");
}

}  // namespace stepcast::cli
