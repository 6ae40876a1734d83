// Recorded lookups in the files of other tools. corpus_lookups/ holds two tables of three samples,
// (5 6) () (7) and (1) (2 3) (), as PyTorch 1.13 and NumPy 1.24 wrote them; also seeds of the
// fuzzer.
#include <catch2/catch.hpp>
#include <cstring>

#include "core/config/access_files.h"
#include "core/config/config.h"
#include "core/error.h"
#include "interop/import.h"
#include "tests/folder.h"
#include "tests/packed.h"

using namespace stepcast;
using namespace stepcast::config;
using Catch::Matchers::Contains;
using stepcast::fixtures::Folder;
using Ids = std::vector<std::int64_t>;

namespace {

std::string recorded(const std::string& name) {
  return std::string(STEPCAST_SOURCE_DIR) + "/tests/config/corpus_lookups/" + name;
}
Ids read(const std::filesystem::path& name, std::int64_t rows = 0) {
  return read_indices(name, "job.json: access", rows);
}
Ids bags(const std::filesystem::path& name) {
  return recorded_bags(name, static_cast<std::int64_t>(read(name).size()), "x");
}
void rejected(const std::filesystem::path& name, const std::string& why) {
  CHECK_THROWS_WITH(read(name), Contains(why));
}

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
/// Writes as numpy.lib.format does: the header ends on a multiple of 64 bytes.
template <typename T>
std::string npy(const std::vector<T>& values, const std::string& shape, int version = 1,
                const std::string& descr = "", const std::string& fortran = "False") {
  const std::string type = descr.empty() ? "<i" + std::to_string(sizeof(T)) : descr;
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  const std::size_t before = version == 1 ? 10 : 12;
  header.append(64 - (before + header.size() + 1) % 64, ' ');
  header += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (std::size_t i = 0; i < before - 8; ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 0xffU);
  }
  return file + header + raw(values);
}

}  // namespace

TEST_CASE("ids are read from arrays of NumPy", "[config][lookups]") {
  const Folder folder;
  const Ids expected{3, 0, 70000, 3};
  for (const int version : {1, 2, 3}) {
    CHECK(read(folder.file("a.npy", npy<std::int64_t>(expected, "(4,)", version))) == expected);
  }
  CHECK(read(folder.file("a32.npy", npy<std::int32_t>({3, 0, 70000, 3}, "(4,)"))) == expected);
  CHECK(read(folder.file("u8.npy", npy<std::uint8_t>({3, 200}, "(2,)", 1, "|u1"))) == Ids{3, 200});
  // Two samples of three columns: a column is a table, all of them are bags of three.
  const auto two = folder.file("m.npy", npy<std::int32_t>({1, 2, 3, 4, 5, 6}, "(2, 3)"));
  CHECK(read(two + ":1") == Ids{2, 5});
  CHECK(bags(two + ":1").empty());
  CHECK(read(two) == Ids{1, 2, 3, 4, 5, 6});
  CHECK(bags(two) == Ids{0, 3});
  rejected(two + ":3", "no such column, expected 0 to 2");
  rejected(two + ":x", "found \"x\", expected the number of a column");
  rejected(folder.file("f.npy", npy<float>({1, 2}, "(2,)", 1, "<f4")), "elements of type <f4");
  rejected(folder.file("be.npy", npy<std::int64_t>({1}, "(1,)", 1, ">i8")), "type >i8");
  rejected(folder.file("fo.npy", npy<std::int64_t>({1, 2}, "(1, 2)", 1, "", "True")), "Fortran");
  rejected(folder.file("v9.npy", npy<std::int64_t>({1}, "(1,)", 9)), "version 9");
  rejected(folder.file("cut.npy", npy<std::int64_t>({1, 2}, "(3,)")),
           "the data end after 2 of 3 values");
  rejected(folder.file("big.npy", npy<std::int64_t>({1}, "(9223372036854775807, 9)")), "no shape");
  rejected(folder.file("neg.npy", npy<std::int64_t>({1, -4}, "(2,)")), "id -4 at position 1");
  rejected(folder.file("none.npy", npy<std::int64_t>({}, "(0,)")), "no ids");
  rejected(folder.file("cube.npy", npy<std::int64_t>({1}, "(1, 1, 1)")), "3 dimensions");
}

