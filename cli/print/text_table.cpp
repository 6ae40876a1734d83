#include "cli/print/text_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/print/terminal_text.h"

namespace stepcast::cli {

namespace {

constexpr std::size_t kGap = 2;         ///< between columns
constexpr std::size_t kLeastText = 20;  ///< of a text that is cut
constexpr std::size_t kGoodText = 36;   ///< the same while a column of no importance is left

/// At most `width` characters of UTF-8 text.
std::string cut(const std::string& text, std::size_t width) {
  if (shown_width(text) <= width) {
    return text;
  }
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xc0U) != 0x80;
    if (begins && ++characters > width - 3) {
      break;
    }
  }
  return text.substr(0, end) + "...";
}

/// The text in lines of at most `width`, broken at spaces.
std::vector<std::string> split_lines(const std::string& text, std::size_t width) {
  std::vector<std::string> lines{""};
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!lines.back().empty() && shown_width(lines.back()) + 1 + shown_width(word) > width) {
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return lines;
}

}  // namespace

bool TextTable::is_left(std::size_t column) const {
  return std::find(left_.begin(), left_.end(), column) != left_.end();
}

bool TextTable::is_empty(std::size_t column) const {
  return rows_.size() > 1 &&
         std::none_of(rows_.begin() + 1, rows_.end(), [column](const std::vector<std::string>& row) {
           return column < row.size() && !row[column].empty();
         });
}

std::vector<std::size_t> TextTable::widths() const {
  std::vector<std::size_t> width(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size() && c < width.size(); ++c) {
      width[c] = std::max(width[c], shown_width(row[c]));
    }
  }
  return width;
}

/// The columns that have room, their texts cut: the widest first, then columns that matter least.
std::vector<std::size_t> TextTable::shown(std::vector<std::size_t>& width, std::size_t room) const {
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < width.size(); ++c) {
    if (c == 0 || !is_empty(c)) {
      columns.push_back(c);
    }
  }
  const auto total = [&] {
    std::size_t sum = kGap * (columns.size() - 1);
    for (const std::size_t c : columns) {
      sum += width[c];
    }
    return sum;
  };
  const auto cut_widest = [&] {
    const bool spare = columns.size() > 2 && std::any_of(columns.begin() + 1, columns.end(),
                                                         [this](std::size_t c) {
                                                           return importance_[c] == 0;
                                                         });
    std::size_t* widest = nullptr;
    for (const std::size_t c : columns) {
      const std::size_t least =
          std::max(spare ? kGoodText : kLeastText, shown_width(rows_.front()[c]));
      if (is_left(c) && width[c] > least && (widest == nullptr || width[c] > *widest)) {
        widest = &width[c];
      }
    }
    if (widest != nullptr) {
      --*widest;
    }
    return widest != nullptr;
  };
  while (total() > room) {
    if (cut_widest()) {
      continue;
    }
    if (columns.size() <= 2) {
      break;
    }
    const auto least = std::min_element(
        columns.rbegin(), columns.rend() - 1,
        [this](std::size_t a, std::size_t b) { return importance_[a] < importance_[b]; });
    columns.erase(std::next(least).base());
    width = widths();
  }
  take_back(columns, width, room);
  return columns;
}

/// Narrow columns that a wide one took along come back where they have room.
void TextTable::take_back(std::vector<std::size_t>& columns, const std::vector<std::size_t>& width,
                          std::size_t room) const {
  std::size_t used = kGap * (columns.size() - 1);
  for (const std::size_t c : columns) {
    used += width[c];
  }
  std::vector<std::size_t> dropped;
  for (std::size_t c = 0; c < width.size(); ++c) {
    if (std::find(columns.begin(), columns.end(), c) == columns.end() && !is_empty(c)) {
      dropped.push_back(c);
    }
  }
  std::stable_sort(dropped.begin(), dropped.end(), [this](std::size_t a, std::size_t b) {
    return importance_[a] > importance_[b];
  });
  for (const std::size_t c : dropped) {
    if (used + kGap + width[c] <= room) {
      used += kGap + width[c];
      columns.insert(std::lower_bound(columns.begin(), columns.end(), c), c);
    }
  }
}

void TextTable::print(std::ostream& out, const TerminalStyle& style,
                      const std::string& indent) const {
  std::vector<std::size_t> width = widths();
  const std::size_t room = style.width > indent.size() ? style.width - indent.size() : 1;
  const std::vector<std::size_t> columns = shown(width, room);
  std::size_t last = 0;  // where the last column begins
  for (std::size_t i = 0; i + 1 < columns.size(); ++i) {
    last += width[columns[i]] + kGap;
  }
  const bool wraps = is_left(columns.back()) && columns.back() > 0;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line = indent;
    std::vector<std::string> further;
    for (const std::size_t c : columns) {
      std::string cell = c < rows_[r].size() ? rows_[r][c] : "";
      if (wraps && c == columns.back() && shown_width(cell) > width[c]) {
        further = split_lines(cell, width[c]);
        cell = further.front();
        further.erase(further.begin());
      }
      cell = cut(cell, width[c]);
      const std::string padding(width[c] - shown_width(cell), ' ');
      line += is_left(c) ? cell + padding : padding + cell;
      line += c != columns.back() ? std::string(kGap, ' ') : "";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    for (const std::string& more : further) {
      line += '\n' + std::string(indent.size() + last, ' ') + more;
    }
    print_coloured(out, coloured(line, r == 0 ? Meaning::kStrong : Meaning::kPlain, style) + '\n');
    if (r == 0) {
      std::size_t rule = kGap * (columns.size() - 1);
      for (const std::size_t c : columns) {
        rule += width[c];
      }
      std::string text;
      for (std::size_t i = 0; i < rule; ++i) {
        text += style.unicode ? "─" : "-";
      }
      print_coloured(out, indent + coloured(text, Meaning::kDim, style) + '\n');
    }
  }
  std::vector<std::string> hidden;
  for (std::size_t c = 0; c < width.size(); ++c) {
    if (std::find(columns.begin(), columns.end(), c) == columns.end() && !is_empty(c)) {
      hidden.push_back(rows_.front()[c]);
    }
  }
  if (!hidden.empty()) {
    const std::string note =
        fmt::format("{}(too narrow for: {})", indent, fmt::join(hidden, ", "));
    print_coloured(out, coloured(wrapped(note, style.width), Meaning::kDim, style) + '\n');
  }
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += i > 0 ? "," : "";
    if (cells[i].find_first_of(",\"\n\r") == std::string::npos) {
      line += cells[i];
      continue;
    }
    line += '"';
    for (const char c : cells[i]) {
      line += c;
      if (c == '"') {
        line += c;
      }
    }
    line += '"';
  }
  return line + "\n";
}

}  // namespace stepcast::cli
