// Malformed jobs, workloads, systems and plans, end to end: exit code 2, nothing on standard
// output, and a message that names the file, the place in it, the value found and a remedy.
#include <catch2/catch.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;

namespace {

struct Case {
  std::string job;
  const char* place;
  const char* value;
  const char* remedy;
};

void check(const std::vector<Case>& cases) {
  const TemporaryFolder folder;
  for (const Case& c : cases) {
    const Outcome outcome = call({"predict", folder.file("job.json", c.job), "--format", "json"});
    INFO(c.job << "\n" << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains("job.json"));
    CHECK_THAT(outcome.err, Contains(c.place));
    CHECK_THAT(outcome.err, Contains(c.value));
    CHECK_THAT(outcome.err, Contains(c.remedy));
  }
}

/// A job on a built-in system with `fields` added.
std::string gpt(const std::string& fields) {
  return R"({"workload": "gpt3-175b", "system": "dgx-h100", )" + fields + "}";
}
std::string rm(const std::string& fields) {
  return R"({"workload": "rm1", "system": "dgx-h100", )" + fields + "}";
}
/// A job of one table; `table` are the fields that differ from a good one.
std::string table(const std::string& rows, const std::string& dim, const std::string& pooling,
                  const std::string& mode, const std::string& access) {
  return R"({"system": "dgx-h100", "devices": 2, "batch": {"global": 64}, "workload": {"kind": "dlrm",
    "name": "one", "dense_features": 4, "bottom_mlp": [16], "interaction": {"kind": "dot"},
    "top_mlp": [8, 1], "tables": [{"name": "t0", "rows": )" +
         rows + R"(, "dim": )" + dim + R"(, "pooling": )" + pooling + R"(, "mode": ")" + mode +
         R"(", "access": )" + access + "}]}}";
}
std::string heads(int count, int layers, const std::string& activation) {
  return R"({"system": "dgx-h100", "devices": 2, "batch": {"global": 2, "micro": 1, "sequence": 64},
    "parallel": {"tensor": 2}, "workload": {"kind": "transformer", "name": "small", "layers": )" +
         std::to_string(layers) + R"(, "hidden": 112, "heads": )" + std::to_string(count) +
         R"(, "ffn_hidden": 448, "activation": ")" + activation +
         R"(", "vocabulary": 1000, "tied_embeddings": false}})";
}
std::string device(const std::string& bandwidth, const std::string& peak) {
  return R"({"workload": "rm1", "system": {"name": "s", "device": {"name": "d", "memory": "80 GB",
    "bandwidth": )" +
         bandwidth + R"(, "peak": )" + peak +
         R"(}, "fabric": [{"name": "n", "size": 8, "bandwidth": "450 GB/s", "latency": "2 us"}]}})";
}
std::string fabric(const std::string& size, const std::string& bandwidth,
                   const std::string& latency) {
  return R"({"workload": "rm1", "system": {"name": "s", "device": "h100-sxm-80gb", "fabric": [{"name":
    "n", "size": )" +
         size + R"(, "bandwidth": )" + bandwidth + R"(, "latency": )" + latency + "}]}}";
}

}  // namespace

TEST_CASE("text that is not JSON exits with 2", "[cli][malformed]") {
  check({
      {R"({"workload": "gpt3-175b", "system": "dgx-h1)", "line 1", "end of the text", "truncated"},
      {R"({"workload": "gpt3-175b", "system": "dgx-h100")", "line 1", "end of the text",
       "not closed"},
      {"{\"workload\": \"rm1\",\n\"devices\": 8,}", "line 2", "\"}\"", "check commas"},
      {gpt(R"("devices": NaN)"), "near devices", "NaN", "finite number"},
      {gpt(R"("devices": 8, "devices": 16)"), "devices", "twice", "remove one"},
      {"[]", "job.json", "[]", "expected an object"},
  });
}

