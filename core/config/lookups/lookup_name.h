#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepcast::config {

/// FILE, or FILE:PART or FILE:PART:PART where a file holds the lookups of several tables.
struct LookupName {
  std::filesystem::path file;
  std::vector<std::string> parts;
};
/// The longest beginning that is a file, cut at colons after it; a name of a file as a whole is
/// one.
LookupName lookup_name(const std::filesystem::path& name);

/// A part that is a number from 0: a table or column.
std::optional<std::int64_t> part_number(std::string_view part);
/// "3of26": table 3 of 26, where the file does not say how many there are.
struct TableOf {
  std::int64_t table = 0, tables = 1;
};
std::optional<TableOf> table_of_several(std::string_view part);

}  // namespace stepcast::config
