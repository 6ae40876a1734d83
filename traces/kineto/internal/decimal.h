#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace stepcast::traces::internal {

/// A time as JSON text, in exact nanoseconds.
struct DecimalTime {
  std::int64_t nanoseconds = 0;
  bool rounded = false;  ///< it had digits below the nanosecond
};

/// Microseconds as a decimal ("1694128201428473", "4458676522690.655", "1.6e15", quoted or not) in
/// nanoseconds, rounded to nearest; never through a double, which is good for 16 digits only.
/// nullopt for anything else and beyond +-2^62 ns (the year 2116).
std::optional<DecimalTime> nanoseconds_of_microseconds(std::string_view text);

/// A whole number, quoted or not, with leading words ignored ("stream 7"); nullopt where there is
/// none or it does not fit.
std::optional<std::int64_t> integer_of(std::string_view text);

/// Without blanks at the end and quotes around.
std::string_view bare(std::string_view token);

}  // namespace stepcast::traces::internal
