// Malformed input, table-driven: every message names the file, the JSON path, the value found and a
// remedy.
#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "core/error.h"

using namespace stepcast;
using namespace stepcast::config;
using Catch::Matchers::Contains;

namespace {

const Library kLibrary{STEPCAST_SOURCE_DIR};

struct Case {
  const char* text;
  const char* place;
  const char* value;
  const char* remedy;
};

std::string message(const std::string& text) {
  try {
    (void)load_job(text_source(text, "job.json"), {}, kLibrary);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

void check(const std::vector<Case>& cases, const std::string& before = "",
           const std::string& after = "") {
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const std::string text = message(before + c.text + after);
    CHECK_THAT(text, Contains("job.json"));
    CHECK_THAT(text, Contains(c.place));
    CHECK_THAT(text, Contains(c.value));
    CHECK_THAT(text, Contains(c.remedy));
  }
}

}  // namespace

TEST_CASE("text that is not strict JSON is refused with its line", "[config][malformed]") {
  check({
      {R"({"workload": "gpt3-175b", "system": "dgx-h100")", "line 1", "end of the text",
       "truncated"},
      {"{\"workload\": \"gpt3-175b\",\n \"devices\": 8,\n \"system\": \"dgx-h1", "line 3",
       "near system", "truncated"},
      {"{", "line 1", "end of the text", "truncated"},
      {R"({"workload": "gpt3-175b", "devices": NaN})", "near devices", "\"N", "no NaN"},
      {R"({"workload": "gpt3-175b", "devices": -Infinity})", "near devices", "Infinity",
       "finite number"},
      {R"({"devices": 8, "devices": 16})", "devices", "appears twice", "remove one"},
      {R"({"parallel": {"tensor": 8, "tensor": 1}})", "parallel.tensor", "appears twice",
       "remove one"},
      {R"({"workload": {"tables": [{"name": "a"}, {"rows": 1, "rows": 2}]}})",
       "workload.tables[1].rows", "appears twice", "remove one"},
      {R"({"devices": 1e999})", "devices", "beyond the range", "1.8e308"},
      {R"({"devices": 8,})", "line 1", "found \"}\"", "commas"},
      {R"({"devices": 8} {})", "line 1", "found \"{\"", "check"},
      {R"({'devices': 8})", "line 1", "found", "quotes"},
      {"[1, 2]", "job.json", "[1,2]", "an object"},
      {"\"gpt3\"", "job.json", "\"gpt3\"", "an object"},
      {"\xff\xfe", "job.json", "UTF-16", "save it as UTF-8"},
  });
  CHECK_THAT(message(std::string(100, '[')), Contains("nested deeper than 64"));
}

TEST_CASE("a job's keys, types and ranges are checked", "[config][malformed]") {
  check(
      {
          {R"("workload": "gpt3-176b")", "workload", "gpt3-176b", "did you mean \"gpt3-175b\""},
          {R"("workload": "./none.json")", "workload", "none.json", "check the path"},
          {R"("workload": 7)", "workload", "7", "a workload"},
          {R"("workload": "gpt3-175b", "device": 8)", "device", "unknown key",
           "did you mean \"devices\""},
          {R"("workload": "gpt3-175b", "stepcast": 2)", "stepcast", "2", "expected 1"},
          {R"("workload": "gpt3-175b", "devices": 0)", "devices", "0", "from 1"},
          {R"("workload": "gpt3-175b", "devices": -8)", "devices", "-8", "from 1"},
          {R"("workload": "gpt3-175b", "devices": 2.5)", "devices", "2.5", "an integer"},
          {R"("workload": "gpt3-175b", "devices": "8")", "devices", "\"8\"", "an integer"},
          {R"("workload": "gpt3-175b", "devices": null)", "devices", "null", "an integer"},
          {R"("workload": "gpt3-175b", "devices": 9223372036854775808)", "devices",
           "9223372036854775808", "an integer from 1"},
          {R"("workload": "gpt3-175b", "devices": 40000)", "devices", "40000",
           "at most 32768"},  // 8 x 4096
          {R"("workload": "gpt3-175b", "devices": 12, "parallel": {"tensor": 8})", "devices", "12",
           "devices = 8 or 16"},
          {R"("workload": "gpt3-175b", "parallel": {"tensr": 8})", "parallel.tensr", "unknown key",
           "did you mean \"tensor\""},
          {R"("workload": "gpt3-175b", "parallel": 8)", "parallel", "8", "an object"},
          {R"("workload": "gpt3-175b", "parallel": {"data": 3})", "parallel.data", "3",
           "set devices=3"},
          {R"("workload": "gpt3-175b", "parallel": {"data": "all"})", "parallel.data", "\"all\"",
           "\"auto\""},
          {R"("workload": "gpt3-175b", "parallel": {"schedule": "1fb1"})", "parallel.schedule",
           "1fb1", "did you mean \"1f1b\""},
          {R"("workload": "gpt3-175b", "parallel": {"recompute": "fulll"})", "parallel.recompute",
           "fulll", "did you mean \"full\""},
          {R"("workload": "gpt3-175b", "parallel": {"bucket": 25})", "parallel.bucket", "25",
           "unit"},
          {R"("workload": "gpt3-175b", "parallel": {"bucket": "25"})", "parallel.bucket", "\"25\"",
           "unit is missing"},
          {R"("workload": "gpt3-175b", "parallel": {"virtual_stages": 2})",
           "parallel.virtual_stages", "2", "use 1"},
          {R"("workload": "gpt3-175b", "devices": 1024, "parallel": {"pipeline": 128, "data": "auto"})",
           "parallel.pipeline", "128", "at most 96 stages"},
          {R"("workload": "gpt3-175b", "parallel": {"overlap": {"input_all_to_all": true}})",
           "parallel.overlap.input_all_to_all", "true",
           "data, tensor, tensor_products, pipeline, parameters or expert"},
          {R"("workload": "gpt3-175b", "devices": 16, "parallel": {"pipeline": 4, "virtual_stages": 2}, "batch": {"global": 24})",
           "batch.global", "6 micro-batches", "use 16 or 32"},  // 24 / 4 replicas
          {R"("workload": "gpt3-175b", "batch": {"global": 100, "micro": 1, "sequence": 2048})",
           "batch.global", "100", "use 96 or 104"},
          {R"("workload": "gpt3-175b", "batch": {"global": 3})", "batch.global", "3", "use 8"},
          {R"("workload": "gpt3-175b", "formats": {"compute": "bf61"})", "formats.compute", "bf61",
           "did you mean \"bf16\""},
          {R"("workload": "gpt3-175b", "formats": {"gradient": "int8_row"})", "formats.gradient",
           "int8_row", "fp32"},
          {R"("workload": "gpt3-175b", "optimizer": "adamm")", "optimizer", "adamm",
           "did you mean \"adam\""},
          {R"("workload": "rm1", "optimizer": "muon")", "optimizer", "muon",
           "muon is for matrices of a transformer's layers"},
          {R"("workload": "gpt3-175b", "optimizer": {"shards": "blockwise"})", "optimizer.shards",
           "is of muon", "set dense to muon"},
          {R"("workload": "gpt3-175b", "optimizer": "rowwise_adagrad")", "optimizer",
           "rowwise_adagrad", "sgd, adam"},
          {R"("workload": "rm1", "optimizer": {"embedding": "adagrad_rowwise"})",
           "optimizer.embedding", "adagrad_rowwise", "did you mean \"rowwise_adagrad\"?"},
          {R"("workload": "gpt3-175b", "calibration": {"scale": 0})", "calibration.scale", "0",
           "from 0.001"},
          {R"("workload": "gpt3-175b", "embedding": {"plan": "row_wise"})", "embedding.plan",
           "row_wise", "remove it"},
          {R"("workload": "gpt3-175b", "devices": 100000)", "devices", "found 100000",
           "set system.fabric[1].size=12500"},
          {R"("workload": "gpt3-175b", "parallel": {"bucket": "25 GB/s"})", "parallel.bucket",
           "25 GB/s", "use one of"},
          {R"("workload": "gpt3-175b", "parallel": {"schedule": "2f2b"})", "parallel.schedule",
           "2f2b", "1f1b"},
          {R"("workload": "gpt3-175b", "parallel": {"zero": 4})", "parallel.zero", "found 4",
           "from 0 to 3"},
          {R"("workload": "gpt3-175b", "devices": 16, "parallel": {"zero": {"level": "nod"}})",
           "parallel.zero.level", "nod", "\"node\""},
          {R"("workload": "gpt3-175b", "devices": 16, "parallel": {"tensor": 8, "zero": {"level": "node"}})",
           "parallel.zero.level", "joins 8 devices", "zero 3 without a level"},
          {R"("workload": "gpt3-175b", "devices": 12, "parallel": {"zero": {"level": "node"}})",
           "parallel.zero.level", "data = 12", "data = 8"},
          {R"("workload": "gpt3-175b", "devices": 16, "parallel": {"zero": {"stage": 2, "reshard": false}})",
           "parallel.zero.reshard", "stage 2", "stage 3"},
          {R"("workload": "gpt3-175b", "attention": "flsh")", "attention", "flsh", "\"flash\""},
          {R"("workload": "mlperf-dlrm-v2", "parallel": {"tensor": 2})", "parallel.tensor", "2",
           "use 1"},
          {R"("workload": "mlperf-dlrm-v2", "batch": {"global": 100})", "batch.global", "100",
           "use 96 or 104"},
          {R"("workload": "mlperf-dlrm-v2", "batch": {"global": 64, "micro": 4})", "batch.micro",
           "4", "remove it"},
          {R"("workload": "mlperf-dlrm-v2", "attention": "unfused")", "attention", "unfused",
           "remove it"},
          {R"("workload": "mlperf-dlrm-v2", "epilogues": "together")", "epilogues", "together",
           "separate or fused"},
      },
      R"({"system": "dgx-h100", )", "}");
  check({{"{}", "workload", "missing", "a workload name"},
         {R"({"workload": "gpt3-175b", "system": "dgx-h10"})", "system", "dgx-h10",
          "did you mean \"dgx-h100\""}});
}

TEST_CASE("a transformer's numbers are checked", "[config][malformed]") {
  const std::string before =
      R"({"system": "dgx-h100", "workload": {"kind": "transformer", "name": "w", "layers": 4, "vocabulary": 64, "activation": "gelu", )";
  const std::string after =
      R"(}, "batch": {"global": 8, "micro": 1, "sequence": 16}, "parallel": {"tensor": 2}})";
  check(
      {
          {R"("hidden": 56, "heads": 7, "ffn_hidden": 224)",
           "job.json: parallel.tensor: 2 does not divide workload.heads = 7", "2", "use 1"},
          {R"("hidden": 64, "heads": 8, "ffn_hidden": 225)", "parallel.tensor", "ffn_hidden = 225",
           "use 1"},
          {R"("hidden": 64, "heads": 0, "ffn_hidden": 256)", "workload.heads", "0", "from 1"},
          {R"("hidden": 65, "heads": 8, "ffn_hidden": 256)", "workload.heads", "8",
           "a divisor of hidden = 65"},
          {R"("hidden": 64, "heads": 8, "kv_heads": 3, "ffn_hidden": 256)", "workload.kv_heads",
           "3", "a divisor of heads = 8"},
          {R"("hidden": 64, "heads": 8, "kv_heads": 16, "ffn_hidden": 256)", "workload.kv_heads",
           "16", "from 1 to 8"},
          {R"("hidden": 64, "heads": 8)", "workload.ffn_hidden", "missing", "the width"},
          {R"("hidden": 64, "heads": 8, "ffn_hiden": 256)", "workload.ffn_hiden", "unknown key",
           "did you mean \"ffn_hidden\""},
          {R"("hidden": 1e300, "heads": 8, "ffn_hidden": 256)", "workload.hidden", "1e+300",
           "an integer"},
          {R"("hidden": 64, "heads": 8, "ffn_hidden": 256, "default_batch": {"global": 8})",
           "workload.default_batch.micro", "missing", "per micro-batch"},
          {R"("hidden": 64, "heads": 8, "ffn_hidden": 256, "tied_embeddings": 1)",
           "workload.tied_embeddings", "1", "true or false"},
      },
      before, after);
  check(
      {
          {R"("layers": 0, "activation": "gelu")", "workload.layers", "found 0", "from 1"},
          {R"("layers": 4, "activation": "gello")", "workload.activation", "gello",
           "use one of gelu"},
      },
      R"({"system": "dgx-h100", "batch": {"global": 8, "micro": 1, "sequence": 16}, "workload": {"kind": "transformer", "name": "w", "vocabulary": 64, "hidden": 64, "heads": 8, "ffn_hidden": 256, )",
      "}}");
  CHECK_THAT(message(R"({"system": "dgx-h100", "workload": {"kind": "transformr", "name": "w"}})"),
             Contains("workload.kind") && Contains("did you mean \"transformer\""));
  CHECK_THAT(
      message(
          R"({"system": "dgx-h100", "workload": {"kind": "transformer", "name": "w", "layers": 1, "hidden": 8, "heads": 1, "ffn_hidden": 8, "activation": "gelu", "vocabulary": 8}})"),
      Contains("job.json: batch: missing") && Contains("no default_batch"));
}

TEST_CASE("heads go whole to the ranks of a tensor group", "[config][malformed]") {
  const auto llama = [](const std::string& keys, const std::string& tensor) {
    return R"({"system": "dgx-h100", "workload": {"kind": "transformer", "name": "w", "layers": 2, "hidden": 96, "ffn_hidden": 96, "activation": "swiglu", "vocabulary": 96,
               "default_batch": {"global": 8, "micro": 1, "sequence": 16}, )" +
           keys + R"(}, "devices": 6, "parallel": {"tensor": )" + tensor + "}}";
  };
  CHECK(message(llama(R"("heads": 6, "kv_heads": 3)", "6")) == "accepted");  // two ranks share one
  CHECK_THAT(message(llama(R"("heads": 6, "kv_heads": 3)", "2")),
             Contains("parallel.tensor: 2 does not divide workload.kv_heads = 3") &&
                 Contains("use 1, 3 or 6"));
  CHECK_THAT(message(llama(R"("heads": 6, "head_dim": 5)", "1")),
             Contains("workload.head_dim: 5 is odd") && Contains("use 6"));
}

