#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "core/config/config.h"
#include "core/error.h"
#include "core/job/efficiency.h"

using namespace stepcast;
using namespace stepcast::config;
using Catch::Matchers::Contains;

namespace {

const Library kLibrary{STEPCAST_SOURCE_DIR};

Job job(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return load_job(text_source(text, "job.json"), overrides, kLibrary);
}

/// Written, loaded and written again: every field of the struct is in the text, so equal texts are
/// equal jobs.
void check_round_trip(const Job& j) {
  const std::string text = job_to_json(j);
  CHECK(job_to_json(job(text)) == text);
  CHECK(job_to_json(job(job_to_json(j, -1))) == text);
}

const std::string kGpt = R"({"workload": "gpt3-175b", "system": "dgx-a100-80gb"})";
const std::string kDlrm = R"({"workload": "mlperf-dlrm-v2", "system": "dgx-h100"})";

}  // namespace

TEST_CASE("a transformer job gets the contract's defaults", "[config][job]") {
  const Job j = job(kGpt);
  CHECK(j.devices == 8);  // one machine
  CHECK(j.batch.global == 1536);
  CHECK(j.batch.sequence == 2048);
  CHECK(j.parallel.tensor == 1);
  CHECK(j.parallel.data == 8);     // 8 / (1 * 1 * 1)
  CHECK(j.microbatches() == 192);  // 1536 / (8 * 1)
  CHECK(j.parallel.schedule == ScheduleKind::kOneFOneB);
  CHECK(j.parallel.recompute.kind == RecomputeKind::kNone);
  CHECK_FALSE(j.parallel.overlap.data);  // no framework is named
  CHECK(j.parallel.order == kUsualOrder);
  CHECK(j.parallel.bucket == MB(25));
  CHECK(j.formats.compute == Format::kBf16);
  CHECK(j.dense_optimizer == OptimizerKind::kAdam);
  CHECK(j.flash_attention);
  CHECK(j.calibration.kind == Calibration::Kind::kAuto);
  check_round_trip(j);
}

TEST_CASE("a dlrm job gets the contract's defaults", "[config][job]") {
  const Job j = job(kDlrm);
  CHECK(j.devices == 8);
  CHECK(j.batch.global == 65536);
  CHECK(j.batch.micro == 8192);  // 65536 / 8, one micro-batch
  CHECK(j.microbatches() == 1);
  CHECK(j.embedding_choice == "auto");
  CHECK(j.dense_optimizer == OptimizerKind::kSgd);
  CHECK(j.embedding_optimizer == OptimizerKind::kRowwiseAdagrad);
  check_round_trip(j);
}

TEST_CASE("the compute format is what the device has: bf16, else fp16, else fp32",
          "[config][job]") {
  CHECK(job(kDlrm, {"system=dgx-v100-32gb"}).formats.compute == Format::kFp16);
  CHECK(job(kDlrm, {"system=dgx-v100-32gb", R"(system.device.peak={"fp32": "15.7 TFLOP/s"})"})
            .formats.compute == Format::kFp32);
  CHECK(job(kDlrm, {"formats.compute=tf32"}).formats.compute == Format::kTf32);
}

TEST_CASE("the contract's example job loads and resolves", "[config][job]") {
  const Job j = job(R"({
    "stepcast": 1, "workload": "gpt3-175b", "system": "dgx-a100-80gb", "devices": 1024,  // a comment
    "batch": {"global": 1536, "micro": 1, "sequence": 2048},
    "parallel": {"tensor": 8, "context": 1, "pipeline": 8, "expert": 1, "data": "auto", "virtual_stages": 1, "schedule": "1f1b", "sequence_parallel": false,
                 "zero": 0, "recompute": "full", "bucket": "25 MB", "overlap": {"data": true, "tensor": false, "pipeline": false}, "context_algorithm": "auto", "dlrm_pipeline": "none"},
    "formats": {"compute": "bf16", "gradient": "fp32", "embedding": "fp32", "all_to_all_forward": "fp32", "all_to_all_backward": "fp32"},
    "embedding": {"plan": "auto", "dedup": "off", "transform": "none"},
    "optimizer": "adam", "attention": "flash", "flows": [], "calibration": "auto"})");
  CHECK(j.parallel.data == 16);   // 1024 / (8 * 8)
  CHECK(j.microbatches() == 96);  // 1536 / 16
  CHECK(j.parallel.overlap.data);
  CHECK(j.parallel.recompute.kind == RecomputeKind::kFull);
  check_round_trip(j);
}

