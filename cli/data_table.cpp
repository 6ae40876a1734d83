#include "cli/data_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/human.h"
#include "cli/terminal_text.h"
#include "cli/text_table.h"

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
Cell share(double fraction) { return {percent(fraction), fraction}; }
Cell short_name(const std::string& name) { return {short_text(name), name}; }
Cell empty_cell() { return {"", nullptr}; }
Cell name_cell(std::string key, std::string title) { return {std::move(title), std::move(key)}; }

namespace {

std::string csv_text(const nlohmann::ordered_json& value) {
  if (value.is_null()) {
    return "";
  }
  if (value.is_number_float()) {
    return fmt::format("{:.9g}", value.get<double>());
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

void DataTable::print_text(std::ostream& out) const {
  std::vector<std::string> header;
  for (const Column& c : columns_) {
    header.push_back(c.title.empty() ? c.key : c.title);
  }
  TextTable table(header);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].left) {
      table.left(c);
    }
  }
  const std::size_t shown = limit_ == 0 ? rows_.size() : std::min(limit_, rows_.size());
  for (std::size_t r = 0; r < shown; ++r) {
    std::vector<std::string> cells;
    for (const Cell& c : rows_[r]) {
      cells.push_back(c.text);
    }
    table.row(std::move(cells));
  }
  out << title_ << '\n';
  table.print(out);
  if (shown < rows_.size()) {
    out << fmt::format("... and {} more (all with --format json or csv)\n", rows_.size() - shown);
  }
  for (const std::string& n : notes_) {
    out << n << '\n';
  }
}

void DataTable::print_csv(std::ostream& out) const {
  std::vector<std::string> cells;
  for (const Column& c : columns_) {
    cells.push_back(c.key);
  }
  out << csv_line(cells);
  for (const auto& row : rows_) {
    cells.clear();
    for (const Cell& c : row) {
      cells.push_back(csv_text(c.value));
    }
    out << csv_line(cells);
  }
}

nlohmann::ordered_json DataTable::json() const {
  if (object_) {
    nlohmann::ordered_json facts = nlohmann::ordered_json::object();
    for (const auto& row : rows_) {
      facts[row.at(0).value.get<std::string>()] = row.at(1).value;
    }
    return facts;
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& row : rows_) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (std::size_t c = 0; c < columns_.size() && c < row.size(); ++c) {
      object[columns_[c].key] = row[c].value;
    }
    rows.push_back(std::move(object));
  }
  return rows;
}

}  // namespace stepcast::cli
