#include <catch2/catch.hpp>

#include "studies/predict/predict.h"
#include "tests/jobs.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

StepPrediction mixtral(const fixtures::Words& more = {}) {
  const fixtures::Words job{"devices=16", "parallel.expert=8", "batch.global=64"};
  return predict(fixtures::zoo_job("mixtral-8x7b", "dgx-h100", job + more));
}

}  // namespace

TEST_CASE("uneven experts make a step longer, a capacity shorter", "[studies][experts][property]") {
  const StepPrediction even = mixtral();
  Seconds before = even.iteration;
  Bytes memory = even.memory.activations;
  for (const char* exponent : {"0.3", "0.8"}) {
    const auto skewed = mixtral({std::string("workload.moe.routing.zipf=") + exponent});
    CHECK(skewed.iteration > before);
    CHECK(skewed.memory.activations > memory);
    CHECK(skewed.flops.model == even.flops.model);
    before = skewed.iteration;
    memory = skewed.memory.activations;
  }
  const auto clipped = mixtral({"workload.moe.routing.zipf=0.8", "workload.moe.capacity_factor=1"});
  CHECK(clipped.iteration < before);
  CHECK(clipped.flops.hardware < even.flops.hardware);
}

TEST_CASE("exchanges once to each machine take what DeepEP measured",
          "[studies][experts][accuracy]") {
  // github.com/deepseek-ai/DeepEP, docs/legacy.md: GB/s of H800s for 4,096 tokens of 7,168, 8 of
  // 256 experts. They count the nodes a token reaches, its own included: as many as tokens of its
  // benchmark do (scores drawn, groups by their best one); inside a node the ranks it reaches,
  // 8 (1 - C(224, 8) / C(256, 8)). fp8 with a scale for 128 values.
  struct Measured {
    std::int64_t ranks;
    double reached, dispatch, combine;  // GB/s
  };
  for (const Measured& m : {Measured{8, 5.295, 153, 158}, Measured{16, 1.993, 43, 43},
                            Measured{32, 3.611, 58, 57}, Measured{64, 3.983, 51, 50}}) {
    const std::int64_t nodes = m.ranks / 8;
    const Job job = fixtures::zoo_job(
        "deepseek-v3", "dgx-h100",
        {"workload.layers=4", "workload.moe.groups=" + std::to_string(nodes),
         "workload.moe.groups_per_token=" + std::to_string(std::min<std::int64_t>(nodes, 4)),
         "system.fabric[0].bandwidth=160 GB/s", "devices=" + std::to_string(m.ranks),
         "batch.global=" + std::to_string(m.ranks), "batch.micro=1", "batch.sequence=4096",
         "parallel.expert=" + std::to_string(m.ranks), "parallel.expert_dispatch=per_machine",
         "formats.expert_dispatch=fp8"});
    const double row = 4096 * m.reached * 7168 * 1e-9;
    const StepPrediction step = predict(job);
    int found = 0;
    for (const auto& [name, seconds] :
         {std::pair{"layer.moe.dispatch.exchange", row * (1 + 4 / 128.0) / m.dispatch},
          std::pair{"layer.moe.combine.exchange", row * 2 / m.combine}}) {
      for (const OpRow& op : step.by_name) {
        if (op.name.starts_with(name)) {
          INFO(m.ranks << " ranks, " << name);
          CHECK(op.time.base() / static_cast<double>(op.executions) ==
                Approx(seconds).epsilon(0.2));
          ++found;
        }
      }
    }
    CHECK(found == 2);
  }
}

TEST_CASE("links never slow experts by getting faster", "[studies][experts][property]") {
  Seconds before = mixtral({"calibration=none"}).iteration;
  for (const char* bandwidth : {"100 GB/s", "200 GB/s"}) {
    const Seconds now =
        mixtral({"calibration=none", std::string("system.fabric[1].bandwidth=") + bandwidth})
            .iteration;
    CHECK(now <= before);
    before = now;
  }
}

TEST_CASE("fp8 gains on products only, a block format without a peak on none",
          "[studies][formats][property]") {
  const std::string calibration = GENERATE("none", "auto");
  const auto step = [&](const char* format) {
    return predict(fixtures::zoo_job(
        "llama3-8b", "dgx-h100",
        {"devices=8", "batch.global=8", "parallel.tensor=2", "batch.sequence=4096",
         "calibration=" + calibration, std::string("formats.compute=") + format}));
  };
  const StepPrediction wide = step("bf16");
  const StepPrediction narrow = step("fp8");
  CHECK(narrow.iteration < wide.iteration);
  CHECK(narrow.iteration > 0.5 * wide.iteration);
  CHECK(narrow.memory.parameters == wide.memory.parameters);
  CHECK(narrow.flops.model == wide.flops.model);
  // Quantising costs time, and an H100 multiplies mxfp8 as fast as bf16.
  CHECK(step("mxfp8").iteration > narrow.iteration);
  CHECK(step("mxfp8").iteration > wide.iteration * 0.98);
  CHECK(step("mxfp8").iteration < wide.iteration * 1.2);
}