TEST_CASE("plans of experts explain themselves with the nearest values", "[config][malformed]") {
  const auto mixtral = [](const std::string& parallel) {
    return R"({"system": "dgx-h100", "workload": "mixtral-8x7b", "devices": 16, "parallel": {)" +
           parallel + "}}";
  };
  CHECK(message(mixtral(R"("tensor": 2, "expert": 4)")) == "accepted");
  CHECK_THAT(message(mixtral(R"("tensor": 2, "expert": 3)")),
             Contains("job.json: parallel.expert: 3 must divide") && Contains("experts = 8") &&
                 Contains("use 1, 2, 4 or 8"));
  CHECK_THAT(message(mixtral(R"("tensor": 4, "expert": 4, "expert_tensor": 2)")),
             Contains("parallel.expert_tensor: 2") && Contains("use 4 or 1"));
  for (const char* order : {"tensor-data-pipeline", "data-tensor-context-pipeline", "tensor",
                            "tensor-context-expert-pipeline-data", "tensor-context-data-data"}) {
    CHECK_THAT(message(mixtral(fmt::format(R"("order": "{}")", order))),
               Contains("parallel.order") && Contains("tensor-context-pipeline-data"));
  }
  CHECK_THAT(message(mixtral(R"("zero": 1, "overlap": {"parameters": true})")),
             Contains("parallel.overlap.parameters") && Contains("without data"));
  CHECK_THAT(
      message(R"({"system": "dgx-h100", "workload": "llama3-8b", "parallel": {"expert": 2}})"),
      Contains("parallel.expert: 2, but workload llama3-8b has no experts; use 1"));
  const auto moe = [](const std::string& keys) {
    return R"({"system": "dgx-h100", "workload": {"kind": "transformer", "name": "w", "layers": 2, "hidden": 64, "heads": 4, "activation": "swiglu", "vocabulary": 64,
               "default_batch": {"global": 8, "micro": 1, "sequence": 16}, "moe": {)" +
           keys + "}}}";
  };
  const std::string good = R"("experts": 8, "per_token": 2, "ffn_hidden": 64)";
  CHECK(message(moe(good + R"(, "routing": {"zipf": 0.5}, "capacity_factor": 1.25)")) ==
        "accepted");
  CHECK_THAT(message(moe(R"("experts": 8, "per_token": 9, "ffn_hidden": 64)")),
             Contains("workload.moe.per_token"));
  CHECK_THAT(message(moe(good + R"(, "first_dense_layers": 1)")),
             Contains("workload.ffn_hidden: missing"));
  CHECK_THAT(
      message(moe(good + R"(, "routing": {"zipf": 1, "session": {"samples": 2, "keep": 0.5}})")),
      Contains("workload.moe.routing.session"));
}

