// Predictions of published runs against the figures recorded in bounds.json, which may only
// tighten: the suite of `stepcast validate published` with every sixth row of the largest source.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/config/config.h"
#include "core/config/published_names.h"
#include "tests/validation/suites.h"
#include "validation/published/published.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::validation;

namespace {

void hold(const Suite& suite, const std::string& regime, const nlohmann::json& bounds) {
  for (const auto& [name, bound] : bounds.items()) {
    INFO(regime << ", " << name);
    const ErrorStatistics& e = validation::testing::group(suite, name).errors;
    fmt::print("  {:<8} {:<62} n {:>3}  median {:5.2f}  mean {:5.2f}  p90 {:6.2f} %\n", regime,
               name, e.n, 100 * e.median, 100 * e.mean, 100 * e.p90);
    CHECK(e.n >= bound.at("n").get<std::size_t>());
    CHECK(e.median <= bound.at("median").get<double>());
    CHECK(e.mean <= bound.at("mean").get<double>());
  }
}

}  // namespace

TEST_CASE("published runs stay within the recorded bounds", "[accuracy]") {
  const std::filesystem::path data = std::filesystem::path(STEPCAST_SHARED_DATA) / "llm";
  if (!std::filesystem::exists(data)) {
    WARN("skipped: no measurements at " << data);
    return;
  }
  std::vector<PublishedRow> rows = read_published(data);
  constexpr std::size_t kThin = 6;
  std::size_t seen = 0;
  std::erase_if(rows, [&seen](const PublishedRow& row) {
    return row.source.starts_with("vTrain") && seen++ % kThin != 0;
  });
  const config::Library library{STEPCAST_SOURCE_DIR};
  const std::vector<PublishedPrediction> predictions =
      predict_published(rows, config::load_published_names(library), library, {});
  std::ifstream file(std::string(STEPCAST_SOURCE_DIR) + "/tests/validation/bounds.json");
  const nlohmann::json recorded = nlohmann::json::parse(file);
  for (const auto& [regime, groups] : recorded.at("published").items()) {
    const Suite suite = validate_published(predictions, *basis_named(regime));
    hold(suite, regime, groups);
  }

  // Intervals said to hold 90 %, made without the makers of the software, and without the GPU's
  // generation; and those that systems carry.
  for (const char* left_out : {"vendor", "gpu-generation"}) {
    const Suite suite = validate_published(predictions, *basis_named(left_out));
    const double covered = *validation::testing::group(suite, "headline: all").covered;
    fmt::print("  90 % intervals without the {} hold {:.0f} % of the rows\n", left_out,
               100 * covered);
    CHECK(covered >= 0.88);
  }
  const StepSpread plain = published_spread(predictions, SpreadOf::kPlain, 0.9);
  const StepSpread scaled_once = published_spread(predictions, SpreadOf::kScaled, 0.9);
  for (const char* system : {"dgx-a100-80gb", "dgx-a100-40gb", "dgx-h100"}) {
    const System carrier = config::load_system(system, library);
    const auto& carried = carrier.fitted.at("transformer_step").constants;
    INFO(system);
    CHECK(carried.at("low") == Approx(plain.low).margin(0.02));
    CHECK(carried.at("high") == Approx(plain.high).margin(0.02));
    CHECK(carried.at("low_scaled") == Approx(scaled_once.low).margin(0.02));
    CHECK(carried.at("high_scaled") == Approx(scaled_once.high).margin(0.02));
  }

  // Runs that gave nothing: whole pretraining runs and steps of them, scalars from the rows above.
  const auto runs = read_published(std::filesystem::path(STEPCAST_SOURCE_DIR) / "workloads" /
                                   "published" / "pretraining.csv");
  const auto unseen = predict_published(runs, config::load_published_names(library), library, {});
  const Suite validation = validate_unseen(unseen, predictions);
  CHECK(validation.pass);
  hold(validation, "unseen", recorded.at("pretraining"));
  CHECK(*validation::testing::group(validation, "runs: all").covered >= 0.80);
}
