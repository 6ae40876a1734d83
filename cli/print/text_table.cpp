#include "cli/print/text_table.h"

#include <algorithm>

namespace stepcast::cli {

void TextTable::print(std::ostream& out, const std::string& indent) const {
  std::vector<std::size_t> width(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size() && c < width.size(); ++c) {
      width[c] = std::max(width[c], row[c].size());
    }
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line = indent;
    for (std::size_t c = 0; c < width.size(); ++c) {
      const std::string cell = c < rows_[r].size() ? rows_[r][c] : "";
      const std::string padding(width[c] - cell.size(), ' ');
      const bool left = std::find(left_.begin(), left_.end(), c) != left_.end();
      line += left ? cell + padding : padding + cell;
      line += c + 1 < width.size() ? "  " : "";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
    if (r == 0) {
      std::size_t total = 2 * (width.size() - 1);
      for (const std::size_t w : width) {
        total += w;
      }
      out << indent << std::string(total, '-') << '\n';
    }
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
