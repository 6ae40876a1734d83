// Answers of `stepcast validate traces` on recordings whose content is known.
#include "validation/traces.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>

#include "core/error.h"

using namespace stepcast;

TEST_CASE("a native recording is one set, replayed and scored", "[studies][validate]") {
  const auto sets =
      validation::replay_sets(std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/dlrm-2");
  REQUIRE(sets.size() == 1);
  CHECK(sets[0].ranks == 2);
  CHECK(sets[0].steps == 8);
  CHECK(sets[0].scored());
  CHECK(std::abs(sets[0].replay->error) < 0.05);
  CHECK_THROWS_AS(validation::replay_sets("no such folder"), InputError);
}

TEST_CASE("folders of ranks are one run, files of other runs are not; host-bound sets say so",
          "[studies][validate][kineto]") {
  const std::filesystem::path folder = std::filesystem::path(STEPCAST_SHARED_DATA) / "traces";
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: no " << folder << '\n';
    return;
  }
  // Alike but for digits, a day apart: two runs.
  const auto apart = validation::replay_sets(folder / "kineto-tb");
  REQUIRE(apart.size() == 2);
  for (const validation::TraceSet& set : apart) {
    CHECK(set.steps == 6);
    CHECK(set.scored());
  }
  const auto ranks = validation::replay_sets(folder / "dlrm8-kineto");
  REQUIRE(ranks.size() == 1);
  const validation::TraceSet& dlrm = ranks.front();
  CHECK(dlrm.ranks == 8);
  CHECK(dlrm.collectives == 64);  // 8 on each rank
  REQUIRE(dlrm.replay.has_value());
  CHECK(dlrm.replay->host_bound);  // its step does not move when device times double
  CHECK(std::abs(dlrm.replay->error) < 0.01);
  CHECK(dlrm.skipped == std::optional<std::string>("host-bound"));
  CHECK(dlrm.replay->kernel_start_p50 <= microseconds(10));
  CHECK(dlrm.replay->kernel_start_p95 <= microseconds(500));
  CHECK(dlrm.replay->stripped_wait > microseconds(1000));
}

TEST_CASE("programs recorded on two devices are moved closer than by leaving them as they are",
          "[studies][validate][kineto]") {
  const std::filesystem::path folder = std::filesystem::path(STEPCAST_SHARED_DATA) / "two_vendors";
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: no " << folder << '\n';
    return;
  }
  const auto moved = validation::moved_traces(folder, {STEPCAST_SOURCE_DIR});
  REQUIRE(moved.size() == 4);  // two programs, from each device to the other
  for (const validation::MovedTrace& m : moved) {
    CAPTURE(m.name, m.device, m.to);
    CHECK(m.covered > 0.99);
    CHECK(std::abs(m.error()) < std::abs(m.naive_error()));
    CHECK(std::abs(m.error()) < 0.25);
  }
}
