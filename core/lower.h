#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace stepcast {

/// The text with ASCII letters in small; for names that others write in either case.
inline std::string lower(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

}  // namespace stepcast
