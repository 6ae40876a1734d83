#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "core/config/published_names.h"
#include "core/error.h"
#include "studies/fit/error_statistics.h"
#include "tests/folder.h"
#include "tests/validation/suites.h"
#include "validation/published/published.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::validation;

namespace {

config::Library library() { return {STEPCAST_SOURCE_DIR}; }

/// Two publications of one GPU, made up: rows differ in batch only, the second is measured 10 %
/// slower than the first.
constexpr const char* kNames = R"({
  "gpus": [{"name": "a100", "aliases": ["A100"], "set": {"system": "dgx-a100-80gb"}}],
  "precisions": [{"name": "bf16", "aliases": ["bf16"], "set": {"formats.compute": "bf16"}}],
  "sources": [{"source": "first", "begins": "First", "stack": "no-overlap", "evidence": "test"},
              {"source": "second", "begins": "Second", "framework": "x", "stack": "no-overlap",
               "set": {"attention": "unfused"}, "evidence": "test"}]})";
constexpr const char* kFrameworks = R"({
  "stacks": [{"name": "no-overlap", "framework": "f", "default_of": ["tensor/pipeline"], "set": {},
              "evidence": "test"}]})";

config::PublishedNames names_of(const std::string& names) {
  return config::read_published_names(config::text_source(names.c_str(), "names"),
                                      config::text_source(kFrameworks, "stacks"));
}

constexpr const char* kHeader =
    "id,source,table,retrieved_from,framework,model,hidden,layers,heads,kv_heads,ffn,act,n_experts,"
    "topk,seq,vocab,gpus,gpu,gpus_per_node,inter_gbps_GBps_per_gpu,gbs,mbs,tp,pp,vpp,cp,ep,sp,"
    "zero_stage,schedule,recompute,precision,flash_attn,iter_time_s,iter_time_derived,"
    "tokens_per_s_per_gpu,mfu_pct,mem_GiB\n";

std::vector<PublishedRow> table_of(const std::string& text) {
  return read_published(fixtures::Folder().file("rows.csv", kHeader + text));
}

std::string line(const std::string& id, const std::string& source, int batch, double seconds,
                 const std::string& memory = "") {
  return id + "," + source + ",t,file,x,GPT,1024,4,16,,,GELU2,,,1024,50000,8,A100,8,," +
         std::to_string(batch) + ",1,2,1,,1,1,0,0,1F1B,none,bf16,," + std::to_string(seconds) +
         ",0,,," + memory + "\n";
}

std::vector<PublishedPrediction> predict(const std::vector<PublishedRow>& rows,
                                         const config::PublishedNames& names) {
  return predict_published(rows, names, library(), {});
}

}  // namespace

TEST_CASE("a published row becomes a job by one rule", "[studies][published]") {
  const auto names = names_of(kNames);
  const auto rows = table_of(line("a", "First (2020)", 32, 1) + line("b", "Second", 32, 1));
  REQUIRE(rows.size() == 2);
  const Job job = job_of(rows[0], names, library());
  const TransformerWorkload& w = *job.workload.transformer();
  CHECK(w.kv_heads == 16);
  CHECK(w.ffn_hidden == 4096);
  CHECK(w.tied_embeddings);
  // 50,000 rows up to a multiple of 128 * 2 tensor ranks: 196 * 256.
  CHECK(w.vocabulary == 50176);
  CHECK(job.parallel.data == 4);
  CHECK(job.flash_attention);
  CHECK_FALSE(job_of(rows[1], names, library()).flash_attention);  // says its framework
}

TEST_CASE("a source's recipe for some models stands before its others", "[studies][published]") {
  std::string text = kNames;
  text.insert(text.find(R"({"source": "first")"),
              R"({"source": "first", "begins": "First", "models": ["GPT"], "stack": "no-overlap",
                  "set": {"attention": "unfused"}, "evidence": "test"}, )");
  const auto names = names_of(text);
  std::string other = line("b", "First", 32, 1);
  other.replace(other.find(",GPT,"), 5, ",GPT-2,");
  const auto rows = table_of(line("a", "First", 32, 1) + other);
  CHECK_FALSE(job_of(rows[0], names, library()).flash_attention);
  CHECK(job_of(rows[1], names, library()).flash_attention);
}

