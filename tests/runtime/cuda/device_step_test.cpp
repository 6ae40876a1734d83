#include <catch2/catch.hpp>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/checkpoint/checkpoints.h"
#include "tests/runtime/cuda/device_fixture.h"
#include "tests/runtime/listed_models.h"
#include "workloads/embedding_plan/plan_layout.h"

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

struct Curves {
  std::vector<double> cpu, gpu;
};

Curves curves_of(const cuda::Module& module, const Job& job, int steps,
                 cuda::Options options = {}) {
  const ExecutionGraph graph = workloads::build_graph(job);
  test::BothBackends both(module, graph, options);
  Curves curves;
  for (int s = 0; s < steps; ++s) {
    const HostBatch batch = both.batch(s);
    curves.cpu.push_back(both.cpu.run_step(s, batch, -1));
    curves.gpu.push_back(both.gpu->run_step(s, batch, -1));
  }
  return curves;
}

void check_equal_curves(const Curves& curves, double tolerance) {
  for (std::size_t s = 0; s < curves.cpu.size(); ++s) {
    INFO("step " << s);
    CHECK(curves.gpu[s] == Approx(curves.cpu[s]).epsilon(tolerance));
  }
}

class Recorder : public Observer {
 public:
  void on_op(const OpSpan& span) override { ops.push_back(span); }
  void on_step_begin(std::int32_t, std::int32_t, SimTime at) override { begin = at; }
  void on_step_end(std::int32_t, std::int32_t, SimTime at) override { end = at; }
  std::vector<OpSpan> ops;
  SimTime begin{}, end{};
};

}  // namespace

DEVICE_TEST_CASE("a DLRM learns as on the CPU", "[runtime][cuda][gpu]") {
  const auto interaction =
      GENERATE(InteractionKind::kDot, InteractionKind::kCat, InteractionKind::kDcnV2);
  const auto optimizer = GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                                  OptimizerKind::kAdagrad, OptimizerKind::kAdam);
  check_equal_curves(curves_of(module, test::small_dlrm(interaction, optimizer, Format::kFp32), 6),
                     1e-4);
}

DEVICE_TEST_CASE("state that was saved of a device goes on with the same losses",
                 "[runtime][cuda][gpu]") {
  const bool narrow = GENERATE(false, true);  // weights, whose masters are what is saved
  CAPTURE(narrow);
  const Job job =
      narrow ? test::small_transformer(Activation::kSwiGlu, false, Format::kBf16)
             : test::small_dlrm(InteractionKind::kDot, OptimizerKind::kAdam, Format::kFp32);
  const ExecutionGraph graph = workloads::build_graph(job);
  const TemporaryFolder folder("stepcast");
  const auto losses = [](test::BothBackends& both, int from, int to) {
    std::vector<double> all;
    for (int s = from; s < to; ++s) {
      all.push_back(both.gpu->run_step(s, both.batch(s), -1));
    }
    return all;
  };
  test::BothBackends first(module, graph);
  losses(first, 0, 3);
  CheckpointImage image(written_state(graph, 0, NarrowWeights::kOfMasters), 0, 1,
                        [&](TensorId id) { return first.gpu->numbers(id); });
  losses(first, 3, 4);  // what is saved is that of settle()
  first.gpu->settle();
  image.copy();
  image.write(4, folder.path() / checkpoint_file(0));
  test::BothBackends second(module, graph);
  resume(folder.path(), graph, 0, *second.gpu);
  resume(folder.path(), graph, 0, second.cpu);
  const std::vector<double> expected = losses(first, 4, 7);
  CHECK(losses(second, 4, 7) == expected);
  for (int s = 4; s < 7; ++s) {  // the CPU keeps weights in fp32
    CHECK(second.cpu.run_step(s, second.batch(s), -1) ==
          Approx(expected[static_cast<std::size_t>(s - 4)]).epsilon(narrow ? 0.02 : 1e-4));
  }
}

