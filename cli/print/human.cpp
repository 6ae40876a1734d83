#include "cli/print/human.h"

#include <ctime>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace stepcast::cli {
namespace {

template <std::size_t N>
std::string scaled(double v, double step, const std::array<std::string_view, N>& units) {
  std::size_t i = 0;
  double a = std::abs(v);
  while (i + 1 < N && a >= step * 0.9995) {
    a /= step;
    v /= step;
    ++i;
  }
  const int decimals = a >= 99.95 || a == 0 ? 0 : a >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", v, decimals, units[i]);
}

}  // namespace

std::string human(Seconds t) {
  if (std::abs(t.base()) >= 1) {
    return t.base() >= 7200 ? fmt::format("{:.1f} h", t.base() / 3600)
                            : fmt::format("{:.{}f} s", t.base(),
                                          t.base() >= 100  ? 0
                                          : t.base() >= 10 ? 1
                                                           : 2);
  }
  return scaled(t.base() * 1e9, 1e3, std::array<std::string_view, 4>{"ns", "us", "ms", "s"});
}

std::string human(Bytes b) {
  return scaled(b.base(), 1024,
                std::array<std::string_view, 6>{"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string human(Flops f) {
  return scaled(f.base(), 1e3,
                std::array<std::string_view, 8>{"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP",
                                                "EFLOP", "ZFLOP"});
}

std::string human(BytesPerSecond b) {
  return scaled(b.base(), 1e3,
                std::array<std::string_view, 5>{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}

std::string human(FlopsPerSecond f) {
  return scaled(f.base(), 1e3,
                std::array<std::string_view, 7>{"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s",
                                                "TFLOP/s", "PFLOP/s", "EFLOP/s"});
}

std::string percent(double fraction) { return fmt::format("{:.1f} %", fraction * 100); }
std::string percent_signed(double fraction) { return fmt::format("{:+.1f} %", fraction * 100); }

std::string count(double n) {
  std::string text = scaled(n, 1e3, std::array<std::string_view, 5>{"", "k", "M", "G", "T"});
  if (text.back() == ' ') {
    text.pop_back();
  }
  return n < 1000 ? fmt::format("{:g}", n) : text;
}

std::string counted(std::int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::pair<std::string, std::string> apart(Bytes a, Bytes b) {
  std::pair<std::string, std::string> texts{human(a), human(b)};
  constexpr int kMostDecimals = 6;
  const double unit = a.base() >= 0x1p30 ? 0x1p30 : 0x1p20;
  for (int decimals = 1; texts.first == texts.second && a != b && decimals <= kMostDecimals;
       ++decimals) {
    const auto text = [&](Bytes bytes) {
      return fmt::format("{:.{}f} {}", bytes.base() / unit, decimals,
                         unit == 0x1p30 ? "GiB" : "MiB");
    };
    texts = {text(a), text(b)};
  }
  return texts;
}

std::string grouped(double n, int digits) {
  const int before = n == 0 ? 1 : static_cast<int>(std::floor(std::log10(std::abs(n)))) + 1;
  const double unit = std::pow(10.0, before - digits);
  const bool rounds = digits > 0 && before > digits;
  const int decimals = digits > 0 && before < digits ? digits - before : 0;
  std::string text = fmt::format("{:.{}f}", rounds ? std::round(n / unit) * unit : n, decimals);
  const std::size_t end = std::min(text.find('.'), text.size());
  const std::size_t first = text.front() == '-' ? 1 : 0;
  for (std::size_t at = end; at > first + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string device_title(const std::string& name) {
  std::string title;
  for (const char c : name) {
    const bool numbered = title.find_first_of("0123456789") != std::string::npos;
    if (c == '-' && numbered) {
      return title;
    }
    title += c == '-' ? ' ' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return title.find_first_of("0123456789") == std::string::npos ? name : title;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

}  // namespace stepcast::cli