TEST_CASE("scalars come from other sources, or from the first row", "[studies][published]") {
  const auto names = names_of(kNames);
  // The measurements follow from the predictions: the first source 1.2 times as long, the second
  // 1.5 times.
  auto rows = table_of(line("a", "First", 32, 1) + line("b", "First", 64, 1) +
                       line("c", "Second", 32, 1) + line("d", "Second", 64, 1));
  const auto plain = predict(rows, names);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].seconds = plain[i].seconds(1) * (i < 2 ? 1.2 : 1.5);
  }
  const auto predictions = predict(rows, names);
  const auto check = [&](const char* basis, const char* group, double bias, std::size_t n) {
    const auto suite = validate_published(predictions, *basis_named(basis));
    const ErrorStatistics& e = validation::testing::group(suite, group).errors;
    CHECK(e.bias == Approx(bias).margin(1e-9));
    CHECK(e.n == n);
  };
  check("loso", "first / a100", 1.5 / 1.2 - 1, 2);
  check("loso", "second / a100", 1.2 / 1.5 - 1, 2);
  check("one-row", "first / a100", 0, 1);
}

TEST_CASE("rows that cannot be predicted say why and are counted", "[studies][published]") {
  const auto names = names_of(kNames);
  std::string unknown_gpu = line("gpu", "First", 32, 1);
  unknown_gpu.replace(unknown_gpu.find("A100"), 4, "TPU4");
  std::string no_heads = line("heads", "First", 32, 1);
  no_heads.replace(no_heads.find(",16,"), 4, ",,");
  const auto rows = table_of(line("a", "First", 32, 1) + line("again", "First", 32, 1) +
                             line("batch", "First", 33, 1) + line("negative", "First", 32, -1) +
                             line("source", "Third", 32, 1) + unknown_gpu + no_heads);
  const auto suite = validate_published(predict(rows, names), {});
  REQUIRE(suite.rows.size() == 7);
  const auto says = [&](std::size_t i, const char* text) {
    REQUIRE(suite.rows[i].skipped);
    CHECK_THAT(*suite.rows[i].skipped, Catch::Contains(text));
  };
  CHECK_FALSE(suite.rows[0].skipped);
  says(1, "again");
  says(2, "33 is not divisible by data * micro");
  says(3, "iter_time_s: found '-1");
  CHECK_FALSE(suite.rows[4].skipped);  // an unknown publication: the stack of its kind of plan
  says(5, "TPU4");
  says(6, "heads: the source does not state it");
  std::size_t skipped = 0;
  for (const auto& g : suite.groups) {
    skipped += g.name.find(" / ") != std::string::npos ? g.skipped : 0;
  }
  CHECK(skipped == 4);  // the one listed again is left out, not rejected
}

TEST_CASE("a table without a column, and an alias file with an unknown key, are refused",
          "[studies][published]") {
  const fixtures::Folder folder;
  CHECK_THROWS_WITH(read_published(folder.file("rows.csv", "id,source\na,b\n")),
                    Catch::Contains("has no column"));
  CHECK_THROWS_WITH(names_of(R"({"gpus": [], "cpus": []})"),
                    Catch::Contains("names: ") && Catch::Contains("cpus"));
}

TEST_CASE("a row says what its software turned on", "[studies][published]") {
  auto names = names_of(kNames);
  names.notes = {{"hybrid", {"within 8 GPUs"}, {R"(parallel.zero={"stage": 1, "level": "node"})"}}};
  names.releases = {{"26.04", {"Third round"}, {}}};
  PublishedRow row;
  row.place = "t:1";
  row.source = "First 25.09";
  row.hidden = 1024;
  row.layers = 4;
  row.heads = 16;
  row.sequence = 1024;
  row.devices = 8;
  row.gpu = "A100";
  row.global = 64;
  row.tensor = 2;
  row.accumulated = 4;
  row.tensor_overlap = "0";
  row.recompute = "selective(mlp)";
  row.precision = "bf16";
  const std::vector<Workload> shapes;
  const auto says = [&](const std::string& setting) {
    const auto all = settings_of(row, {names, shapes});
    return std::find(all.begin(), all.end(), setting) != all.end();
  };
  CHECK(says(R"(batch={"global": 64, "micro": 4, "sequence": 1024})"));  // 64 / (4 x 4)
  CHECK(says("parallel.overlap.tensor_products=false"));
  CHECK(says(R"(parallel.recompute={"modules": ["mlp"]})"));
  CHECK_FALSE(says(R"(parallel.zero={"stage": 1, "level": "node"})"));
  row.notes = "ZeRO within 8 GPUs";
  row.graphs = "full iteration";
  row.recompute = "selective(op)";
  row.narrow_attention = "fp8";
  CHECK(says(R"(parallel.zero={"stage": 1, "level": "node"})"));
  CHECK(says("graphs=full"));
  CHECK(says("parallel.recompute=selective"));
  CHECK(says("formats.attention=fp8"));
  row.graphs = "mcore_cuda_graph";
  CHECK(says("graphs=layer"));
  CHECK(release_of(row, names) == "25.09");
  row.source = "First, Third round";
  CHECK(release_of(row, names) == "26.04");
  row.source = "arXiv 2104.04473 (First)";
  CHECK(release_of(row, names) == "2021");
  row.source = "First";
  CHECK(release_of(row, names).empty());
  CHECK(not_modelled(row).empty());
  row.notes = "do not gate: batch assumed";
  CHECK_FALSE(not_modelled(row).empty());
}

