#include "cli/print/text_table.h"

#include <algorithm>
#include <numeric>

#include "cli/print/terminal_text.h"

namespace stepcast::cli {

namespace {

constexpr std::size_t kGap = 2;         ///< between columns
constexpr std::size_t kLeastText = 20;  ///< of a text that is cut

std::string cut(const std::string& text, std::size_t width) {
  if (text.size() <= width) {
    return text;
  }
  std::size_t kept = width - 3;
  while (kept > 0 && (static_cast<unsigned char>(text[kept]) & 0xc0U) == 0x80) {
    --kept;  // no part of a character
  }
  return text.substr(0, kept) + "...";
}

}  // namespace

bool TextTable::is_left(std::size_t column) const {
  return std::find(left_.begin(), left_.end(), column) != left_.end();
}

/// Widths of the columns: the widest texts are cut first until the line has room.
std::vector<std::size_t> TextTable::widths(std::size_t room) const {
  std::vector<std::size_t> width(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size() && c < width.size(); ++c) {
      width[c] = std::max(width[c], row[c].size());
    }
  }
  const auto total = [&width] {
    return std::accumulate(width.begin(), width.end(), kGap * (width.size() - 1));
  };
  while (room > 0 && total() > room) {
    std::size_t* widest = nullptr;
    for (std::size_t c = 0; c < width.size(); ++c) {
      const std::size_t least = std::max(kLeastText, rows_.front()[c].size());
      if (is_left(c) && width[c] > least && (widest == nullptr || width[c] > *widest)) {
        widest = &width[c];
      }
    }
    if (widest == nullptr) {
      break;
    }
    --*widest;
  }
  return width;
}

void TextTable::print_part(const std::vector<std::size_t>& columns,
                           const std::vector<std::size_t>& width, std::ostream& out,
                           const std::string& indent) const {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line = indent;
    std::size_t total = 0;
    for (const std::size_t c : columns) {
      const std::string cell = c < rows_[r].size() ? cut(rows_[r][c], width[c]) : "";
      const std::string padding(width[c] - cell.size(), ' ');
      line += is_left(c) ? cell + padding : padding + cell;
      line += c != columns.back() ? std::string(kGap, ' ') : "";
      total += width[c] + (c != columns.back() ? kGap : 0);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
    if (r == 0) {
      out << indent << std::string(total, '-') << '\n';
    }
  }
}

void TextTable::print(std::ostream& out, const std::string& indent) const {
  print_within(terminal_columns(out), out, indent);
}

void TextTable::print_within(std::size_t columns, std::ostream& out,
                             const std::string& indent) const {
  const std::size_t room = columns > indent.size() ? columns - indent.size() : 0;
  const std::vector<std::size_t> width = widths(room);
  for (std::size_t next = 1; next <= width.size();) {
    std::vector<std::size_t> part{0};
    std::size_t used = width[0];
    while (next < width.size() &&
           (part.size() < 2 || room == 0 || used + kGap + width[next] <= room)) {
      used += kGap + width[next];
      part.push_back(next++);
    }
    print_part(part, width, out, indent);
    if (next >= width.size()) {
      break;
    }
    out << '\n';
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
