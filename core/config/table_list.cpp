#include "core/config/internal/table_list.h"

#include <algorithm>
#include <charconv>

namespace stepcast::config {
namespace {

const std::vector<std::string> kColumns{"name", "rows", "dim",       "pooling",
                                        "mode", "zipf", "histogram", "indices"};

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos
             ? std::string()
             : std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (std::size_t at = 0;;) {
    const std::size_t end = line.find(',', at);
    cells.push_back(trimmed(line.substr(at, end - at)));
    if (end == std::string_view::npos) {
      return cells;
    }
    at = end + 1;
  }
}

/// Calls `see(number, line)` with every line that says something, until it returns false.
template <typename See>
void each_line(std::string_view text, const See& see) {
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = trimmed(text.substr(at, end - at));
    ++number;
    at = end + 1;
    if (!line.empty() && line.front() != '#' && !see(number, line)) {
      return;
    }
  }
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Json number_of(const std::string& cell, const std::string& where) {
  const char* end = cell.data() + cell.size();
  std::int64_t whole = 0;
  if (const auto [stop, error] = std::from_chars(cell.data(), end, whole);
      error == std::errc() && stop == end) {
    return whole;
  }
  double real = 0;
  const auto [stop, error] = std::from_chars(cell.data(), end, real);
  if (error != std::errc() || stop != end) {
    throw InputError(where, fmt::format("found \"{}\", expected a number", cell.substr(0, 40)));
  }
  return real;
}

Json table_of(const std::vector<std::string>& header, const std::vector<std::string>& cells,
              const std::string& place) {
  Json t = Json::object();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string& column = header[i];
    const std::string where = place + ": " + column;
    if (cells[i].empty()) {
      continue;
    }
    if (column == "name" || column == "mode") {
      t[column] = cells[i];
    } else if (column == "rows" || column == "dim" || column == "pooling") {
      t[column] = number_of(cells[i], where);
    } else if (t.contains("access")) {
      throw InputError(where,
                       "is the second access of the table; fill one of zipf, histogram and "
                       "indices");
    } else if (column == "zipf") {
      t["access"] = {{"zipf", number_of(cells[i], where)}};
    } else {
      t["access"] = {{column, cells[i]}};
    }
  }
  for (const char* needed : {"name", "rows", "dim"}) {
    if (!t.contains(needed)) {
      throw InputError(place + ": " + needed, "is empty, expected a value");
    }
  }
  if (!t.contains("pooling")) {
    t["pooling"] = 1;
  }
  return t;
}

}  // namespace

bool is_table_list(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] == '{' || text[first] == '[') {
    return false;
  }
  bool is = false;
  each_line(text, [&](std::size_t, const std::string& line) {
    const std::vector<std::string> header = cells_of(line);
    is = has(header, "name") && has(header, "rows") && has(header, "dim");
    return false;
  });
  return is;
}

Json table_list(const Source& source) {
  std::vector<std::string> header;
  Json tables = Json::array();
  each_line(source.text, [&](std::size_t number, const std::string& line) {
    const std::string place = fmt::format("{}:{}", source.label, number);
    const std::vector<std::string> cells = cells_of(line);
    if (header.empty()) {
      header = cells;
      for (std::size_t i = 0; i < header.size(); ++i) {
        if (!has(kColumns, header[i].c_str())) {
          throw InputError(place, fmt::format("unknown column \"{}\"; {}", header[i].substr(0, 40),
                                              suggestion(header[i], kColumns)));
        }
        if (std::find(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(i), header[i]) !=
            header.begin() + static_cast<std::ptrdiff_t>(i)) {
          throw InputError(place, fmt::format("column \"{}\" appears twice", header[i]));
        }
      }
      return true;
    }
    if (cells.size() != header.size()) {
      throw InputError(place, fmt::format("found {} values, expected {} as in the header",
                                          cells.size(), header.size()));
    }
    tables.push_back(table_of(header, cells, place));
    return true;
  });
  if (tables.empty()) {
    throw InputError(source.label, "has a header but no table; expected a line for each");
  }
  Json root = Json::object();
  root["table_list"] = std::move(tables);
  return root;
}

}  // namespace stepcast::config
