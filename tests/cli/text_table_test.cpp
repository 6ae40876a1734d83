// Tables on narrow terminals.
#include <catch2/catch.hpp>
#include <sstream>

#include "cli/print/text_table.h"

namespace stepcast::cli {
namespace {

std::string printed(std::size_t columns) {
  TextTable table({"op", "kind", "time", "share"});
  table.left(1);
  table.row({"a kernel of a long name with arguments", "elementwise", "12.4 ms", "61 %"});
  table.row({"short", "gemm", "1 ms", "5 %"});
  std::ostringstream out;
  table.print_within(columns, out);
  return out.str();
}

TEST_CASE("a table keeps within the terminal's columns") {
  const std::string whole = printed(0);
  CHECK(whole == printed(67));  // 38 + 11 + 7 + 5 and three gaps of 2
  CHECK(whole.find("...") == std::string::npos);
  CHECK(printed(50) ==
        "op                     kind            time  share\n"
        "--------------------------------------------------\n"
        "a kernel of a long...  elementwise  12.4 ms   61 %\n"
        "short                  gemm            1 ms    5 %\n");
  // 20 and 11 take a line; then 20, 7 and 5, the texts no shorter than 20.
  CHECK(printed(36) ==
        "op                    kind\n"
        "---------------------------------\n"
        "a kernel of a lon...  elementwise\n"
        "short                 gemm\n"
        "\n"
        "op                       time  share\n"
        "------------------------------------\n"
        "a kernel of a lon...  12.4 ms   61 %\n"
        "short                    1 ms    5 %\n");
}

TEST_CASE("no table is lost on a terminal of one column") {
  for (std::size_t columns = 1; columns < 40; ++columns) {
    const std::string text = printed(columns);
    for (const char* cell : {"elementwise", "12.4 ms", "61 %"}) {
      CHECK(text.find(cell) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace stepcast::cli
