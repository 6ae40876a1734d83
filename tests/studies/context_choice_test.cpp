#include "studies/predict/context_choice.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "core/config/config.h"
#include "core/job/job_rules.h"
#include "core/job_split.h"
#include "studies/plan/plan_parallel.h"
#include "studies/predict/predict.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

Job zoo_job(const std::vector<std::string>& settings) {
  return config::load_job(config::text_source("", "test"), settings,
                          config::Library{STEPCAST_SOURCE_DIR});
}

/// Any job with context ranks that breaks no rule.
Job random_job(std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto one_of = [&engine](std::vector<const char*> all) {
    return std::string(all[engine() % all.size()]);
  };
  while (true) {
    const std::string phase = one_of({"train", "train", "train", "prefill"});
    try {
      return zoo_job(
          {"workload=" + one_of({"llama3-8b", "llama3-70b", "qwen3-32b", "mixtral-8x7b"}),
           "system=" + one_of({"dgx-a100-80gb", "dgx-h100", "dgx-b200", "gb200-nvl72"}),
           "devices=" + one_of({"16", "32", "64"}), "batch.global=16", "batch.micro=1",
           "batch.sequence=" + one_of({"4096", "16384", "65536", "131072"}), "phase=" + phase,
           "parallel.zero=" + (phase == "train" ? one_of({"0", "1"}) : "0"),
           "parallel.tensor=" + one_of({"1", "2", "4", "8"}),
           "parallel.pipeline=" + one_of({"1", "2"}),
           "parallel.context=" + one_of({"2", "4", "8", "16"})});
    } catch (const std::exception&) {  // does not divide
    }
  }
}

}  // namespace

TEST_CASE("auto is the fastest of all legal context algorithms", "[studies][context][property]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 24)));
  const Job open = random_job(seed);
  REQUIRE(open.parallel.context_algorithm == ContextAlgorithm::kAuto);
  const StepPrediction chosen = predict(open);
  REQUIRE(chosen.job.parallel.context_algorithm != ContextAlgorithm::kAuto);
  Seconds fastest(std::numeric_limits<double>::infinity());
  for (const ContextAlgorithm algorithm : context_algorithms(open)) {
    Job said = open;
    said.parallel.context_algorithm = algorithm;
    fastest = std::min(fastest, predict(said).iteration);
  }
  CAPTURE(seed, open.workload.name, open.system.name, open.parallel.context);
  CHECK(chosen.iteration == fastest);
}

TEST_CASE("twice the bandwidth of a level never slows context ranks",
          "[studies][context][property]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(100, 116)));
  Job job = random_job(seed);
  const Seconds before = predict(job).hardware;
  for (std::size_t level = 0; level < job.system.fabric.size(); ++level) {
    Job faster = job;
    faster.system.fabric[level].bandwidth *= 2;
    CAPTURE(seed, level, job.workload.name, job.system.name);
    CHECK(predict(faster).hardware <= before * 1.002);
  }
}

TEST_CASE("a plan names the algorithm of its context ranks, and none is much faster",
          "[studies][plan][context]") {
  const Job job = zoo_job({"workload=llama3-8b", "system=dgx-h100", "devices=16", "batch.global=16",
                           "batch.sequence=32768"});
  PlanRequest request{job, {}};
  request.job.parallel.data = 1;
  request.fixed.context = 4;
  request.fixed.tensor = 2;
  ParallelPlanOptions options;
  options.top = 3;
  const ParallelPlanReport report = plan_parallel(request, options);
  REQUIRE_FALSE(report.plans.empty());
  for (const RankedParallelPlan& plan : report.plans) {
    const ContextAlgorithm chosen = plan.job.parallel.context_algorithm;
    CHECK(chosen != ContextAlgorithm::kAuto);
    Job open = plan.job;
    open.parallel.context_algorithm = ContextAlgorithm::kAuto;
    CHECK(plan.prediction.hardware <= predict(open).hardware * 1.005);
  }
}
