#include "core/config/lookups/text_ids.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/config/lookups/lookup_name.h"
#include "core/config/suggest.h"
#include "core/error.h"
#include "core/input/criteo.h"
#include "core/lower.h"
#include "core/portable.h"

namespace stepcast::config {
namespace {

constexpr std::size_t kHead = std::size_t{1} << 16;  // what the layout is told from
constexpr std::size_t kLongestCell = 4096;
constexpr std::size_t kHashDigits = 8;

using Cells = std::vector<std::string>;

/// Splits text into the cells of its lines: quotes and blanks around a cell are taken off, comments
/// and blank lines passed over.
class Splitter {
 public:
  explicit Splitter(char separator) : separator_(separator) {}

  /// `cell(text, column)` for each, `line(cells)` after the last of a line. Either may throw.
  template <typename Cell, typename Line>
  void feed(std::string_view text, const Cell& cell, const Line& line) {
    for (const char c : text) {
      if (c == '\n') {
        close(cell, line);
      } else if (comment_) {
        continue;
      } else if (c == '"') {
        quoted_ = !quoted_;
      } else if (c == separator_ && !quoted_) {
        cell(trimmed(), column_++);
        cell_.clear();
      } else if (c == '#' && column_ == 0 && trimmed().empty()) {
        comment_ = true;
      } else if (cell_.size() < kLongestCell) {
        cell_ += c;
      }
    }
  }
  /// A last line may lack its end.
  template <typename Cell, typename Line>
  void end(const Cell& cell, const Line& line) {
    if (column_ > 0 || !cell_.empty()) {
      close(cell, line);
    }
  }
  [[nodiscard]] std::size_t line() const { return line_; }

 private:
  [[nodiscard]] std::string_view trimmed() const {
    std::string_view s = cell_;
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!s.empty() && blank(s.front())) {
      s.remove_prefix(1);
    }
    while (!s.empty() && blank(s.back())) {
      s.remove_suffix(1);
    }
    return s;
  }
  template <typename Cell, typename Line>
  void close(const Cell& cell, const Line& line) {
    if (!comment_ && (column_ > 0 || !trimmed().empty())) {
      cell(trimmed(), column_++);
      line(column_);
    }
    cell_.clear();
    comment_ = quoted_ = false;
    column_ = 0;
    ++line_;
  }

  char separator_;
  std::string cell_;
  std::size_t column_ = 0, line_ = 1;
  bool comment_ = false, quoted_ = false;
};

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
bool is_hash(std::string_view cell) {
  return cell.size() == kHashDigits && std::all_of(cell.begin(), cell.end(), is_hex);
}
bool is_number(std::string_view cell) {
  double v = 0;
  const auto [end, error] = read_decimal(cell.data(), cell.data() + cell.size(), v);
  return error == std::errc() && end == cell.data() + cell.size();
}

/// The first lines, in cells; the last one may be cut and is left out unless it is the only one.
std::vector<Cells> first_lines(std::string_view head, bool all, char separator) {
  if (!all && head.find('\n') != std::string_view::npos) {
    head = head.substr(0, head.rfind('\n') + 1);
  }
  std::vector<Cells> lines(1);
  const auto cell = [&](std::string_view text, std::size_t) { lines.back().emplace_back(text); };
  const auto line = [&](std::size_t) { lines.emplace_back(); };
  Splitter splitter(separator);
  splitter.feed(head, cell, line);
  splitter.end(cell, line);
  if (lines.back().empty()) {
    lines.pop_back();
  }
  return lines;
}

char separator_of(std::string_view head) {
  for (std::size_t at = 0; at < head.size();) {
    const std::size_t end = std::min(head.find('\n', at), head.size());
    const std::string_view line = head.substr(at, end - at);
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string_view::npos && line[first] != '#') {
      const bool tabs = line.substr(first).find_last_not_of("\t \r") != std::string_view::npos &&
                        line.find('\t', first) < line.find_last_not_of("\t \r");
      return tabs                                       ? '\t'
             : line.find(',') != std::string_view::npos ? ','
             : line.find(';') != std::string_view::npos ? ';'
                                                        : ',';
    }
    at = end + 1;
  }
  return ',';
}