TEST_CASE("every setting of a job survives a round trip", "[config][job]") {
  const Job gpt = job(
      kGpt, {"devices=64", "parallel.tensor=4", "parallel.pipeline=4", "parallel.virtual_stages=2",
             "parallel.sequence_parallel=true", "parallel.zero=1", "parallel.recompute.layers=3",
             "parallel.bucket=40 MiB", "parallel.overlap.tensor=true", "formats.compute=fp16",
             "formats.gradient=bf16", "optimizer=sgd", "attention=unfused", "epilogues=fused",
             "calibration.scale=1.25", "batch.micro=2"});
  CHECK(gpt.parallel.data == 4);
  CHECK(gpt.parallel.recompute.kind == RecomputeKind::kFirstLayers);
  CHECK(gpt.parallel.recompute.layers == 3);
  CHECK(gpt.parallel.bucket == MiB(40));
  CHECK(gpt.calibration.scale == 1.25);
  CHECK_FALSE(gpt.flash_attention);
  CHECK(gpt.fused_epilogues);
  CHECK_FALSE(job(kGpt).fused_epilogues);
  check_round_trip(gpt);
  const Job experts =
      job(kGpt, {"workload=deepseek-v3", "system=dgx-h100", "devices=1024", "parallel.pipeline=16",
                 "parallel.expert=64", "parallel.expert_dispatch=per_machine",
                 "parallel.order=tensor-context-data-pipeline", "formats.expert_dispatch=fp8",
                 "formats.attention=fp8", "formats.head=compute", "formats.scores=fp32",
                 R"(loss={"kind": "fused", "deferred": 2})"});
  const auto loss_of = [](const std::string& setting) {
    return job(kGpt, {"framework=megatron-core@2024", setting}).loss;
  };
  CHECK(loss_of("loss.deferred=2").kind == LossKind::kCopied);
  CHECK(loss_of("loss.deferred=2").deferred == 2);
  CHECK(loss_of("loss.kind=fused").kind == LossKind::kFused);
  CHECK(loss_of("loss=fused").kind == LossKind::kFused);
  CHECK(experts.system.framework.narrow_head);
  CHECK(experts.system.framework.wide_scores);
  CHECK(experts.loss.kind == LossKind::kFused);
  CHECK(experts.loss.deferred == 2);
  CHECK(experts.parallel.expert_dispatch == ExpertDispatch::kPerMachine);
  CHECK(experts.formats.expert_dispatch == Format::kFp8);
  CHECK(experts.system.framework.fp8_attention);
  CHECK(experts.workload.transformer()->moe->groups == 8);
  CHECK(experts.workload.transformer()->moe->groups_per_token == 4);
  check_round_trip(experts);
  CHECK_THROWS_WITH(job(kDlrm, {"parallel.expert_dispatch=per_machine"}),
                    Contains("parallel.expert_dispatch") && Contains("use all_to_all"));
  CHECK_THROWS_WITH(job(kDlrm, {"formats.expert_dispatch=fp8"}),
                    Contains("formats.expert_dispatch") && Contains("leave it out"));
  const Job hybrid = job(kGpt, {"devices=64", "parallel.tensor=4", "parallel.zero.level=node",
                                "parallel.zero.reshard=false"});
  CHECK(hybrid.parallel.zero == 3);
  CHECK(hybrid.parallel.zero_level == "node");
  CHECK_FALSE(hybrid.parallel.zero_reshard);
  check_round_trip(hybrid);
  const Job ordered = job(kGpt, {"devices=64", "parallel.pipeline=4", "parallel.zero=1",
                                 "parallel.order=tensor-context-expert-data-pipeline",
                                 R"(parallel.overlap={"data": true, "parameters": true})"});
  CHECK(ordered.parallel.mesh().stride(Axis::kData) == ordered.parallel.tensor);
  CHECK(ordered.parallel.mesh().stride(Axis::kPipeline) == 64 / 4);
  CHECK(ordered.parallel.overlap.parameters);
  check_round_trip(ordered);
  const Job dlrm =
      job(kDlrm, {"embedding.plan=row_wise", "formats.all_to_all_forward=fp16",
                  "formats.embedding=int8_row", "parallel.overlap.input_all_to_all=true",
                  "calibration=none", "embedding.dedup=ikjt", "embedding.sync_interval=4",
                  R"(optimizer={"dense": "adam", "embedding": "adagrad"})"});
  CHECK(dlrm.embedding_dedup);
  CHECK(dlrm.sync_interval == 4);
  CHECK(dlrm.embedding_choice == "row_wise");
  CHECK(dlrm.embedding_optimizer == OptimizerKind::kAdagrad);
  check_round_trip(dlrm);
  CHECK(job(kGpt, {"optimizer=adamw"}).dense_optimizer == OptimizerKind::kAdam);
  CHECK(job(kGpt, {"optimizer=muon"}).muon.shards == MuonShards::kDuplicated);
  const Job muon =
      job(kGpt, {R"(optimizer={"dense": "muon", "iterations": 8, "shards": "blockwise"})"});
  CHECK(muon.orthogonalises());
  CHECK(muon.muon.iterations == 8);
  CHECK(muon.muon.shards == MuonShards::kBlockwise);
  check_round_trip(muon);
  const Job sparse = job(R"({"workload": "deepseek-v3.2", "system": "dgx-h100", "devices": 8})",
                         {"parallel.tensor=8", "parallel.sequence_parallel=true"});
  REQUIRE(sparse.workload.transformer()->sparse);
  CHECK(sparse.workload.transformer()->sparse->top_k == 2048);
  CHECK(sparse.workload.transformer()->sparse_over(2049));
  CHECK_FALSE(sparse.workload.transformer()->sparse_over(2048));
  check_round_trip(sparse);
}

