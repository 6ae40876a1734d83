#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/input/input.h"

namespace stepcast {

/// The fields of one record. A field that begins with a quote (blanks before it are dropped) may
/// hold separators and line ends; in it "" is a quote (RFC 4180, section 2). Text behind the
/// closing quote is kept as it is. Fields are views of `record`, or of `unquoted` where they had
/// quotes. Out: whether a quote is left open at the end of the record.
bool split_csv(std::string_view record, char separator, std::string& unquoted,
               std::vector<std::string_view>& fields);

/// True for the names of CSV files: .csv, .csv.gz and .csv.zst.
bool is_csv_name(const std::filesystem::path& file);

/// Without the blanks around it.
std::string_view trimmed(std::string_view field);

/// Reads a CSV text record by record in bounded memory: RFC 4180 quotes, LF or CRLF, a byte order
/// mark at the beginning passed over, gzip and zstd undone. Blank lines are no records. Fields stay
/// valid until the next call.
class CsvReader {
 public:
  /// `comment`: lines that begin with it are passed over; '\0' none.
  explicit CsvReader(Input input, char comment = '\0');
  explicit CsvReader(const std::filesystem::path& file, char comment = '\0')
      : CsvReader(Input::of_file(file), comment) {}

  /// False at the end. Errors: InputError naming file and line for a quote that nothing closes or
  /// a record above 16 MiB; those of Input.
  bool next();
  [[nodiscard]] std::span<const std::string_view> fields() const { return fields_; }
  [[nodiscard]] std::uint32_t line() const { return line_; }  ///< where the record begins, from 1
  [[nodiscard]] const std::string& label() const { return input_.label(); }
  [[nodiscard]] std::string place() const;  ///< file:line of the record

  // For records of a fixed order: fields one after the other.
  std::string_view word();
  /// A whole number. Errors: as `fail`, also where the record has no further field.
  std::int64_t whole(std::int64_t least, std::int64_t most);
  void end_record() const;  ///< Errors: as `fail`, where a field was not read.
  /// Throws the InputError "file:line: column N: what", N that of the last field read.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  [[nodiscard]] bool line_at(std::size_t from, std::size_t& end);
  [[nodiscard]] std::string_view record_to(std::size_t end) const;
  [[noreturn]] void fail_record(std::string_view what) const;
  Input input_;
  char comment_;
  std::string buffer_;
  std::size_t begin_ = 0;  ///< of what is not read yet
  bool ended_ = false;     ///< the buffer holds the end of the input
  std::uint32_t next_line_ = 1, line_ = 0;
  std::string unquoted_;
  std::vector<std::string_view> fields_;
  std::size_t column_ = 0;  ///< fields that `word` gave
};

/// A CSV text with a header: fields by column name.
class CsvTable {
 public:
  /// `like`: a file with the expected columns, for messages. Errors: InputError for a file that
  /// cannot be read or is empty.
  CsvTable(const std::filesystem::path& file, std::string like);
  bool next() { return rows_.next(); }
  [[nodiscard]] bool has(std::string_view column) const { return columns_.contains(column); }
  [[nodiscard]] std::vector<std::string> columns() const;
  [[nodiscard]] std::string place() const { return rows_.place(); }
  /// Empty where the row is shorter than the header. Errors: InputError for a column that the file
  /// does not have.
  [[nodiscard]] std::string text(std::string_view column) const;

 private:
  std::string like_;
  CsvReader rows_;
  std::map<std::string, std::size_t, std::less<>> columns_;
};

}  // namespace stepcast
