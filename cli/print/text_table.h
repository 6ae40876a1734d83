#pragma once
#include <ostream>
#include <string>
#include <vector>

namespace stepcast::cli {

/// An aligned text table: first column left, the others right, a rule under the header.
///
///   TextTable t({"op", "time", "share"});
///   t.row({"gemm", "12.4 ms", "61 %"});
///   t.print(std::cout);
///
/// On a terminal too narrow for it, texts are cut, down to 20 characters, and columns that still
/// have no room follow below, each part beginning with the first column. Files and pipes get all.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : rows_{std::move(header)} {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// The column is text: left-aligned.
  void left(std::size_t column) { left_.push_back(column); }
  void print(std::ostream& out, const std::string& indent = "") const;
  /// In lines of at most `columns` characters where the widths of two columns allow it; 0: any.
  void print_within(std::size_t columns, std::ostream& out, const std::string& indent = "") const;

 private:
  [[nodiscard]] bool is_left(std::size_t column) const;
  [[nodiscard]] std::vector<std::size_t> widths(std::size_t room) const;
  void print_part(const std::vector<std::size_t>& columns, const std::vector<std::size_t>& width,
                  std::ostream& out, const std::string& indent) const;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> left_{0};
};

/// One CSV line, quoted where needed (RFC 4180).
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace stepcast::cli