TEST_CASE("a pattern says the kinds of layers in order, over and over", "[config][job][pattern]") {
  const auto hybrid = [](const std::string& pattern, const std::string& more = "") {
    return R"({"workload": {"kind": "transformer", "name": "hybrid", "layers": 10, "hidden": 256, "heads": 4,
        "ffn_hidden": 512, "activation": "swiglu", "vocabulary": 512,
        "default_batch": {"global": 8, "micro": 1, "sequence": 128}, "mamba": {"heads": 8,
        "head_dim": 64, "groups": 2, "state": 64}, "pattern": ")" +
           pattern + "\"" + more + R"(}, "system": "dgx-h100"})";
  };
  const auto at = [&](const std::string& pattern, std::int64_t layer) {
    return job(hybrid(pattern)).workload.transformer()->kind_of(layer);
  };
  const BlockKind mamba{MixerKind::kRecurrent, FeedForwardKind::kNone};
  const BlockKind attention{MixerKind::kAttention, FeedForwardKind::kNone};
  const BlockKind mlp{MixerKind::kNone, FeedForwardKind::kDense};
  const std::string blocks = "2 x (mamba mlp) attention";
  CHECK(at(blocks, 0) == mamba);
  CHECK(at(blocks, 3) == mlp);
  CHECK(at(blocks, 4) == attention);
  CHECK(at(blocks, 5) == mamba);  // over and over
  CHECK(at("2 x mamba+mlp attention", 1) ==
        BlockKind{MixerKind::kRecurrent, FeedForwardKind::kDense});
  for (const std::string& pattern : {blocks, std::string("mamba+mlp attention+mlp"),
                                     std::string("3 x (2 x mamba mlp) attention mlp")}) {
    const Job j = job(hybrid(pattern));
    CHECK_THAT(job_to_json(j), Contains("\"pattern\": \"" + pattern + "\""));
    check_round_trip(j);
  }
  const auto error = [&](const std::string& text) -> std::string {
    try {
      job(text);
      return "accepted";
    } catch (const InputError& e) {
      return e.what();
    }
  };
  for (const char* bad : {"", "mamba mamba+", "mamba (mlp", "mamba)", "0 x mamba", "99999 x mamba",
                          "2 mamba", "mlp+mamba", "mamba+attention", "mamba+mlp+experts", "Mamba",
                          "((((((((((mamba))))))))))", "4096 x (4096 x mamba)"}) {
    CAPTURE(bad);
    CHECK_THAT(error(hybrid(bad)), Contains("workload.pattern"));
  }
  CHECK_THAT(error(hybrid("mamba window")), Contains("give window"));
  CHECK_THAT(error(hybrid("mamba experts")), Contains("give moe"));
  CHECK_THAT(error(hybrid("attention mlp")), Contains("names no recurrent layer"));
  CHECK_THAT(error(hybrid("delta mlp")), Contains("names delta layers"));
  CHECK_THAT(error(hybrid("mamba mlp", R"(, "full_attention_every": 2, "window": 8)")),
             Contains("full_attention_every"));
}

