// Closed form and event simulator over everything a job can say: wherever the closed form says it
// applies the two agree, and wherever it says it bounds the simulator it does.
#include <catch2/catch.hpp>
#include <cmath>

#include "planner/parallel/closed_form_model.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::planner {
namespace {

using testing::full_memory;
using testing::kLibrary;
using testing::random_job;
using testing::random_point;
using testing::simulated;

std::string text_of(const Job& job, const PlanPoint& point) {
  const TransformerWorkload& m = *job.workload.transformer();
  return fmt::format(
      "{} of {} layers, hidden {}, sequence {}, batch {}, {} experts, bucket {} MB, order {}, {}",
      describe(point), m.layers, m.hidden, job.batch.sequence, job.batch.global,
      m.moe ? m.moe->experts : 0, job.parallel.bucket.base() / 1e6,
      static_cast<int>(job.parallel.order[1]), job.system.name);
}

struct Count {
  int all = 0, applied = 0;
};

Count hold_together(unsigned seed, int jobs, const Overlap& overlap) {
  std::mt19937 rng(seed);
  Count count;
  for (int i = 0; i < jobs; ++i) {
    Job job = random_job(rng);
    job.parallel.overlap = overlap;
    const auto point = random_point(job, rng);
    if (!point) {
      continue;
    }
    const models::CostModel model(job.system, job.calibration);
    ClosedFormModel path(job, model);
    const double error = path.forecast(*point).seconds / simulated(job, *point, model) - 1;
    ++count.all;
    INFO("job " << i << ": " << text_of(job, *point));
    if (path.applies()) {
      ++count.applied;
      CHECK(std::abs(error) <= 0.01);
    }
    if (path.bounds_simulator()) {
      CHECK(error <= 0.01);
    }
  }
  return count;
}

TEST_CASE("two engines, one answer: experts, orders of ranks, sharding, transfers beside compute",
          "[planner][parallel][two_engines]") {
  const Count count = hold_together(21, 150, {});
  CHECK(count.applied >= count.all * 4 / 5);
  // Tensor-parallel transfers beside compute, the same cut up beside products, experts' exchanges.
  Overlap tensor, products, expert;
  tensor.tensor = products.tensor = products.tensor_products = expert.expert = true;
  for (const auto& [seed, overlap] : {std::pair{22U, tensor}, {24U, products}, {23U, expert}}) {
    CHECK(hold_together(seed, 80, overlap).applied >= 25);
  }
}

Job job_of(const std::vector<std::string>& set) {
  return config::load_job(config::text_source("{}", "test"), set, kLibrary);
}

double error_of(const Job& job) {
  const models::CostModel model(job.system, job.calibration);
  ClosedFormModel path(job, model);
  const double forecast = path.forecast(point_of(job)).seconds;
  CHECK(path.applies());
  return forecast / simulated(job, point_of(job), model) - 1;
}

TEST_CASE("buckets hold parameters of several layers, so layers do not cost alike",
          "[planner][parallel][two_engines]") {
  // A layer of hidden 2048 is 50 M parameters, 50 MB on one of 4 tensor ranks in fp32: two of its
  // matrices fill a bucket of 40 MB, and which two changes from layer to layer.
  const char* gpt =
      R"(workload={"kind": "transformer", "name": "gpt", "layers": 24, "hidden": 2048, "heads": 32, "kv_heads": 32, "ffn_hidden": 8192, "activation": "gelu", "vocabulary": 51200, "tied_embeddings": true})";
  for (const char* tensor : {"1", "2", "4"}) {
    for (const char* bucket : {"25 MB", "40 MB", "100 MB"}) {
      const Job job =
          job_of({gpt, "system=dgx-h100", "devices=32", std::string("parallel.tensor=") + tensor,
                  "parallel.zero=1", std::string("parallel.bucket=\"") + bucket + "\"",
                  "batch.global=32", "batch.micro=1", "batch.sequence=2048"});
      INFO("tensor " << tensor << ", bucket " << bucket);
      CHECK(std::abs(error_of(job)) <= 0.002);
    }
  }
}

TEST_CASE("cut-up transfers hide beside products", "[planner][parallel][two_engines]") {
  // 8 tensor ranks of one machine: of a layer's eight gathers and sums four run beside weight
  // gradients without being cut; of the others all but the latency of their steps can hide, as a
  // product of 8,192 wide rows takes longer than its rows travel.
  const auto seconds = [](const char* overlap) {
    const Job job =
        job_of({"workload=llama3-70b", "system=dgx-h100", "devices=8", "workload.layers=8",
                "parallel.tensor=8", "parallel.sequence_parallel=true",
                std::string("parallel.overlap=") + overlap, "batch.global=4", "batch.micro=1",
                "batch.sequence=8192"});
    const models::CostModel model(job.system, job.calibration);
    return simulated(job, point_of(job), model);
  };
  const double in_order = seconds("{}");
  const double beside = seconds(R"({"tensor": true})");
  const double cut = seconds(R"({"tensor": true, "tensor_products": true})");
  CHECK(beside < in_order);
  CHECK(cut < beside * 0.97);
  CHECK(cut > in_order * 0.6);
}

TEST_CASE("exchanges of experts hide beside shared experts and in parts",
          "[planner][parallel][two_engines]") {
  // One layer: a micro-batch of 4,096 tokens sends 2 copies of 4,096 bf16 elements each, 67 MB of
  // which 7/8 leave the rank; between nodes that takes about as long as the shared expert's 2.9
  // TFLOP, so in order nothing hides and beside it most does.
  const auto seconds = [](bool beside, int chunks, int shared) {
    const Job job = job_of(
        {fmt::format(
             R"(workload={{"kind": "transformer", "name": "experts", "layers": 8, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "activation": "swiglu", "vocabulary": 32000, "tied_embeddings": false, "moe": {{"experts": 8, "per_token": 2, "ffn_hidden": 14336, "shared": {}}}}})",
             shared),
         "system=dgx-h100", "devices=64", "parallel.tensor=1", "parallel.expert=8",
         "parallel.pipeline=8", "parallel.overlap.expert=" + std::string(beside ? "true" : "false"),
         "parallel.expert_chunks=" + std::to_string(chunks), "batch.global=64", "batch.micro=1",
         "batch.sequence=4096"});
    const models::CostModel model(job.system, job.calibration);
    return simulated(job, point_of(job), model);
  };
  const double in_order = seconds(false, 1, 1);
  CHECK(seconds(true, 1, 1) < in_order * 0.97);
  CHECK(seconds(true, 1, 0) == Approx(seconds(false, 1, 0)).epsilon(1e-3));  // nothing beside it
  CHECK(seconds(true, 2, 0) < seconds(false, 1, 0) * 0.99);
}

TEST_CASE("two engines, one answer: tokens once to each machine",
          "[planner][parallel][two_engines]") {
  // DeepSeek-V3's kind: 64 experts in 8 groups, 4 of them for a token; ranks of a stage that lie
  // together, or every fourth of them.
  const auto job = [](const char* dispatch, int expert, const char* order) {
    return job_of(
        {R"(workload={"kind": "transformer", "name": "experts", "layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn_hidden": 8192, "activation": "swiglu", "vocabulary": 32000, "tied_embeddings": false, "moe": {"experts": 64, "per_token": 8, "ffn_hidden": 1024, "shared": 1, "first_dense_layers": 1, "groups": 8, "groups_per_token": 4}})",
         "system=dgx-h100", "devices=128", "parallel.pipeline=4", "parallel.zero=1",
         "parallel.expert=" + std::to_string(expert), std::string("parallel.order=") + order,
         std::string("parallel.expert_dispatch=") + dispatch, "batch.global=256", "batch.micro=1",
         "batch.sequence=4096"});
  };
  for (const char* order : {"tensor-context-pipeline-data", "tensor-context-data-pipeline"}) {
    for (const int expert : {8, 32}) {
      INFO(order << ", expert " << expert);
      const Job once = job("per_machine", expert, order);
      const models::CostModel model(once.system, once.calibration);
      ClosedFormModel path(once, model);
      const auto forecast = path.forecast(point_of(once));
      CHECK(forecast.seconds == Approx(simulated(once, point_of(once), model)).epsilon(0.01));
      CHECK(forecast.bytes == Approx(full_memory(once, point_of(once))).epsilon(1e-9));
      const Job copies = job("all_to_all", expert, order);
      const bool across = expert == 32 || std::string(order) == "tensor-context-pipeline-data";
      if (across) {
        CHECK(simulated(once, point_of(once), model) <
              0.9 * simulated(copies, point_of(copies), model));
      }
    }
  }
}

TEST_CASE("recomputation op by op in closed form", "[planner][parallel][two_engines]") {
  for (const char* pipeline : {"1", "4"}) {
    const Job job =
        job_of({"workload=llama2-7b", "system=dgx-h100", "devices=16", "parallel.tensor=2",
                "parallel.sequence_parallel=true", std::string("parallel.pipeline=") + pipeline,
                "parallel.recompute=selective", "system.framework_traits.selective_per_op=true",
                "batch.global=32", "batch.micro=1", "batch.sequence=4096"});
    CHECK(std::abs(error_of(job)) <= 0.01);
    const models::CostModel model(job.system, job.calibration);
    ClosedFormModel path(job, model);
    CHECK(path.forecast(point_of(job)).bytes ==
          Approx(full_memory(job, point_of(job))).epsilon(1e-9));
  }
}

TEST_CASE("memory of layers with and without experts in one chunk",
          "[planner][parallel][two_engines]") {
  // Dense layers, as many as a case wants, before others with experts: the first chunk has both,
  // or one of one kind. Where communicators take memory, the closed form gives the experts' to
  // stages that have none, too: one more at most, never one less.
  const auto check = [](const Job& job) {
    const models::CostModel model(job.system, job.calibration);
    const double closed = ClosedFormModel(job, model).forecast(point_of(job)).bytes;
    const double full = full_memory(job, point_of(job));
    const auto& memory = job.system.device.fitted.at("memory").constants;
    const auto communicator = memory.find("communicator");
    if (communicator == memory.end()) {
      CHECK(closed == Approx(full).epsilon(1e-9));
    } else {
      CHECK(closed >= full * (1 - 1e-9));
      CHECK(closed <= full * (1 + 1e-9) + communicator->second);
    }
  };
  const char* system = GENERATE("dgx-v100-32gb", "dgx-h100");
  for (const int dense : {1, 2, 3, 5, 6, 7}) {
    for (const char* split : {"parallel.pipeline=1", "parallel.pipeline=2",
                              R"(parallel={"pipeline": 2, "virtual_stages": 2})",
                              R"(parallel={"pipeline": 4, "recompute": "full"})",
                              R"(parallel={"pipeline": 4, "expert": 2, "zero": 1})"}) {
      const Job job = job_of(
          {fmt::format(
               R"(workload={{"kind": "transformer", "name": "experts", "layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn_hidden": 16384, "activation": "swiglu", "vocabulary": 32000, "tied_embeddings": false, "moe": {{"experts": 8, "per_token": 2, "ffn_hidden": 1024, "first_dense_layers": {}}}}})",
               dense),
           "system=" + std::string(system), "devices=8", split, "batch.global=16", "batch.micro=1",
           "batch.sequence=4096"});
      INFO(dense << " dense layers, " << split << ", " << system);
      check(job);
    }
  }
}

TEST_CASE("context ranks apart attend as their links allow", "[planner][parallel][two_engines]") {
  // With data inside context, rings run over slower links than in a mesh without replicas.
  const Job job = job_of({"workload=llama2-7b", "system=dgx-a100-80gb", "devices=64",
                          "parallel.tensor=2", "parallel.context=4", "parallel.data=8",
                          "parallel.order=tensor-data-context-pipeline", "batch.global=16",
                          "batch.micro=1", "batch.sequence=4096"});
  CHECK(std::abs(error_of(job)) <= 0.01);
  const models::CostModel model(job.system, job.calibration);
  ClosedFormModel path(job, model);
  CHECK(path.forecast(point_of(job)).bytes ==
        Approx(full_memory(job, point_of(job))).epsilon(1e-9));
}

}  // namespace
}  // namespace stepcast::planner
