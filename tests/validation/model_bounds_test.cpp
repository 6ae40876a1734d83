// Held-out errors of kernels and collectives against the figures recorded in bounds.json, which may
// only tighten. The same studies as `stepcast validate kernels|collectives`, on some of the
// configurations and with few residual points, so that all of it takes seconds.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/config/config.h"
#include "tests/measured_tables.h"
#include "tests/validation/suites.h"
#include "validation/models.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::validation;

namespace {

namespace fs = std::filesystem;

ModelFacts facts_of(const models::MeasuredTable& table) {
  ModelFacts facts;
  const config::Library library{STEPCAST_SOURCE_DIR};
  for (const models::Testbed& t : table.testbeds) {
    if (!t.device.empty()) {
      facts.devices[t.device] = config::load_device(t.device, library);
      facts.devices[t.device].fitted.clear();
    }
    if (!t.system.empty()) {
      System system = config::load_system(t.system, library);
      system.fitted.clear();
      system.device.fitted.clear();
      facts.systems[t.system] = std::move(system);
    }
  }
  return facts;
}

/// The tables of one run, in a folder of their suite or one by one.
std::vector<fs::path> tables_of(const nlohmann::json& recorded) {
  if (!recorded.contains("files")) {
    return {stepcast::measurements::measured_tables(recorded.at("suite").get<std::string>()) /
            recorded.at("folder").get<std::string>()};
  }
  std::vector<fs::path> files;
  for (const nlohmann::json& file : recorded.at("files")) {
    files.push_back(stepcast::measurements::measured_tables(file.get<std::string>()));
  }
  return files;
}

Suite run(const std::string& suite, const std::vector<fs::path>& tables,
          const ValidateModelsOptions& options) {
  const auto table = models::read_measured(tables);
  const ModelFacts facts = facts_of(table);
  return suite == "kernels" ? validate_kernels(table, facts, options)
                            : validate_collectives(table, facts, options);
}

/// Bounds of one run: {group name: {"median": m, "p90": p}}.
void check(const nlohmann::json& bounds, const Suite& result) {
  REQUIRE_FALSE(bounds.empty());
  for (const auto& [name, bound] : bounds.items()) {
    const Group& found = validation::testing::group(result, name);
    INFO(name);
    const ErrorStatistics& e = found.errors;
    fmt::print(
        "  {:<72} n {:>5}  median {:5.2f}  mean {:5.2f}  p90 {:6.2f}  naive mean {:5.1f} %\n", name,
        e.n, 100 * e.median, 100 * e.mean, 100 * e.p90, 100 * found.baseline_mean);
    CHECK(e.median <= bound.at("median").get<double>());
    CHECK(e.p90 <= bound.at("p90").get<double>());
    CHECK(e.mean < found.baseline_mean);  // a model must beat the facts it starts from
  }
}

}  // namespace

TEST_CASE("held-out errors stay within the recorded bounds", "[accuracy]") {
  if (!fs::exists(stepcast::measurements::measured_tables("kernels"))) {
    WARN(stepcast::measurements::kNoTables);
    return;
  }
  std::ifstream file(std::string(STEPCAST_SOURCE_DIR) + "/tests/validation/bounds.json");
  const nlohmann::json bounds = nlohmann::json::parse(file).at("models");
  for (const auto& [name, recorded] : bounds.items()) {
    DYNAMIC_SECTION(name) {
      const std::string suite = recorded.at("suite");
      ValidateModelsOptions options;
      options.holdout = *holdout_named(recorded.at("holdout").get<std::string>());
      options.form_only = recorded.value("form_only", false);
      options.thin = recorded.value("thin", std::int64_t{1});
      options.max_points = recorded.value("points", std::size_t{200});
      fmt::print("{}\n", name);
      const std::vector<fs::path> tables = tables_of(recorded);
      if (!std::all_of(tables.begin(), tables.end(), [](const auto& t) { return fs::exists(t); })) {
        WARN("skipped: no table " << tables.front());
        return;
      }
      options.device = recorded.value("device", std::string());
      check(recorded.at("groups"), run(suite, tables, options));
    }
  }
}