TEST_CASE("a scalar of the host moves the step where the host is the limit",
          "[studies][published]") {
  PublishedPrediction p;
  p.measured = 3;
  p.curve = {1, 1, 1, 1, 1.5, 2, 4};
  CHECK(p.seconds(0.25) == Approx(1));
  CHECK(p.seconds(3) == Approx(3));  // halfway from 2 at x2 to 4 at x4
  CHECK(published_scalar({&p}) == Approx(3).epsilon(0.03));
}

TEST_CASE("Kendall's tau and regret of small orders", "[studies]") {
  const std::vector<double> measured{1, 2, 3, 4};
  CHECK(kendall_tau(measured, measured) == Approx(1));
  // One of six pairs is the other way round: (5 - 1) / 6.
  const std::vector<double> swapped{1, 3, 2, 4};
  CHECK(kendall_tau(swapped, measured) == Approx(4.0 / 6));
  const std::vector<double> reversed{4, 3, 2, 1};
  CHECK(kendall_tau(reversed, measured) == Approx(-1));
  CHECK(regret_of(measured, measured) == Approx(0));
  CHECK(regret_of(reversed, measured) == Approx(3));  // picks 4 where 1 was there
}

TEST_CASE("the installed alias file is read whole", "[studies][published]") {
  const auto names = config::load_published_names(library());
  CHECK(names.sources.size() >= 30);
  for (const char* family : {"tensor/pipeline", "fsdp", "experts"}) {
    CHECK(names.default_framework(family) != nullptr);
  }
  for (const auto& framework : names.frameworks) {
    CAPTURE(framework.name);
    CHECK_FALSE(framework.evidence.empty());
  }
}

TEST_CASE("number formats are read as sources spell them", "[studies][published]") {
  const auto names = config::load_published_names(library());
  const std::pair<const char*, std::vector<const char*>> spelled[] = {
      {"fp32", {"fp32", "32-true", "float32"}},
      {"tf32", {"TF32", "fp32/tf32"}},
      {"fp16", {"fp16", "amp_fp16", "16-mixed", "fp16?", "float16"}},
      {"bf16",
       {"bf16", "BF16", "amp_bf16", "amp_bf16/DEFAULT", "bf16-mixed", "bf16_mixed", "bfloat16",
        "torch.bfloat16", "bf16 no compile"}},
      {"bf16 pure", {"bf16/PURE", "bf16-true"}},
      {"fp8",
       {"fp8", "FP8-CS", "FP8-CS (FP8-MX)", "amp_fp8", "fp8_delayed", "fp8 asyncTP", "float8",
        "bf16_with_fp8_current_scaling_mixed"}},
      {"mxfp8", {"MXFP8", "FP8-MX", "bf16_with_mxfp8_mixed"}},
      {"mxfp4", {"MXFP4"}},
      {"nvfp4", {"NVFP4", "fp4", "bf16_with_nvfp4_mixed"}}};
  for (const auto& [ours, theirs] : spelled) {
    for (const char* name : theirs) {
      CAPTURE(name);
      REQUIRE(names.precision(name) != nullptr);
      CHECK(names.precision(name)->name == ours);
    }
  }
  for (const char* unknown : {"", "?", "amp", "(fp8)", "int8"}) {
    CAPTURE(unknown);
    CHECK(names.precision(unknown) == nullptr);
  }
}