TEST_CASE("a malformed job exits with 2", "[cli][malformed]") {
  check({
      {gpt(R"("devces": 8)"), "devces", "unknown key", "\"devices\""},
      {gpt(R"("parallel": {"tensr": 8})"), "parallel.tensr", "unknown key", "\"tensor\""},
      {R"({"workload": "rm1"})", "system", "missing", "system name, path or object"},
      {R"({"system": "dgx-h100"})", "workload", "missing", "workload name, path or object"},
      {R"({"workload": "gpt3-175", "system": "dgx-h100"})", "workload", "gpt3-175", "gpt3-175b"},
      {R"({"workload": "rm1", "system": "dgx-h10"})", "system", "dgx-h10", "dgx-h100"},
      {gpt(R"("devices": "8")"), "devices", "\"8\"", "an integer from 1"},
      {gpt(R"("devices": 0)"), "devices", "found 0", "an integer from 1"},
      {gpt(R"("devices": -8)"), "devices", "found -8", "an integer from 1"},
      {gpt(R"("devices": 8.5)"), "devices", "found 8.5", "an integer from 1"},
      {gpt(R"("devices": 100000)"), "devices", "found 100000", "set system.fabric[1].size=12500"},
      {gpt(R"("devices": 9223372036854775808)"), "devices", "9223372036854775808",
       "an integer from 1"},
      {gpt(R"("devices": 1e400)"), "devices", "beyond the range", "at most"},
      {gpt(R"("parallel": {"bucket": 25})"), "parallel.bucket", "found 25", "with its unit"},
      {gpt(R"("parallel": {"bucket": "25 GB/s"})"), "parallel.bucket", "25 GB/s", "use one of"},
      {gpt(R"("parallel": {"schedule": "2f2b"})"), "parallel.schedule", "2f2b", "1f1b"},
      {gpt(R"("parallel": {"zero": 4})"), "parallel.zero", "found 4", "from 0 to 3"},
      {gpt(R"("devices": 16, "parallel": {"zero": {"level": "nod"}})"), "parallel.zero.level",
       "nod", "\"node\""},
      {gpt(R"("devices": 16, "parallel": {"tensor": 8, "zero": {"level": "node"}})"),
       "parallel.zero.level", "joins 8 devices", "zero 3 without a level"},
      {gpt(R"("devices": 12, "parallel": {"zero": {"level": "node"}})"), "parallel.zero.level",
       "data = 12", "data = 8"},
      {gpt(R"("devices": 16, "parallel": {"zero": {"stage": 2, "reshard": false}})"),
       "parallel.zero.reshard", "stage 2", "stage 3"},
      {gpt(R"("batch": {"global": 1537, "micro": 2, "sequence": 2048})"), "batch.global", "1537",
       "use 1536 or 1552"},
      {gpt(R"("formats": {"compute": "int3"})"), "formats.compute", "int3", "bf16"},
      {gpt(R"("optimizer": "adamm")"), "optimizer", "adamm", "\"adam\""},
      {gpt(R"("calibration": {"scale": 0})"), "calibration.scale", "found 0", "0.001"},
      {gpt(R"("attention": "flsh")"), "attention", "flsh", "\"flash\""},
      {rm(R"("parallel": {"tensor": 2})"), "parallel.tensor", "found 2", "use 1"},
      {rm(R"("batch": {"global": 2049})"), "batch.global", "2049", "use 2048 or 2056"},
      {rm(R"("embedding": {"plan": "rows_wise"})"), "embedding.plan", "rows_wise", "\"row_wise\""},
      {rm(R"("embedding": {"plan": "none.json"})"), "embedding.plan", "none.json", "no file"},
  });
}

TEST_CASE("a malformed workload exits with 2", "[cli][malformed]") {
  const std::string uniform = R"({"uniform": true})";
  check({
      {heads(7, 2, "gelu"), "parallel.tensor", "heads = 7", "use 1"},
      {heads(8, 0, "gelu"), "workload.layers", "found 0", "from 1"},
      {heads(8, 2, "gello"), "workload.activation", "gello", "use one of gelu"},
      {table("0", "16", "2", "sum", uniform), "workload.tables[0].rows", "found 0", "from 1"},
      {table("-5", "16", "2", "sum", uniform), "workload.tables[0].rows", "found -5", "from 1"},
      {table("9223372036854775808", "16", "2", "sum", uniform), "workload.tables[0].rows",
       "9223372036854775808", "from 1"},
      {table("100", "0", "2", "sum", uniform), "workload.tables[0].dim", "found 0", "from 1"},
      {table("100", "8", "2", "sum", uniform), "workload.tables[0].dim", "8 differs",
       "cat or dcnv2"},
      {table("100", "16", "-2", "sum", uniform), "workload.tables[0].pooling", "found -2", "from"},
      {table("100", "16", "2", "max", uniform), "workload.tables[0].mode", "max", "sum, mean"},
      {table("100", "16", "2", "sum", R"({"zipf": -1})"), "workload.tables[0].access.zipf",
       "found -1", "from 0"},
      {table("100", "16", "2", "sum", R"({"zipf": NaN})"), "near workload.tables[0].access.zipf",
       "NaN", "finite number"},
      {table("100", "16", "2", "sum", R"({"histogram": "none.csv"})"),
       "workload.tables[0].access.histogram", "none.csv", "check the path"},
      {table("100", "16", "2", "sum", "{}"), "workload.tables[0].access", "{}", "uniform"},
  });
}

