#include <catch2/catch.hpp>

#include "core/config/access_files.h"
#include "core/config/config.h"
#include "core/error.h"
#include "tests/folder.h"

using namespace stepcast;
using namespace stepcast::config;
using Catch::Matchers::Contains;

using stepcast::fixtures::Folder;

TEST_CASE("a histogram is read with its bins and n0", "[config][access]") {
  const Folder folder;
  const auto file = folder.file(
      "h.csv",
      "# "
      "recorded\nreuse_low,reuse_high,unique_rows,accesses\n0,1,100,100\n1,2,10,20\n2,inf,5,500\n");
  const ReuseHistogram h = read_histogram(file, "x");
  REQUIRE(h.bins.size() == 3);
  CHECK(h.sample_lookups == 620);  // 100 + 20 + 500
  CHECK(h.bins[2].reuse_low == 2);
  CHECK(h.bins[2].reuse_high >= 100);  // 500 / 5
  const auto with_n0 =
      folder.file("n.csv", "n0,unique_rows,accesses,reuse_low,reuse_high\n1000,100,100,0,1\n");
  CHECK(read_histogram(with_n0, "x").sample_lookups == 1000);

  const auto bad = [&](const std::string& text, const std::string& part) {
    const auto path = folder.file("bad.csv", text);
    CHECK_THROWS_WITH(read_histogram(path, "x"), Contains("bad.csv") && Contains(part));
  };
  const std::string header = "reuse_low,reuse_high,unique_rows,accesses\n";
  bad("reuse_low,reuse_hihg,unique_rows,accesses\n", "did you mean \"reuse_high\"");
  bad("reuse_low,unique_rows,accesses\n", "\"reuse_high\" is missing");
  bad(header + "0,1,100\n", "bad.csv:2: found 3 columns, expected 4");
  bad(header + "0,1,-100,100\n", "expected a number of at least 0");
  bad(header + "0,1,nan,100\n", "expected a number of at least 0");
  bad(header + "1,1,100,100\n", "not below reuse_high");
  bad(header + "0,1,100,300\n", "cannot have reuse");  // three accesses each are not in (0, 1]
  bad(header, "no bins");
  bad("", "no bins");
}

TEST_CASE("row ids are read from text and from int64", "[config][access]") {
  const Folder folder;
  const std::vector<std::int64_t> expected{3, 0, 70000, 3};
  CHECK(read_indices(folder.file("i.txt", "3\n0\n70000\r\n3\n"), "x") == expected);
  std::string binary;
  for (const std::int64_t v : expected) {
    for (int b = 0; b < 8; ++b) {
      binary += static_cast<char>((v >> (8 * b)) & 0xff);
    }
  }
  CHECK(read_indices(folder.file("i.bin", binary), "x") == expected);
  CHECK_THROWS_WITH(read_indices(folder.file("odd.bin", binary + "\1"), "x"),
                    Contains("33 bytes") && Contains("multiple of 8"));
  // Row ids of 32 bits, two in each word, are told from large ids of 64.
  const auto bytes = [](int count, std::uint64_t (*word)(std::uint64_t)) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t v = word(static_cast<std::uint64_t>(i));
      text.append(reinterpret_cast<const char*>(&v), 8);
    }
    return text;
  };
  const auto pair = [](std::uint64_t i) { return ((7 * i + 1) << 32U) + 5 * i; };
  const auto hash = [](std::uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15U >> 2U; };
  CHECK_THROWS_WITH(read_indices(folder.file("i32.bin", bytes(64, pair)), "x"),
                    Contains("i32.bin") && Contains("int32") && Contains("astype"));
  CHECK(read_indices(folder.file("i64.bin", bytes(64, hash)), "x").size() == 64);
  CHECK(read_indices(folder.file("few.bin", bytes(4, pair)), "x").size() == 4);  // too few to tell
  CHECK_THROWS_WITH(read_indices(folder.file("n.txt", "1\n-2\n"), "x"),
                    Contains("-2") && Contains("negative"));
  CHECK_THROWS_WITH(read_indices(folder.file("w.txt", "1\n2 3\n"), "x"), Contains("line 2"));
  CHECK_THROWS_WITH(read_indices(folder.file("e.txt", ""), "x"), Contains("empty"));
  // Opens as a file, but its first page cannot be read: no end of a file.
  CHECK_THROWS_WITH(read_indices("/proc/self/mem", "x"),
                    Contains("/proc/self/mem") && Contains("cannot be read to its end"));
  CHECK_THROWS_WITH(read_indices(folder.path() / "i.txd", "w.json: access"),
                    Contains("w.json: access") && Contains("did you mean \"i.txt\""));
  CHECK_THROWS_WITH(read_indices(folder.path(), "w.json: access"), Contains("not a regular file"));

  // Bags: 4 ids in bags of 1, 0 and 3.
  const auto ids = folder.file("b.txt", "1\n2\n3\n4\n");
  CHECK_FALSE(recorded_pooling(ids, 4, "x").has_value());
  folder.file("b.txt.offsets", "0\n1\n1\n");
  CHECK(recorded_pooling(ids, 4, "x").value() == Approx(4.0 / 3));
  folder.file("b.txt.offsets", "0\n1\n1\n4\n");  // closed
  CHECK(recorded_pooling(ids, 4, "x").value() == Approx(4.0 / 3));
  for (const auto& [text, why] : {std::pair("1\n2\n", "bag 0 begins at 1"),
                                  std::pair("0\n3\n2\n", "bag 2 begins at 2, expected 3 to 4"),
                                  std::pair("0\n9\n", "bag 1 begins at 9, expected 0 to 4")}) {
    folder.file("b.txt.offsets", text);
    CHECK_THROWS_WITH(recorded_pooling(ids, 4, "x"), Contains("b.txt.offsets") && Contains(why));
  }
}