TEST_CASE("a dlrm's tables are checked", "[config][malformed]") {
  check(
      {
          {R"({"name": "a", "rows": 0, "dim": 8})", "workload.tables[0].rows", "0", "from 1"},
          {R"({"name": "a", "rows": -1, "dim": 8})", "workload.tables[0].rows", "-1", "from 1"},
          {R"({"name": "a", "rows": 9223372036854775808, "dim": 8})", "workload.tables[0].rows",
           "9223372036854775808", "an integer"},
          {R"({"name": "a", "rows": 10, "dim": 8, "access": {"zipf": -1}})",
           "workload.tables[0].access.zipf", "-1", "from 0"},
          {R"({"name": "a", "rows": 10, "dim": 8, "access": {"zipf": "1.05"}})", "access.zipf",
           "\"1.05\"", "a number"},
          {R"({"name": "a", "rows": 10, "dim": 8, "access": {}})", "tables[0].access", "{}",
           "exactly one of"},
          {R"({"name": "a", "rows": 10, "dim": 8, "access": {"zipf": 1, "uniform": true}})",
           "tables[0].access", "uniform", "exactly one of"},
          {R"({"name": "a", "rows": 10, "dim": 8, "access": {"zipf": 1, "remap": {"buckets": 11, "kind": "mod"}}})",
           "access.remap.buckets", "11", "from 1 to 10"},
          {R"({"name": "a", "rows": 10, "dim": 8, "access": {"zipf": 1, "remap": {"buckets": 5, "kind": "lru", "admit": 0.5}}})",
           "access.remap.admit", "lfu", "remove it"},
          {R"({"name": "a", "rows": 10, "dim": 8, "access": {"histogram": "none.csv"}})",
           "access.histogram", "none.csv", "check the path"},
          {R"({"name": "a", "rows": 10, "dim": 8, "pooling": 0})", "tables[0].pooling", "0",
           "more than 0"},
          {R"({"name": "a", "rows": 10, "dim": 8, "pooling": -2})", "tables[0].pooling", "found -2",
           "from"},
          {R"({"name": "a", "rows": 10, "dim": 0})", "workload.tables[0].dim", "found 0", "from 1"},
          {R"({"name": "a", "rows": 10, "dim": 4})", "workload.tables[0].dim", "4 differs",
           "cat or dcnv2"},
          {R"({"name": "a", "rows": 10, "dim": 8, "mode": "max"})", "tables[0].mode", "max", "sum"},
          {R"({"name": "a", "rows": 10, "dim": 16})", "workload.tables[0].dim", "16",
           "make them equal"},
          {R"({"name": "a", "rows": 10, "dim": 8}, {"name": "a", "rows": 10, "dim": 8})",
           "workload.tables[1].name", "\"a\"", "names that differ"},
          {R"({"name": "a", "row": 10, "dim": 8})", "workload.tables[0].row", "unknown key",
           "did you mean \"rows\""},
          {R"({"rows": 10, "dim": 8})", "workload.tables[0].name", "missing", "a name"},
          {R"(7)", "workload.tables[0]", "7", "an object"},
          {R"()", "workload.tables", "[]", "at least one table"},
      },
      R"({"system": "dgx-h100", "batch": {"global": 8}, "workload": {"kind": "dlrm", "name": "w", "dense_features": 2, "bottom_mlp": [8], "interaction": {"kind": "dot"}, "top_mlp": [1], "tables": [)",
      "]}}");
  check(
      {
          {R"("bottom_mlp": [], "interaction": {"kind": "dot"}, "top_mlp": [1])",
           "workload.bottom_mlp", "[]", "at least one"},
          {R"("bottom_mlp": [8], "interaction": {"kind": "dcnv2", "layers": 2}, "top_mlp": [1])",
           "workload.interaction.rank", "missing", "rank"},
          {R"("bottom_mlp": [8], "interaction": {"kind": "dot", "layers": 2}, "top_mlp": [1])",
           "workload.interaction.layers", "2", "remove it"},
          {R"("bottom_mlp": [8], "interaction": {"kind": "dto"}, "top_mlp": [1])",
           "workload.interaction.kind", "dto", "did you mean \"dot\""},
          {R"("bottom_mlp": [8], "interaction": {"kind": "dot"}, "top_mlp": [2])",
           "workload.top_mlp", "[2]", "ends in 1"},
      },
      R"({"system": "dgx-h100", "batch": {"global": 8}, "workload": {"kind": "dlrm", "name": "w", "dense_features": 2, "tables": [{"name": "a", "rows": 10, "dim": 8}], )",
      "}}");
}

