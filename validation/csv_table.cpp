#include "validation/csv_table.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "core/error.h"

namespace stepcast::validation {

CsvTable::CsvTable(const std::filesystem::path& file, std::string like)
    : file_(file.string()), like_(std::move(like)), text_(models::read_bytes(file)), lines_(text_) {
  std::vector<std::string_view> header;
  if (!lines_.next(header)) {
    throw InputError(file_, "is empty; expected a header line and rows");
  }
  for (std::size_t i = 0; i < header.size(); ++i) {
    columns_.emplace(header[i], i);
  }
}

std::string CsvTable::place() const { return fmt::format("{}:{}", file_, lines_.line()); }

std::string CsvTable::text(std::string_view column) const {
  const auto at = columns_.find(column);
  if (at == columns_.end()) {
    throw InputError(file_, fmt::format("has no column '{}'; expected those of {}", column, like_));
  }
  return at->second < fields_.size() ? std::string(fields_[at->second]) : std::string();
}

std::vector<std::string> CsvTable::columns() const {
  std::vector<std::string> names;
  for (const auto& [name, index] : columns_) {
    names.push_back(name);
  }
  return names;
}

std::optional<double> positive_number(std::string_view field) {
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  const bool number = error == std::errc() && end == field.data() + field.size();
  return number && value > 0 && value <= 1e15 ? std::optional(value) : std::nullopt;
}

double positive_or_say(std::string_view column, std::string_view field, std::string& unusable) {
  if (const auto value = positive_number(field)) {
    return *value;
  }
  if (unusable.empty()) {
    unusable = fmt::format("{}: found '{}', expected a positive number", column, field);
  }
  return 0;
}

double CsvTable::positive(std::string_view column, std::string& unusable) const {
  return positive_or_say(column, text(column), unusable);
}

double CsvTable::positive_or(std::string_view column, double otherwise,
                             std::string& unusable) const {
  return text(column).empty() ? otherwise : positive(column, unusable);
}

}  // namespace stepcast::validation
