#include <algorithm>
#include <catch2/catch.hpp>

#include "simulator/reports/framework_memory.h"
#include "studies/predict/predict.h"
#include "tests/jobs.h"
#include "tests/planner/parallel_jobs.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

using fixtures::zoo_job;

simulator::Fit fit_of(const Job& job) {
  return simulator::fit_of(
      simulator::fullest_ledger(workloads::build_graph(job), job.system.device).total(),
      job.system.device);
}

}  // namespace

TEST_CASE("a step over by less than the method errs by is unlikely to fit", "[studies][fits]") {
  Job job = zoo_job("llama3-8b", "dgx-h100",
                    "devices=8 batch.global=8 batch.sequence=4096 parallel.zero=1");
  const double margin = simulator::memory_margin(job.system.device);
  const double above = simulator::memory_overestimate(job.system.device);
  CHECK(above > 0);
  CHECK(std::max(above, margin) < 0.1);
  const Bytes needed =
      simulator::fullest_ledger(workloads::build_graph(job), job.system.device).total();
  const auto at = [&](double over) {
    job.system.device.memory = needed * (1 / (1 + over * (over > 0 ? above : margin)));
    return predict(job);
  };
  for (const auto& [over, fit, said] :
       {std::tuple{-1.5, simulator::Fit::kYes, ""},
        {-0.5, simulator::Fit::kYes, "of the fullest device's memory is free, within "},
        {0.5, simulator::Fit::kLikely, "unlikely to fit: "},
        {1.5, simulator::Fit::kNo, "out of memory: rank 0 needs "}}) {
    const StepPrediction p = at(over);
    INFO(over);
    CHECK(p.fit == fit);
    CHECK(p.fits == (fit != simulator::Fit::kNo));
    const auto told = [&p](const char* words) {
      return std::any_of(p.warnings.begin(), p.warnings.end(), [words](const std::string& w) {
        return w.find(words) != std::string::npos;
      });
    };
    CHECK(told(said[0] == 0 ? "memory is free" : said) == (said[0] != 0));
  }
  job.system.device.memory = Bytes{};  // not known
  CHECK(fit_of(job) == simulator::Fit::kYes);
}

TEST_CASE("runs that were reported to be out of memory do not fit", "[studies][fits]") {
  SECTION("torchtitan#1789: DeepSeek-V3 16B, 8 sequences a device, full checkpointing, 8 H100") {
    CHECK(
        fit_of(fixtures::loaded(
            {"workload=deepseek-v3", "workload.name=deepseek-v3-16b", "workload.layers=27",
             "workload.hidden=2048", "workload.heads=16", "workload.ffn_hidden=10944",
             "workload.vocabulary=102400",
             R"(workload.moe={"experts": 64, "per_token": 6, "shared": 2, "ffn_hidden": 1408, "first_dense_layers": 1})",
             R"(workload.mla={"q_rank": 0, "kv_rank": 512, "rope_dim": 64, "nope_dim": 128, "v_dim": 128})",
             "system=dgx-h100", "devices=8", "stack=torchtitan", "batch.global=64", "batch.micro=8",
             "batch.sequence=4096", "parallel.zero=3", "parallel.recompute=full"})) ==
        simulator::Fit::kNo);
  }
  SECTION("Megatron-LM#1031: Llama 2 70B, TP8 PP2 without sequence parallelism, H100") {
    CHECK(fit_of(zoo_job("llama2-70b", "dgx-h100",
                         "devices=16 stack=megatron-core batch.global=128 batch.micro=1 "
                         "batch.sequence=8192 parallel.tensor=8 parallel.pipeline=2 "
                         "parallel.sequence_parallel=false")) == simulator::Fit::kNo);
  }
  SECTION("DeepSpeed#237: 27B, 8 tensor ranks, zero 2, one machine of V100 with 32 GB") {
    CHECK(fit_of(zoo_job("gpt-22b", "dgx-v100-32gb",
                         "workload.layers=59 devices=8 stack=deepspeed batch.global=8 "
                         "batch.micro=1 batch.sequence=1024 parallel.tensor=8 parallel.zero=2")) ==
          simulator::Fit::kNo);
  }
}