TEST_CASE("a malformed system exits with 2", "[cli][malformed]") {
  const std::string fp32 = R"({"fp32": "67 TFLOP/s"})";
  check({
      {device(R"("-3 TB/s")", fp32), "system.device.bandwidth", "-3 TB/s", "3.35 TB/s"},
      {device(R"("0 TB/s")", fp32), "system.device.bandwidth", "0 TB/s", "above 0"},
      {device(R"("3 TB")", fp32), "system.device.bandwidth", "3 TB", "TB/s"},
      {device(R"("3 TB/s")", R"({"fp99": "67 TFLOP/s"})"), "system.device.peak.fp99", "fp99",
       "fp32"},
      {fabric("8", "450", R"("2 us")"), "system.fabric[0].bandwidth", "found 450", "with its unit"},
      {fabric("8", R"("450 GB")", R"("2 us")"), "system.fabric[0].bandwidth", "450 GB", "GB/s"},
      {fabric("8", R"("450 GB/s")", R"("2 parsecs")"), "system.fabric[0].latency", "2 parsecs",
       "us"},
      {fabric("0", R"("450 GB/s")", R"("2 us")"), "system.fabric[0].size", "found 0", "from 1"},
      {R"({"workload": "rm1", "system": {"name": "s", "device": "h10-sxm-80gb", "fabric": []}})",
       "system.device", "h10-sxm-80gb", "h100-sxm-80gb"},
  });
}

TEST_CASE("a file named in a job is the one the message names", "[cli][malformed]") {
  const TemporaryFolder folder;
  const auto rejected = [&folder](const std::string& job) {
    const Outcome outcome = call({"predict", folder.file("job.json", job)});
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  (void)folder.file("machine.json", R"({"name": "s", "device": "h100-sxm-80gb", "fabrik": []})");
  CHECK_THAT(rejected(R"({"workload": "rm1", "system": "machine.json"})"),
             Contains("machine.json: fabrik") && Contains("\"fabric\""));
  (void)folder.file("model.json", R"({"kind": "dlrm", "name": "x")");
  CHECK_THAT(rejected(R"({"workload": "model.json", "system": "dgx-h100"})"),
             Contains("model.json: line 1") && Contains("truncated"));
}

TEST_CASE("a sharding plan that does not tile its table exits with 2", "[cli][malformed]") {
  const TemporaryFolder folder;
  (void)folder.file("model.json",
                    R"({"kind": "dlrm", "name": "one", "dense_features": 4, "bottom_mlp": [16],
    "interaction": {"kind": "dot"}, "top_mlp": [8, 1], "tables": [{"name": "t0", "rows": 100,
    "dim": 16, "pooling": 2, "mode": "sum", "access": {"uniform": true}}]})");
  const auto shard = [](int first, int last, int columns, int rank) {
    return R"({"rows": [)" + std::to_string(first) + ", " + std::to_string(last) +
           R"(], "columns": [0, )" + std::to_string(columns) +
           R"(], "sharding": "table_wise", "tier": "hbm", "split": "replicate", "groups": [[)" +
           std::to_string(rank) + "]]}";
  };
  const auto outcome_of = [&folder](const std::string& shards) {
    (void)folder.file(
        "plan.json",
        R"({"stepcast": 1, "kind": "embedding", "workload": "one", "system": "dgx-h100",
      "devices": 2, "tables": [{"name": "t0", "row_order": "workload", "shards": [)" +
            shards + "]}]}");
    return call({"predict", folder.file("job.json", R"({"workload": "model.json",
      "system": "dgx-h100", "devices": 2, "batch": {"global": 64}, "embedding": {"plan": "plan.json"}})")});
  };
  const auto rejected = [&outcome_of](const std::string& shards, const std::string& value) {
    const Outcome outcome = outcome_of(shards);
    INFO(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains("plan.json") && Contains("tables[0]") && Contains(value));
  };
  rejected(shard(0, 50, 16, 0), "800 of the 1600");  // rows 50..100 belong to nobody
  rejected(shard(0, 100, 8, 0), "8");                // columns 8..16 belong to nobody
  rejected(shard(0, 60, 16, 0) + "," + shard(50, 100, 16, 1), "50");  // rows 50..60 twice
  rejected(shard(0, 200, 16, 0), "200");                              // rows that do not exist
  rejected(shard(0, 100, 16, 5), "5");                                // a rank that does not exist
  std::string some_ranks = shard(0, 100, 16, 1);  // rows over some of the ranks
  some_ranks.replace(some_ranks.find("table_wise"), 10, "row_wise");
  some_ranks.replace(some_ranks.find("replicate"), 9, "stripe");
  rejected(some_ranks, "all ranks in order");
  CHECK(outcome_of(shard(0, 100, 16, 1)).code == 0);
}