TEST_CASE("ids of many tables are read from what torch.save and numpy.savez wrote",
          "[config][lookups]") {
  for (const char* name : {"fbgemm.pt", "keyed.pt"}) {
    CAPTURE(name);
    CHECK(read(recorded(name) + ":0") == Ids{5, 6, 7});
    CHECK(read(recorded(name) + ":1") == Ids{1, 2, 3});
    CHECK(bags(recorded(name) + ":0") == Ids{0, 2, 2});
    CHECK(bags(recorded(name) + ":1") == Ids{0, 1, 3});
    CHECK(read(recorded(name) + ":1of2") == Ids{1, 2, 3});
    rejected(recorded(name), "holds the lookups of 2 tables: say which");
    rejected(recorded(name) + ":2", "no table \"2\"; expected a number from 0 to 1");
  }
  // An array by its own name is all of it.
  CHECK(read(recorded("fbgemm.pt") + ":indices") == Ids{5, 6, 7, 1, 2, 3});
  CHECK(read(recorded("view.pt")) == Ids{6, 7, 1});  // ids[1:4], which shares a storage
  CHECK(read(recorded("multi_hot.npz") + ":0") == Ids{1, 2, 3, 4});
  CHECK(bags(recorded("multi_hot.npz") + ":0") == Ids{0, 2});
  CHECK(read(recorded("multi_hot.npz") + ":0:1") == Ids{2, 4});
  rejected(recorded("multi_hot.npz"), "holds several arrays: say which");
  rejected(recorded("multi_hot.npz") + ":z", "it holds 0, 1");
  rejected(recorded("module.pt"), "holds torch.nn.modules.linear.Linear, expected tensors");

  const Folder folder;
  const std::string bytes = bytes_of(recorded("fbgemm.pt"));
  REQUIRE(bytes.size() > 1000);
  CHECK(read(folder.file("x.pt.gz", packed_text(bytes, "gzip")) + ":1") == Ids{1, 2, 3});
  CHECK(read(folder.file("x.pt.zst", packed_text(bytes, "zstd")) + ":1") == Ids{1, 2, 3});
  rejected(folder.file("cut.pt", bytes.substr(0, 500)) + ":1", "end early");
  std::string flipped = bytes;
  flipped[bytes.find("\x05\0\0\0\0\0\0\0\x06")] = 4;  // an id: its checksum fails
  rejected(folder.file("flip.pt", flipped) + ":0", "the packed data are damaged");
  rejected(folder.file("old.pt", std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 15)),
           "before 1.6");
  // A file whose own name has a colon.
  CHECK(read(folder.file("a:1", "7\n")) == Ids{7});
}

TEST_CASE("offsets of several tables in one file give the bags of one", "[config][lookups]") {
  const Folder folder;
  const auto ids = folder.file("i.bin", raw<std::int64_t>({5, 6, 7, 1, 2, 3}));
  // Two tables of three samples: 2 x 3 + 1.
  folder.file("i.bin.offsets", npy<std::int32_t>({0, 2, 2, 3, 4, 6, 6}, "(7,)"));
  CHECK(read(ids + ":0of2") == Ids{5, 6, 7});
  CHECK(read(ids + ":1of2") == Ids{1, 2, 3});
  CHECK(bags(ids + ":1of2") == Ids{0, 1, 3});
  CHECK(recorded_pooling(ids + ":0of2", 3, "x").value() == Approx(1));
  rejected(ids + ":0of4", "holds 7 offsets, expected a whole number for each of 4 tables");
  rejected(ids + ":1", "holds plain ids; found \"1\"");
  const auto text = folder.file("i.txt", "5\n6\n7\n1\n2\n3\n");
  folder.file("i.txt.offsets", "0\n2\n2\n3\n4\n9\n9\n");
  rejected(text + ":1of2", "the bags of table 1 take ids 3 to 9");
}

