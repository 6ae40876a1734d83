#include "studies/predict/training_run.h"
#include "core/graph/program.h"

#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "core/error.h"
#include "tests/jobs.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::studies;
using Catch::Matchers::Contains;

namespace {

Job job_of(const std::string& text) { return fixtures::loaded({}, text); }

const std::string kGpt =
    R"({"workload": "gpt3-175b", "system": "dgx-a100-80gb", "devices": 1024, "batch": {"global": 1536},
        "parallel": {"tensor": 8, "pipeline": 8}, "flows": [FLOWS]})";
const std::string kDlrm =
    R"({"workload": {"kind": "dlrm", "name": "one", "dense_features": 4, "bottom_mlp": [16], "top_mlp": [1],
        "interaction": {"kind": "dot"},
        "tables": [{"name": "t", "rows": 1000, "dim": 16, "pooling": 2, "access": {"uniform": true}}]},
        "system": "dgx-h100", "devices": 8, "batch": {"global": 64}, "flows": [FLOWS]})";

std::string with(std::string job, const std::string& flows) {
  job.replace(job.find("FLOWS"), 5, flows);
  return job;
}

}  // namespace

TEST_CASE("a checkpoint of a transformer: bytes, stall and bandwidth", "[studies][flows]") {
  const Job job =
      job_of(with(kGpt, R"({"name": "ckpt", "every": "30 min", "bytes": "state", "via": "storage",
               "bandwidth": "1 TB/s", "stall": "host_copy"})"));
  const std::vector<FlowCost> costs = flow_costs(job, seconds(30));
  REQUIRE(costs.size() == 1);
  // bf16 weight, fp32 copy and two Adam moments: 2 + 4 + 8 bytes a parameter.
  const double bytes = 14 * config::parameter_count(job.workload);
  CHECK(costs[0].moved.base() == Approx(bytes).epsilon(1e-12));
  // 1024 devices fill 128 machines of 128 GB/s each to their hosts.
  CHECK(costs[0].stall.base() == Approx(bytes / (128 * 128e9)).epsilon(1e-12));
  CHECK(costs[0].slowdown == Approx(costs[0].stall.base() / 1800).epsilon(1e-12));
  CHECK(costs[0].needed.base() == Approx(bytes / 1800).epsilon(1e-12));
  CHECK(costs[0].sustainable());
  // Copy and moments in formats of their own: 2 + 2 + 2 x 1.
  Job short_states = job;
  short_states.formats.master = Format::kFp16;
  short_states.formats.moments = Format::kFp8;
  const auto each = [&] {
    return flow_costs(short_states, seconds(30)).front().moved.base() /
           config::parameter_count(job.workload);
  };
  CHECK(each() == Approx(6).epsilon(1e-12));
  // The weight is updated itself.
  for (const std::optional<Format> master : {std::optional<Format>{}, {Format::kBf16}}) {
    short_states.formats.master = master;
    CHECK(each() == Approx(4).epsilon(1e-12));
  }
}

TEST_CASE("only rows looked up since the last checkpoint move", "[studies][flows]") {
  const auto moved = [](const std::string& more, Seconds step) {
    return flow_costs(job_of(with(kDlrm, R"({"name": "d", "every": "1 s", "bytes": "embedding_diff",
                                             "via": "ddr")" +
                                             more + "}")),
                      step)
        .front();
  };
  // Two steps in a second: 2 * 64 * 2 = 256 uniform lookups in 1000 rows reach
  // 1000 (1 - (1 - 1/1000)^256) = 226 of them.
  const FlowCost diff = moved("", seconds(0.5));
  CHECK(diff.modified == Approx(1 - std::pow(1 - 1e-3, 256)).epsilon(1e-3));
  // A fp32 row of 16 with one word of row-wise Adagrad takes 68 bytes; 4 bits an element with
  // scale and bias 8 + 4, and the same word.
  const double dense = flow_costs(job_of(with(kDlrm, R"({"name": "p", "every": "1 s",
                                       "bytes": "parameters", "via": "ddr"})")),
                                  seconds(0.5))
                           .front()
                           .moved.base() -
                       1000 * 64;
  // 4 x 16 + 16 parameters below; the dot of 2 vectors makes 1 + 16 features, 17 + 1 above: 98 of
  // 2 bytes in bf16.
  CHECK(dense == 98 * 2);
  const double rows = diff.modified * 1000;
  CHECK(diff.moved.base() - dense == Approx(rows * 68).epsilon(1e-9));
  const FlowCost four = moved(R"(, "bits": 4)", seconds(0.5));
  CHECK(four.moved.base() - dense == Approx(rows * 16).epsilon(1e-9));
  // After long enough every row has changed.
  CHECK(moved("", microseconds(1)).modified == Approx(1).epsilon(1e-6));
}

