// plan and sweep under mpirun: the ranks share the work, and the answer is that of one process.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using nlohmann::json;

namespace {

Outcome on_three_ranks(const Words& arguments) {
  Words all = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -q --oversubscribe";
  all.insert(all.end(), {"--bind-to", "none", "-n", "3", STEPCAST_EXECUTABLE});
  return execute("/usr/bin/env", all + arguments);
}

Words plan(const std::string& devices, const std::string& format) {
  return with_sets("plan",
                   {"workload=megatron-8.3b", "system=dgx-a100-80gb", "batch.global=16",
                    "batch.sequence=1024", "devices=" + devices},
                   {"--front", "--jobs", "1", "--format", format});
}

}  // namespace

TEST_CASE("a plan on three ranks is that of one, to the byte", "[cli][mpi]") {
  const Outcome shared = on_three_ranks(plan("8", "json"));
  INFO(shared.err);
  REQUIRE(shared.code == 0);
  const json one = json::parse(call(plan("8", "json")).out);
  const json three = json::parse(shared.out);
  CHECK(three.at("plans").dump() == one.at("plans").dump());
  CHECK(three.at("bound") == one.at("bound"));
  CHECK(three.at("search").at("space") == one.at("search").at("space"));

  // The front is that of the whole space where the closed form is exact: without overlaps.
  const Words exact = plan("8", "json") + "--set stack=no-overlap";
  const json front = json::parse(call(exact).out).at("front");
  CHECK(front.size() > 10);
  CHECK(json::parse(on_three_ranks(exact).out).at("front") == front);
}

TEST_CASE("on three ranks, too, no plan that fits is 1 and bad input is 2", "[cli][mpi]") {
  const Outcome none = on_three_ranks(plan("1", "csv"));
  INFO(none.err);
  CHECK(none.code == 1);
  CHECK(none.out.empty());
  CHECK(none.err.find("no plan fits") != std::string::npos);
  const Outcome rejected = on_three_ranks(plan("8", "csv") + "--set parallel.tensor=3");
  INFO(rejected.err);
  CHECK(rejected.code == 2);
  CHECK(rejected.out.empty());
  CHECK(rejected.err.find("tensor=3") != std::string::npos);
}

TEST_CASE("a sweep on three ranks is that of one, to the byte", "[cli][mpi]") {
  const Words sweep =
      with_sets("sweep", "workload=rm1 system=dgx-h100 devices=1,2,3,4,8 batch.global=8192,16384",
                "--format csv");
  const Outcome alone = call(sweep);
  INFO(alone.err);
  const Outcome shared = on_three_ranks(sweep);
  INFO(shared.err);
  CHECK(shared.code == alone.code);
  CHECK(std::count(alone.out.begin(), alone.out.end(), '\n') == 11);  // header and 5 * 2 rows
  CHECK(shared.out == alone.out);
}
