// The framework that predictions take where a job names none.
#include <catch2/catch.hpp>

#include "core/config/default_framework.h"
#include "core/job/efficiency.h"

using namespace stepcast;
using namespace stepcast::config;

namespace {

JobOnFramework taken(std::vector<std::string> overrides) {
  const std::vector<std::string> usual{"workload=llama3-8b", "system=dgx-h100",     "devices=16",
                                       "batch.global=32",    "batch.sequence=8192", "batch.micro=1",
                                       "parallel.tensor=4"};
  overrides.insert(overrides.begin(), usual.begin(), usual.end());
  return load_job_on_default_framework(text_source("{}", "test"), overrides,
                                       Library{STEPCAST_SOURCE_DIR});
}

}  // namespace

TEST_CASE("a job that names no stack runs on that of its family of plans", "[config][stack]") {
  const JobOnFramework on = taken({});
  CHECK(on.default_framework == "megatron-core");
  CHECK(on.job.parallel.overlap.tensor);
  CHECK(on.job.parallel.sequence_parallel);
  CHECK(efficiency_of(on.job).has_value());
  const Job named =
      load_job(text_source("{}", "test"),
               {"workload=llama3-8b", "system=dgx-h100", "devices=16", "batch.global=32",
                "batch.sequence=8192", "batch.micro=1", "parallel.tensor=4", "stack=megatron-core"},
               Library{STEPCAST_SOURCE_DIR});
  CHECK(job_to_json(on.job) == job_to_json(named));
  CHECK(taken({"parallel.tensor=1", "parallel.zero=3"}).default_framework == "fsdp2");
}

TEST_CASE("a job that is legal on the usual stack alone runs there", "[config][stack]") {
  // Tensor ranks with experts of their own need sequence parallelism, which the framework has.
  const std::vector<std::string> experts{"workload=mixtral-8x7b", "parallel.expert=8"};
  const JobOnFramework on = taken(experts);
  CHECK(on.default_framework == "megatron-core");
  CHECK(on.job.parallel.sequence_parallel);
  std::vector<std::string> said = experts;
  said.emplace_back("parallel.sequence_parallel=false");
  CHECK_THROWS_WITH(taken(said),
                    Catch::Contains("parallel.sequence_parallel") && Catch::Contains("use true"));
}

TEST_CASE("what a job says of its stack stays as it is", "[config][stack]") {
  const JobOnFramework named = taken({"stack=no-overlap"});
  CHECK(named.default_framework.empty());
  CHECK_FALSE(named.job.parallel.overlap.tensor);
  const JobOnFramework said = taken({R"(parallel.overlap={"data": true})"});
  CHECK(said.default_framework.empty());
  CHECK(said.job.parallel.overlap.data);
  CHECK_FALSE(said.job.parallel.overlap.tensor);
  CHECK_FALSE(efficiency_of(said.job).has_value());
  CHECK(said.rejected == "the job says its overlaps itself");
  CHECK(load_plan_request_on_framework(
            text_source("{}", "test"),
            {"workload=llama3-8b", "system=dgx-h100", R"(parallel.overlap={"data": true})"},
            Library{STEPCAST_SOURCE_DIR}, {})
            .rejected == said.rejected);
  CHECK(named.rejected.empty());
  // Beside the framework, single keys go before what it would set.
  const JobOnFramework apart = taken({"parallel.sequence_parallel=false"});
  CHECK(apart.default_framework == "megatron-core");
  CHECK_FALSE(apart.job.parallel.sequence_parallel);
  // A single overlap changes those of the framework, with what builds on it.
  const JobOnFramework without = taken({"parallel.overlap.tensor=false"});
  CHECK(without.default_framework == "megatron-core");
  CHECK(without.job.parallel.overlap.data);
  CHECK_FALSE(without.job.parallel.overlap.tensor);
  CHECK_FALSE(without.job.parallel.overlap.tensor_products);
  CHECK(taken({"parallel.overlap.pipeline=true"}).job.parallel.overlap.tensor_products);
}

TEST_CASE("a scalar of one's own takes the place of the pace, on the same stack",
          "[config][stack]") {
  const JobOnFramework scaled = taken({"calibration.scale=1.2"});
  CHECK(scaled.default_framework == "megatron-core");
  CHECK(scaled.job.parallel.overlap.tensor);
  CHECK_FALSE(efficiency_of(scaled.job).has_value());
}

TEST_CASE("what a stack sets for plans with experts goes after what it sets for all",
          "[config][stack]") {
  const auto loaded = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"workload=mixtral-8x7b", "system=dgx-h100", "devices=64",
                               "batch.global=128", "batch.sequence=4096", "batch.micro=1"});
    return load_job(text_source("{}", "test"), more, Library{STEPCAST_SOURCE_DIR});
  };
  const Job job = loaded({"stack=nemo", "parallel.expert=8"});
  CHECK(job.parallel.overlap.tensor);
  CHECK_FALSE(job.parallel.overlap.tensor_products);
  CHECK(job.parallel.expert_tensor == 1);
  CHECK(job.system.fitted.at("host").constants.at("issue") == 1.8e-4);
  CHECK(job.system.framework.synchronous_routing);
  const Job whole = loaded({"stack=nemo"});
  CHECK(whole.parallel.overlap.tensor_products);
  CHECK(whole.system.fitted.count("host") == 0);
}

TEST_CASE("a job takes the same share of every NVLink domain", "[config][stack]") {
  const auto used = [](const std::string& devices, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"workload=llama3-8b", "system=gb200-nvl72", "devices=" + devices,
                               "batch.global=2304", "batch.sequence=8192", "batch.micro=1"});
    const Job job = load_job(text_source("{}", "test"), more, Library{STEPCAST_SOURCE_DIR});
    CHECK(job.system.devices_in_level(0) == job.system.fabric[0].taken());
    return job.system.fabric[0].used;
  };
  CHECK(used("64") == 0);    // one domain holds them
  CHECK(used("256") == 64);  // 4 domains; 72 to 65 do not divide 256, or split a machine of 4
  CHECK(used("144") == 0);   // two whole domains
  CHECK(used("768") == 64);  // 12 of 64; 768 / 72 leaves a rest
  CHECK(used("256", {"system.fabric[0].used=32"}) == 32);
  CHECK_THROWS_WITH(used("256", {"system.fabric[0].used=73"}), Catch::Contains("used"));
}

TEST_CASE("no stack is taken where no framework's pace is known or none could run the job",
          "[config][stack]") {
  CHECK(taken({"phase=prefill"}).default_framework.empty());
  CHECK(taken({"calibration=none"}).default_framework.empty());
  CHECK(load_job_on_default_framework(text_source("{}", "test"),
                                      {"workload=rm1", "system=dgx-h100", "devices=8"},
                                      Library{STEPCAST_SOURCE_DIR})
            .default_framework.empty());
  // 8191 tokens are no multiple of the tensor ranks that megatron-core deals them out to.
  const JobOnFramework odd = taken({"batch.sequence=8191"});
  CHECK(odd.default_framework.empty());
  CHECK_FALSE(odd.job.parallel.sequence_parallel);
  CHECK_THAT(odd.rejected, Catch::Contains("megatron-core cannot run it as it is") &&
                               Catch::Contains("sequence_parallel"));
  CHECK(taken({}).rejected.empty());
}
