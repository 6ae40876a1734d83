// Tables of runs whose scalars another table gives.
#include "validation/published/published.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/config/published_names.h"
#include "core/input/csv.h"
#include "tests/validation/published_runs.h"
#include "tests/validation/suites.h"

namespace stepcast::validation {
using namespace studies;
using testing::group;
using testing::Runs;
namespace {

/// Adds a run of a framework, of no plan.
void add(Runs& runs, const std::string& source, const std::string& framework, double measured,
         const std::string& hours_of = "", const std::string& device = "a100") {
  runs.add(source, device, framework, "", measured, hours_of);
}

TEST_CASE("scalars come from the other table alone", "[studies][published]") {
  Runs others;
  add(others, "x", "near", 1.2);
  add(others, "y", "far", 2);
  add(others, "y", "far", 2);
  add(others, "z", "near", 3, "", "h100");
  Runs runs;
  add(runs, "m", "near", 1.5, "steps");
  add(runs, "n", "none", 2, "run");
  add(runs, "n", "none", 4, "run");
  add(runs, "o", "near", 1, "steps", "v100");
  const EfficiencyTable table = fit_efficiencies(pointers(others.predictions));
  const auto factor = [&](std::size_t i) {
    return nearest_efficiency(table, keys_of(runs.predictions[i]))->factor;
  };
  const Suite out = validate_unseen(runs.predictions, others.predictions);
  CHECK(group(out, "m / a100").errors.bias == Approx(factor(0) / 1.5 - 1));
  CHECK(group(out, "n / a100").errors.worst == Approx(1 - factor(1) / 4));
  CHECK(group(out, "o / v100").errors.mean == Approx(std::abs(factor(3) - 1)));
  CHECK(group(out, "runs: steps").errors.n == 2);
  CHECK(group(out, "runs: whole runs").errors.n == 2);
  // 1 / 1.5, 1 / 2, 1 / 4 and 1 of what was measured.
  CHECK(group(out, "runs: all, no scalar").errors.mean == Approx((1.0 / 3 + 0.5 + 0.75 + 0) / 4));
  CHECK(out.pass);
}

TEST_CASE("a row that is not predicted is counted and fails the suite", "[studies][published]") {
  Runs others;
  add(others, "x", "f", 1);
  Runs runs;
  add(runs, "m", "f", 1);
  add(runs, "m", "f", 1);
  runs.predictions[1].skipped = "runs.csv:3: heads";
  const Suite out = validate_unseen(runs.predictions, others.predictions);
  CHECK_FALSE(out.pass);
  CHECK(out.rows[1].skipped == "runs.csv:3: heads");
  CHECK(group(out, "runs: all").skipped == 1);
}

const std::filesystem::path kRuns =
    std::filesystem::path(STEPCAST_SOURCE_DIR) / "workloads" / "published" / "pretraining.csv";

TEST_CASE("the pretraining runs agree with themselves", "[studies][published]") {
  CsvTable table(kRuns, "data/llm/published.csv");
  std::set<std::string> ids;
  while (table.next()) {
    INFO(table.place());
    std::string unusable;
    const auto number = [&](const char* column) {
      const std::string field = table.text(column);
      return field.empty() ? 1 : positive_or_say(column, field, unusable);
    };
    CHECK(ids.insert(table.text("id")).second);
    CHECK_FALSE(table.text("retrieved_from").empty());
    const std::string of = table.text("hours_of");
    CHECK((of == "run" || of == "steps"));
    // Hours of a run are hours of its tokens; a rate is stated or follows from them.
    if (of == "run" || !table.text("device_hours").empty()) {
      const double rate = number("tokens") / (number("device_hours") * 3600);
      CHECK(number("tokens_per_s_per_gpu") == Approx(rate).epsilon(1e-4));
    }
    if (!table.text("dp").empty()) {
      CHECK(number("tp") * number("pp") * number("cp") * number("dp") == number("gpus"));
    }
    CHECK(unusable == "");
  }
  CHECK(ids.size() == 57);
}

TEST_CASE("every pretraining run becomes a job", "[studies][published]") {
  const config::Library library{STEPCAST_SOURCE_DIR};
  const auto names = config::load_published_names(library);
  for (const PublishedRow& row : read_published(kRuns)) {
    INFO(row.place);
    const Job job = job_of(row, names, library);
    CHECK(job.devices == row.devices);
    CHECK(job.batch.global == row.global);
  }
}

}  // namespace
}  // namespace stepcast::validation
