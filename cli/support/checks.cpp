#include "cli/support/checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <type_traits>

#include "core/portable.h"

namespace stepcast::cli {
namespace {

/// Values of which `good` is true; what is found otherwise is named with what is expected.
template <typename Number>
CLI::Validator numbers(std::string expected, const std::function<bool(Number)>& good) {
  return CLI::Validator(
      [good, expected](std::string& text) {
        Number value{};
        const char* end = text.data() + text.size();
        const auto [stop, error] = [&] {
          if constexpr (std::is_integral_v<Number>) {
            return std::from_chars(text.data(), end, value);
          } else {
            return read_decimal(text.data(), end, value);
          }
        }();
        return error == std::errc() && stop == end && good(value)
                   ? std::string()
                   : fmt::format("found '{}', expected {}", text, expected);
      },
      expected);
}

}  // namespace

CLI::Validator positive_number() {
  return numbers<double>("a number above 0",
                         [](double value) { return std::isfinite(value) && value > 0; });
}

CLI::Validator number_from(double least, double most) {
  return numbers<double>(fmt::format("a number from {:g} to {:g}", least, most),
                         [=](double value) { return value >= least && value <= most; });
}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const bool bounded = most < std::numeric_limits<std::int64_t>::max();
  return numbers<std::int64_t>(bounded ? fmt::format("a whole number from {} to {}", least, most)
                                       : fmt::format("a whole number of at least {}", least),
                               [=](std::int64_t value) { return value >= least && value <= most; });
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) { return text.empty() ? "found '', expected a value" : ""; }, "");
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