TEST_CASE("a table's files are relative to the workload's folder and survive a round trip",
          "[config][access]") {
  const Folder folder;
  folder.file("h.csv", "reuse_low,reuse_high,unique_rows,accesses\n0,1,100,100\n1,2,10,20\n");
  folder.file("i.txt", "1\n2\n1\n");
  const auto file = folder.file(
      "w.json",
      R"({"kind": "dlrm", "name": "w", "dense_features": 1, "bottom_mlp": [8], "interaction": {"kind": "dot"}, "top_mlp": [1], "default_batch": {"global": 8},
    "tables": [{"name": "a", "rows": 1000, "dim": 8, "access": {"histogram": "h.csv"}},
               {"name": "b", "rows": 10, "dim": 8, "access": {"indices": "i.txt", "session": {"samples": 4, "keep": 0.5}}},
               {"name": "c", "rows": 1000, "dim": 8, "pooling": 2.5, "mode": "sequence", "access": {"zipf": 1.1, "seed": 3, "remap": {"buckets": 100, "kind": "mod"}}},
               {"name": "d", "rows": 1000, "dim": 8, "access": {"zipf": 1.1, "remap": {"buckets": 100, "kind": "lfu", "admit": 0.5}}}]})");
  const Library library{STEPCAST_SOURCE_DIR};
  const Workload w = load_workload(file, library);
  CHECK(w.layered()->tables[0].access->sample_lookups() == 120);
  CHECK(w.layered()->tables[1].access->recorded() == std::vector<std::int64_t>{1, 2, 1});
  CHECK(w.layered()->tables[2].rows == 100);
  CHECK(w.layered()->tables[2].remapped->rows == 1000);
  CHECK_FALSE(w.layered()->tables[2].keyed());
  CHECK(w.layered()->tables[3].keyed());
  CHECK(w.layered()->tables[3].remapped->admitted == 0.5);
  const std::string text = workload_to_json(w);
  CHECK(workload_to_json(read_workload(text_source(text, "again", "/nowhere"))) == text);
  // Row 2 of a table with 2 rows.
  folder.file(
      "small.json",
      R"({"kind": "dlrm", "name": "w", "dense_features": 1, "bottom_mlp": [8], "interaction": {"kind": "dot"}, "top_mlp": [1],
    "tables": [{"name": "b", "rows": 2, "dim": 8, "access": {"indices": "i.txt"}}]})");
  CHECK_THROWS_WITH(load_workload(folder / "small.json", library),
                    Contains("tables[0].access.indices") && Contains("row 2 at position 1"));
  // Three ids in two bags.
  folder.file("i.txt.offsets", "0\n1\n");
  const auto bagged = [&](const std::string& pooling) {
    folder.file(
        "bags.json",
        R"({"kind": "dlrm", "name": "w", "dense_features": 1, "bottom_mlp": [8], "interaction": {"kind": "dot"}, "top_mlp": [1],
    "tables": [{"name": "b", "rows": 3, "dim": 8, )" +
            pooling + R"("access": {"indices": "i.txt"}}]})");
    return load_workload(folder / "bags.json", library).layered()->tables[0].pooling;
  };
  CHECK(bagged("") == 1.5);
  CHECK(bagged("\"pooling\": 1.5, ") == 1.5);
  CHECK_THROWS_WITH(bagged("\"pooling\": 2, "),
                    Contains("tables[0].pooling") && Contains("1.5 ids per bag"));
}
