#include "core/config/quantity.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "core/config/suggest.h"
#include "core/error.h"
#include "core/portable.h"

namespace stepcast::config {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Decimal units first, largest first: the writer takes the first one that reads back exactly.
constexpr std::array kBytes{Unit{"PB", 1e15},
                            Unit{"TB", 1e12},
                            Unit{"GB", 1e9},
                            Unit{"MB", 1e6},
                            Unit{"kB", 1e3},
                            Unit{"B", 1},
                            Unit{"PiB", 1125899906842624.0},
                            Unit{"TiB", 1099511627776.0},
                            Unit{"GiB", 1073741824.0},
                            Unit{"MiB", 1048576.0},
                            Unit{"KiB", 1024.0}};
constexpr std::array kBytesPerSecond{Unit{"PB/s", 1e15},
                                     Unit{"TB/s", 1e12},
                                     Unit{"GB/s", 1e9},
                                     Unit{"MB/s", 1e6},
                                     Unit{"kB/s", 1e3},
                                     Unit{"B/s", 1},
                                     Unit{"PiB/s", 1125899906842624.0},
                                     Unit{"TiB/s", 1099511627776.0},
                                     Unit{"GiB/s", 1073741824.0},
                                     Unit{"MiB/s", 1048576.0},
                                     Unit{"KiB/s", 1024.0}};
constexpr std::array kSeconds{Unit{"s", 1},     Unit{"ms", 1e-3},  Unit{"us", 1e-6},
                              Unit{"ns", 1e-9}, Unit{"ps", 1e-12}, Unit{"min", 60},
                              Unit{"h", 3600}};
constexpr std::array kFlops{Unit{"EFLOP/s", 1e18}, Unit{"PFLOP/s", 1e15}, Unit{"TFLOP/s", 1e12},
                            Unit{"GFLOP/s", 1e9},  Unit{"MFLOP/s", 1e6},  Unit{"kFLOP/s", 1e3},
                            Unit{"FLOP/s", 1}};

struct Dimension {
  std::span<const Unit> units;
  std::string_view example;
};

template <class Q>
Dimension dimension();
template <>
Dimension dimension<Bytes>() {
  return {kBytes, "80 GB"};
}
template <>
Dimension dimension<BytesPerSecond>() {
  return {kBytesPerSecond, "3.35 TB/s"};
}
template <>
Dimension dimension<Seconds>() {
  return {kSeconds, "2 us"};
}
template <>
Dimension dimension<FlopsPerSecond>() {
  return {kFlops, "989 TFLOP/s"};
}

/// The one place that turns number and unit into base units, so that reading, writing and the
/// factories of units.h round alike.
double in_base_units(double number, const Unit& unit) { return number * unit.factor; }

/// `base` as a decimal number of `unit` that reads back to the same bits, if there is one.
std::optional<std::string> exact_digits(double base, const Unit& unit) {
  const double inverse = std::round(1 / unit.factor);
  for (const double number :
       {base / unit.factor, unit.factor < 1 ? base * inverse : base / unit.factor}) {
    const std::string digits = fmt::format("{}", number);
    double again = 0;
    read_decimal(digits.data(), digits.data() + digits.size(), again);
    if (in_base_units(again, unit) == base) {
      return digits;
    }
  }
  return std::nullopt;
}

std::vector<std::string> names(std::span<const Unit> units) {
  std::vector<std::string> all;
  for (const Unit& u : units) {
    all.emplace_back(u.name);
  }
  return all;
}

/// "400 Gb/s" is the way network rates are sold, in whatever spelling: say what it is in bytes
/// instead of guessing. Only a capital B is a byte.
std::optional<std::string> bits_in_bytes(double number, std::string_view unit, bool rate) {
  std::string prefix, rest;
  for (const char c : unit) {
    rest += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto prefixes = std::string_view("kmgtp").find(rest.front());
  if (prefixes != std::string_view::npos && rest.size() > 1) {
    const bool binary = rest[1] == 'i' && rest.size() > 2;
    prefix = binary ? "KMGTP"[prefixes] : "kMGTP"[prefixes];
    prefix += binary ? "i" : "";
    rest.erase(0, prefix.size());
  }
  bool per_second = false;
  for (const std::string_view per : {"/second", "/sec", "/s", "ps"}) {
    if (!per_second && rest.ends_with(per)) {
      rest.erase(rest.size() - per.size());
      per_second = true;
    }
  }
  const bool bits = rest == "bit" || rest == "bits" || (rest == "b" && unit[prefix.size()] == 'b');
  return bits && per_second == rate
             ? std::optional(fmt::format("{} {}B{}", number / 8, prefix, rate ? "/s" : ""))
             : std::nullopt;
}

[[noreturn]] void fail(std::string_view where, std::string_view text, std::string_view problem) {
  constexpr std::size_t kShown = 60;
  throw InputError(where, fmt::format("found \"{}\"{}: {}", text.substr(0, kShown),
                                      text.size() > kShown ? "..." : "", problem));
}

double parse(std::string_view text, std::string_view where, const Dimension& d) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = read_decimal(text.data(), end, number);
  if (error != std::errc() || !std::isfinite(number)) {
    fail(where, text, fmt::format("expected a number and a unit, such as \"{}\"", d.example));
  }
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (!unit.empty() && unit.front() == ' ') {
    unit.remove_prefix(1);
  }
  if (unit.empty()) {
    fail(where, text, fmt::format("the unit is missing, expected text such as \"{}\"", d.example));
  }
  if (number < 0 || std::signbit(number)) {
    fail(where, text, fmt::format("expected an amount of at least 0, such as \"{}\"", d.example));
  }
  for (const Unit& u : d.units) {
    if (u.name == unit) {
      const double base = in_base_units(number, u);
      if (!(base <= 1e24)) {
        fail(where, text, fmt::format("too large, expected an amount such as \"{}\"", d.example));
      }
      return base;
    }
  }
  const bool rate = d.units.data() == kBytesPerSecond.data();
  if (const auto in_bytes = bits_in_bytes(number, unit, rate);
      in_bytes && (rate || d.units.data() == kBytes.data())) {
    fail(where, text,
         fmt::format("that is bits{}, expected bytes: write \"{}\"", rate ? " per second" : "",
                     *in_bytes));
  }
  fail(
      where, text,
      fmt::format("unknown unit \"{}\"; {}", unit.substr(0, 20), suggestion(unit, names(d.units))));
}

std::string write(double base, const Dimension& d) {
  STEPCAST_CHECK(std::isfinite(base) && base >= 0, "amount {} cannot be written", base);
  std::string shortest;
  for (const Unit& u : d.units) {
    if (base == 0) {
      break;
    }
    // A readable number: neither 0.00001 TB nor 80000 MB, unless nothing else is exact.
    const double number = base / u.factor;
    if (number < 0.9999999 || number >= 1e4) {
      continue;
    }
    if (const auto digits = exact_digits(base, u)) {
      const std::string text = fmt::format("{} {}", *digits, u.name);
      if (shortest.empty() || text.size() + 4 < shortest.size()) {
        shortest = text;
      }
    }
  }
  if (!shortest.empty()) {
    return shortest;
  }
  for (const Unit& u : d.units) {
    if (u.factor == 1) {
      return fmt::format("{} {}", base, u.name);  // base units always read back
    }
  }
  STEPCAST_FAIL("no base unit");
}

}  // namespace

template <class Q>
Q parse_quantity(std::string_view text, std::string_view where) {
  return Q(parse(text, where, dimension<Q>()));
}
template <class Q>
std::string quantity_text(Q amount) {
  return write(amount.base(), dimension<Q>());
}

template Bytes parse_quantity<Bytes>(std::string_view, std::string_view);
template BytesPerSecond parse_quantity<BytesPerSecond>(std::string_view, std::string_view);
template Seconds parse_quantity<Seconds>(std::string_view, std::string_view);
template FlopsPerSecond parse_quantity<FlopsPerSecond>(std::string_view, std::string_view);
template std::string quantity_text<Bytes>(Bytes);
template std::string quantity_text<BytesPerSecond>(BytesPerSecond);
template std::string quantity_text<Seconds>(Seconds);
template std::string quantity_text<FlopsPerSecond>(FlopsPerSecond);

}  // namespace stepcast::config
