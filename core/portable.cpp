#include "core/portable.h"

#include <version>

#ifndef __cpp_lib_to_chars
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#endif

namespace stepcast {

#ifdef __cpp_lib_to_chars

std::from_chars_result read_decimal(const char* first, const char* last, double& value) {
  return std::from_chars(first, last, value);
}

#else

std::from_chars_result read_decimal(const char* first, const char* last, double& value) {
  const std::string_view text(first, static_cast<std::size_t>(last - first));
  const std::string_view unsigned_text = text.substr(text.starts_with('-') ? 1 : 0);
  const bool number = !unsigned_text.empty() &&
                      std::string_view("0123456789.iInN").find(unsigned_text[0]) != text.npos;
  if (!number) {
    return {first, std::errc::invalid_argument};
  }
  // strtod takes hexadecimal digits: of "0x1p4" only the zero is a decimal number.
  const std::size_t x = std::min(text.find_first_of("xX"), text.size());
  const std::string copy(text.substr(0, x));
  char* end = nullptr;
  const int before = std::exchange(errno, 0);
  const double read = std::strtod(copy.c_str(), &end);
  const bool range = std::exchange(errno, before) == ERANGE;
  if (end == copy.c_str()) {
    return {first, std::errc::invalid_argument};
  }
  if (!range) {
    value = read;
  }
  return {first + (end - copy.c_str()), range ? std::errc::result_out_of_range : std::errc()};
}

#endif

}  // namespace stepcast
