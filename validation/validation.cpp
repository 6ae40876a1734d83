#include "validation/validation.h"

#include <fmt/format.h>

#include <charconv>

namespace stepcast::validation {

double positive_or_say(std::string_view column, std::string_view field, std::string& unusable) {
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error == std::errc() && end == field.data() + field.size() && value > 0 && value <= 1e15) {
    return value;
  }
  if (unusable.empty()) {
    unusable = fmt::format("{}: found '{}', expected a positive number", column, field);
  }
  return 0;
}

ValidationGroup group_of(std::string name, const std::vector<ValidationRow>& rows) {
  std::vector<double> errors;
  errors.reserve(rows.size());
  for (const ValidationRow& row : rows) {
    errors.push_back(row.error());
  }
  ValidationGroup group;
  group.name = std::move(name);
  group.errors = studies::statistics_of(errors);
  if (!rows.empty()) {
    group.worst_row = rows[group.errors.worst_index].id;
  }
  return group;
}

}  // namespace stepcast::validation
