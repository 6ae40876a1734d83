#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>

#include "studies/predict/memory_fix.h"
#include "studies/predict/predict.h"
#include "tests/jobs.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

using fixtures::zoo_job;

const std::vector<const char*> kStrategies{
    "parallel.zero=3 parallel.overlap.data=true batch.global=32",
    "parallel.zero=2 batch.global=64",
    "parallel.zero.level=node parallel.overlap.data=true batch.global=32",
    "parallel.tensor=2 parallel.pipeline=4 parallel.schedule=zb-h1 batch.global=32",
    "parallel.pipeline=4 parallel.schedule=zb-v parallel.virtual_stages=2 batch.global=32",
    "parallel.context=4 parallel.context_algorithm=ring batch.global=8",
    "parallel.context=4 parallel.context_algorithm=all_to_all batch.global=8",
    "parallel.context=4 parallel.context_algorithm=pass_q phase=prefill cached=65536 "
    "batch.global=8"};

}  // namespace

TEST_CASE("a prefill of a million tokens on 128 H100 takes as long as published",
          "[studies][accuracy]") {
  // Yang et al., arXiv 2411.01783: Llama 3 405B, 16 machines, 77 s.
  const Job job = zoo_job(
      "llama3-405b", "dgx-h100",
      {"devices=128", "phase=prefill", "batch.global=1", "batch.micro=1", "batch.sequence=1000000",
       "parallel.tensor=8", "parallel.context=16", "parallel.context_algorithm=ring"});
  CHECK(predict(job).iteration.base() == Approx(77).epsilon(0.10));
}

TEST_CASE("more bandwidth never slows a plan, whatever its strategy", "[studies][property]") {
  for (const char* strategy : kStrategies) {
    Job job = zoo_job("llama3-8b", "dgx-h100",
                      fixtures::Words(strategy) + "devices=16 batch.micro=1 batch.sequence=8192");
    const Seconds before = predict(job).iteration;
    for (FabricLevel& level : job.system.fabric) {
      level.bandwidth = level.bandwidth * 2;
    }
    CAPTURE(strategy);
    CHECK(predict(job).iteration <= before);
  }
}

TEST_CASE("the fix of a plan that does not fit is the fastest change that does", "[studies]") {
  const auto job = [](const fixtures::Words& more) {
    return zoo_job("llama3-8b", "dgx-h100", more + "devices=8 batch.global=8 batch.micro=1");
  };
  const StepPrediction p = predict(job({}));
  REQUIRE_FALSE(p.fits);
  CHECK(p.ledger.total() > p.capacity);
  CHECK(p.ledger.total() == p.memory.total() + p.reserve);
  REQUIRE_FALSE(p.warnings.empty());
  CHECK_THAT(p.warnings.front(), Catch::StartsWith("out of memory: rank 0 needs") &&
                                     Catch::Contains("most of it optimizer"));
  CHECK(predict(job({"parallel.zero=2"})).fits);
  CHECK_FALSE(predict(job({"parallel.zero=1"})).fits);
  // None of those that fit is faster than the first.
  double fastest = std::numeric_limits<double>::infinity();
  for (const char* tried : {"parallel.zero=2", "parallel.zero=3", "parallel.recompute=full",
                            "parallel.tensor=2", "parallel.pipeline=2", "parallel.context=2"}) {
    const StepPrediction other = predict(job({tried}));
    if (other.fits) {
      fastest = std::min(fastest, other.iteration.base());
    }
  }
  const std::vector<Fix> fixes = memory_fixes(job({}), job);
  REQUIRE_FALSE(fixes.empty());
  // Or two together are, by more than 3 %.
  CHECK(fixes.front().step.base() <= fastest * (fixes.front().set.size() == 1 ? 1.01 : 0.98));
}