TEST_CASE("ids are read from texts with headers, commas and columns", "[config][lookups]") {
  const Folder folder;
  const auto text = [&](const std::string& s) { return folder.file("t.csv", s); };
  CHECK(read(text("\xef\xbb\xbfitem_id\r\n3\r\n5\r\n")) == Ids{3, 5});
  CHECK(read(text("3,0,70000")) == Ids{3, 0, 70000});
  rejected(text("3,0\n7\n1;2\n"), "line 3: found \"1;2\"");
  CHECK(read(text("3,0\n7\n1,2,4\n")) == Ids{3, 0, 7, 1, 2, 4});
  const std::string table = "user,item,\"name, long\"\n1,7,\"a, b\"\n2,8,c\n";
  CHECK(read(text(table) + ":item") == Ids{7, 8});
  CHECK(read(text(table) + ":Item") == Ids{7, 8});
  CHECK(read(text(table) + ":1") == Ids{7, 8});
  CHECK(read(text("1;7\n2;8\n") + ":1") == Ids{7, 8});
  rejected(text(table), "say which column holds the ids");
  rejected(text(table) + ":it", "no column \"it\"; expected user, item or name, long");
  rejected(text(table) + ":name, long", "line 2: column name, long: found \"a, b\"");
  rejected(text("1,2\n3,4\n"), "say which column holds the ids, such as");
  rejected(text("a,b\n1,2\n3\n") + ":a", "line 3: found 1 values, expected 2");
  rejected(text("a,b\n1,2\n,4\n") + ":a", "line 3: column a: is empty");
  rejected(text("id\n"), "no ids");
  CHECK(read(folder.file("t.gz", packed_text(table, "gzip")) + ":user") == Ids{1, 2});
  CHECK(read(folder.file("t.zst", packed_text("4\n5\n", "zstd"))) == Ids{4, 5});
  rejected(folder.file("t.parquet", "PAR1...."), "pandas.read_parquet(");
}

TEST_CASE("categories of Criteo click logs are ids by column", "[config][lookups]") {
  const Folder folder;
  std::string log;
  for (const char* category : {"68fd1e64", "05db9164", "", "68fd1e64"}) {
    log += "0\t1\t\t-1";
    log += std::string(10, '\t') + "7";  // I13
    log += std::string("\t") + category;
    for (int c = 2; c <= 26; ++c) {
      log += "\t00000001";
    }
    log += "\n";
  }
  const std::string file = folder.file("day_0.gz", packed_text(log, "gzip"));
  const Ids hashed{0x68fd1e64, 0x05db9164, 0, 0x68fd1e64};  // one that is missing is 0
  CHECK(read(file + ":C1") == hashed);
  CHECK(read(file + ":14") == hashed);
  CHECK(read(file + ":c26") == Ids{1, 1, 1, 1});
  CHECK(read(file + ":I13") == Ids{7, 7, 7, 7});
  CHECK(read(file + ":C1", 1000) ==
        Ids{0x68fd1e64 % 1000, 0x05db9164 % 1000, 0, 0x68fd1e64 % 1000});
  rejected(file + ":I3", "id -1");
  rejected(file + ":C27", "no column \"C27\"; expected label to C26");
  rejected(file, "say which column holds the ids");
  // The same categories under a header.
  CHECK(read(folder.file("c.csv", "label,C1\n0,68fd1e64\n1,00000007\n") + ":C1") ==
        Ids{0x68fd1e64, 7});
}

TEST_CASE("a job names lookups inside a file, and keeps the name", "[config][lookups]") {
  const Library library = interop::library(STEPCAST_SOURCE_DIR);
  const std::string csv = "name,rows,dim,indices\nu,10,4," + recorded("fbgemm.pt") + ":0\ni,10,4," +
                          recorded("keyed.pt") + ":1\n";
  const Job job =
      load_job(text_source(csv, "t.csv"), {"system=dgx-h100", "batch.global=64"}, library);
  const auto& tables = job.workload.layered()->tables;
  CHECK(tables[0].access->recorded() == Ids{5, 6, 7});
  CHECK(tables[1].pooling == 1);  // three ids in three bags
  const Job again = load_job(text_source(job_to_json(job), "again", "/nowhere"), {}, library);
  CHECK(again.workload.layered()->tables[1].access->recorded() == Ids{1, 2, 3});
  CHECK_THROWS_WITH(
      load_job(
          text_source("name,rows,dim,indices\nu,10,4," + recorded("fbgemm.pt") + "\n", "t.csv"),
          {"system=dgx-h100", "batch.global=64"}, library),
      Contains("t.csv:2: table \"u\": indices: ") &&
          Contains("fbgemm.pt: holds the lookups of 2 tables"));
}