TEST_CASE("compressed attention is read, and what it lacks is named", "[config][job][pattern]") {
  const auto with = [](const std::vector<std::string>& more) {
    std::vector<std::string> settings{"workload=deepseek-v4-flash", "system=dgx-h100", "devices=8"};
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  };
  check_round_trip(job("", with({})));
  const auto error = [&](const std::vector<std::string>& more) -> std::string {
    try {
      job("", with(more));
      return "accepted";
    } catch (const InputError& e) {
      return e.what();
    }
  };
  CHECK_THAT(error({"workload.pattern=hca+experts"}), Contains("remove sparse"));
  CHECK_THAT(error({"workload.pattern=csa+experts attention+experts"}),
             Contains("attention to all keys"));
  CHECK_THAT(error({"workload.kv_heads=2"}), Contains("kv_heads"));
  CHECK_THAT(error({"workload.compressed.groups=7"}), Contains("a divisor of heads = 64"));
  CHECK_THAT(error({"workload.compressed.rope_dim=7"}), Contains("even width"));
  CHECK_THAT(error({"workload.compressed.rope_dim=514"}), Contains("at most head_dim = 512"));
  CHECK_THAT(error({"workload.mtp=1"}), Contains("multi-token prediction"));
  CHECK_THAT(error({"phase=prefill"}), Contains("workload.compressed"));
  CHECK_THAT(error({"batch.sequence=2", "batch.global=8"}), Contains("accepted"));
}

