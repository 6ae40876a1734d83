#pragma once
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/command.h"
#include "cli/print/data_table.h"

namespace stepcast::cli {

/// The result of a command, described once and printed as text, JSON or CSV: a tree of named facts
/// and tables, and lines of prose between them. People read lines and tables in their order; JSON
/// has facts, tables and sections by key; CSV has the tables.
///
///   Report report(options.format);
///   report.line("llama3-8b on 8 x h100");
///   report.fact("step_s", 0.25);
///   report.add(table);
///   report.section("bound").fact("gap", 0.01);
///   report.print(std::cout);
///
/// A console with a screen gets what is for programs as text, too.
class Report {
 public:
  /// A whole document: its first fact is what made it.
  explicit Report(OutputFormat format);

  /// A fact for programs: a value, or a function that returns it and is called where it is printed.
  template <class Value>
  Report& fact(const std::string& key, Value&& value) {
    if (format_ == OutputFormat::kJson) {
      if constexpr (std::is_invocable_v<Value>) {
        put(key, std::forward<Value>(value)());
      } else {
        put(key, Json(std::forward<Value>(value)));
      }
    }
    return *this;
  }
  Report& fact(const std::string& key, Json::initializer_list_t members) {
    return fact(key, Json(members));
  }
  /// Several at once.
  void facts(const Json& members);
  /// A line for people, wrapped to their width; without text an empty one.
  void line(std::string_view text = "", Meaning meaning = Meaning::kPlain);
  /// Adds text that people read as it stands, line ends included.
  void text(std::string_view text);
  /// Adds what is drawn for a width and a colour; the text is printable.
  using Drawn = std::function<std::string(const TerminalStyle&)>;
  void drawn(Drawn picture);
  void add(DataTable table);
  /// Tables with an empty line between them.
  void add(const std::vector<DataTable>& tables);
  /// An object of JSON by its key, begun anew where there is none yet.
  Report& section(const std::string& key);
  /// One more object of the list at the key.
  Report& item(const std::string& key);
  /// One more value of the list at the key, from a function that is called where it is printed.
  template <class Value>
  void item(const std::string& key, Value value) {
    if (format_ == OutputFormat::kJson) {
      parts_.emplace_back(Item{key, value()});
    }
  }
  void item(const std::string& key, Json::initializer_list_t members) {
    item(key, [&] { return Json(members); });
  }
  /// An empty list, which items may follow.
  void list(const std::string& key);

  [[nodiscard]] bool for_people() const { return (places_ & kInText) != 0; }
  void print(std::ostream& out) const;  ///< in the style of the stream
  void print(std::ostream& out, const TerminalStyle& style) const;

 private:
  struct Section {
    std::string key;
    bool item = false;
    std::shared_ptr<Report> report;
  };
  struct Fact {
    std::string key;
    Json value;
  };
  struct Item : Fact {};
  struct Nested {};
  Report(OutputFormat format, Nested);
  void put(const std::string& key, Json value);
  Report& nested(const std::string& key, bool item);
  void print_text(std::ostream& out, const TerminalStyle& style) const;
  void print_csv(std::ostream& out, std::string& table_before) const;
  [[nodiscard]] Json json() const;

  OutputFormat format_;
  Visibility places_;
  std::vector<std::variant<Fact, Item, Drawn, DataTable, Section>> parts_;
};

/// Tables one below the other as text or CSV, or together as one JSON document.
void print_tables(const std::vector<DataTable>& tables, OutputFormat format, std::ostream& out);
/// Which version of what revision made a document.
Json provenance_json();

}  // namespace stepcast::cli
