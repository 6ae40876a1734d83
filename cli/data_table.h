#pragma once
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "core/units.h"

namespace stepcast::cli {

/// One value as people read it and as programs do.
struct Cell {
  std::string text;
  nlohmann::ordered_json value;
};
Cell cell(std::string text);
Cell cell(std::string_view text);
Cell cell(Seconds t);
Cell cell(Bytes b);
Cell cell(Flops f);
Cell cell(double number);        ///< a count: "1.2 M"
Cell cell(std::int64_t number);  ///< all digits
Cell share(double fraction);     ///< "12.3 %"
Cell empty_cell();
Cell short_name(const std::string& name);  ///< whole for programs, cut for people (kernel names)
Cell name_cell(std::string key, std::string title);  ///< a name for programs, another for people

/// A titled table that prints as text, JSON or CSV from one description. Keys of columns carry
/// units ("time_s"), titles do not ("time").
///
///   DataTable t("ranks", "ranks", {{"rank"}, {"step_s", "step"}});
///   t.row({cell(0), cell(milliseconds(2.5))});
class DataTable {
 public:
  struct Column {
    std::string key;
    std::string title = "";  ///< the key where empty
    bool left = false;
  };
  DataTable(std::string key, std::string title, std::vector<Column> columns)
      : key_(std::move(key)), title_(std::move(title)), columns_(std::move(columns)) {}
  void row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  /// Facts about one thing: rows are {name_cell(key, title), value}; JSON is one object.
  void as_object() { object_ = true; }
  /// A line under the table, in text only.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  /// Text shows this many rows and says how many more there are; 0 shows all. Facts are all shown.
  void limit(std::size_t rows) { limit_ = object_ ? 0 : rows; }

  [[nodiscard]] const std::string& key() const { return key_; }
  void print_text(std::ostream& out) const;
  void print_csv(std::ostream& out) const;
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  std::string key_, title_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  std::vector<std::string> notes_;
  std::size_t limit_ = 0;
  bool object_ = false;
};

}  // namespace stepcast::cli