TEST_CASE("overrides by --set reach everything an error can name", "[config][set]") {
  SECTION("values are JSON, else text") {
    CHECK(job("", {"workload=gpt3-175b", "system=dgx-h100"}).workload.name == "gpt3-175b");
    CHECK(job(kGpt, {R"(batch={"global": 64, "micro": 1, "sequence": 128})"}).batch.sequence ==
          128);
  }
  SECTION("objects on the way are created") {
    CHECK(job(kGpt, {"parallel.overlap.data=true"}).parallel.overlap.data);
  }
  SECTION("the last one wins") { CHECK(job(kGpt, {"devices=16", "devices=32"}).devices == 32); }
  SECTION("a named workload is opened") {
    const Job j = job(kDlrm, {"workload.tables[3].rows=1000", "workload.tables.4.dim=64"});
    CHECK(j.workload.layered()->tables[3].rows == 1000);
    CHECK(j.workload.layered()->tables[4].dim == 64);
    CHECK(j.workload.layered()->tables[5].dim == 128);
  }
  SECTION("a named system and its device are opened") {
    const Job j = job(kGpt, {"system.device.memory=1 TB", "system.fabric[0].bandwidth=1 TB/s",
                             "system.device.peak.fp32=1 TFLOP/s"});
    CHECK(j.system.device.memory == GB(1000));
    CHECK(j.system.tiers[0].capacity == GB(1000));
    CHECK(j.system.device.name == "a100-sxm-80gb");
    CHECK(j.system.fabric[0].bandwidth == GBps(1000));
    CHECK(j.system.device.peak.at(Format::kFp32) == teraflops(1));
  }
  SECTION("another system drops what was set inside the first") {
    CHECK(job(kGpt, {"system.device.memory=1 TB", "system=dgx-h100"}).system.device.memory ==
          GiB(79.1));
  }
  SECTION("mistakes name the override") {
    CHECK_THROWS_WITH(job(kGpt, {"devices"}), Contains("--set devices") && Contains("key=value"));
    CHECK_THROWS_WITH(job(kGpt, {"parallel.tensr=2"}),
                      Contains("--set parallel.tensr") && Contains("did you mean \"tensor\""));
    CHECK_THROWS_WITH(job(kGpt, {"parallel.tensor=two"}), Contains("--set parallel.tensor") &&
                                                              Contains("\"two\"") &&
                                                              Contains("integer"));
    CHECK_THROWS_WITH(job(kDlrm, {"workload.tables[99].rows=5"}),
                      Contains("--set workload.tables[99]") && Contains("26 values"));
    CHECK_THROWS_WITH(job(kDlrm, {"workload.tables.rows=5"}), Contains("index such as [0]"));
    CHECK_THROWS_WITH(job(kGpt, {"devices=8", "devices.x=1"}), Contains("devices is 8"));
    CHECK_THROWS_WITH(job(kGpt, {"parallel.=1"}), Contains("dotted path"));
    CHECK_THROWS_WITH(job(kGpt, {"batch[0]=1"}), Contains("expected a list"));
    CHECK_THROWS_WITH(job(kGpt, {"workload=gpt3-176b"}), Contains("did you mean \"gpt3-175b\""));
  }
}

TEST_CASE("a schedule of several chunks a stage says how many", "[config][set]") {
  const std::vector<std::string> base{
      "workload=llama3-70b", "system=dgx-h100",     "devices=64",        "batch.global=128",
      "batch.micro=1",       "batch.sequence=8192", "parallel.tensor=8", "parallel.pipeline=8"};
  const auto with = [&base](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return job("", more).parallel;
  };
  CHECK(with({"parallel.schedule=zb-v"}).virtual_stages == 2);
  CHECK(with({"parallel.schedule=zb-h1"}).virtual_stages == 1);
  const Parallel interleaved = with({"parallel.schedule=interleaved"});
  CHECK(interleaved.schedule == ScheduleKind::kOneFOneB);
  CHECK(interleaved.virtual_stages == 10);  // 80 layers on 8 stages
  CHECK(with({"parallel.schedule=interleaved", "parallel.virtual_stages=5"}).virtual_stages == 5);
  CHECK(with({"parallel.schedule=interleaved", "parallel.pipeline=1"}).virtual_stages == 1);
  CHECK_THROWS_WITH(with({"parallel.schedule=interleaved", "parallel.virtual_stages=1"}),
                    Contains("parallel.schedule") && Contains("use 2 or more"));
  // 81 layers, head counted; and one layer for each stage.
  for (const auto& [key, value] :
       {std::pair{"parallel.pipeline_split", R"({"head": 1})"}, {"workload.layers", "8"}}) {
    CHECK_THROWS_WITH(with({"parallel.schedule=interleaved", std::string(key) + "=" + value}),
                      Contains("parallel.schedule") && Contains("several equal chunks"));
  }
  check_round_trip(job("", {"workload=llama3-70b", "system=dgx-h100", "devices=64",
                            "batch.global=128", "batch.micro=1", "batch.sequence=8192",
                            "parallel={\"tensor\": 8, \"pipeline\": 8, \"schedule\": "
                            "\"interleaved\"}"}));
}

