#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>

#include "core/input/csv.h"
#include "core/portable.h"
#include "interop/embedding_tables/described_tables.h"

// Embedding tables one a line -> workload.
namespace stepcast::interop {
namespace {

using Cells = std::vector<std::string>;

const Cells kColumns{"name", "rows", "dim", "pooling", "mode", "zipf", "histogram", "indices"};

/// Names of columns in other tools.
const std::map<std::string, std::string, std::less<>>& other_names() {
  static const std::map<std::string, std::string, std::less<>> names{
      {"table", "name"},
      {"table_name", "name"},
      {"num_embeddings", "rows"},
      {"num_rows", "rows"},
      {"hash_size", "rows"},
      {"cardinality", "rows"},
      {"vocabulary_size", "rows"},
      {"vocab_size", "rows"},
      {"max_vocabulary_size", "rows"},
      {"embedding_dim", "dim"},
      {"emb_dim", "dim"},
      {"embedding_size", "dim"},
      {"dimension", "dim"},
      {"ev_size", "dim"},
      {"pooling_factor", "pooling"},
      {"avg_pooling_factor", "pooling"},
      {"avg_pooling", "pooling"},
      {"mean_pooling", "pooling"},
      {"pooling_size", "pooling"},
      {"bag_size", "pooling"},
      {"hotness", "pooling"},
      {"multi_hot_size", "pooling"},
      {"nnz_per_slot", "pooling"},
      {"pooling_mode", "mode"},
      {"pooling_type", "mode"},
      {"combiner", "mode"},
      {"alpha", "zipf"},
      {"zipf_alpha", "zipf"}};
  return names;
}

std::string lower(std::string_view text) {
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) {
    return c == ' ' || c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  return word;
}

/// "Num Embeddings" -> "rows"; a name that no tool uses stays as it is.
std::string column_of(const std::string& header) {
  const std::string word = lower(header);
  const auto other = other_names().find(word);
  return other != other_names().end()                                          ? other->second
         : std::find(kColumns.begin(), kColumns.end(), word) != kColumns.end() ? word
                                                                               : header;
}

Cells cells_of(std::string_view line, char separator) {
  std::string unquoted;
  std::vector<std::string_view> fields;
  (void)split_csv(line, separator, unquoted, fields);
  Cells cells;
  std::transform(fields.begin(), fields.end(), std::back_inserter(cells),
                 [](std::string_view field) { return std::string(trimmed(field)); });
  return cells;
}

/// Calls `see(number, line)` with every line that says something, until it returns false.
template <typename See>
void each_line(std::string_view text, const See& see) {
  std::size_t number = 0;
  text.remove_prefix(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    ++number;
    at = end + 1;
    const bool says = line.find_first_not_of(" \t,;") != std::string_view::npos;
    if (says && line.front() != '#' && !see(number, line)) {
      return;
    }
  }
}

bool has(const Cells& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct Header {
  char separator = ',';
  Cells columns;  ///< in our words
};

/// The header of a list of tables, by the separator under which it has a name, rows and dim.
std::optional<Header> header_of(std::string_view line) {
  for (const char separator : {',', ';', '\t'}) {
    Header h{separator, cells_of(line, separator)};
    std::transform(h.columns.begin(), h.columns.end(), h.columns.begin(), column_of);
    if (has(h.columns, "name") && has(h.columns, "rows") && has(h.columns, "dim")) {
      return h;
    }
  }
  return std::nullopt;
}

/// One table's line: every reader of a cell fails with file, line, table and column.
class Line {
 public:
  Line(const Header& header, const Cells& cells, std::string place)
      : header_(header), cells_(cells), place_(std::move(place)) {}

  [[noreturn]] void reject(const std::string& column, std::string_view message) const {
    throw InputError(place_ + ": " + column, message);
  }
  /// Empty where the line leaves it out.
  [[nodiscard]] std::string text(const std::string& column) const {
    const auto it = std::find(header_.columns.begin(), header_.columns.end(), column);
    return it == header_.columns.end()
               ? std::string()
               : cells_[static_cast<std::size_t>(it - header_.columns.begin())];
  }

  /// 40000000, 4e7 and 40,000,000.
  [[nodiscard]] std::int64_t whole(const std::string& column, std::int64_t most) const {
    std::string cell = text(column);
    if (cell.empty()) {
      reject(column, "is empty, expected a value");
    }
    if (header_.separator == ';' && grouped(cell, '.')) {
      reject(column, fmt::format("found \"{}\", in which the point may group digits or begin a "
                                 "fraction; write the number without it",
                                 shown(cell)));
    }
    if (grouped(cell, ',')) {
      cell.erase(std::remove(cell.begin(), cell.end(), ','), cell.end());
    }
    const double value = number_in(cell, column);
    if (value < 1 || value > static_cast<double>(most) || value != std::floor(value)) {
      reject(column,
             fmt::format("found {}, expected an integer from 1 to {}", shown(text(column)), most));
    }
    return static_cast<std::int64_t>(value);
  }
  [[nodiscard]] double number(const std::string& column) const {
    return number_in(text(column), column);
  }

 private:
  static std::string shown(const std::string& cell) { return cell.substr(0, 40); }
  /// Digits in groups of three: 1,000 and 40,000,000.
  static bool grouped(std::string_view cell, char mark) {
    std::size_t first = cell.find(mark);
    if (first == std::string_view::npos || first == 0 || first > 3 ||
        cell.find_first_not_of(std::string("0123456789") + mark) != std::string_view::npos) {
      return false;
    }
    for (; first < cell.size(); first += 4) {
      const std::string_view group = cell.substr(first, 4);
      if (group.size() != 4 || group[0] != mark || group.find(mark, 1) != std::string_view::npos) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] double number_in(const std::string& cell, const std::string& column) const {
    double value = 0;
    const char* end = cell.data() + cell.size();
    const auto [stop, error] = read_decimal(cell.data(), end, value);
    if (error != std::errc() || stop != end) {
      const bool comma = cell.find(',') != std::string::npos;
      const bool word = column == "pooling" && !cell.empty() &&
                        std::isalpha(static_cast<unsigned char>(cell.front())) != 0;
      reject(column, fmt::format("found \"{}\", expected a number{}", shown(cell),
                                 comma  ? " with a point, not a comma"
                                 : word ? ": the mean lookups per sample; sum and mean go in a "
                                          "column mode"
                                        : ""));
    }
    return value;
  }

  const Header& header_;
  const Cells& cells_;
  std::string place_;
};

/// "PoolingType.SUM" -> "sum"; HugeCTR's "concat" is a sequence.
std::string mode_of(const std::string& cell) {
  const std::string word = lower(cell.substr(cell.rfind('.') + 1));
  return word == "concat" ? "sequence" : word;
}

Json table_of(const Line& line) {
  Json t = Json::object();
  t["name"] = line.text("name");
  if (line.text("name").empty()) {
    line.reject("name", "is empty, expected a value");
  }
  t["rows"] = line.whole("rows", config::kMostRows);
  t["dim"] = line.whole("dim", config::kWidestTable);
  if (!line.text("pooling").empty()) {
    const double pooling = line.number("pooling");
    if (!(pooling > 0)) {
      line.reject("pooling", fmt::format("found {}, expected more than 0 lookups per sample",
                                         line.text("pooling")));
    }
    t["pooling"] = pooling;
  }
  if (const std::string mode = line.text("mode"); !mode.empty()) {
    t["mode"] = mode_of(mode);
  }
  for (const char* access : {"zipf", "histogram", "indices"}) {
    const std::string cell = line.text(access);
    if (!cell.empty() && t.contains("access")) {
      line.reject(access,
                  "is the second access of the table; fill one of zipf, histogram and indices");
    }
    if (!cell.empty()) {
      t["access"] = {{access, cell}};
      if (access == std::string_view("zipf")) {
        t["access"]["zipf"] = line.number("zipf");
      }
    }
  }
  return t;
}

/// Columns that nobody reads are named in `into`.
void check_columns(const Header& header, std::string_view line, const std::string& place,
                   Json& into) {
  const Cells written = cells_of(line, header.separator);
  for (std::size_t i = 0; i < written.size(); ++i) {
    const std::string& column = header.columns[i];
    pass_over(place, "column", column, kColumns, into);
    const auto first = std::find(header.columns.begin(), header.columns.end(), column);
    const auto before = static_cast<std::size_t>(first - header.columns.begin());
    if (before < i) {
      throw InputError(place, written[before] == written[i]
                                  ? fmt::format("column \"{}\" appears twice", written[i])
                                  : fmt::format("columns \"{}\" and \"{}\" are both {}; remove one",
                                                written[before], written[i], column));
    }
  }
}

/// True for a list of embedding tables: separated by commas, semicolons or tabs, with a header that
/// has name, rows and dim, in our words or those of other tools.
bool is_table_list(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] == '{' || text[first] == '[') {
    return false;
  }
  bool is = false;
  each_line(text, [&](std::size_t, std::string_view line) {
    is = header_of(line).has_value();
    return false;
  });
  return is;
}

/// {"table_list": [tables as a workload has them]} in place of the text. Columns: name, rows, dim,
/// and optionally pooling, mode, zipf, histogram, indices (the last three are the table's access;
/// a cell may be empty), in any case and under the names of docs/reference/table-files.md. A byte
/// order mark, blank lines and lines that begin with # are skipped. Errors: InputError naming line,
/// table and column.
Document parsed_list(Document d) {
  const std::string text = d.root.get<std::string>();
  std::optional<Header> header;
  Json found = {{"table_list", Json::array()}};
  Json& tables = found["table_list"];
  std::map<std::string, std::size_t> lines;
  each_line(text, [&](std::size_t number, std::string_view line) {
    std::string place = fmt::format("{}:{}", d.label, number);
    if (!header) {
      header = header_of(line);
      STEPCAST_CHECK(header.has_value(), "{} is no list of tables", place);
      check_columns(*header, line, place, found);
      return true;
    }
    const Cells cells = cells_of(line, header->separator);
    if (cells.size() != header->columns.size()) {
      throw InputError(place, fmt::format("found {} values, expected {} as in the header{}",
                                          cells.size(), header->columns.size(),
                                          cells.size() > header->columns.size()
                                              ? "; put values with a separator in quotes"
                                              : ""));
    }
    const Line table(*header, cells, "");
    const std::string name = table.text("name");
    if (!name.empty()) {
      place += fmt::format(": table \"{}\"", name.substr(0, 80));
    }
    tables.push_back(table_of(Line(*header, cells, place)));
    if (const auto [first, fresh] = lines.emplace(name, number); !fresh) {
      throw InputError(place, fmt::format("line {} has a table of that name too; plans need names "
                                          "that differ",
                                          first->second));
    }
    d.table_places.push_back(std::move(place));
    return true;
  });
  if (d.table_places.empty()) {
    throw InputError(d.label, "has a header but no table; expected a line for each");
  }
  d.root = std::move(found);
  return d;
}

/// Already in our words. Its files are relative to its folder, what is made of it may lie
/// elsewhere.
Described described_by_list(const Value& v) {
  v.keys({"table_list", "approximated"});
  Described d;
  const std::filesystem::path file(v.document().label);
  d.workload = {{"kind", "dlrm"},
                {"name", file.has_extension() ? file.stem().string() : "tables"},
                {"tables", v.json().at("table_list")}};
  if (const auto approximated = v.find("approximated")) {
    d.workload["approximated"] = approximated->json();
  }
  for (Json& t : d.workload["tables"]) {
    for (const char* key : {"histogram", "indices"}) {
      if (t.contains("access") && t["access"].contains(key)) {
        const std::filesystem::path named = t["access"][key].get<std::string>();
        t["access"][key] =
            std::filesystem::absolute(v.document().folder / named).lexically_normal().string();
      }
    }
  }
  add_dense(v, "dense_features", "bottom_mlp", "top_mlp", "cross_layers", "cross_rank", d.workload);
  return d;
}

}  // namespace

ForeignFormat table_list_format() {
  return {.what = "a list of embedding tables",
          .inferred_by_text = is_table_list,
          .job_of =
              [](Document d, const std::vector<std::string>&) {
                d = parsed_list(std::move(d));
                Described found = described_by_list(Value::root_of(d));
                return as_job(std::move(d), std::move(found));
              },
          .workload_of =
              [](Document d) {
                d = parsed_list(std::move(d));
                Described found = described_by_list(Value::root_of(d));
                return as_workload(std::move(d), std::move(found));
              }};
}

}  // namespace stepcast::interop
