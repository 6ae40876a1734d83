#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/measured/csv_file.h"

namespace stepcast::validation {

/// A number above 0 and below 1e15, the whole of `field`.
std::optional<double> positive_number(std::string_view field);
/// Likewise; else 0, and `unusable`, where still empty, says what was found in the column.
double positive_or_say(std::string_view column, std::string_view field, std::string& unusable);

/// A CSV file with a header, read row by row; fields by column name.
class CsvTable {
 public:
  /// `like`: a file with the expected columns, for messages. Errors: InputError for a file that
  /// cannot be read or is empty.
  CsvTable(const std::filesystem::path& file, std::string like);
  bool next() { return lines_.next(fields_); }
  [[nodiscard]] bool has(std::string_view column) const { return columns_.contains(column); }
  [[nodiscard]] std::vector<std::string> columns() const;
  [[nodiscard]] std::string place() const;  ///< file:line of the row
  /// Empty where the row is shorter than the header. Errors: InputError for a column that the file
  /// does not have.
  [[nodiscard]] std::string text(std::string_view column) const;
  /// A number above 0; else 0, and `unusable`, where still empty, says what was found.
  double positive(std::string_view column, std::string& unusable) const;
  /// Likewise, and an empty field is `otherwise`.
  double positive_or(std::string_view column, double otherwise, std::string& unusable) const;

 private:
  std::string file_, like_;
  std::string text_;
  models::CsvLines lines_;
  std::map<std::string, std::size_t, std::less<>> columns_;
  std::vector<std::string_view> fields_;
};

}  // namespace stepcast::validation
