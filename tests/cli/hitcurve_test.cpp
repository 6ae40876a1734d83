// hitcurve, explain and show of recordings, as a user calls them.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("hitcurve says what caches hold, and its histogram feeds a job", "[cli][hitcurve]") {
  const Folder folder;
  const std::string ids = folder.file("ids.txt", "1\n2\n1\n3\n2\n1\n");
  const std::string histogram = folder / "h.csv";
  const auto j = answer({"hitcurve", ids, "--histogram", histogram});
  CHECK(j["lookups"]["lookups"] == 6);
  CHECK(j["lookups"]["distinct_rows"] == 3);
  CHECK(j["hit_rate"].back()["capacity_rows"] == 3);
  CHECK(j["hit_rate"].back()["lru"].get<double>() == Approx(0.5));  // three of six come again
  CHECK(j["hit_rate"][0]["pinned"].get<double>() == Approx(0.5));   // row 1 has three of six

  const Outcome job =
      call("show - --format json",
           R"({"workload": {"kind": "dlrm", "name": "one", "dense_features": 4, "bottom_mlp": [16],
          "top_mlp": [1], "interaction": {"kind": "dot"}, "tables": [{"name": "t", "rows": 10,
          "dim": 16, "pooling": 1, "access": {"histogram": ")" +
               histogram + R"("}}]}, "system": "dgx-h100", "devices": 1, "batch": {"global": 4}})");
  INFO(job.err);
  CHECK(job.code == 0);
}

TEST_CASE("hitcurve bounds its memory, whatever a small file unpacks to", "[cli][hitcurve]") {
  const Folder folder;
  const std::string ids = folder / "ids.gz";
  // 40 million lookups of row 0, 320 MB in one of gzip: more than are kept one by one.
  REQUIRE(execute("/bin/sh", {"-c", "head -c 320000000 /dev/zero | gzip -1 >\"$0\"", ids}).code ==
          0);
  const Outcome done = execute(
      "/bin/sh",
      {"-c", "ulimit -v 700000; exec \"$0\" hitcurve \"$1\" --json", STEPCAST_EXECUTABLE, ids});
  INFO(done.err);
  REQUIRE(done.code == 0);
  CHECK_THAT(done.err, Contains("more than 33554432 lookups") && Contains("--sketch"));
  CHECK(json::parse(done.out).at("lookups").at("lookups") == 40000000);
}

TEST_CASE("hitcurve counts lists that repeat, where bags are recorded", "[cli][hitcurve]") {
  const Folder folder;
  const std::string ids = folder.file("ids.txt", "1\n2\n1\n2\n3\n1\n2\n");
  CHECK_FALSE(
      nlohmann::json::parse(call({"hitcurve", ids, "--format", "json"}).out).contains("lists"));
  folder.file("ids.txt.offsets", "0\n2\n4\n5\n");  // (1 2) (1 2) (3) (1 2)
  const auto lists = answer({"hitcurve", ids})["lists"];
  REQUIRE(lists.size() == 1);
  CHECK(lists[0]["samples"] == 4);
  CHECK(lists[0]["distinct_share"].get<double>() == Approx(0.5));
  CHECK(lists[0]["ids_share"].get<double>() == Approx(3.0 / 7));
  CHECK(lists[0]["dedup_factor"].get<double>() == Approx(2));
  CHECK_THAT(call({"hitcurve", ids}).out, Contains("33.3 % of the lists are that of the sample"));
}

