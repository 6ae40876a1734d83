#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace stepcast::models {

/// A file as it is stored. Errors: InputError naming it.
std::string read_bytes(const std::filesystem::path& file);
/// The text of a gzip file (any number of members), or the bytes themselves when they are not gzip.
/// Errors: InputError naming `label` for a damaged or truncated stream, or beyond 1 GiB of text.
std::string gunzip(std::string bytes, const std::string& label);

/// Walks the lines of a CSV text (RFC 4180 quotes, LF or CRLF); fields are views that stay valid
/// until the next call. Lines of no characters are passed over.
class CsvLines {
 public:
  explicit CsvLines(std::string_view text) : text_(text) {}
  bool next(std::vector<std::string_view>& fields);
  [[nodiscard]] std::uint32_t line() const { return line_; }  ///< of the last fields, 1 the first

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 0;
  std::vector<std::string> unquoted_;
};

}  // namespace stepcast::models