/// Layout of all lines, as the first lines show it.
struct Layout {
  char separator = ',';
  Cells header;              ///< names of columns; empty: none
  bool header_line = false;  ///< the first line is one
  std::size_t columns = 0;   ///< of every line; 0: lines are lists of ids
  std::size_t column = 0;    ///< the one that is read
  bool hashed = false;
};

/// A click log of Criteo has no header: label (left out in the part for tests), integers,
/// categories.
bool is_criteo(const Layout& layout, const Cells& first) {
  const std::size_t features = kCriteoIntegers + kCriteoCategories;
  return layout.separator == '\t' && (first.size() == features || first.size() == features + 1) &&
         std::all_of(first.end() - kCriteoCategories, first.end(),
                     [](const std::string& c) { return c.empty() || is_hash(c); });
}

Cells criteo_names(bool label) {
  Cells names;
  if (label) {
    names.emplace_back("label");
  }
  for (std::size_t i = 1; i <= kCriteoIntegers; ++i) {
    names.push_back(fmt::format("I{}", i));
  }
  for (std::size_t i = 1; i <= kCriteoCategories; ++i) {
    names.push_back(fmt::format("C{}", i));
  }
  return names;
}

std::size_t chosen_column(const Layout& layout, const std::string& wanted,
                          const std::string& file) {
  for (std::size_t i = 0; i < layout.header.size(); ++i) {
    if (!wanted.empty() && lower(layout.header[i]) == lower(wanted)) {
      return i;
    }
  }
  const auto number = part_number(wanted);
  if (number && *number < static_cast<std::int64_t>(layout.columns)) {
    return static_cast<std::size_t>(*number);
  }
  const std::string columns =
      layout.header.empty() ? fmt::format("0 to {}", layout.columns - 1)
      : layout.header.size() > 39
          ? fmt::format("{} to {}", layout.header.front(), layout.header.back())
          : list_of(layout.header);
  const std::string example =
      layout.header.empty() ? std::to_string(layout.columns - 1) : layout.header.back();
  if (wanted.empty()) {
    throw InputError(file, fmt::format("has lines of {} values: say which column holds the ids, "
                                       "such as {}:{} ({})",
                                       layout.columns, file, example, columns));
  }
  throw InputError(file,
                   fmt::format("has no column \"{}\"; expected {}", wanted.substr(0, 80), columns));
}

/// Are the values hashes, some of them with letters? Of one column, or all.
bool all_hashes(const std::vector<Cells>& lines, std::optional<std::size_t> column) {
  bool letters = false;
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i].empty() || (column && *column != i)) {
        continue;
      }
      if (!is_hash(line[i])) {
        return false;
      }
      letters = letters || line[i].find_first_of("abcdef") != std::string::npos;
    }
  }
  return letters;
}

Layout layout_of(std::string_view head, bool all, const std::string& wanted,
                 const std::string& file) {
  Layout layout;
  layout.separator = separator_of(head);
  const std::vector<Cells> lines = first_lines(head, all, layout.separator);
  if (lines.empty()) {
    return layout;
  }
  const Cells& first = lines.front();
  const bool criteo = is_criteo(layout, first);
  if (criteo) {
    layout.header = criteo_names(first.size() > kCriteoIntegers + kCriteoCategories);
  } else {
    layout.header_line = std::none_of(first.begin(), first.end(), [](const std::string& c) {
      return is_number(c) || is_hash(c);
    });
    layout.header = layout.header_line ? first : Cells();
  }
  const bool equal = std::all_of(lines.begin(), lines.end(),
                                 [&](const Cells& line) { return line.size() == first.size(); });
  const auto filled = [](const Cells& line) {
    return std::count_if(line.begin(), line.end(), [](const auto& c) { return !c.empty(); });
  };
  const bool list = !layout.header_line && wanted.empty() && !criteo &&
                    (!equal || lines.size() == 1 ||
                     std::all_of(lines.begin(), lines.end(),
                                 [&](const Cells& line) { return filled(line) <= 1; }));
  if (list) {
    layout.hashed = all_hashes(lines, std::nullopt);
    return layout;
  }
  layout.columns = first.size();
  layout.column = layout.columns == 1 && wanted.empty() ? 0 : chosen_column(layout, wanted, file);
  if (criteo && layout.column >= layout.columns - kCriteoCategories) {
    layout.hashed = true;
    return layout;
  }
  layout.hashed =
      all_hashes({lines.begin() + (layout.header_line ? 1 : 0), lines.end()}, layout.column);
  return layout;
}

