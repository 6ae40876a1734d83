// Answers of `stepcast validate traces` on recordings whose content is known.
#include "validation/traces.h"

#include <filesystem>
#include <iostream>

#include "core/error.h"
#include "tests/validation/suites.h"

namespace stepcast::validation {
namespace {

using testing::figure;

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

TEST_CASE("a native recording is one set, replayed and scored", "[studies][validate]") {
  const Suite suite =
      validate_traces(std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/dlrm-2", kLibrary);
  REQUIRE(suite.rows.size() == 1);
  CHECK(figure(suite.rows[0].more, "ranks") == 2);
  CHECK(figure(suite.rows[0].more, "steps") == 8);
  CHECK_FALSE(suite.rows[0].skipped);
  CHECK(std::abs(suite.rows[0].error()) < 0.05);
  CHECK(suite.pass);
  CHECK_THROWS_AS(validate_traces("no such folder", kLibrary), InputError);
}

TEST_CASE("folders of ranks are one run, files of other runs are not; host-bound sets say so",
          "[studies][validate][kineto]") {
  const std::filesystem::path folder = std::filesystem::path(STEPCAST_SHARED_DATA) / "traces";
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: no " << folder << '\n';
    return;
  }
  // Alike but for digits, a day apart: two runs.
  const Suite apart = validate_traces(folder / "kineto-tb", kLibrary);
  REQUIRE(apart.rows.size() == 2);
  for (const Row& row : apart.rows) {
    CHECK(figure(row.more, "steps") == 6);
    CHECK_FALSE(row.skipped);
  }
  const Suite ranks = validate_traces(folder / "dlrm8-kineto", kLibrary);
  REQUIRE(ranks.rows.size() == 1);
  const Row& dlrm = ranks.rows.front();
  CHECK(figure(dlrm.more, "ranks") == 8);
  CHECK(figure(dlrm.more, "collectives") == 64);  // 8 on each rank
  CHECK(figure(dlrm.more, "host_bound") == 1);    // its step does not move when device times double
  CHECK(std::abs(dlrm.error()) < 0.01);
  CHECK(dlrm.skipped == "host-bound");
  CHECK(figure(dlrm.more, "kernel_start_error_s/p50") <= 10e-6);
  CHECK(figure(dlrm.more, "kernel_start_error_s/p95") <= 500e-6);
}

TEST_CASE("programs recorded on two devices are moved closer than by leaving them as they are",
          "[studies][validate][kineto]") {
  const std::filesystem::path folder = std::filesystem::path(STEPCAST_SHARED_DATA) / "two_vendors";
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: no " << folder << '\n';
    return;
  }
  const Suite suite = validate_traces(folder, kLibrary);
  REQUIRE(suite.tables.size() == 2);
  REQUIRE(suite.tables[1].rows.size() == 4);  // two programs, from each device to the other
  for (const FigureTable::Entry& moved : suite.tables[1].rows) {
    CAPTURE(std::get<std::string>(moved.more[0].value), std::get<std::string>(moved.more[1].value));
    const double error = std::abs(figure(moved.more, "error"));
    CHECK(figure(moved.more, "covered") > 0.99);
    CHECK(error < std::abs(figure(moved.more, "naive_error")));
    CHECK(error < 0.25);
  }
}

}  // namespace
}  // namespace stepcast::validation
