// Jobs that a backend cannot execute are rejected before ranks start: by their key, in words, with
// a remedy.
#include "studies/run/executable.h"
#include "core/access/access.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "tests/runtime/small_dlrm.h"
#include "tests/runtime/tiered_plans.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using Catch::Contains;
using studies::require_executable;

namespace {

enum class Where { kNowhere, kCpuOnly, kCudaOnly };  ///< where it runs

struct Rejection {
  Where runs;
  const char* key;
  const char* what;
  const char* remedy;
  std::function<void(Job&)> change;
};

void check_rejected(const Job& base, const std::vector<Rejection>& all) {
  CHECK_NOTHROW(require_executable(base, false));
  CHECK_NOTHROW(require_executable(base, true));
  for (const Rejection& r : all) {
    CAPTURE(r.key, r.what);
    Job job = base;
    r.change(job);
    for (const bool cuda : {false, true}) {
      CAPTURE(cuda);
      if (r.runs == (cuda ? Where::kCudaOnly : Where::kCpuOnly)) {
        CHECK_NOTHROW(require_executable(job, cuda));
      } else {
        CHECK_THROWS_AS(require_executable(job, cuda), InputError);
        CHECK_THROWS_WITH(require_executable(job, cuda), Contains(std::string(r.key) + ": ") &&
                                                             Contains(r.what) &&
                                                             Contains(r.remedy));
      }
    }
  }
}

LayeredWorkload& dlrm(Job& job) { return std::get<LayeredWorkload>(job.workload.model); }
TransformerWorkload& transformer(Job& job) {
  return std::get<TransformerWorkload>(job.workload.model);
}

}  // namespace

TEST_CASE("what of a DLRM cannot run names itself and the remedy", "[runtime][executable]") {
  Job job = runtime::test::small_job(InteractionKind::kCat);
  job.devices = 2;
  job.embedding_choice = "table_wise";
  check_rejected(
      job,
      {{Where::kCpuOnly, "embedding.plan", "rows in tier ssd", "tier ddr",
        [](Job& j) {
          j.embedding_plan = workloads::make_embedding_plan(j, "row_wise");
          j.embedding_plan->tables[1].shards[0].tier = "ssd";
        }},
       {Where::kCpuOnly, "embedding.plan", "1028 columns of table 't3'", "at most 1024 columns",
        [](Job& j) { dlrm(j).tables[3].dim = 1028; }},
       {Where::kCpuOnly, "workload.tables", "260 columns of table 't0' together with a table of 9",
        "divides by 4",
        [](Job& j) {
          dlrm(j).tables[0].dim = 260;
          dlrm(j).tables[3].dim = 9;
        }},
       {Where::kNowhere, "workload.tables", "2 features of table 't1'", "give each feature a table",
        [](Job& j) {
          dlrm(j).tables[1].features.assign(2, {"", 1});
        }},
       {Where::kNowhere, "workload.tables", "weights of table 't2'", "leave weighted",
        [](Job& j) { dlrm(j).tables[2].weighted = true; }},
       {Where::kCpuOnly, "workload.tables", "table 't1' in fp16 together with table 't0' in fp32",
        "one format", [](Job& j) { dlrm(j).tables[1].format = Format::kFp16; }},
       {Where::kCpuOnly, "formats.compute", "fp8 products of a DLRM", "use bf16",
        [](Job& j) { j.formats.compute = Format::kFp8; }},
       {Where::kCpuOnly, "formats.compute", "block formats", "use bf16",
        [](Job& j) { j.formats.compute = Format::kMxfp8; }}});
}

TEST_CASE("what of a DLRM both backends run is not refused", "[runtime][executable]") {
  Job job = runtime::test::small_job(InteractionKind::kCat);
  job.devices = 4;
  job.embedding_dedup = true;
  job.sync_interval = 3;
  for (EmbeddingTable& t : dlrm(job).tables) {
    t.session = Session{4, 0.8};
    t.access = std::make_shared<const Access>(Access::zipf(t.rows, 1.1, 7));
  }
  for (unsigned seed = 0; seed < 12; ++seed) {
    job.embedding_plan = runtime::test::random_tiered_plan(job, seed);
    if (seed % 2 == 0) {
      runtime::test::move_to_slow_tiers(*job.embedding_plan, seed, {"ddr"});
    }
    CAPTURE(seed);
    CHECK_NOTHROW(require_executable(job, false));
    CHECK_NOTHROW(require_executable(job, true));
  }
}