std::optional<std::int64_t> decimal(std::string_view text) {
  std::int64_t v = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, v);
  return error == std::errc() && end == last ? std::optional(v) : std::nullopt;
}

class TextIds {
 public:
  TextIds(const Layout& layout, std::int64_t rows, const std::string& file, IdSink& to)
      : layout_(layout), rows_(rows), file_(file), to_(to), splitter_(layout.separator) {}

  void stream(Input& input) {
    const auto cell = [this](std::string_view text, std::size_t column) {
      if ((layout_.columns == 0 && !text.empty()) ||
          (layout_.columns > 0 && column == layout_.column && !header_)) {
        to_.add(id_of(text));
      }
    };
    const auto line = [this](std::size_t columns) {
      if (layout_.columns > 0 && columns != layout_.columns) {
        throw InputError(place(), fmt::format("found {} values, expected {} as above", columns,
                                              layout_.columns));
      }
      header_ = false;
    };
    std::vector<char> chunk(std::size_t{1} << 18);
    while (const std::size_t got = input.read(chunk.data(), chunk.size())) {
      splitter_.feed({chunk.data(), got}, cell, line);
    }
    splitter_.end(cell, line);
  }

 private:
  [[nodiscard]] std::string place() const {
    return fmt::format("{}: line {}", file_, splitter_.line());
  }
  [[nodiscard]] std::int64_t id_of(std::string_view text) const {
    if (const auto id = layout_.hashed ? criteo_row(text, rows_) : decimal(text)) {
      return *id;
    }
    const bool named = layout_.columns > 1 && !layout_.header.empty();
    throw InputError(
        named ? fmt::format("{}: column {}", place(), layout_.header[layout_.column]) : place(),
        text.empty()
            ? std::string("is empty, expected a row id")
            : fmt::format("found \"{}\", expected {}", text.substr(0, 40),
                          layout_.hashed ? "a category in hexadecimal digits" : "one row id"));
  }

  const Layout& layout_;
  std::int64_t rows_;
  const std::string& file_;
  IdSink& to_;
  Splitter splitter_;
  bool header_ = layout_.header_line;
};

}  // namespace

bool looks_like_text(std::string_view head) {
  std::size_t more = 0;  // bytes that continue a character
  for (const char c : head) {
    const auto u = static_cast<unsigned char>(c);
    if (more > 0) {
      if ((u & 0xc0U) != 0x80U) {
        return false;
      }
      --more;
    } else if (u >= 0x80) {
      more = u >= 0xf0 && u < 0xf8 ? 3 : u >= 0xe0 ? 2 : u >= 0xc2 ? 1 : 0;
      if (more == 0 || u >= 0xf8) {
        return false;
      }
    } else if (u < 0x20 && c != '\n' && c != '\r' && c != '\t') {
      return false;
    }
  }
  return true;
}

bool is_text(std::string_view whole) { return looks_like_text(std::string(whole) + '\n'); }

void stream_text_ids(Input& input, const TextColumn& wanted, IdSink& to) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (input.peek(kMark.size()) == kMark) {
    (void)input.skip(kMark.size());
  }
  const std::string_view head = input.peek(kHead);
  const Layout layout = layout_of(head, head.size() < kHead, wanted.column, input.label());
  TextIds(layout, wanted.rows, input.label(), to).stream(input);
}

}  // namespace stepcast::config
