#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/input/csv.h"
#include "tests/folder.h"

using namespace stepcast;
using Catch::Matchers::Contains;

namespace {

using Record = std::vector<std::string>;

std::vector<Record> records(const std::string& text, char comment = '\0') {
  CsvReader reader(Input::of_text("t.csv", text), comment);
  std::vector<Record> all;
  while (reader.next()) {
    all.emplace_back(reader.fields().begin(), reader.fields().end());
  }
  return all;
}

std::string message_of(const std::string& text) {
  try {
    (void)records(text);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

// The examples of RFC 4180, section 2, and what programs write that depart from it.
TEST_CASE("CSV records are read as RFC 4180 has them", "[config][csv]") {
  const std::vector<Record> plain{{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}};
  CHECK(records("aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n") == plain);
  CHECK(records("aaa,bbb,ccc\nzzz,yyy,xxx") == plain);
  CHECK(records("\"aaa\",\"bbb\",\"ccc\"\r\nzzz,yyy,xxx\r\n") == plain);
  CHECK(records("\xef\xbb\xbf"
                "aaa,bbb,ccc\n\n  \t\nzzz,yyy,xxx\n") == plain);
  CHECK(records("\"aaa\",\"b\r\nbb\",\"ccc\"\r\n") ==
        std::vector<Record>{{"aaa", "b\r\nbb", "ccc"}});
  CHECK(records("\"aaa\",\"b\"\"bb\",\"c,cc\"\n") == std::vector<Record>{{"aaa", "b\"bb", "c,cc"}});
  CHECK(records("a, \"b,c\" ,3.5\" disk\n") == std::vector<Record>{{"a", "b,c ", "3.5\" disk"}});
  CHECK(records(",\n\"\",\n") == std::vector<Record>{{"", ""}, {"", ""}});
  CHECK(records("# note, \"open\na,b\n", '#') == std::vector<Record>{{"a", "b"}});
  CHECK(records("").empty());
}

TEST_CASE("errors in CSV name file, line and column", "[config][csv]") {
  CHECK_THAT(message_of("a\nb,\"c\nd\n"), Contains("t.csv:2") && Contains("nothing closes"));
  CHECK_THAT(message_of("a\n\"b\n" + std::string(1U << 22U, '\n')), Contains("t.csv:2"));
  CHECK_THAT(message_of(std::string((16U << 20U) + (1U << 19U), 'x')),
             Contains("t.csv:1") && Contains("16 MiB"));
  CsvReader reader(Input::of_text("t.csv", "\"two\nlines\",x\nop,7,8x\n"));
  REQUIRE(reader.next());
  CHECK(reader.place() == "t.csv:1");
  REQUIRE(reader.next());
  CHECK(reader.place() == "t.csv:3");
  CHECK(reader.word() == "op");
  CHECK(reader.whole(0, 7) == 7);
  CHECK_THROWS_WITH(reader.end_record(), Contains("t.csv:3: column 2: too many columns"));
  CHECK_THROWS_WITH(reader.whole(0, 9), Contains("t.csv:3: column 3: found '8x'"));
  CHECK_THROWS_WITH(reader.word(), Contains("t.csv:3: column 4: too few columns"));
}

TEST_CASE("records across the pieces of a large file are whole", "[config][csv]") {
  // Lines of 7 to 106 bytes: pieces of 256 KiB end at every place of a line.
  std::string text;
  constexpr int kLines = 40000;
  for (int i = 0; i < kLines; ++i) {
    text += std::to_string(i) + ",\"" + std::string(static_cast<std::size_t>(i % 97), 'q') + "\"\n";
  }
  CsvReader reader(Input::of_text("t.csv", text));
  for (int i = 0; i < kLines; ++i) {
    REQUIRE(reader.next());
    REQUIRE(reader.whole(i, i) == i);
    REQUIRE(reader.word().size() == static_cast<std::size_t>(i % 97));
    REQUIRE(reader.line() == static_cast<std::uint32_t>(i + 1));
  }
  CHECK_FALSE(reader.next());
}

TEST_CASE("columns are found by name", "[config][csv]") {
  const fixtures::Folder folder;
  CsvTable table(folder.file("t.csv", "b,a\n1,2\n3\n"), "the example");
  CHECK(table.columns() == Record{"a", "b"});
  REQUIRE(table.next());
  CHECK(table.text("a") == "2");
  REQUIRE(table.next());
  CHECK(table.text("a").empty());  // the row is shorter than the header
  CHECK(table.place() == (folder.path() / "t.csv").string() + ":3");
  CHECK_THROWS_WITH(table.text("c"), Contains("no column 'c'") && Contains("the example"));
  CHECK_THROWS_WITH(CsvTable(folder.file("e.csv", "\n"), "x"), Contains("is empty"));
  CHECK_THROWS_AS(CsvTable(folder.path() / "none.csv", "x"), InputError);
  CHECK(is_csv_name("a/t.csv.zst"));
  CHECK(is_csv_name("t.csv"));
  CHECK_FALSE(is_csv_name("t.json.gz"));
}
