#include "planner/parallel/megatron_arguments.h"

#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "tests/planner/parallel_jobs.h"
#include "workloads/transformer_shape.h"

namespace stepcast::planner {
namespace {

using testing::kLibrary;

TEST_CASE("a job written as Megatron-LM's arguments is read back as it was",
          "[planner][megatron]") {
  const std::string more =
      GENERATE("attention=unfused", "optimizer=sgd", "formats.gradient=bf16",
               "formats.compute=fp16", "formats.compute=fp8", "parallel.zero=1", "parallel.zero=2",
               "parallel.zero=3", "parallel.recompute=full", "parallel.context=2",
               R"(parallel={"tensor": 2, "context": 2, "context_algorithm": "all_to_all"})");
  CAPTURE(more);
  const std::string system = "system=dgx-h100";
  const Job job =
      config::load_job(config::text_source("{}", "test"),
                       {"workload=megatron-8.3b", system, "batch.global=16", "batch.micro=1",
                        "batch.sequence=1024", "devices=8", "parallel.tensor=2", more},
                       kLibrary);
  const Job again = config::load_job(
      config::text_source(text_of(megatron_arguments(job)), "arguments"), {system}, kLibrary);
  CHECK(again.flash_attention == job.flash_attention);
  CHECK(again.dense_optimizer == job.dense_optimizer);
  CHECK(again.formats.compute == job.formats.compute);
  CHECK(again.formats.gradient == job.formats.gradient);
  CHECK(again.parallel.zero == job.parallel.zero);
  CHECK(again.parallel.recompute.kind == job.parallel.recompute.kind);
  CHECK(again.parallel.tensor == job.parallel.tensor);
  CHECK(again.parallel.context == job.parallel.context);
  if (job.parallel.context > 1) {
    CHECK(again.parallel.context_algorithm == workloads::context_algorithm(job));
  }
}

TEST_CASE("groups of experts and dispatch by machines are written for Megatron-LM",
          "[planner][megatron]") {
  const std::string system = "system=dgx-h100";
  const Job job = config::load_job(
      config::text_source("{}", "test"),
      {"workload=mixtral-8x7b", system, "workload.moe.groups=4", "workload.moe.groups_per_token=2",
       "batch.global=16", "batch.micro=1", "batch.sequence=1024", "devices=8", "parallel.expert=4",
       "parallel.expert_dispatch=per_machine"},
      kLibrary);
  const Job again = config::load_job(
      config::text_source(text_of(megatron_arguments(job)), "arguments"), {system}, kLibrary);
  CHECK(again.parallel.expert_dispatch == ExpertDispatch::kPerMachine);
  CHECK(again.workload.transformer()->moe->groups == 4);
  CHECK(again.workload.transformer()->moe->groups_per_token == 2);
}

}  // namespace
}  // namespace stepcast::planner
