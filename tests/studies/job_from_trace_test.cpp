// Jobs out of recorded runs: published ones whose model is known, and small ones written here.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>

#include "core/config/config.h"
#include "core/error.h"
#include "studies/predict/predict.h"
#include "studies/traces/job_from_trace.h"
#include "tests/studies/kineto_events.h"
#include "traces/open_trace.h"

using namespace stepcast;
namespace fs = std::filesystem;

namespace {

studies::JobFromTrace job_of(const traces::Recording& recording, const std::string& system = {}) {
  return studies::job_from_trace(recording,
                                 {.system = system, .mark = {}, .library = {STEPCAST_SOURCE_DIR}});
}

Job loaded(const studies::JobFromTrace& job, const std::vector<std::string>& overrides = {}) {
  return config::load_job(config::text_source(job.job, "job"), overrides, {STEPCAST_SOURCE_DIR});
}

fs::path shared(const char* what) {
  const fs::path path = fs::path(STEPCAST_SHARED_DATA) / "traces" / what;
  if (!fs::exists(path)) {
    WARN("skipped: " << path.lexically_normal().string() << " is not there");
    return {};
  }
  return path;
}

/// A rank's events: operators with shapes, each with a kernel of its own.
class Run {
 public:
  explicit Run(int world) : world_(world) {}
  void op(const std::string& name, const std::string& dims, int thread = 1, int inputs = 3,
          const std::string& type = "c10::BFloat16") {
    std::string types;
    for (int i = 0; i < inputs; ++i) {
      types += fmt::format("{}\"{}\"", i > 0 ? "," : "", type);
    }
    events_.op(name, at_, dims, types, thread);
    launch("kernel of " + name, thread, "");
  }
  void collective(const std::string& name, std::int64_t elements, int size, int thread = 1) {
    launch(
        "ncclDevKernel_" + name, thread,
        fmt::format(
            R"(,"Collective name":"{}","In msg nelems":{},"Out msg nelems":{},"Group size":{},"dtype":"BFloat16","Process Group Name":"{}")",
            name, elements, elements, size, size));
  }
  void range(const std::string& name, int thread = 1) {
    events_.range(name, at_, 8, thread);
    at_ += 10;
  }
  /// Around all that thread 2 calls from now on.
  void autograd() {
    events_.add(
        R"("cat":"cpu_op","name":"autograd::engine::evaluate_function: MmBackward0","pid":1,"tid":2,"ts":{},"dur":9000)",
        at_);
    at_ += 10;
  }
  [[nodiscard]] traces::Recording open() {
    events_.step(1, 0, at_);
    return events_.open(fmt::format(
        R"("deviceProperties":[{{"id":0,"name":"NVIDIA A100-SXM4-80GB"}}],"distributedInfo":{{"rank":0,"world_size":{}}},)",
        world_));
  }

 private:
  void launch(const std::string& kernel, int thread, const std::string& more) {
    ++correlation_;
    events_.call("cudaLaunchKernel", at_ + 1, 2, correlation_, thread);
    events_.kernel(kernel, 7, at_ + 4, 5, correlation_, more);
    at_ += 10;
  }
  int world_;
  int correlation_ = 0;
  int at_ = 10;
  studies::test::KinetoEvents events_;
};

/// The forward and backward products of one: d(input) and d(weight).
void product(Run& run, std::int64_t rows, std::int64_t in, std::int64_t out) {
  run.op("aten::mm", fmt::format("[[{},{}],[{},{}]]", rows, in, in, out), 1, 2);
}
void gradients(Run& run, std::int64_t rows, std::int64_t in, std::int64_t out) {
  run.op("aten::mm", fmt::format("[[{},{}],[{},{}]]", rows, out, out, in), 2, 2);
  run.op("aten::mm", fmt::format("[[{},{}],[{},{}]]", in, rows, rows, out), 2, 2);
}

}  // namespace

