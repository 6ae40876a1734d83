// Embedding tables one a line: what spreadsheets and other tools write, and what is wrong with a
// line.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/config/config.h"
#include "core/error.h"
#include "interop/import.h"
#include "tests/folder.h"

using namespace stepcast;
using namespace stepcast::config;
using Catch::Matchers::Contains;
using stepcast::fixtures::Folder;

namespace {

const Library kLibrary = interop::library(STEPCAST_SOURCE_DIR);

Job job_of(const std::string& csv, std::vector<std::string> more = {"batch.global=64"}) {
  more.emplace_back("system=dgx-h100");
  return load_job(text_source(csv, "ranker.csv"), more, kLibrary);
}
std::vector<EmbeddingTable> tables_of(const std::string& csv) {
  return job_of(csv).workload.layered()->tables;
}

/// Commands that run a step and those that only show it reject a list in the same words.
void rejected(const std::string& csv, const std::string& why) {
  INFO(csv);
  CHECK_THROWS_WITH(job_of(csv), Contains(why));
  CHECK_THROWS_WITH(interop::import_to_json(text_source(csv, "ranker.csv")), Contains(why));
}

}  // namespace

TEST_CASE("a list of tables in a CSV is a workload and a job", "[config][tables]") {
  const std::string csv =
      "# of the ranker\nname, rows, dim, pooling, zipf\nuser,4000,16,1.5,1.05\n\nitem,2000,16,,\n";
  const auto job = nlohmann::json::parse(interop::import_to_json(text_source(csv, "ranker.csv")));
  const auto& tables = job.at("workload").at("tables");
  REQUIRE(tables.size() == 2);
  CHECK(tables[0] == nlohmann::json::parse(
                         R"({"name": "user", "rows": 4000, "dim": 16, "pooling": 1.5,
                             "access": {"zipf": 1.05}})"));
  CHECK_FALSE(tables[1].contains("pooling"));
  CHECK(job.at("workload").at("name") == "ranker");
  CHECK(interop::describes_model(config::text_source(csv, "")));
  const Job read = job_of(csv);
  CHECK(read.workload.layered()->tables[1].rows == 2000);
  CHECK(read.workload.layered()->tables[1].pooling == 1);
}

TEST_CASE("a list of tables is read as spreadsheets and other tools write it", "[config][tables]") {
  // A byte order mark, capitals, quotes with separators, blank cells and line ends of Windows.
  const auto excel = tables_of(
      "\xef\xbb\xbfName,Rows,Dim\r\n\"user, long\",\"40,000,000\",16\r\nitem,4e7,16\r\n,,\r\n");
  REQUIRE(excel.size() == 2);
  CHECK(excel[0].name == "user, long");
  CHECK(excel[0].rows == 40'000'000);
  CHECK(excel[1].rows == 40'000'000);
  const auto semicolons =
      tables_of("Table;Num Embeddings;Embedding-Dim;Pooling_Factor\na;1,000,000;8;2.5\n");
  CHECK(semicolons[0].rows == 1'000'000);
  CHECK(semicolons[0].pooling == 2.5);
  const auto hugectr = tables_of(
      "name\tmax_vocabulary_size\tev_size\tnnz_per_slot\tcombiner\na\t70\t4\t3\tconcat\n");
  CHECK(hugectr[0].pooling == 3);
  CHECK(hugectr[0].mode == PoolingMode::kSequence);
  CHECK(tables_of("name,rows,dim,mode\na,9,4,PoolingType.MEAN\n")[0].mode == PoolingMode::kMean);
}