DEVICE_TEST_CASE("a staged batch is not read again", "[runtime][cuda][gpu]") {
  const Job job = test::small_dlrm(InteractionKind::kDot, OptimizerKind::kSgd, Format::kFp32);
  const ExecutionGraph graph = workloads::build_graph(job);
  test::BothBackends both(module, graph, {});
  for (int s = 0; s < 3; ++s) {
    HostBatch batch = both.batch(s);
    const double expected = both.cpu.run_step(s, batch, -1);
    both.gpu->stage(s, batch);
    std::fill(batch.dense.begin(), batch.dense.end(), 1e9F);
    std::fill(batch.labels.begin(), batch.labels.end(), 1e9F);
    CHECK(both.gpu->run_step(s, batch, -1) == Approx(expected).epsilon(1e-4));
  }
}

DEVICE_TEST_CASE("pooled tables whose lists repeat learn as on the CPU", "[runtime][cuda][gpu]") {
  const auto repeating = [](OptimizerKind optimizer, Format compute) {
    Job job = test::small_dlrm(InteractionKind::kCat, optimizer, compute);
    for (EmbeddingTable& t : std::get<LayeredWorkload>(job.workload.model).tables) {
      t.session = Session{16, 0.8};
    }
    job.embedding_dedup = true;
    return job;
  };
  const auto optimizer = GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                                  OptimizerKind::kAdagrad, OptimizerKind::kAdam);
  Job job = repeating(optimizer, Format::kFp32);
  for (const EmbeddingSlice& s : workloads::embedding_layout(job).slices) {
    REQUIRE(s.pools_lists_once());
  }
  check_equal_curves(curves_of(module, job, 4), 1e-4);
  check_equal_curves(curves_of(module, repeating(optimizer, Format::kBf16), 2), 2e-2);
  // Batches of one size are replayed, however many of their lists are distinct.
  for (EmbeddingTable& t : std::get<LayeredWorkload>(job.workload.model).tables) {
    t.pooling = 3;
  }
  cuda::Options captured;
  captured.graph = true;
  CHECK(curves_of(module, job, 4, captured).gpu == curves_of(module, job, 4).gpu);
}

DEVICE_TEST_CASE("a transformer learns as on the CPU", "[runtime][cuda][gpu][short]") {
  const auto activation = GENERATE(Activation::kGelu, Activation::kSwiGlu);
  check_equal_curves(
      curves_of(module, test::small_transformer(activation, false, Format::kFp32), 2), 1e-4);
  check_equal_curves(
      curves_of(module, test::small_transformer(activation, false, Format::kBf16), 2), 2e-2);
}

TEST_CASE("a transformer with cuDNN's attention learns as on the CPU",
          "[runtime][cuda][gpu][short]") {
  const cuda::Module* module = test::device_module();
  const test::WithCudnn machine;
  if (module != nullptr && test::has_cudnn(*module)) {
    check_equal_curves(
        curves_of(*module, test::small_transformer(Activation::kSwiGlu, true, Format::kBf16), 2),
        2e-2);
  }
}

DEVICE_TEST_CASE("a transformer with fp8 products learns nearly as in fp32",
                 "[runtime][cuda][gpu]") {
  const auto curve = [&](Format compute, int steps) {
    return curves_of(module, test::small_transformer(Activation::kSwiGlu, false, compute), steps);
  };
  const Curves fp8 = curve(Format::kFp8, 2);
  check_equal_curves(fp8, 5e-2);
  CHECK(fp8.gpu[0] != curve(Format::kBf16, 1).gpu[0]);  // it is other products that ran
}

DEVICE_TEST_CASE("a transformer with experts learns as on the CPU", "[runtime][cuda][gpu][short]") {
  for (const MixtureOfExperts& moe : {test::even_experts(), test::skewed_experts()}) {
    check_equal_curves(curves_of(module, test::small_experts(moe, Format::kFp32), 3), 1e-4);
    check_equal_curves(curves_of(module, test::small_experts(moe, Format::kBf16), 2), 2e-2);
  }
  const Job job = test::small_experts(test::even_experts(), Format::kFp32);
  const ExecutionGraph graph = workloads::build_graph(job);
  cuda::Options captured;
  captured.graph = true;
  CHECK_THROWS_WITH(module.executor(graph, cuda::Ranks{}, captured, nullptr),
                    Catch::Contains("--cuda-graph") && Catch::Contains("experts"));
}

