#include "core/input/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace stepcast {
namespace {

constexpr std::size_t kRead = std::size_t{1} << 18;
constexpr std::size_t kLongestRecord = std::size_t{1} << 24;

}  // namespace

bool split_csv(std::string_view record, char separator, std::string& unquoted,
               std::vector<std::string_view>& fields) {
  fields.clear();
  unquoted.clear();
  unquoted.reserve(record.size());  // views of it must stay valid
  for (std::size_t at = 0; at <= record.size();) {
    const std::size_t said = record.find_first_not_of(' ', at);
    if (said == std::string_view::npos || record[said] != '"') {
      const std::size_t end = std::min(record.find(separator, at), record.size());
      fields.push_back(record.substr(at, end - at));
      at = end + 1;
      continue;
    }
    const std::size_t begin = unquoted.size();
    for (at = said + 1;; ++at) {
      const std::size_t quote = record.find('"', at);
      if (quote == std::string_view::npos) {
        unquoted += record.substr(at);
        fields.push_back(std::string_view(unquoted).substr(begin));
        return true;
      }
      unquoted += record.substr(at, quote - at);
      at = quote + 1;
      if (at == record.size() || record[at] != '"') {
        break;
      }
      unquoted += '"';
    }
    const std::size_t end = std::min(record.find(separator, at), record.size());
    unquoted += record.substr(at, end - at);
    fields.push_back(std::string_view(unquoted).substr(begin));
    at = end + 1;
  }
  return false;
}

bool is_csv_name(const std::filesystem::path& file) {
  const std::filesystem::path ending = file.extension();
  return (ending == ".gz" || ending == ".zst" ? file.stem().extension() : ending) == ".csv";
}

std::string_view trimmed(std::string_view field) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = field.find_first_not_of(kBlank);
  return first == std::string_view::npos
             ? std::string_view()
             : field.substr(first, field.find_last_not_of(kBlank) - first + 1);
}

CsvReader::CsvReader(Input input, char comment) : input_(std::move(input)), comment_(comment) {
  if (input_.peek(kByteOrderMark.size()) == kByteOrderMark) {
    input_.skip(kByteOrderMark.size());
  }
}

/// Finds the end of the line that `from` (counted from begin_) is in; false at the end of the text.
bool CsvReader::line_at(std::size_t from, std::size_t& end) {
  while (true) {
    const std::size_t found = buffer_.find('\n', begin_ + from);
    if (found != std::string::npos) {
      end = found - begin_;
      return true;
    }
    if (ended_) {
      end = buffer_.size() - begin_;
      return end > from;
    }
    from = buffer_.size() - begin_;
    if (from > kLongestRecord) {
      fail_record("the record is longer than 16 MiB; is this a CSV file?");
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    buffer_.resize(from + kRead);
    const std::size_t got = input_.read(buffer_.data() + from, kRead);
    buffer_.resize(from + got);
    ended_ = got < kRead;
  }
}

std::string_view CsvReader::record_to(std::size_t end) const {
  std::string_view record(buffer_.data() + begin_, end);
  record.remove_suffix(record.ends_with('\r') ? 1 : 0);
  return record;
}

bool CsvReader::next() {
  std::size_t end = 0;
  for (line_ = next_line_; line_at(0, end); line_ = next_line_) {
    ++next_line_;
    std::string_view record = record_to(end);
    const std::size_t first = record.find_first_not_of(" \t");
    const bool says =
        first != std::string_view::npos && (comment_ == '\0' || record[first] != comment_);
    while (says && split_csv(record, ',', unquoted_, fields_)) {
      // Only a line with a quote can close it.
      for (bool quote = false; !quote; ++next_line_) {
        const std::size_t from = end + 1;
        if (!line_at(from, end)) {
          fail_record("a quote is opened that nothing closes; close it, or write it twice");
        }
        record = record_to(end);
        quote = record.find('"', std::min(from, record.size())) != std::string_view::npos;
      }
    }
    begin_ = std::min(begin_ + end + 1, buffer_.size());
    if (says) {
      column_ = 0;
      return true;
    }
  }
  return false;
}

std::string CsvReader::place() const { return fmt::format("{}:{}", label(), line_); }

std::string_view CsvReader::word() {
  ++column_;
  if (column_ > fields_.size()) {
    fail("too few columns");
  }
  return fields_[column_ - 1];
}

std::int64_t CsvReader::whole(std::int64_t least, std::int64_t most) {
  const std::string_view field = word();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || value < least || value > most) {
    fail(fmt::format("found '{}'; expected a whole number from {} to {}", field.substr(0, 40),
                     least, most));
  }
  return value;
}

void CsvReader::end_record() const {
  if (column_ < fields_.size()) {
    fail("too many columns");
  }
}

void CsvReader::fail(std::string_view what) const {
  throw InputError(fmt::format("{}: column {}", place(), column_), what);
}

void CsvReader::fail_record(std::string_view what) const { throw InputError(place(), what); }

CsvTable::CsvTable(const std::filesystem::path& file, std::string like)
    : like_(std::move(like)), rows_(file) {
  if (!rows_.next()) {
    throw InputError(rows_.label(), "is empty; expected a header line and rows");
  }
  for (std::size_t i = 0; i < rows_.fields().size(); ++i) {
    columns_.emplace(rows_.fields()[i], i);
  }
}

std::string CsvTable::text(std::string_view column) const {
  const auto at = columns_.find(column);
  if (at == columns_.end()) {
    throw InputError(rows_.label(),
                     fmt::format("has no column '{}'; expected those of {}", column, like_));
  }
  const auto fields = rows_.fields();
  return at->second < fields.size() ? std::string(fields[at->second]) : std::string();
}

std::vector<std::string> CsvTable::columns() const {
  std::vector<std::string> names;
  for (const auto& [name, index] : columns_) {
    names.push_back(name);
  }
  return names;
}

}  // namespace stepcast