TEST_CASE("hitcurve --sketch writes a histogram that a job reads", "[cli][hitcurve][sketch]") {
  const Folder folder;
  // 300,000 rows, more than the sketch keeps, each looked up once; row 7 another 100,000 times.
  std::string text;
  std::string binary;
  const auto put = [&](std::int64_t id) {
    text += std::to_string(id) + "\n";
    for (int b = 0; b < 8; ++b) {
      binary.push_back(static_cast<char>(static_cast<std::uint64_t>(id) >> (8 * b) & 0xffU));
    }
  };
  for (std::int64_t i = 0; i < 300'000; ++i) {
    put(i * 3);
    if (i % 3 == 0) {
      put(7);
    }
  }
  const std::string histogram = folder / "h.csv";
  nlohmann::json first;
  for (const std::string& ids : {folder.file("ids.txt", text), folder.file("ids.bin", binary)}) {
    const auto j =
        answer({"hitcurve", ids, "--sketch", "--histogram", histogram, "--rows", "1000000"});
    CHECK(j["lookups"]["lookups"] == 400'000);
    CHECK(j["lookups"]["distinct_rows"].get<double>() == Approx(300'001).epsilon(0.02));
    CHECK(j["hot_rows"][0]["row"] == 7);
    CHECK(j["hot_rows"][0]["lookups_at_least"] == 100'000);  // it was there from the start
    CHECK(j["hot_rows"][0]["lookups_at_most"] == 100'000);
    CHECK((first.is_null() || first == j));
    first = j;
  }
  const Outcome job =
      call("predict - --format json",
           R"({"workload": {"kind": "dlrm", "name": "one", "dense_features": 4, "bottom_mlp": [16],
          "top_mlp": [1], "interaction": {"kind": "dot"}, "tables": [{"name": "t", "rows": 1000000,
          "dim": 16, "pooling": 1, "access": {"histogram": ")" +
               histogram + R"("}}]}, "system": "dgx-h100", "devices": 1, "batch": {"global": 4}})");
  INFO(job.err);
  CHECK(job.code == 0);
  rejected({"hitcurve", folder / "ids.txt", "--sketch", "--rows", "10"},
           "expected at least 899998");
  CHECK(call({"hitcurve", folder.file("bad.txt", "1\n-4\n"), "--sketch"}).code == 2);
}

TEST_CASE("hitcurve reads its own histogram, and both name the same zipf law", "[cli][hitcurve]") {
  const Folder folder;
  // 6,000 lookups of 100 rows, row k looked up near 1/k as often as row 1: 1157 / (k + 1).
  std::string ids;
  int lookups = 0;
  for (int row = 0; row < 100; ++row) {
    for (int i = 0; i < 1157 / (row + 1); ++i, ++lookups) {
      ids += std::to_string(row) + "\n";
    }
  }
  const std::string histogram = folder / "h.csv";
  const json of_ids = answer({"hitcurve", folder.file("ids.txt", ids), "--histogram", histogram});
  CHECK(of_ids["lookups"]["zipf"].get<double>() == Approx(1).margin(0.05));
  CHECK(of_ids["lookups"]["zipf_error"].get<double>() < 0.02);
  CHECK_THAT(call({"hitcurve", folder / "ids.txt"}).out, Contains("\"access\": {\"zipf\": "));

  const json of_bins = answer({"hitcurve", histogram});
  CHECK(of_bins["lookups"]["lookups"] == lookups);
  CHECK(of_bins["lookups"]["distinct_rows"] == 100);
  CHECK(of_bins["lookups"]["zipf"] == of_ids["lookups"]["zipf"]);  // from the same bins
  CHECK(of_bins["reuse"].back() == of_ids["reuse"].back());
  // Rows of a bin share one count, so a cache of the hottest 10 differs a little.
  for (std::size_t i = 0; i < of_ids["hit_rate"].size(); ++i) {
    CHECK(of_bins["hit_rate"][i]["pinned"].get<double>() ==
          Approx(of_ids["hit_rate"][i]["pinned"].get<double>()).margin(0.03));
  }
  for (const char* option : {"--sketch", "--sample=0.5", "--histogram=x.csv"}) {
    rejected({"hitcurve", histogram, option}, "is a histogram already");
  }
  rejected({"hitcurve", histogram, "--rows", "50"}, "--rows: found 50", "counts 100 rows");

  // A capacity of 1, 10 and 100 rows each stand at a tick of the picture.
  const std::string page = folder / "page.html";
  succeeded({"report", folder.file("ids.json", of_ids.dump()), "--html", page});
  const std::string html = text_of(page);
  for (const char* tick : {">1<", ">10<", ">100<"}) {
    CHECK_THAT(html, Contains(tick));
  }
}

TEST_CASE("hitcurve takes a table out of a file of many", "[cli][hitcurve]") {
  const std::string file =
      std::string(STEPCAST_SOURCE_DIR) + "/tests/config/corpus_lookups/fbgemm.pt";
  const json one = answer({"hitcurve", file + ":1"});
  CHECK(one["lookups"]["lookups"] == 3);
  CHECK(one["lists"].back()["samples"] == 3);
  rejected({"hitcurve", file}, "fbgemm.pt:0 to ", "fbgemm.pt:1");
}

TEST_CASE("recorded indices are an access of every command", "[cli][hitcurve]") {
  const Folder folder;
  std::string ids;
  for (int i = 0; i < 4000; ++i) {
    ids += std::to_string(i * i % 97) + "\n";
  }
  folder.file("ids.txt", ids);
  const auto job = [&](int rows) {
    return folder.file(
        "job.json",
        R"({"workload": {"kind": "dlrm", "name": "one", "dense_features": 4, "bottom_mlp": [16],
          "top_mlp": [1], "interaction": {"kind": "dot"}, "tables": [
          {"name": "t", "rows": )" +
            std::to_string(rows) + R"(, "dim": 16, "pooling": 2, "access": {"indices": "ids.txt"}},
          {"name": "u", "rows": 50, "dim": 16, "pooling": 1, "access": {"uniform": true}}]},
          "system": "dgx-h100", "devices": 2, "batch": {"global": 64}})");
  };
  const std::string good = job(97);
  for (const char* command : {"predict", "plan", "show"}) {
    succeeded({command, good});
  }
  const std::string bad = job(90);
  for (const char* command : {"predict", "plan", "show"}) {
    rejected({command, bad}, "tables[0].access.indices", "the table has 90 rows");
  }
}

TEST_CASE("hitcurve refuses what it cannot follow", "[cli][hitcurve]") {
  const Folder folder;
  const std::string ids = folder.file("ids.txt", "1\n2\n");
  rejected({"hitcurve", ids, "--rows", "2"}, "expected at least 3");
  rejected({"hitcurve", ids, "--sample", "0"}, "--sample");
  rejected({"hitcurve", folder / "none.txt"}, "none.txt");
  rejected({"hitcurve", folder.file("bad.txt", "1\nx\n")}, "bad.txt");
}

TEST_CASE("explain refuses a plan whose names are none, with their path",
          "[cli][explain][malformed]") {
  const Folder folder;
  for (const auto& [plan, path, found] :
       {std::tuple(R"({"kind": "embedding", "tables": [], "workload": 5})", "workload", "5"),
        std::tuple(R"({"kind": "embedding", "tables": [], "workload": "rm1", "system": {}})",
                   "system", "{}"),
        std::tuple(R"({"kind": "embedding", "tables": [], "workload": "rm1",
                       "system": "dgx-h100", "devices": "8"})",
                   "devices", "\"8\""),
        std::tuple(R"({"kind": "embedding", "tables": 5, "workload": "rm1",
                       "system": "dgx-h100", "devices": 8})",
                   "tables", "5")}) {
    INFO(plan);
    rejected({"explain", folder.file("plan.json", plan), "--with", "devices=2"},
             "plan.json: " + std::string(path), "found " + std::string(found));
  }
  // The job inside a recording is a user's file too.
  fs::copy(fs::path(STEPCAST_SOURCE_DIR) / "traces/recorded/gpt-2", folder / "trace");
  json manifest = json::parse(text_of(fs::path(folder / "trace") / "trace.json"));
  manifest["job"]["workload"]["name"] = 5;
  folder.file("trace/trace.json", manifest.dump());
  succeeded({"explain", folder / "trace", folder / "trace"});
}

