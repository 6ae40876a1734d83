// Tables, prose and bars on narrow terminals.
#include <catch2/catch.hpp>
#include <sstream>

#include "cli/print/human.h"
#include "cli/print/terminal.h"
#include "cli/print/text_table.h"

namespace stepcast::cli {
namespace {

std::string printed(std::size_t columns) {
  TextTable table({"op", "kind", "time", "share"});
  table.left(1);
  table.importance(1, 0);
  table.row({"a kernel of a long name with arguments", "elementwise", "12.4 ms", "61 %"});
  table.row({"short", "gemm", "1 ms", "5 %"});
  std::ostringstream out;
  table.print(out, {.width = columns});
  return out.str();
}

TEST_CASE("amounts that are told apart have the digits for it") {
  const Bytes gib(0x1p30);
  CHECK(apart(gib * 175.61, gib * 175.94) ==
        std::pair<std::string, std::string>("175.6 GiB", "175.9 GiB"));
  CHECK(apart(gib * 175.941, gib * 175.944) ==
        std::pair<std::string, std::string>("175.941 GiB", "175.944 GiB"));
  CHECK(apart(gib * 2, gib * 4) == std::pair<std::string, std::string>("2.00 GiB", "4.00 GiB"));
  CHECK(counted(1, "step") == "1 step");
  CHECK(counted(0, "step") == "0 steps");
  CHECK(counted(12, "rank") == "12 ranks");
}

TEST_CASE("a table keeps within the terminal's columns") {
  const std::string whole = printed(TextTable::kAnyWidth);
  CHECK(whole == printed(67));  // 38 + 11 + 7 + 5 and three gaps of 2
  CHECK(whole.find("...") == std::string::npos);
  // 36, 11, 7 and 5: a column of no importance is left out before texts get shorter.
  CHECK(printed(65).find("a kernel of a long name with argu...  elementwise") != std::string::npos);
  CHECK(printed(54) ==
        "op                                         time  share\n"
        "------------------------------------------------------\n"
        "a kernel of a long name with arguments  12.4 ms   61 %\n"
        "short                                      1 ms    5 %\n"
        "(too narrow for: kind)\n");
  CHECK(printed(36) ==
        "op                       time  share\n"
        "------------------------------------\n"
        "a kernel of a lon...  12.4 ms   61 %\n"
        "short                    1 ms    5 %\n"
        "(too narrow for: kind)\n");
}

TEST_CASE("a text at the end of a table goes on in the next line") {
  TextTable table({"key", "help"});
  table.left(1);
  table.row({"a", "words that take more than one line"});
  std::ostringstream out;
  table.print(out, {.width = 25});
  CHECK(out.str() ==
        "key  help\n"
        "-------------------------\n"
        "a    words that take more\n"
        "     than one line\n");
}

TEST_CASE("the first two columns stay on a terminal of one column") {
  for (std::size_t columns = 1; columns < 40; ++columns) {
    CHECK(printed(columns).find("12.4 ms") != std::string::npos);
  }
}

TEST_CASE("prose is wrapped at spaces, commands whole") {
  CHECK(wrapped("one two three", 20) == "one two three");
  CHECK(wrapped("one two three four", 9) == "one two\n  three\n  four");
  CHECK(wrapped("try `stepcast plan` now", 14) == "try\n  `stepcast plan`\n  now");
  CHECK(wrapped("  a list of words\nend", 10) == "  a list\n    of\n    words\nend");
}

TEST_CASE("a bar has its width, whatever its shades and colours") {
  const std::vector<BarSegment> segments{{0.5, Meaning::kCompute}, {0.25, Meaning::kBubble}};
  CHECK(bar(segments, 8, {}) == "####..  ");
  CHECK(bar(segments, 8, {.unicode = true}) == "████░░  ");
  CHECK(bar({{2.0, Meaning::kCompute}}, 4, {}) == "####");
  const std::string coloured_bar = bar(segments, 8, {.colour = true, .unicode = true});
  CHECK(coloured_bar.find("\x1b[") != std::string::npos);
  CHECK(shown_width(coloured_bar) == 8);
}

TEST_CASE("control characters of names never reach a coloured terminal") {
  CHECK(coloured("a\x1b[2Jb", Meaning::kPlain, {}) == "a?[2Jb");
  CHECK(shown_width(coloured("name", Meaning::kBad, {.colour = true})) == 4);
}

TEST_CASE("pieces stand side by side where they have room") {
  CHECK(in_row({"ab", "cd"}, 12, 2) == "  ab    cd\n");
  CHECK(in_row({"ab", "cd"}, 9, 2) == "  ab   cd\n");
  CHECK(in_row({"ab", "cd"}, 7, 2) == "  ab\n  cd\n");
}

}  // namespace
}  // namespace stepcast::cli