TEST_CASE("a system's amounts carry units", "[config][malformed]") {
  const std::string before =
      R"({"workload": "rm1", "system": {"name": "s", "device": {"name": "d", )";
  const std::string after =
      R"(}, "fabric": [{"name": "n", "size": 8, "bandwidth": "1 GB/s", "latency": "1 us"}]}})";
  const std::string rest = R"("peak": {"fp32": "1 TFLOP/s"})";
  const std::string good = R"("memory": "1 GB", "bandwidth": "1 GB/s", )" + rest;
  REQUIRE(message(before + good + after) == "accepted");
  check(
      {
          {R"("memory": 80, "bandwidth": "1 GB/s", )", "system.device.memory", "found 80", "unit"},
          {R"("memory": "80", "bandwidth": "1 GB/s", )", "system.device.memory", "\"80\"",
           "unit is missing"},
          {R"("memory": "0 GB", "bandwidth": "1 GB/s", )", "system.device.memory", "0 GB",
           "above 0"},
          {R"("memory": "1 GB", "bandwidth": "1 GB", )", "system.device.bandwidth", "1 GB",
           "did you mean"},
          {R"("memory": "1 GB", "bandwidth": "-3 TB/s", )", "system.device.bandwidth", "-3 TB/s",
           "3.35 TB/s"},
          {R"("memory": "1 GB", "bandwidth": "0 TB/s", )", "system.device.bandwidth", "0 TB/s",
           "above 0"},
      },
      before, rest + after);
  check(
      {
          {R"("peak": {})", "system.device.peak", "{}", "at least one format"},
          {R"("peak": {"fp23": "1 TFLOP/s"})", "system.device.peak.fp23", "fp23",
           "did you mean \"fp32\""},
      },
      before + R"("memory": "1 GB", "bandwidth": "1 GB/s", )", after);
  check(
      {
          {R"("gemm": {"form": "f", "points": [[1, 2], [1, 2, 3]]})",
           "system.device.fitted.gemm.points[1]", "", "one length"},
          {R"("gemm": {"constants": {"a": "1 us"}, "form": "f"})", "fitted.gemm.constants.a",
           "1 us", "a number"},
      },
      before + good + R"(, "fitted": {)", "}" + after);
  check(
      {
          {R"("h100-sxm-80gb", "fabric": [{"name": "n", "size": 0, "bandwidth": "1 GB/s", "latency": "1 us"}])",
           "system.fabric[0].size", "0", "from 1"},
          {R"("h100-sxm-80gb", "fabric": [{"name": "n", "size": 8, "bandwidth": "400 Gb/s", "latency": "1 us"}])",
           "system.fabric[0].bandwidth", "400 Gb/s", "50 GB/s"},
          {R"("h100-sxm-80gb", "fabric": [{"name": "n", "size": 8, "bandwidth": "1 GB/s", "latency": "2 parsecs"}])",
           "system.fabric[0].latency", "2 parsecs", "us"},
          {R"("h100-sxm-80gb", "fabric": [], "devise": 1)", "system.devise", "",
           "did you mean \"device\""},
          {R"("h100-sxm-80gb", "fabric": [], "tiers": [{"name": "hbm", "capacity": "1 GB"}])",
           "system.tiers[0].capacity", "", "device.memory"},
          {R"("h10-sxm-80gb", "fabric": [])", "system.device", "h10-sxm-80gb", "h100-sxm-80gb"},
      },
      R"({"workload": "rm1", "system": {"name": "s", "device": )", "}}");
}