TEST_CASE("a checkpoint holds the dense layers as their graph does", "[studies][flows]") {
  const std::string compute = GENERATE("bf16", "fp32");
  const std::string optimizer = GENERATE("sgd", "adam", "adagrad");
  const std::string framework = GENERATE("", R"("stack": "hugectr", )");  // keeps copies in fp32
  CAPTURE(compute, optimizer, framework);
  std::string text =
      with(kDlrm, R"({"name": "p", "every": "1 s", "bytes": "parameters", "via": "ddr"},
                                    {"name": "s", "every": "1 s", "bytes": "state", "via": "ddr"})");
  text.insert(1, framework + R"("formats": {"compute": ")" + compute +
                     R"("}, "optimizer": {"dense": ")" + optimizer + R"(", "embedding": "sgd"}, )");
  const Job job = job_of(text);
  const std::vector<FlowCost> costs = flow_costs(job, seconds(1));
  const double tables = 1000 * 16 * 4;
  const ExecutionGraph graph = workloads::build_graph(job);
  double state = 0;
  double weights = 0;
  for (const Tensor& t : graph.programs.front().tensors) {
    const bool dense = t.name.starts_with("bucket.") && !t.is_view();
    weights += dense && t.role == TensorRole::kParameter ? t.bytes().base() : 0;
    state += dense && t.role == TensorRole::kOptimizerState ? t.bytes().base() : 0;
  }
  CHECK(weights == 98 * (compute == "bf16" ? 2 : 4));
  CHECK(costs[0].moved.base() - tables == weights);
  CHECK(costs[1].moved.base() - tables == weights + state);
}

TEST_CASE("a flow shares what an oversubscribed level of the fabric carries", "[studies][flows]") {
  const auto available = [](double oversubscription) {
    Job job = job_of(with(kDlrm, R"({"name": "p", "every": "1 s", "bytes": "parameters",
                                     "via": "infiniband"})"));
    for (FabricLevel& level : job.system.fabric) {
      level.oversubscription = oversubscription;
    }
    return flow_costs(job, seconds(1)).front().available;
  };
  CHECK(available(1) == GBps(50) * 8.0);  // dgx-h100: 50 GB/s a device
  CHECK(available(4) == GBps(50) * 2.0);
}

TEST_CASE("a whole run: steps, days, device-hours and energy", "[studies][flows]") {
  const Job job = job_of(with(kGpt, ""));
  StepPrediction step;
  step.job = job;
  step.iteration = seconds(20);
  // SC21 section 5.1: 300 B tokens. 3e11 / (1536 * 2048) = 95367.4 steps.
  const TrainingRun run = training_run(step, {}, {.tokens = 3e11});
  CHECK(run.steps == 95368);
  CHECK(run.time.base() == Approx(95368 * 20.0));
  CHECK(run.device_hours == Approx(95368 * 20.0 / 3600 * 1024));
  CHECK(run.megawatt_hours == Approx(run.device_hours * 400e-6));  // A100: 400 W
  FlowCost flow;
  flow.slowdown = 0.25;
  CHECK(training_run(step, {flow}, {.samples = 1536 * 8}).time.base() == Approx(8 * 20 * 1.25));
  step.job = job_of(with(kDlrm, ""));
  CHECK_THROWS_WITH(training_run(step, {}, {.tokens = 1}), Contains("--samples"));
}

