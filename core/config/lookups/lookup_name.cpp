#include "core/config/lookups/lookup_name.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace stepcast::config {

LookupName lookup_name(const std::filesystem::path& name) {
  const std::string text = name.string();
  std::error_code ignored;
  std::size_t end = text.size();
  while (!std::filesystem::exists(text.substr(0, end), ignored)) {
    const std::size_t colon = end == 0 ? std::string::npos : text.rfind(':', end - 1);
    if (colon == std::string::npos || colon == 0) {  // no such file: errors name it without parts
      const std::size_t folder = text.rfind('/');
      end = std::min(text.find(':', folder == std::string::npos ? 1 : folder + 2), text.size());
      break;
    }
    end = colon;
  }
  LookupName split{text.substr(0, end), {}};
  while (end < text.size()) {
    const std::size_t next = std::min(text.find(':', end + 1), text.size());
    split.parts.push_back(text.substr(end + 1, next - end - 1));
    end = next;
  }
  return split;
}

std::optional<std::int64_t> part_number(std::string_view part) {
  std::int64_t value = 0;
  const char* last = part.data() + part.size();
  const auto [end, error] = std::from_chars(part.data(), last, value);
  return error == std::errc() && end == last && value >= 0 ? std::optional(value) : std::nullopt;
}

std::optional<TableOf> table_of_several(std::string_view part) {
  const std::size_t of = part.find("of");
  if (of == std::string_view::npos) {
    return std::nullopt;
  }
  const auto table = part_number(part.substr(0, of));
  const auto tables = part_number(part.substr(of + 2));
  return table && tables && *table < *tables ? std::optional(TableOf{*table, *tables})
                                             : std::nullopt;
}

}  // namespace stepcast::config