TEST_CASE("a wrong line of a list of tables is named by file, line and table",
          "[config][tables][malformed]") {
  rejected("name,rows,dim,poling\na,1,2,3\n",
           "ranker.csv:1: unknown column \"poling\"; did you mean");
  rejected("name,rows,dim,dim\na,1,2,3\n", "column \"dim\" appears twice");
  rejected("name,rows,dim,num_embeddings\na,1,2,3\n",
           "columns \"rows\" and \"num_embeddings\" are both rows");
  rejected("name,rows,dim\na,1\n", "ranker.csv:2: found 2 values, expected 3");
  rejected("name,rows,dim\na,1,2,3\n", "in quotes");
  rejected("name,rows,dim\na,many,3\n", "ranker.csv:2: table \"a\": rows: found \"many\"");
  rejected("name,rows,dim\na,,3\n", "ranker.csv:2: table \"a\": rows: is empty");
  rejected("name,rows,dim\n,5,3\n", "ranker.csv:2: name: is empty");
  rejected("# two\nname,rows,dim\nb,7,8\na,5,0\n",
           "ranker.csv:4: table \"a\": dim: found 0, expected an integer from 1 to 65536");
  rejected("name,rows,dim\na,2.5,4\n", "rows: found 2.5, expected an integer");
  rejected("name;rows;dim\na;40.000;4\n", "the point may group digits");
  rejected("name;rows;dim;pooling\na;40;4;1,5\n", "with a point, not a comma");
  rejected("name,rows,dim,pooling\na,40,4,SUM\n", "sum and mean go in a column mode");
  rejected("name,rows,dim,pooling\na,40,4,0\n", "pooling: found 0, expected more than 0");
  rejected("name,rows,dim,zipf,indices\na,1,2,1.1,x.bin\n", "second access");
  rejected("name,rows,dim\na,5,4\nb,5,4\na,6,4\n",
           "ranker.csv:4: table \"a\": line 2 has a table of that name too");
  rejected("name,rows,dim\n", "no table");
  rejected("table;size\n", "expected a header with name,rows,dim");
  // Errors that only the reader of workloads finds.
  rejected("name,rows,dim,mode\na,5,4,max\n", "ranker.csv:2: table \"a\": mode: found \"max\"");
  rejected("name,rows,dim,zipf\nb,5,4,\na,5,4,-1\n", "ranker.csv:3: table \"a\": zipf: found -1");
  CHECK_THROWS_WITH(
      job_of("name,rows,dim\na,5,4\n", {"batch.global=8", "workload.tables[0].rows=0"}),
      Contains("--set workload.tables[0].rows"));
}

TEST_CASE("a list of tables takes recorded ids with their bags", "[config][tables]") {
  const Folder folder;
  folder.file("bags.txt", "1\n2\n3\n4\n5\n");
  folder.file("bags.txt.offsets", "0\n2\n");  // five ids in two bags
  const auto pooling = [&](const std::string& csv) {
    const Source source = file_source(folder.file("t.csv", csv));
    return load_job(source, {"system=dgx-h100", "batch.global=64"}, kLibrary)
        .workload.layered()
        ->tables[0]
        .pooling;
  };
  CHECK(pooling("name,rows,dim,mode,indices\na,10,4,sequence,bags.txt\n") == 2.5);
  // Workloads made of it name the file wherever they are written to.
  const auto json = nlohmann::json::parse(interop::import_to_json(file_source(folder / "t.csv")));
  CHECK(json["workload"]["tables"][0]["access"]["indices"] == folder / "bags.txt");
  CHECK(pooling("name,rows,dim,pooling,indices\na,10,4,,bags.txt\n") == 2.5);
  CHECK(pooling("name,rows,dim,pooling,indices\na,10,4,2.5,bags.txt\n") == 2.5);
  CHECK_THROWS_WITH(
      pooling("name,rows,dim,pooling,indices\na,10,4,3,bags.txt\n"),
      Contains("t.csv:2: table \"a\": pooling: found 3") && Contains("2.5 ids per bag"));
  CHECK_THROWS_WITH(pooling("name,rows,dim,indices\na,3,4,bags.txt\n"),
                    Contains("t.csv:2: table \"a\": indices") && Contains("has 3 rows"));
}

TEST_CASE("a batch that is missing hides no other mistake", "[config][tables]") {
  const std::string csv = "name,rows,dim\na,5,4\n";
  CHECK_THROWS_WITH(job_of(csv, {}), Contains("batch: missing") &&
                                         Contains("workload ranker has no default_batch") &&
                                         Contains("--set batch.global=N"));
  CHECK_THROWS_WITH(job_of(csv, {"embedding.plan=row_wize"}), Contains("did you mean"));
  CHECK_THROWS_WITH(job_of(csv, {"formats.embedding=fp33"}), Contains("formats.embedding"));
}