TEST_CASE("flows are written as they were read, and bad ones say where", "[studies][flows]") {
  const std::string flow =
      R"({"name": "ckpt", "every": "30 min", "bytes": "state", "bits": 4, "via": "ddr", "stall": "full"})";
  const Job job = job_of(with(kDlrm, flow));
  const std::string text = config::job_to_json(job);
  CHECK(config::job_to_json(job_of(text)) == text);
  const auto rejected = [](const std::string& bad, const std::string& why) {
    CHECK_THROWS_WITH(job_of(with(kGpt, bad)), Contains("flows[0]") && Contains(why));
  };
  rejected(R"({"name": "c", "every": "30 min", "bytes": "state", "via": "nvlnk"})", "bandwidth");
  rejected(R"({"name": "c", "every": "1 h", "bytes": "state", "via": {"bandwidth": "2 GB/s"}})",
           R"("via": "storage", "bandwidth": )");
  rejected(R"({"name": "c", "every": "1 h", "bytes": "state", "bandwidth": "2 GB/s"})",
           R"("via": "storage", "bandwidth": )");
  rejected(R"({"name": "c", "every": "1 h", "bytes": "state", "via": "hbm"})", "already are");
  rejected(R"({"name": "c", "every": "0 s", "bytes": "state", "via": "ddr"})", "above 0");
  rejected(R"({"name": "c", "every": "1 h", "bytes": "all", "via": "ddr"})", "bytes");
  rejected(R"({"name": "c", "every": "1 h", "bytes": "embedding_diff", "via": "ddr"})",
           "no embedding tables");
  rejected(R"({"name": "c", "every": "1 h", "bytes": "1 GB", "bits": 4, "via": "ddr"})",
           "not quantised");
  rejected(R"({"every": "1 h", "bytes": "1 GB", "via": "ddr"})", "name");
}

TEST_CASE("failures lose work since the last checkpoint", "[studies][flows]") {
  StepPrediction step;
  step.job = job_of(with(kGpt, R"({"name": "ckpt", "every": "30 min", "bytes": "state",
                    "via": "storage", "bandwidth": "1 TB/s", "stall": "full"})"));
  step.iteration = seconds(20);
  const std::vector<FlowCost> flows = flow_costs(step.job, step.iteration);
  const RunLength length{.steps = 1e5};
  const TrainingRun calm = training_run(step, flows, length);
  CHECK(calm.failures == 0);
  CHECK(calm.time.base() == Approx(2e6 * (1 + flows[0].slowdown)));
  CHECK(calm.stall.base() == Approx(2e6 * flows[0].slowdown));
  // 1024 devices of 51,200 h fail every 50 h; half of 30 min and 15 min of restart are lost: 0.5 h
  // of each 50 h. T = T0 / (1 - 0.01).
  const RunTerms terms{.price = 2, .device_mtbf = seconds(51200 * 3600.0), .restart = seconds(900)};
  const TrainingRun run = training_run(step, flows, length, terms);
  CHECK(run.between_failures.base() == Approx(50 * 3600.0));
  CHECK(run.lost_each.base() == Approx(1800));
  CHECK(run.time.base() == Approx(calm.time.base() / 0.99));
  CHECK(run.lost.base() == Approx(run.time.base() * 0.01));
  CHECK(run.failures == Approx(run.time.base() / (50 * 3600.0)));
  CHECK(run.cost == Approx(2 * run.device_hours));
  CHECK(run.best_checkpoint_every.base() ==
        Approx(std::sqrt(2 * flows[0].stall.base() * 50 * 3600)));
  // A store so slow that Young's interval would end before the last checkpoint has arrived; the
  // stall is a copy into the hosts' memory.
  Job slow = step.job;
  slow.flows[0].stall = Flow::Stall::kHostCopy;
  slow.flows[0].bandwidth = BytesPerSecond(flows[0].moved.base() / 1000);
  StepPrediction beside_it = step;
  beside_it.job = slow;
  const std::vector<FlowCost> late = flow_costs(slow, step.iteration);
  REQUIRE(std::sqrt(2 * late[0].stall.base() * 50 * 3600) < 1000);
  CHECK(training_run(beside_it, late, length, terms).best_checkpoint_every.base() == Approx(1000));
  // Checkpoints on their way do not count yet where training goes on beside the transfer.
  step.job.flows[0].stall = Flow::Stall::kNone;
  const std::vector<FlowCost> beside = flow_costs(step.job, step.iteration);
  CHECK(training_run(step, beside, length, terms).lost_each.base() ==
        Approx(1800 + beside[0].moved.base() / 1e12));
  CHECK(training_run(step, beside, length, terms).best_checkpoint_every.base() == 0);
  CHECK_THROWS_WITH(
      training_run(step, flows, length, {.price = 0, .device_mtbf = seconds(1e5), .restart = {}}),
      Contains("no work gets done"));
  step.job = job_of(with(kGpt, ""));
  CHECK_THROWS_WITH(training_run(step, {}, length, terms),
                    Contains("--mtbf") && Contains("flows="));
}