TEST_CASE("explain takes jobs, changes and recordings", "[cli][explain]") {
  const Folder folder;
  const std::string job = folder.file(
      "job.json", R"({"workload": "gpt-22b", "system": "dgx-a100-80gb", "batch": {"global": 32},
                      "parallel": {"tensor": 8}})");
  const auto j = answer({"explain", job, "--with", "parallel.recompute=full"});
  REQUIRE(j["changes"].size() == 1);
  const double delta = j["changes"][0]["delta_s"];
  double sum = 0;
  for (const auto& row : j["rows"]) {
    sum += row["delta_s"].get<double>();
  }
  CHECK(sum == Approx(delta).epsilon(1e-6));
  CHECK(delta > 0);  // recomputing costs time

  const std::string recorded = std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/";
  succeeded({"explain", recorded + "gpt-2", recorded + "gpt-4"});
  succeeded({"explain", recorded + "gpt-2", job});
  rejected({"explain", recorded + "gpt-2", job, "--set", "devices=16"});
  rejected({"explain", job});
  rejected({"explain", folder.file("x.json", "{"), job});
}

TEST_CASE("explain names each key that a plan changes, and takes a plan beside its job",
          "[cli][explain]") {
  const Folder folder;
  const auto changes = [](const Words& arguments) {
    Words keys;
    const json document = answer(arguments);
    for (const auto& row : document["changes"]) {
      keys.push_back(row["change"]);
    }
    return keys;
  };
  // The order of ranks is written only where it differs from the usual one.
  const std::string moe =
      folder.file("moe.json", R"({"workload": "mixtral-8x7b", "system": "dgx-h100", "devices": 16,
                      "batch": {"global": 32}, "parallel": {"expert": 8, "pipeline": 2}})");
  CHECK(changes({"explain", moe, "--with", "parallel.order=tensor-context-pipeline-data", "--with",
                 "parallel.zero=1"}) ==
        Words{"parallel.order: tensor-context-data-pipeline -> tensor-context-pipeline-data",
              "parallel.zero: 0 -> 1"});
  // A workload of the job's own: the plan only names it.
  const std::string job = folder.file(
      "dlrm.json", R"({"system": "dgx-h100", "devices": 2, "batch": {"global": 64}, "workload": {
          "kind": "dlrm", "name": "own", "dense_features": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1],
          "interaction": {"kind": "dot"}, "tables": [{"name": "a", "rows": 500, "dim": 4, "pooling": 2},
                                           {"name": "b", "rows": 90, "dim": 4, "pooling": 2}]}})");
  const std::string plan = folder / "plan.json";
  succeeded({"plan", job, "--out", plan});
  const Words one{"embedding.plan: auto -> a plan of 2 tables"};
  CHECK(changes({"explain", job, plan}) == one);
  succeeded({"explain", plan, job});
  rejected({"explain", plan, plan});  // nobody says what "own" is
}

