#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "cli/print/terminal.h"
#include "core/units.h"

namespace stepcast::cli {

using Json = nlohmann::ordered_json;

/// One value as people read it and as programs do.
struct Cell {
  std::string text;
  Json value;
};
inline Cell cell(Cell whole) { return whole; }
Cell cell(std::string text);
Cell cell(std::string_view text);
Cell cell(const char* text);
Cell cell(bool flag);  ///< "yes" or "no"
Cell cell(Seconds t);
Cell cell(Bytes b);
Cell cell(Flops f);
Cell cell(double number);        ///< a count: "1.2 M"
Cell cell(std::int64_t number);  ///< all digits
Cell cell(std::size_t number);
Cell cell(int number);
Cell share(double fraction);          ///< "12.3 %"
Cell signed_share(double fraction);   ///< "+12.3 %"
Cell bytes_cell(std::int64_t bytes);  ///< whole bytes
Cell rate(double number);             ///< "1,279,000"
Cell decimal(double number, int digits);
Cell empty_cell(std::string text = "");    ///< null for programs
Cell absent_cell(std::string text = "");   ///< programs do not find the key at all
Cell code(Json value);                     ///< for programs alone
Cell short_name(const std::string& name);  ///< whole for programs, cut for people (kernel names)
Cell name_cell(std::string key, std::string title);  ///< a name for programs, another for people
/// For programs; they do not find the key of a value that is missing.
template <class T>
Cell code_or_absent(const std::optional<T>& value) {
  return value ? code(*value) : absent_cell();
}
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

/// Outputs that a table or a column is in: all unless places are named.
using Visibility = unsigned;
inline constexpr Visibility kInText = 1, kInJson = 2, kInCsv = 4, kNowhere = 8;
inline constexpr Visibility kLeft = 16;                 ///< in text, aligned to the left
inline constexpr Visibility kMinor = 64;   ///< in text, left out first where lines are short
inline constexpr Visibility kMajor = 128;  ///< in text, left out last
inline constexpr Visibility kIfVarying = 32 | kInText;  ///< where a row is not "1", "none" or "-"

/// A titled table that prints as text, JSON or CSV from one description. Keys of columns carry
/// units ("time_s"), titles do not ("time").
///
///   DataTable t("ranks", "ranks", {{"rank"}, {"step_s", "step"}});
///   t.row({cell(0), cell(milliseconds(2.5))});
class DataTable {
 public:
  struct Column {
    std::string key;         ///< "run/days" is days in an object run of JSON, and days in CSV
    std::string title = "";  ///< the key where empty
    bool left = false;
    Visibility look = 0;
    std::string csv = "";  ///< the key in CSV where it differs
  };
  /// Without a title the rows alone are printed.
  DataTable(std::string key, std::string title, std::vector<Column> columns, Visibility look = 0)
      : key_(std::move(key)), title_(std::move(title)), columns_(std::move(columns)), look_(look) {}
  void row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  /// Facts about one thing: rows are {name_cell(key, title), value}; JSON is one object.
  void as_object() { object_ = true; }
  /// A line under the table, in text only.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  /// Text shows this many rows and says how many more there are; 0 shows all. Facts are all shown.
  void limit(std::size_t rows) { limit_ = object_ ? 0 : rows; }

  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] bool in(Visibility place) const;
  void print_text(std::ostream& out, const TerminalStyle& style) const;
  void print_csv(std::ostream& out, bool header = true) const;
  [[nodiscard]] std::string csv_header() const;
  [[nodiscard]] Json json() const;

 private:
  [[nodiscard]] std::vector<std::size_t> columns_in(Visibility place) const;

  std::string key_, title_;
  std::vector<Column> columns_;
  Visibility look_ = 0;
  std::vector<std::vector<Cell>> rows_;
  std::vector<std::string> notes_;
  std::size_t limit_ = 0;
  bool object_ = false;
};

/// Facts about one thing: a table of names and values, an object of JSON.
class Facts : public DataTable {
 public:
  Facts(std::string key, std::string title, Visibility values = 0, std::string what = "fact")
      : DataTable(std::move(key), std::move(title),
                  {{std::move(what), "", true}, {"value", "", (values & kLeft) != 0}}) {
    as_object();
  }
  template <class T>
  void add(std::string name, std::string name_of_people, T value) {
    row({name_cell(std::move(name), std::move(name_of_people)), cell(std::move(value))});
  }
};

/// A column with the value it has in a row: a member of Row, or a function of one.
///
///   Columns<OpRow> columns{{"op", "", &OpRow::name}, {"time_s", "time", &OpRow::time},
///                          {"share", "", [&](auto& r) { return share(r.time / step); }}};
template <class Row>
struct ColumnOf {
  template <class Value>
  ColumnOf(std::string key, std::string title, Value value, Visibility look = 0,
           std::string csv = "")
      : column{std::move(key), std::move(title), (look & kLeft) != 0, look & ~kLeft,
               std::move(csv)},
        of([value](const Row& row) { return cell(std::invoke(value, row)); }) {}
  DataTable::Column column;
  std::function<Cell(const Row&)> of;
};
template <class Row>
using Columns = std::vector<ColumnOf<Row>>;

template <class Row>
std::vector<Cell> cells_of(const Columns<Row>& columns, const Row& row) {
  std::vector<Cell> cells;
  for (const ColumnOf<Row>& c : columns) {
    cells.push_back(c.of(row));
  }
  return cells;
}

/// Rows that know their number.
template <class T>
struct Numbered {
  std::size_t number;
  const T& of;
};
template <class T>
std::vector<Numbered<T>> numbered(const std::vector<T>& all, std::size_t first = 0) {
  std::vector<Numbered<T>> rows;
  for (const T& one : all) {
    rows.push_back({first++, one});
  }
  return rows;
}

/// A table of such columns.
template <class Row, class Rows>
DataTable table_of(std::string key, std::string title, const Columns<Row>& columns,
                   const Rows& rows, Visibility look = 0) {
  std::vector<DataTable::Column> heads;
  for (const ColumnOf<Row>& c : columns) {
    heads.push_back(c.column);
  }
  DataTable table(std::move(key), std::move(title), std::move(heads), look);
  for (const Row& row : rows) {
    table.row(cells_of(columns, row));
  }
  return table;
}

}  // namespace stepcast::cli