TEST_CASE("what of a transformer cannot run names itself and the remedy", "[runtime][executable]") {
  TransformerWorkload small;
  small.layers = 2;
  small.hidden = 32;
  small.heads = small.kv_heads = 4;
  small.head_dim = 8;
  small.ffn_hidden = 48;
  small.vocabulary = 64;
  Job job;
  job.workload = {"small", small, {}};
  job.batch = {8, 1, 8};
  job.formats.compute = Format::kBf16;
  const auto experts = [](Job& j) {
    MixtureOfExperts moe;
    moe.experts = 8;
    moe.per_token = 2;
    moe.ffn_hidden = 8;
    transformer(j).moe = moe;
  };
  check_rejected(
      job,
      {{Where::kNowhere, "parallel.context", "context parallelism", "set it to 1",
        [](Job& j) { j.parallel.context = 2; }},
       {Where::kNowhere, "parallel.overlap.tensor_products", "overlap with products",
        "set it to false",
        [](Job& j) {
          j.parallel.tensor = 2;
          j.parallel.sequence_parallel = true;
          j.parallel.overlap.tensor_products = true;
        }},
       {Where::kNowhere, "phase", "inference", "set it to train",
        [](Job& j) { j.phase = JobPhase::kDecode; }},
       {Where::kNowhere, "workload.mla", "latent attention", "without it",
        [](Job& j) { transformer(j).mla.emplace(); }},
       {Where::kNowhere, "formats.compute", "block formats", "use bf16",
        [](Job& j) { j.formats.compute = Format::kMxfp4; }},
       {Where::kCudaOnly, "formats.compute", "fp8 products on the CPU", "--backend cuda",
        [](Job& j) { j.formats.compute = Format::kFp8; }},
       {Where::kCpuOnly, "workload.hidden", "norms over more than 16384", "at most 16384",
        [](Job& j) { transformer(j).hidden = 16400; }},
       {Where::kCpuOnly, "workload.moe.experts", "router of more than 1024 experts", "at most 1024",
        [&](Job& j) {
          experts(j);
          transformer(j).moe->experts = 1025;
        }},
       {Where::kNowhere, "workload.moe.groups_per_token", "inside groups", "leave groups out",
        [&](Job& j) {
          experts(j);
          transformer(j).moe->groups = 2;
        }},
       {Where::kNowhere, "parallel.expert_dispatch", "each machine once", "set it to all_to_all",
        [&](Job& j) {
          experts(j);
          j.parallel.expert = 2;
          j.parallel.expert_dispatch = ExpertDispatch::kPerMachine;
        }},
       {Where::kNowhere, "formats.expert_dispatch", "a format of their own", "leave it out",
        [&](Job& j) {
          experts(j);
          j.formats.expert_dispatch = Format::kFp8;
        }},
       {Where::kNowhere, "formats.attention", "a separate format", "leave it out",
        [](Job& j) { j.system.framework.fp8_attention = true; }},
       {Where::kNowhere, "formats.scores", "a softmax saved", "leave it out",
        [](Job& j) { j.system.framework.wide_scores = true; }},
       {Where::kNowhere, "formats.head", "a head in the format", "leave it out",
        [](Job& j) { j.system.framework.narrow_head = true; }},
       {Where::kNowhere, "loss", "gradients that wait", "set it to in_place",
        [](Job& j) { j.loss.deferred = 2; }},
       {Where::kCpuOnly, "attention", "flash attention in fp32", "set it to unfused",
        [](Job& j) { j.formats.compute = Format::kFp32; }},
       {Where::kCpuOnly, "attention", "a sliding window", "set it to unfused",
        [](Job& j) { transformer(j).window = 4; }},
       {Where::kCpuOnly, "attention", "width 8 does not divide", "set it to unfused",
        [](Job& j) { transformer(j).head_dim = 12; }},
       {Where::kNowhere, "formats.moments", "moments below 32 bits", "set it to fp32",
        [](Job& j) { j.formats.moments = Format::kBf16; }},
       {Where::kNowhere, "lora", "adapters", "leave it out", [](Job& j) { j.lora.emplace(); }},
       {Where::kNowhere, "workload.dropout", "dropout", "set it to false",
        [](Job& j) { transformer(j).dropout = true; }},
       {Where::kNowhere, "parallel.zero", "differ between tensor ranks",
        "multiple of parallel.tensor", [&](Job& j) {
          experts(j);
          j.devices = 4;
          j.parallel.tensor = j.parallel.data = 2;
          j.parallel.sequence_parallel = true;
          j.parallel.expert = j.parallel.expert_tensor = j.parallel.zero = 1;
        }}});
  experts(job);
  CHECK_NOTHROW(require_executable(job, true));
  job.formats.compute = Format::kFp8;
  CHECK_THROWS_WITH(require_executable(job, true),
                    Contains("formats.compute: ") && Contains("experts") && Contains("use bf16"));
}

TEST_CASE("docs/reference/what-runs.md is what `list runs` prints", "[executable][docs]") {
  std::ifstream in(std::filesystem::path(STEPCAST_SOURCE_DIR) / "docs/reference/what-runs.md");
  REQUIRE(in);
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == studies::what_runs_page());
  for (const studies::PredictedOnly& p : studies::predicted_only()) {
    CHECK_FALSE((p.cpu && p.cuda));
  }
}
