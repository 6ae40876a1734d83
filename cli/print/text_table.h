#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "cli/print/terminal.h"

namespace stepcast::cli {

/// An aligned text table: first column left, the others right, a rule under the header.
///
///   TextTable t({"op", "time", "share"});
///   t.row({"gemm", "12.4 ms", "61 %"});
///   t.print(std::cout, terminal_style(std::cout));
///
/// Within a style's width: texts are cut, down to 20 characters; then columns are left out, those
/// of least importance first, of equal ones the last; a line below names them. The first column and
/// one more stay.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header)
      : rows_{std::move(header)}, importance_(rows_.front().size(), 1) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// The column is text: left-aligned.
  void left(std::size_t column) { left_.push_back(column); }
  /// Columns have importance 1.
  void importance(std::size_t column, int importance) { importance_.at(column) = importance; }
  void print(std::ostream& out, const TerminalStyle& style, const std::string& indent = "") const;
  /// Without a limit.
  static constexpr std::size_t kAnyWidth = 100000;

 private:
  [[nodiscard]] bool is_left(std::size_t column) const;
  /// No row has anything in the column: it is not shown.
  [[nodiscard]] bool is_empty(std::size_t column) const;
  [[nodiscard]] std::vector<std::size_t> widths() const;
  [[nodiscard]] std::vector<std::size_t> shown(std::vector<std::size_t>& width,
                                               std::size_t room) const;
  void take_back(std::vector<std::size_t>& columns, const std::vector<std::size_t>& width,
                 std::size_t room) const;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> left_{0};
  std::vector<int> importance_;
};

/// One CSV line, quoted where needed (RFC 4180).
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace stepcast::cli