TEST_CASE("tensor ranks of PyTorch's frameworks split the sequence", "[config][set]") {
  for (const char* stack : {"torchtitan", "fsdp2", "automodel"}) {
    const std::vector<std::string> base{"workload=llama3-8b", "system=dgx-h100", "devices=8",
                                        std::string("stack=") + stack, "parallel.zero=3"};
    CHECK_FALSE(job("", base).parallel.sequence_parallel);
    std::vector<std::string> split = base;
    split.emplace_back("parallel.tensor=2");
    CHECK(job("", split).parallel.sequence_parallel);
  }
}

TEST_CASE("a stack is a base: what the job file says and what is set after it stay",
          "[config][set]") {
  const std::string job_file = R"({"workload": "llama3-8b", "system": "dgx-h100"})";
  // Named before the system it reaches into.
  const Job titan = job("", {"stack=torchtitan", "workload=llama3-8b", "system=dgx-h100"});
  CHECK(titan.parallel.overlap.data);
  CHECK(titan.parallel.overlap.tensor);
  CHECK(titan.parallel.order == kPipelineOutside);
  CHECK(titan.loss.kind == LossKind::kEager);
  CHECK(titan.system.framework.casts_each_pass);
  CHECK(job(job_file).system.framework == FrameworkTraits{});
  const Job later = job(job_file, {"stack=torchtitan", "parallel.overlap.data=false"});
  CHECK_FALSE(later.parallel.overlap.data);
  CHECK(later.parallel.overlap.tensor);
  const Job own = job(R"({"workload": "llama3-8b", "system": "dgx-h100", "stack": "TorchTitan",
                          "parallel": {"overlap": {"data": false}}})");
  CHECK_FALSE(own.parallel.overlap.data);
  CHECK(own.parallel.overlap.tensor);  // the framework's: the file says nothing of it
  CHECK(own.parallel.order == kPipelineOutside);
  CHECK_THROWS_WITH(job(job_file, {"stack=torchtitn"}),
                    Contains("--set stack: found \"torchtitn\"") && Contains("\"torchtitan\""));
  check_round_trip(titan);
}

TEST_CASE("a stack that a job names brings its settings and its pace", "[config][job]") {
  const auto efficiency = [](const Job& j) { return efficiency_of(j)->measured; };
  const std::string dense = R"({"workload": "llama3-8b", "system": "dgx-h100"})";
  const Job megatron = job(dense, {"stack=megatron-core", "parallel.tensor=2"});
  CHECK(megatron.parallel.sequence_parallel);  // with tensor ranks
  CHECK_THAT(efficiency(megatron), Contains("megatron-core runs on h100-sxm-80gb"));
  const Job sharded = job(dense, {"stack=fsdp2", "parallel.zero=3"});
  CHECK(sharded.parallel.overlap.data);
  CHECK_FALSE(sharded.parallel.overlap.tensor_products);
  const Job none = job(dense, {"stack=no-overlap", "parallel.tensor=2"});
  CHECK_FALSE(none.parallel.overlap.data);
  CHECK_FALSE(none.parallel.sequence_parallel);
  // Nobody measured that framework: others on such GPUs, and said so.
  CHECK_THAT(efficiency(none), Contains("other frameworks on Hopper GPUs; none of"));
  const Job unnamed = job(dense, {"parallel.tensor=2"});
  CHECK_FALSE(unnamed.parallel.sequence_parallel);
  CHECK_FALSE(efficiency_of(unnamed));
}