TEST_CASE("the eight-rank DLRM is told by its trace and predicted", "[studies][job]") {
  const fs::path folder = shared("dlrm8-kineto");
  if (folder.empty()) {
    return;
  }
  const studies::JobFromTrace told = job_of(traces::open_trace(folder));
  const Job job = loaded(told);
  const LayeredWorkload& model = *job.workload.layered();
  // Sizes as recorded: 13 dense features, linears 256, 128, 16 and 512, 512, 256, 1; products of 27
  // x 27.
  CHECK(model.dense_features == 13);
  CHECK(model.bottom_mlp == std::vector<std::int64_t>{256, 128, 16});
  CHECK(model.top_mlp == std::vector<std::int64_t>{512, 512, 256, 1});
  CHECK(model.interaction.kind == InteractionKind::kDot);
  CHECK(model.tables.size() == 26);
  for (const EmbeddingTable& t : model.tables) {
    CHECK(t.dim == 16);
  }
  CHECK(job.devices == 8);
  CHECK(job.batch.global == 128);
  CHECK(job.formats.compute == Format::kFp32);
  CHECK(job.dense_optimizer == OptimizerKind::kAdagrad);
  CHECK(job.parallel.dlrm_pipeline == DlrmPipeline::kSparseDist);
  CHECK(job.system.name == "dgx-v100-32gb");
  REQUIRE(told.comparison);
  std::cout << fmt::format("recorded {:.4g} ms, predicted {:.4g} ms\n",
                           told.comparison->recorded.base() * 1e3,
                           told.comparison->predicted.base() * 1e3);
  CHECK(told.comparison->predicted / told.comparison->recorded == Approx(1).margin(0.1));
  // The host's time goes along to another system.
  const Job moved = loaded(told, {"system=dgx-h100"});
  CHECK(studies::predict(moved).iteration / told.comparison->recorded == Approx(1).margin(0.1));
}

TEST_CASE("a published GPT-2 is told by its execution trace", "[studies][job]") {
  const fs::path file = shared("param/hf_GPT2_et.json.tar.gz");
  if (file.empty()) {
    return;
  }
  CHECK_THROWS_WITH(job_of(traces::open_trace(file)), Catch::Contains("--system"));
  const studies::JobFromTrace told = job_of(traces::open_trace(file), "dgx-a100-40gb");
  CHECK_FALSE(told.comparison);
  const Job job = loaded(told);
  const TransformerWorkload& model = *job.workload.transformer();
  // GPT-2 large: 36 layers of 1280, 20 heads, 50257 tokens.
  CHECK(model.layers == 36);
  CHECK(model.hidden == 1280);
  CHECK(model.heads == 20);
  CHECK(model.kv_heads == 20);
  CHECK(model.ffn_hidden == 5120);
  CHECK(model.vocabulary == 50257);
  CHECK(model.activation == Activation::kGelu);
  CHECK(job.batch.sequence == 512);
  CHECK(job.batch.micro == 1);
  CHECK(job.formats.compute == Format::kFp32);
  CHECK_FALSE(job.flash_attention);
  CHECK(job.dense_optimizer == OptimizerKind::kAdam);
  CHECK(job.parallel.recompute.kind == RecomputeKind::kNone);
}

TEST_CASE("a split Llama is told with its axes", "[studies][job]") {
  // 8 ranks: tensor 2, data 4. Hidden 512, 8 heads of 64, 2 of keys; ffn 1408; 1000 tokens; batch 2
  // of 128.
  Run run(8);
  const std::int64_t tokens = 256;
  run.op("aten::embedding", "[[500,512],[2,128]]", 1, 1);
  for (int layer = 0; layer < 3; ++layer) {
    product(run, tokens, 512, 4 * 64 + 2 * 64);  // half of 8 + 2 * 2 heads
    run.op("aten::_scaled_dot_product_flash_attention", "[[2,4,128,64],[2,1,128,64],[2,1,128,64]]");
    product(run, tokens, 256, 512);
    run.collective("AllReduce", tokens * 512, 2);
    product(run, tokens, 512, 1408);  // gate and up, half each
    product(run, tokens, 704, 512);
    run.collective("AllReduce", tokens * 512, 2);
  }
  product(run, tokens, 512, 500);
  run.autograd();
  for (int layer = 0; layer < 3; ++layer) {
    gradients(run, tokens, 704, 512);
    gradients(run, tokens, 512, 1408);
    gradients(run, tokens, 256, 512);
    gradients(run, tokens, 512, 384);
  }
  run.collective("ReduceScatter", 3'000'000, 4, 2);
  run.range("Optimizer.step#AdamW.step");
  const studies::JobFromTrace told = job_of(run.open());
  const Job job = loaded(told);
  const TransformerWorkload& model = *job.workload.transformer();
  CHECK(model.layers == 3);
  CHECK(model.hidden == 512);
  CHECK(model.heads == 8);
  CHECK(model.kv_heads == 2);
  CHECK(model.ffn_hidden == 1408);
  CHECK(model.activation == Activation::kSwiGlu);
  CHECK(model.vocabulary == 1000);
  CHECK(job.parallel.tensor == 2);
  CHECK(job.parallel.data == 4);
  CHECK(job.parallel.zero == 1);
  CHECK(job.parallel.recompute.kind == RecomputeKind::kNone);
  CHECK_FALSE(job.parallel.sequence_parallel);
  CHECK(job.batch.micro == 2);
  CHECK(job.batch.global == 8);
  CHECK(job.batch.sequence == 128);
  CHECK(job.flash_attention);
  CHECK(job.dense_optimizer == OptimizerKind::kAdam);
  CHECK(job.formats.compute == Format::kBf16);
}

