// The stack that predictions take where a job names none.
#include <catch2/catch.hpp>

#include "core/config/usual_stack.h"
#include "core/pace.h"

using namespace stepcast;
using namespace stepcast::config;

namespace {

JobOnStack taken(std::vector<std::string> overrides) {
  const std::vector<std::string> usual{"workload=llama3-8b", "system=dgx-h100",     "devices=16",
                                       "batch.global=32",    "batch.sequence=8192", "batch.micro=1",
                                       "parallel.tensor=4"};
  overrides.insert(overrides.begin(), usual.begin(), usual.end());
  return load_job_on_usual_stack(text_source("{}", "test"), overrides,
                                 Library{STEPCAST_SOURCE_DIR});
}

}  // namespace

TEST_CASE("a job that names no stack runs on that of its family of plans", "[config][stack]") {
  const JobOnStack on = taken({});
  CHECK(on.usual_stack == "megatron-core");
  CHECK(on.job.parallel.overlap.tensor);
  CHECK(on.job.parallel.sequence_parallel);
  CHECK(pace_of(on.job).has_value());
  const Job named =
      load_job(text_source("{}", "test"),
               {"workload=llama3-8b", "system=dgx-h100", "devices=16", "batch.global=32",
                "batch.sequence=8192", "batch.micro=1", "parallel.tensor=4", "stack=megatron-core"},
               Library{STEPCAST_SOURCE_DIR});
  CHECK(job_to_json(on.job) == job_to_json(named));
  CHECK(taken({"parallel.tensor=1", "parallel.zero=3"}).usual_stack == "fsdp2");
}

TEST_CASE("what a job says of its stack stays as it is", "[config][stack]") {
  const JobOnStack named = taken({"stack=no-overlap"});
  CHECK(named.usual_stack.empty());
  CHECK_FALSE(named.job.parallel.overlap.tensor);
  const JobOnStack said = taken({"parallel.overlap.data=true"});
  CHECK(said.usual_stack.empty());
  CHECK(said.job.parallel.overlap.data);
  CHECK_FALSE(said.job.parallel.overlap.tensor);
  CHECK_FALSE(pace_of(said.job).has_value());
  // Beside the stack, single keys go before what it would set.
  const JobOnStack apart = taken({"parallel.sequence_parallel=false"});
  CHECK(apart.usual_stack == "megatron-core");
  CHECK_FALSE(apart.job.parallel.sequence_parallel);
}

TEST_CASE("no stack is taken where no framework's pace is known or none could run the job",
          "[config][stack]") {
  CHECK(taken({"phase=prefill"}).usual_stack.empty());
  CHECK(taken({"calibration=none"}).usual_stack.empty());
  CHECK(load_job_on_usual_stack(text_source("{}", "test"),
                                {"workload=rm1", "system=dgx-h100", "devices=8"},
                                Library{STEPCAST_SOURCE_DIR})
            .usual_stack.empty());
  // 8191 tokens are no multiple of the tensor ranks that megatron-core deals them out to.
  const JobOnStack odd = taken({"batch.sequence=8191"});
  CHECK(odd.usual_stack.empty());
  CHECK_FALSE(odd.job.parallel.sequence_parallel);
  CHECK_THAT(odd.refused, Catch::Contains("megatron-core cannot run it as it is") &&
                              Catch::Contains("sequence_parallel"));
  CHECK(taken({}).refused.empty());
}
