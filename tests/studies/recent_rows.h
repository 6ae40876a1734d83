#pragma once
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "core/input/csv.h"

namespace stepcast::fixtures {

/// Rows of a table of steps that others measured whose name begins with `start`; none, with the
/// reason printed, where the table is absent.
inline std::vector<std::vector<std::string>> recent_rows(const std::string& table,
                                                         const std::string& start) {
  std::vector<std::vector<std::string>> rows;
  const auto file = std::filesystem::path(STEPCAST_SHARED_DATA) / "recent" / table;
  if (!std::filesystem::exists(file)) {
    WARN("skipped: no " << file);
    return rows;
  }
  for (CsvReader reader(file); reader.next();) {
    if (reader.fields().front().starts_with(start)) {
      rows.emplace_back(reader.fields().begin(), reader.fields().end());
    }
  }
  REQUIRE_FALSE(rows.empty());
  return rows;
}

}  // namespace stepcast::fixtures