TEST_CASE("a system with fitted constants survives a round trip", "[config][system]") {
  System s = load_system("dgx-h100", kLibrary);
  FittedModel m;
  m.form = "roofline";
  m.constants = {{"efficiency", 0.8712345678901234}, {"launch_s", 3.1e-6}};
  m.range = {{"flops", {1e6, 1e12}}};
  m.points = {{{1e6, 2.5}, -0.125}, {{1e9, 3}, 0.0312345}};
  m.samples = 120;
  m.error = {0.05, 0.06, 0.1, 0.2, -0.01};
  m.log_sigma = 0.07;
  m.source = "calibrate, 120 rows";
  s.device.fitted["gemm"] = m;
  s.fitted["all_reduce"] = m;
  s.host.shares_core = true;
  const std::string text = system_to_json(s);
  const System again = read_system(text_source(text, "s.json"), kLibrary);
  CHECK(system_to_json(again) == text);
  const FittedModel& f = again.device.fitted.at("gemm");
  CHECK(f.constants == m.constants);
  CHECK(f.range == m.range);
  REQUIRE(f.points.size() == 2);
  CHECK(f.points[0].features == std::vector<double>{1e6, 2.5});
  CHECK(f.points[0].log_ratio == -0.125);
  CHECK(f.error.bias == -0.01);
  CHECK(f.samples == 120);
  CHECK(f.source == m.source);
  // No measurement is e^5 times the analytical time, or a part of it.
  for (const char* residual : {"5.01", "-5.01", "1e9"}) {
    std::string far = text;
    far.replace(far.find("0.0312345"), 9, residual);
    CHECK_THROWS_WITH(read_system(text_source(far, "s.json"), kLibrary),
                      Contains("s.json") && Contains("points[1]") && Contains("expected -5 to 5"));
  }
  s.device.fitted["gemm"].points[1].log_ratio = 8.1;  // as fitted on a busy machine
  const System busy = read_system(text_source(system_to_json(s), "s.json"), kLibrary);
  CHECK(busy.device.fitted.at("gemm").points.size() == 1);
  CHECK(again.host.shares_core);
}

TEST_CASE("a device may be inline and a system may carry only what it needs", "[config][system]") {
  const System s = read_system(
      text_source(
          R"({"name": "laptop", "device": {"name": "cpu", "memory": "8 GiB", "bandwidth": "20 GB/s", "peak": {"fp32": "100 GFLOP/s"}},
    "fabric": [{"name": "shared_memory", "size": 4, "bandwidth": "5 GB/s", "latency": "1 us"}]})",
          "laptop.json"),
      kLibrary);
  CHECK(s.host.devices == 4);  // the innermost level
  REQUIRE(s.tiers.size() == 1);
  CHECK(s.tiers[0].capacity == GiB(8));
  CHECK(s.fabric[0].oversubscription == 1);
  const System last = read_system(
      text_source(
          R"({"name": "laptop", "device": {"name": "cpu", "memory": "8 GiB", "bandwidth": "20 GB/s", "peak": {"fp32": "100 GFLOP/s"}},
    "fabric": [], "tiers": [{"name": "ddr", "capacity": "9 GB", "bandwidth": "1 GB/s"}, {"name": "hbm"}]})",
          "laptop.json"),
      kLibrary);
  REQUIRE(last.tiers.size() == 2);  // the device's own memory comes first
  CHECK(last.tiers[0].capacity == GiB(8));
}

TEST_CASE("the fuzzer's seeds are inputs that load", "[config]") {
  const std::filesystem::path corpus =
      std::filesystem::path(STEPCAST_SOURCE_DIR) / "tests" / "config" / "corpus";
  // The first byte chooses the loader.
  const auto seed = [&](const char* name) {
    Source s = file_source(corpus / name);
    s.text.erase(0, 1);
    return s;
  };
  CHECK_NOTHROW(load_job(seed("job_dlrm"), {}, kLibrary));
  CHECK_NOTHROW(load_job(seed("job_transformer"), {}, kLibrary));
  CHECK_NOTHROW(read_system(seed("system"), kLibrary));
  CHECK_NOTHROW(read_plan(seed("plan")));
}

TEST_CASE("a device without bf16 refuses it", "[config][job]") {
  for (const char* format : {"bf16", "fp8"}) {
    CHECK_THROWS_WITH(
        job(kDlrm, {"system=dgx-v100-32gb", std::string("formats.compute=") + format}),
        Catch::Contains("formats.compute") && Catch::Contains("no " + std::string(format)) &&
            Catch::Contains("use fp16 or fp32"));
  }
}

