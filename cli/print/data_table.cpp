#include "cli/print/data_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/print/human.h"
#include "cli/print/terminal_text.h"
#include "cli/print/text_table.h"

namespace stepcast::cli {

Cell cell(std::string text) { return {text, text}; }
Cell cell(std::string_view text) { return cell(std::string(text)); }
Cell cell(Seconds t) { return {human(t), t.base()}; }
Cell cell(Bytes b) { return {human(b), b.base()}; }
Cell cell(Flops f) { return {human(f), f.base()}; }
Cell cell(double number) {
  return {number < 1000 ? fmt::format("{:.4g}", number) : count(number), number};
}
Cell cell(std::int64_t number) { return {std::to_string(number), number}; }
Cell cell(const char* text) { return cell(std::string(text)); }
Cell cell(bool flag) { return {flag ? "yes" : "no", flag}; }
Cell cell(std::size_t number) { return {std::to_string(number), number}; }
Cell cell(int number) { return cell(std::int64_t{number}); }
Cell share(double fraction) { return {percent(fraction), fraction}; }
Cell signed_share(double fraction) { return {percent_signed(fraction), fraction}; }
Cell bytes_cell(std::int64_t bytes) { return {human(Bytes(static_cast<double>(bytes))), bytes}; }
Cell rate(double number) { return {grouped(number), number}; }
Cell decimal(double number, int digits) { return {fmt::format("{:.{}f}", number, digits), number}; }
Cell short_name(const std::string& name) { return {short_text(name), name}; }
Cell empty_cell(std::string text) { return {std::move(text), nullptr}; }
Cell absent_cell(std::string text) { return {std::move(text), Json(Json::value_t::discarded)}; }
Cell code(Json value) { return {"", std::move(value)}; }
Cell name_cell(std::string key, std::string title) { return {std::move(title), std::move(key)}; }

namespace {

bool shows(Visibility look, Visibility place) {
  constexpr Visibility kPlaces = kInText | kInJson | kInCsv | kNowhere;
  return (look & kPlaces) == 0 || (look & place) != 0;
}

/// Whole numbers with all digits, others with nine.
std::string csv_text(const Json& value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value.is_null() || value.is_discarded()) {
    return "";
  }
  if (value.is_number_float()) {
    const double v = value.get<double>();
    return v == std::floor(v) && std::abs(v) < kExact ? fmt::format("{:.0f}", v)
                                                      : fmt::format("{:.9g}", v);
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// "run/days": the member days of the object run.
Json& member(Json& object, const std::string& path) {
  Json* at = &object;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = path.find('/', begin)) != std::string::npos; begin = end + 1) {
    at = &(*at)[path.substr(begin, end - begin)];
  }
  return (*at)[path.substr(begin)];
}

}  // namespace

bool DataTable::in(Visibility place) const { return shows(look_, place); }

/// The columns of a place, by number.
std::vector<std::size_t> DataTable::columns_in(Visibility place) const {
  std::vector<std::size_t> shown;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const Visibility look = columns_[c].look;
    const bool tells = (look & kIfVarying) != kIfVarying || place != kInText ||
                       std::any_of(rows_.begin(), rows_.end(), [c](const std::vector<Cell>& row) {
                         return row[c].text != "1" && row[c].text != "none" && row[c].text != "-";
                       });
    if (shows(look, place) && tells) {
      shown.push_back(c);
    }
  }
  return shown;
}

void DataTable::print_text(std::ostream& out, const TerminalStyle& style) const {
  const std::vector<std::size_t> columns = columns_in(kInText);
  if (columns.empty()) {  // all of them are shown only if rows differ, and there are none
    return;
  }
  std::vector<std::string> header;
  for (const std::size_t c : columns) {
    header.push_back(columns_[c].title.empty() ? columns_[c].key : columns_[c].title);
  }
  TextTable table(header);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Column& column = columns_[columns[i]];
    if (column.left) {
      table.left(i);
    }
    table.importance(i, (column.look & kMinor) != 0 ? 0 : (column.look & kMajor) != 0 ? 2 : 1);
  }
  const std::size_t shown = limit_ == 0 ? rows_.size() : std::min(limit_, rows_.size());
  for (std::size_t r = 0; r < shown; ++r) {
    std::vector<std::string> cells;
    for (const std::size_t c : columns) {
      cells.push_back(rows_[r].at(c).text);
    }
    table.row(std::move(cells));
  }
  if (!title_.empty()) {
    print_coloured(out, coloured(wrapped(title_, style.width), Meaning::kStrong, style) + '\n');
  }
  table.print(out, style);
  if (shown < rows_.size()) {
    out << fmt::format("... and {} more (--json or --csv has all)\n", rows_.size() - shown);
  }
  for (const std::string& n : notes_) {
    print_coloured(out, coloured(wrapped(n, style.width), Meaning::kDim, style) + '\n');
  }
}

std::string DataTable::csv_header() const {
  std::vector<std::string> cells;
  for (const std::size_t i : columns_in(kInCsv)) {
    const Column& c = columns_[i];
    cells.push_back(c.csv.empty() ? c.key.substr(c.key.rfind('/') + 1) : c.csv);
  }
  return csv_line(cells);
}

void DataTable::print_csv(std::ostream& out, bool header) const {
  if (header) {
    out << csv_header();
  }
  const std::vector<std::size_t> columns = columns_in(kInCsv);
  for (const auto& row : rows_) {
    std::vector<std::string> cells;
    for (const std::size_t c : columns) {
      cells.push_back(csv_text(row.at(c).value));
    }
    out << csv_line(cells);
  }
}

Json DataTable::json() const {
  Json all = object_ ? Json::object() : Json::array();
  const std::vector<std::size_t> columns = columns_in(kInJson);
  for (const auto& row : rows_) {
    if (object_) {
      all[row.at(0).value.get<std::string>()] = row.at(1).value;
      continue;
    }
    Json object = Json::object();
    for (const std::size_t c : columns) {
      if (!row.at(c).value.is_discarded()) {
        member(object, columns_[c].key) = row[c].value;
      }
    }
    all.push_back(std::move(object));
  }
  return all;
}

}  // namespace stepcast::cli