TEST_CASE("experts are told by their router and products", "[studies][job]") {
  // Mixtral as Hugging Face runs it: every expert by itself. 4 experts, 2 for each of 64 tokens.
  Run run(1);
  run.op("aten::embedding", "[[1000,256],[1,64]]", 1, 1);
  for (int layer = 0; layer < 2; ++layer) {
    for (const std::int64_t columns : {256, 128, 128}) {
      product(run, 64, 256, columns);
    }
    run.op("aten::_scaled_dot_product_flash_attention", "[[1,4,64,64],[1,4,64,64],[1,4,64,64]]");
    product(run, 64, 256, 256);
    product(run, 64, 256, 4);
    for (const std::int64_t rows : {40, 30, 38, 20}) {  // 128 = 2 * 64
      product(run, rows, 256, 448);
      product(run, rows, 256, 448);
      product(run, rows, 448, 256);
    }
  }
  product(run, 64, 256, 1000);
  const Job job = loaded(job_of(run.open()));
  const TransformerWorkload& model = *job.workload.transformer();
  REQUIRE(model.moe);
  CHECK(model.layers == 2);
  CHECK(model.moe->experts == 4);
  CHECK(model.moe->per_token == 2);
  CHECK(model.moe->ffn_hidden == 448);
  CHECK(model.kv_heads == 2);
  CHECK(model.activation == Activation::kSwiGlu);
  CHECK(job.phase == JobPhase::kPrefill);
}

namespace {

/// Layers without fused attention, of 64 tokens: heads of 64.
void unfused_layers(Run& run, int layers, std::int64_t hidden) {
  const std::int64_t heads = hidden / 64;
  for (int layer = 0; layer < layers; ++layer) {
    product(run, 64, hidden, 3 * hidden);
    run.op("aten::bmm", fmt::format("[[{0},64,64],[{0},64,64]]", heads), 1, 2);
    run.op("aten::bmm", fmt::format("[[{0},64,64],[{0},64,64]]", heads), 1, 2);
    product(run, 64, hidden, hidden);
    product(run, 64, hidden, 4 * hidden);
    product(run, 64, 4 * hidden, hidden);
  }
}

}  // namespace

TEST_CASE("the format is the one of most FLOPs, not of the first product", "[studies][job]") {
  // The rotary embedding of Hugging Face's decoders is a product in fp32 and comes first.
  Run run(1);
  run.op("aten::embedding", "[[1000,256],[1,64]]", 1, 1);
  run.op("aten::bmm", "[[1,32,1],[1,1,64]]", 1, 2, "float");
  unfused_layers(run, 2, 256);
  product(run, 64, 256, 1000);
  const studies::JobFromTrace told = job_of(run.open());
  const Job job = loaded(told);
  CHECK(job.formats.compute == Format::kBf16);
  CHECK(job.workload.transformer()->layers == 2);
  // Inference is modelled with fused attention: the job has it, and says that it was not recorded.
  CHECK(job.phase == JobPhase::kPrefill);
  CHECK(job.flash_attention);
  CHECK(std::any_of(told.open.begin(), told.open.end(),
                    [](const auto& key) { return key.key == "attention"; }));
}

TEST_CASE("several models in one step are named, not taken for one", "[studies][job]") {
  Run run(1);
  run.op("aten::embedding", "[[1000,256],[1,64]]", 1, 1);
  unfused_layers(run, 2, 256);
  unfused_layers(run, 3, 512);
  CHECK_THROWS_WITH(job_of(run.open()), Catch::Contains("2 layers of 256, 3 layers of 512") &&
                                            Catch::Contains("--mark"));
  unfused_layers(run, 20, 512);  // most are as wide as each other, the first are not
  CHECK_THROWS_WITH(job_of(run.open()), Catch::Contains("2 layers of 256, 23 layers of 512"));
}

TEST_CASE("a job that computes other work than was recorded is none", "[studies][job]") {
  Run run(1);
  run.op("aten::embedding", "[[1000,4096],[1,64]]", 1, 1);
  unfused_layers(run, 8, 4096);  // 200 million parameters a layer, in kernels of 5 us
  CHECK_THROWS_WITH(job_of(run.open()), Catch::Contains("is no job that shapes tell"));
}

TEST_CASE("what is no model of ours is refused", "[studies][job]") {
  Run convolutions(1);
  convolutions.op("aten::relu", "[[8,64,56,56]]", 1, 1);
  CHECK_THROWS_WITH(job_of(convolutions.open()), Catch::Contains("neither a recommender"));
  Run shapeless(1);
  shapeless.op("aten::mm", "[]", 1, 0);
  CHECK_THROWS_WITH(job_of(shapeless.open()), Catch::Contains("record_shapes=True"));
}