DEVICE_TEST_CASE("listed layers and windows learn as on the CPU", "[runtime][cuda][gpu]") {
  std::vector<std::string> models = test::listed_without_attention();
  models.push_back(test::listed_models().back());
  for (const std::string& model : models) {
    check_equal_curves(curves_of(module, test::listed_job(model, 1, "fp32"), 3), 1e-4);
  }
  const Job windowed = test::small_transformer(Activation::kSwiGlu, false, Format::kFp32, 7);
  check_equal_curves(curves_of(module, windowed, 2), 1e-4);
}

DEVICE_TEST_CASE("rows of a slower tier learn and move as on the CPU", "[runtime][cuda][gpu]") {
  const auto optimizer =
      GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam);
  const auto pipeline =
      GENERATE(DlrmPipeline::kNone, DlrmPipeline::kSparseDist, DlrmPipeline::kPrefetch);
  Job job = test::small_dlrm(InteractionKind::kDot, optimizer, Format::kFp32);
  job.parallel.dlrm_pipeline = pipeline;
  job.batch.global = 24;
  job.system.tiers = {{"hbm", {}, {}, 1}, {"ddr", GB(10), GBps(1), 1}};
  job.embedding_plan.emplace();
  job.embedding_plan->workload = job.workload.name;
  job.embedding_plan->devices = 1;
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    PlanTable& to = job.embedding_plan->tables.emplace_back();
    to.name = t.name;
    // Hot rows stay, of the others about a quarter have room in the cache.
    const std::int64_t hot = t.rows / 8;
    const auto shard = [&](std::int64_t first, std::int64_t end) -> PlanShard& {
      PlanShard& s = to.shards.emplace_back();
      s.rows = {first, end};
      s.columns = {0, t.dim};
      s.sharding = ShardingKind::kTableWise;
      s.groups = {{0}};
      return s;
    };
    shard(0, hot);
    PlanShard& cold = shard(hot, t.rows);
    cold.tier = "ddr";
    cold.cache_bytes = static_cast<double>(t.rows - hot) / 4 * 4 * static_cast<double>(t.dim);
  }
  const ExecutionGraph graph = workloads::build_graph(job);
  test::BothBackends both(module, graph);
  HostBatch now = both.batch(0);
  if (both.cpu.pipelined()) {
    both.cpu.fill_pipeline(now);
    both.gpu->fill_pipeline(now);
  }
  for (int s = 0; s < 8; ++s) {
    const HostBatch next = both.batch(s + 1);
    const HostBatch* ahead = both.cpu.pipelined() ? &next : nullptr;
    const double expected = both.cpu.run_step(s, now, -1, ahead);
    CHECK(both.gpu->run_step(s, now, -1, ahead) == Approx(expected).epsilon(1e-5));
    now = next;
  }
  const RowTraffic here = both.cpu.tier_traffic().at(0);
  const RowTraffic there = both.gpu->tier_traffic().at(0);
  CHECK(here.fetched > 100);
  CHECK(here.written > 100);
  CHECK(there.lookups == here.lookups);
  CHECK(there.touched == here.touched);
  CHECK(there.fetched == here.fetched);
  CHECK(there.written == here.written);
  CHECK(there.fetched_bytes == here.fetched_bytes);
  CHECK(both.gpu->allocated_in_tiers().at(0) > 0);
  // Values that every row has taken, in its tier.
  const Program& program = graph.programs.front();
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    if (program.tensors[id].tier > 0) {
      const auto expected = both.cpu.tensor(id, 0);
      const std::vector<float> found = both.gpu->read(id, 0);
      double worst = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        worst = std::max(worst, std::abs(double{found[i]} - double{expected.data[i]}));
      }
      INFO(program.tensors[id].name);
      CHECK(worst < 1e-5);
    }
  }
}