TEST_CASE("show puts idle causes and the critical path beside a recorded step", "[cli][show]") {
  const Folder folder;
  const std::string timeline = folder / "t.json";
  const std::string trace = std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/gpt-2";
  succeeded({"show", trace, "--timeline", timeline});
  std::map<std::pair<int, int>, std::string> tracks;
  std::map<std::string, double> time;  // of rank 0, by track
  std::map<std::pair<int, int>, double> reached;
  const auto document = nlohmann::json::parse(text_of(timeline));
  for (const auto& e : document["traceEvents"]) {
    const std::pair<int, int> track{e["pid"], e["tid"]};
    if (e["ph"] == "M") {
      tracks[track] = e["args"]["name"];
      continue;
    }
    CHECK(e["ts"].get<double>() >= reached[track] - 0.002);  // slices of a track do not overlap
    reached[track] = e["ts"].get<double>() + e["dur"].get<double>();
    if (track.first == 0) {
      time[tracks[track]] += e["dur"].get<double>();
    }
  }
  CHECK(time["critical path"] > 0);
  CHECK(time["idle, by cause"] > 0);
  rejected(
      {"show", "--set", "workload=gpt-22b", "--set", "system=dgx-h100", "--timeline", timeline});
}

TEST_CASE("hitcurve --nodes tells what copies of hot rows save, and counts it on another batch",
          "[cli][hitcurve]") {
  const Folder folder;
  // 14 lookups on 2 nodes of 2: row 7 six times (above 4: a copy everywhere), row 3 three times
  // (above 2: a copy a node), row 5 twice and three rows once (one copy).
  const std::string a = folder.file("a.txt", "7\n7\n7\n3\n1\n5\n7\n3\n2\n7\n5\n3\n4\n7\n");
  const std::string b = folder.file("b.txt", "7\n9\n3\n7\n");
  const auto row = answer({"hitcurve", a, "--nodes", "2", "--devices-per-node", "2", "--system",
                           "dgx-h100", "--counted-on", b})["traffic"][0];
  CHECK(row["above_node"].get<double>() == Approx(2));
  CHECK(row["above_everywhere"].get<double>() == Approx(4));
  CHECK(row["rows_everywhere"].get<double>() == 1);
  CHECK(row["rows_node"].get<double>() == 1);
  CHECK(row["saved"].get<double>() == Approx(9.0 / 14));
  CHECK(row["sync"].get<double>() == Approx(4.0 / 14));  // 2 rows of 2 nodes against 14 lookups
  CHECK(row["net"].get<double>() == Approx(5.0 / 14));
  CHECK(row["copies_bytes"].get<double>() == 512 * 1.5);  // half of the node's row on each device
  // Each of 4 devices sends half of its 3.5 lookups' rows away, there and back, over 50 GB/s.
  CHECK(row["flat_s"].get<double>() == Approx(3.5 * 512 * 2 * 0.5 / 50e9));
  CHECK(row["sync_s"].get<double>() == Approx(3.5 * 512 * 2 * 0.5 / 50e9 * 4 / 14));
  // Three of the four lookups of the other batch find a copied row.
  CHECK(row["counted_saved"].get<double>() == Approx(0.75));
  CHECK(row["counted_net"].get<double>() == Approx(0.75 - 4.0 / 14));

  // A histogram says the same of the batch it was taken from; it names no rows to count by.
  const std::string h = folder.file("h.csv",
                                    "reuse_low,reuse_high,unique_rows,accesses\n"
                                    "0,1,3,3\n1,2,1,2\n2,4,1,3\n4,8,1,6\n");
  const json same = answer({"hitcurve", h, "--nodes", "2", "--devices-per-node", "2"});
  CHECK(same["traffic"][0]["net"].get<double>() == Approx(5.0 / 14));
  rejected({"hitcurve", h, "--nodes", "2", "--counted-on", b}, "--counted-on", "histogram");
  CHECK(call({"hitcurve", a, "--sync-interval", "2"}).code != 0);  // means nothing without --nodes
  rejected({"hitcurve", a, "--nodes", "2", "--devices-per-node", "100000", "--system", "dgx-h100"},
           "joins no nodes of 100000");
}