TEST_CASE("more micro-batches than a simulation holds are refused", "[config][job]") {
  CHECK(job(kGpt, {"devices=8", "parallel.tensor=8", "batch.micro=1", "batch.global=16384"})
            .microbatches() == 16384);
  // 4294967296 / 1 replica / 1
  CHECK_THROWS_WITH(
      job(kGpt, {"devices=8", "parallel.tensor=8", "batch.micro=1", "batch.global=4294967296"}),
      Catch::Contains("4294967296 micro-batches") && Catch::Contains("batch.global = 16384"));
}

TEST_CASE("tensor degrees that are proposed are legal, all of them", "[config][job]") {
  // 96 heads, 12288 columns, a vocabulary of 51200 = 2^11 * 25
  const auto gpt = [](std::int64_t tensor) {
    return load_job(text_source("", "test"),
                    {"workload=gpt3-175b", "system=dgx-h100", fmt::format("devices={}", tensor),
                     fmt::format("parallel.tensor={}", tensor), "batch.global=64"},
                    {STEPCAST_SOURCE_DIR});
  };
  CHECK_THROWS_WITH(gpt(7), Catch::Contains("use 1, 2, 4, 8, 16 or 32"));
  for (const std::int64_t t : {1, 2, 4, 8, 16, 32}) {
    CHECK(gpt(t).parallel.tensor == t);
  }
}

TEST_CASE("a list of devices says where their constants come from", "[config]") {
  std::map<std::string, std::string> facts;
  for (const Entry& e : list_devices({STEPCAST_SOURCE_DIR})) {
    facts[e.name] = e.facts;
  }
  CHECK_THAT(facts["h100-sxm-80gb"], Catch::Contains("bf16") && Catch::Contains("measured"));
  CHECK_THAT(facts["l40s"], Catch::Contains("transferred"));
  CHECK_THAT(facts["v100-sxm2-32gb"],
             Catch::Contains("fp16") && !Catch::Contains("bf16") && Catch::Contains("transferred"));
}

TEST_CASE("how a transformer is trained: loss, adapters, documents, formats of states, modules",
          "[config][training]") {
  const std::string text = R"({"workload": "llama3-8b", "system": "dgx-h100",
      "batch": {"global": 8, "micro": 1, "sequence": 4096},
      "loss": {"kind": "fused", "chunks": 8}, "formats": {"moments": "int8", "frozen": "nf4",
                  "activation": "fp8"},
      "lora": {"rank": 16, "targets": ["qkv", "fc1"], "dropout": 0.1},
      "sequence_lengths": {"mean": 300, "deviation": 100, "packed": false},
      "parallel": {"recompute": {"modules": ["layernorm", "mlp"]}}})";
  const Job j = job(text);
  CHECK(j.loss.kind == LossKind::kFused);
  CHECK(j.loss.chunks == 8);
  CHECK(j.formats.moments == Format::kInt8);
  CHECK(j.formats.master == Format::kFp32);
  CHECK(j.formats.frozen == Format::kNf4);
  CHECK(j.formats.activation == Format::kFp8);
  CHECK(j.lora->alpha == 32);  // twice the rank unless it is said
  CHECK((j.lora->qkv && j.lora->fc1 && !j.lora->projection && !j.lora->fc2));
  CHECK(j.sequence_lengths->mean_square == 300 * 300 + 100 * 100);
  CHECK_FALSE(j.sequence_lengths->packed);
  CHECK(j.parallel.recompute.modules ==
        RecomputeModules{.attention_core = false, .norms = true, .feed_forward = true});
  check_round_trip(j);
  CHECK(job(text, {"loss=copied"}).loss.chunks == 1);
  CHECK_THROWS_WITH(job(text, {"lora.targets=[\"query\"]"}),
                    Contains("lora.targets[0]") && Contains("projection"));
  CHECK_THROWS_WITH(job(text, {"loss.chunks=7"}), Contains("4096 tokens of a micro-batch"));
  CHECK_THROWS_WITH(job(text, {"sequence_lengths.deviation=3000"}),
                    Contains("batch.sequence") && Contains("documents are cut there"));
  CHECK_THROWS_WITH(job(kDlrm, {"loss=fused"}), Contains("belongs to transformers"));
}