DEVICE_TEST_CASE("what the device cannot hold in a slower tier is refused",
                 "[runtime][cuda][gpu]") {
  Job job = test::small_dlrm(InteractionKind::kCat, OptimizerKind::kSgd, Format::kFp32);
  const ExecutionGraph graph = [&] {
    ExecutionGraph g = workloads::build_graph(job);
    g.programs.front().tiers = {"ssd"};
    return g;
  }();
  CHECK_THROWS_WITH(module.executor(graph, cuda::Ranks{}, cuda::Options{}, nullptr),
                    Catch::Contains("rows in tier ssd") && Catch::Contains("--backend cpu"));
  ExecutionGraph cached = graph;
  cached.programs.front().tiers = {"ddr"};
  cuda::Options captured;
  captured.graph = true;
  CHECK_THROWS_WITH(module.executor(cached, cuda::Ranks{}, captured, nullptr),
                    Catch::Contains("--cuda-graph") && Catch::Contains("slower tiers"));
}

DEVICE_TEST_CASE("a step whose ops are not those of the step before is not captured",
                 "[runtime][cuda][gpu]") {
  const Job job = test::small_dlrm(InteractionKind::kCat, OptimizerKind::kSgd, Format::kFp32);
  ExecutionGraph graph = workloads::build_graph(job);
  graph.programs.front().interval = 3;
  graph.programs.front().ops.back().flags |= op_flags::kEveryInterval;
  cuda::Options captured;
  captured.graph = true;
  CHECK_THROWS_WITH(module.executor(graph, cuda::Ranks{}, captured, nullptr),
                    Catch::Contains("--cuda-graph") && Catch::Contains("sync_interval") &&
                        Catch::Contains("once in 3 steps") && Catch::Contains("leave"));
}

DEVICE_TEST_CASE("a captured step gives the numbers of the issued one", "[runtime][cuda][gpu]") {
  cuda::Options captured;
  captured.graph = true;
  for (const Job& job :
       {test::small_transformer(Activation::kSwiGlu, false, Format::kBf16),
        test::small_dlrm(InteractionKind::kDot, OptimizerKind::kAdam, Format::kFp32),
        test::listed_job(test::listed_models().back(), 1)}) {  // lengths drawn anew in each step
    const Curves issued = curves_of(module, job, 5);
    const Curves replayed = curves_of(module, job, 5, captured);
    CHECK(issued.gpu == replayed.gpu);  // kernels add in a fixed order
  }
}

DEVICE_TEST_CASE("op times on the device lie within the step", "[runtime][cuda][gpu]") {
  const bool graph_mode = GENERATE(false, true);
  const Job job = test::small_transformer(Activation::kGelu, false, Format::kBf16);
  const ExecutionGraph graph = workloads::build_graph(job);
  Recorder recorder;
  cuda::Options options;
  options.graph = graph_mode;
  test::BothBackends both(module, graph, options, &recorder);
  for (int s = 0; s < 3; ++s) {
    recorder.ops.clear();
    both.gpu->run_step(s, both.batch(s), s);
  }
  REQUIRE(recorder.ops.size() == graph.programs.front().executed_ops());
  SimTime last{};
  for (const OpSpan& span : recorder.ops) {  // one stream: one after the other
    CHECK(span.issued <= span.begin);
    CHECK(span.begin <= span.end);
    // Events resolve half a microsecond.
    CHECK(static_cast<std::int64_t>(span.end) + 1'000'000 >= static_cast<std::int64_t>(last));
    last = span.end;
    CHECK(span.issued >= recorder.begin);
    CHECK(span.end <= recorder.end);
  }
}

DEVICE_TEST_CASE("too large a model is refused with the ledger", "[runtime][cuda][gpu]") {
  Job job = test::small_dlrm(InteractionKind::kCat, OptimizerKind::kSgd, Format::kFp32);
  auto workload = *job.workload.layered();
  workload.tables[0].rows = 40'000'000'000;  // 2.6 TB
  job.workload.model = workload;
  const ExecutionGraph graph = workloads::build_graph(job);
  CHECK_THROWS_AS(module.executor(graph, cuda::Ranks{}, cuda::Options{}, nullptr), RunError);
  CHECK_THROWS_WITH(module.executor(graph, cuda::Ranks{}, cuda::Options{}, nullptr),
                    Catch::Contains("out of device memory") && Catch::Contains("embedding"));
}
