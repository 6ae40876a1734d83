#include "traces/kineto/internal/decimal.h"

#include <charconv>

namespace stepcast::traces::internal {
namespace {

constexpr std::int64_t kLatest = std::int64_t{1} << 62;

bool digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string_view bare(std::string_view token) {
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') {
    token.remove_suffix(1);
  }
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') {
    token = token.substr(1, token.size() - 2);
  }
  return token;
}

std::optional<DecimalTime> nanoseconds_of_microseconds(std::string_view text) {
  text = bare(text);
  const bool negative = text.starts_with('-');
  std::size_t i = negative || text.starts_with('+') ? 1 : 0;
  std::int64_t digits = 0;  // all significant digits, as one number
  int scale = 3;            // value = digits * 10^scale nanoseconds
  bool any = false;
  bool point = false;
  bool rounded = false;
  bool up = false;  // the first digit left out is 5 or more
  bool full = false;
  for (; i < text.size() && (digit(text[i]) || (text[i] == '.' && !point)); ++i) {
    if (text[i] == '.') {
      point = true;
      continue;
    }
    any = true;
    const int d = text[i] - '0';
    if (!full && digits <= (INT64_MAX - 9) / 10) {
      digits = digits * 10 + d;
      scale -= point ? 1 : 0;
    } else {
      up = full ? up : d >= 5;
      full = true;
      rounded = rounded || d != 0;
      scale += point ? 0 : 1;
    }
  }
  if (!any) {
    return std::nullopt;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    i += i < text.size() && text[i] == '+' ? 1 : 0;
    int exponent = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), exponent);
    if (error != std::errc{} || exponent > 1000 || exponent < -1000) {
      return std::nullopt;
    }
    scale += exponent;
    i = static_cast<std::size_t>(end - text.data());
  }
  if (i != text.size()) {
    return std::nullopt;
  }
  for (; scale < 0 && digits != 0; ++scale) {
    up = digits % 10 >= 5;
    rounded = rounded || digits % 10 != 0;
    digits /= 10;
  }
  digits += up && scale <= 0 ? 1 : 0;
  for (; scale > 0 && digits != 0; --scale) {
    if (digits > kLatest / 10) {
      return std::nullopt;
    }
    digits *= 10;
  }
  if (digits > kLatest) {
    return std::nullopt;
  }
  return DecimalTime{negative ? -digits : digits, rounded};
}

std::optional<std::int64_t> integer_of(std::string_view text) {
  text = bare(text);
  const std::size_t space = text.rfind(' ');
  if (space != std::string_view::npos) {
    text.remove_prefix(space + 1);
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace stepcast::traces::internal
