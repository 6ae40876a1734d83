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

TEST_CASE("a job that names no stack runs on the usual one, whatever its plan", "[config][stack]") {
  const JobOnFramework on = taken({});
  CHECK(on.default_framework == "megatron-core");
  CHECK(on.job.parallel.overlap.pipeline);
  CHECK_FALSE(on.job.parallel.overlap.tensor);  // as Megatron-LM runs without --tp-comm-overlap
  CHECK(on.job.parallel.sequence_parallel);
  CHECK(efficiency_of(on.job).has_value());
  const Job named =
      load_job(text_source("{}", "test"),
               {"workload=llama3-8b", "system=dgx-h100", "devices=16", "batch.global=32",
                "batch.sequence=8192", "batch.micro=1", "parallel.tensor=4", "stack=megatron-core"},
               Library{STEPCAST_SOURCE_DIR});
  CHECK(job_to_json(on.job) == job_to_json(named));
  CHECK(taken({"parallel.tensor=1", "parallel.zero=3"}).default_framework == "megatron-core");
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
  CHECK(named.rejected.empty());
  // Beside the framework, single keys go before what it would set.
  const JobOnFramework apart = taken({"parallel.sequence_parallel=false"});
  CHECK(apart.default_framework == "megatron-core");
  CHECK_FALSE(apart.job.parallel.sequence_parallel);
  // A single overlap changes those of the framework, with what builds on it.
  const JobOnFramework without = taken({"parallel.overlap.data=false"});
  CHECK(without.default_framework == "megatron-core");
  CHECK(without.job.parallel.overlap.pipeline);
  CHECK_FALSE(without.job.parallel.overlap.data);
  CHECK_FALSE(without.job.parallel.overlap.parameters);
  CHECK(taken({"parallel.overlap.pipeline=true"}).job.parallel.overlap.parameters);
}

TEST_CASE("an object changes what it says of a framework's settings, as single keys do",
          "[config][stack]") {
  const auto same = [](const std::vector<std::string>& whole, const std::vector<std::string>& one) {
    const JobOnFramework a = taken(whole);
    CHECK(a.default_framework == "megatron-core");
    CHECK(efficiency_of(a.job).has_value());
    CHECK(job_to_json(a.job) == job_to_json(taken(one).job));
  };
  same({R"(parallel.overlap={"data": false})"}, {"parallel.overlap.data=false"});
  same({R"(parallel.overlap={"data": true})"}, {"parallel.overlap.data=true"});
  same({R"(parallel.overlap={"tensor": false, "pipeline": true})"},
       {"parallel.overlap.tensor=false", "parallel.overlap.pipeline=true"});
  same({"parallel.overlap={}"}, {});
  same({R"(parallel={"tensor": 4})"}, {"parallel.tensor=4"});
  same({R"(parallel={"tensor": 4, "overlap": {"data": false}})"}, {"parallel.overlap.data=false"});
  same({R"(formats={"compute": "fp8"})"}, {"formats.compute=fp8"});
  same({R"(system.framework_traits={"attention": 2})"}, {"system.framework_traits.attention=2"});
  // In a file too.
  const Source file = text_source(
      R"({"workload": "llama3-8b", "system": "dgx-h100", "devices": 16,
          "batch": {"global": 32, "sequence": 8192, "micro": 1},
          "parallel": {"tensor": 4, "overlap": {"data": false}}})",
      "job.json");
  const Library library{STEPCAST_SOURCE_DIR};
  CHECK(job_to_json(load_job_on_default_framework(file, {}, library).job) ==
        job_to_json(taken({"parallel.overlap.data=false"}).job));
  // With a framework of several objects, what one leaves out is the framework's.
  const JobOnFramework nemo = taken({"stack=nemo", R"(formats={"compute": "fp8"})"});
  CHECK(nemo.job.formats.gradient == Format::kBf16);
}

TEST_CASE("stack none is the simulation alone", "[config][stack]") {
  const JobOnFramework none = taken({"stack=none"});
  CHECK(none.default_framework.empty());
  CHECK(none.rejected.empty());
  CHECK_FALSE(efficiency_of(none.job));
  CHECK_FALSE(none.job.parallel.sequence_parallel);
  CHECK(none.job.parallel.overlap.data == Parallel{}.overlap.data);
}

TEST_CASE("a resolved job keeps its framework on another system", "[config][stack]") {
  const Library library{STEPCAST_SOURCE_DIR};
  for (const char* stack : {"megatron-core", "torchtitan", "none"}) {
    CAPTURE(stack);
    const std::string name = stack;
    const Job job = taken({"stack=" + name, "parallel.sequence_parallel=true"}).job;
    const std::string text = job_on_framework_to_json(job, name == "none" ? "" : name);
    const auto loaded = [&](const std::vector<std::string>& more) {
      return load_job_on_default_framework(text_source(text.c_str(), "plan.json"), more, library);
    };
    CHECK(job_to_json(loaded({}).job) == job_to_json(job));
    const JobOnFramework moved = loaded({"system=dgx-h200"});
    CHECK(moved.default_framework.empty());
    const Job there =
        taken({"stack=" + name, "system=dgx-h200", "parallel.sequence_parallel=true"}).job;
    CHECK(job_to_json(moved.job) == job_to_json(there));
    CHECK(efficiency_of(moved.job).has_value() == (name != "none"));
  }
  // One resolved before jobs said their framework keeps its efficiency, and takes the default
  // framework's on another system.
  const Job job = taken({"stack=torchtitan"}).job;
  const std::string text = job_to_json(job);
  const Source file = text_source(text.c_str(), "plan.json");
  CHECK(job_to_json(load_job_on_default_framework(file, {}, library).job) == text);
  const JobOnFramework moved = load_job_on_default_framework(file, {"system=dgx-h200"}, library);
  CHECK(moved.default_framework == "megatron-core");
  CHECK(efficiency_of(moved.job).has_value());
}

TEST_CASE("a scalar of one's own takes the place of the pace, on the same stack",
          "[config][stack]") {
  const JobOnFramework scaled = taken({"calibration.scale=1.2"});
  CHECK(scaled.default_framework == "megatron-core");
  CHECK(scaled.job.parallel.overlap.pipeline);
  CHECK_FALSE(efficiency_of(scaled.job).has_value());
}

TEST_CASE("what a stack sets for plans with experts goes after what it sets for all",
          "[config][stack]") {
  const auto loaded = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"workload=mixtral-8x7b", "system=dgx-h100", "devices=64",
                               "batch.global=128", "batch.sequence=4096", "batch.micro=1"});
    return load_job(text_source("{}", "test"), more, Library{STEPCAST_SOURCE_DIR});
  };
  const Job job = loaded({"framework=nemo@25.04", "parallel.expert=8"});
  CHECK(job.parallel.overlap.tensor);
  CHECK_FALSE(job.parallel.overlap.tensor_products);
  CHECK(job.parallel.expert_tensor == 1);
  CHECK(job.system.framework.synchronous_routing);
  CHECK(loaded({"framework=nemo@25.04"}).parallel.overlap.tensor_products);
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
