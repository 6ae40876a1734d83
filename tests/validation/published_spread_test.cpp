// Intervals of published runs: what a source that was not looked at is held to.
#include "validation/published/published.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/config/config.h"
#include "studies/predict/predict.h"

namespace stepcast::validation {
using namespace studies;
namespace {

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

TEST_CASE("every source counts once, and one more lies beyond them", "[studies][published]") {
  // Three rows at 0 weigh as much as two at 0.1 and 0.3: the middle is 0. For two sources a level
  // of 0.5 asks for 0.5 * 3 / 2 = 0.75 of the weight, of which 0 has 0.5, 0.1 the next quarter.
  const Residuals residuals{{"a", {0, 0, 0}}, {"b", {0.1, 0.3}}};
  const StepSpread half = spread_of(residuals, 0.5);
  CHECK(half.low == Approx(-0.1));
  CHECK(half.high == Approx(0.1));
  // 0.8 * 3 / 2 is more than there is: the largest.
  CHECK(spread_of(residuals, 0.8).high == Approx(0.3));
  // Around the middle, not around 0.
  CHECK(spread_of({{"a", {0.2}}, {"b", {0.2}}, {"c", {0.3}}}, 0.5).low == Approx(0.2));
  CHECK(spread_of({}, 0.8).high == 0);
}

TEST_CASE("every source weighs the same in the spread that systems carry", "[studies][published]") {
  // Simulated 1 s each: {1, 1.01}, {1.02, 1.03}, 4 x 2 s measured.
  std::vector<PublishedRow> rows(8);
  std::vector<PublishedPrediction> predictions;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    PublishedPrediction p;
    p.row = &rows[i];
    p.source = i < 2 ? "one" : i < 4 ? "two" : "far";
    p.device = "a100";
    p.measured = p.source == "far" ? 2 : 1 + 0.01 * static_cast<double>(i);
    p.at_peak = 0.5;
    p.curve = {1};
    predictions.push_back(p);
  }
  // Half of the weight is reached at ln 1.02, and what is farthest from it is ln 2.
  const StepSpread plain = published_spread(predictions, SpreadOf::kPlain, 0.9);
  CHECK(plain.high == Approx(std::log(2.0)));
  CHECK(plain.low == Approx(2 * std::log(1.02) - std::log(2.0)));
}

TEST_CASE("the interval of a step is no narrower than software differs", "[studies]") {
  const auto predicted = [](const std::vector<std::string>& more) {
    std::vector<std::string> set{
        "workload=llama2-7b", "system=dgx-a100-80gb", "devices=8",         "batch.global=8",
        "batch.micro=1",      "batch.sequence=2048",  "workload.layers=4", "parallel.tensor=8"};
    set.insert(set.end(), more.begin(), more.end());
    PredictOptions options;
    options.intervals = true;
    return predict(config::load_job(config::text_source("{}", "test"), set, kLibrary), options);
  };
  const char* spread =
      R"(system.fitted.transformer_step={"form": "step.spread", "constants": {"low": -0.1, "high": 0.5, "low_scaled": -0.05, "high_scaled": 0.05}})";
  const StepPrediction plain = predicted({spread});
  const double step = plain.iteration.base();
  CHECK(plain.interval->p95.base() == Approx(step * std::exp(0.5)));
  CHECK(plain.interval->p5.base() <= step * std::exp(-0.1) * (1 + 1e-12));
  // A scalar of the user's own framework leaves what differs within one.
  const StepPrediction scaled = predicted({spread, R"(calibration={"scale": 1.5})"});
  CHECK(scaled.interval->p95.base() < 1.5 * step * std::exp(0.2));
  CHECK(scaled.interval->p95.base() >= 1.5 * step * std::exp(0.05) * (1 - 1e-6));
  // Hardware facts have no runs behind them: there is no interval, and the reason is given.
  const StepPrediction facts = predicted({spread, "calibration=none"});
  CHECK_FALSE(facts.interval);
  CHECK(std::any_of(facts.warnings.begin(), facts.warnings.end(),
                    [](const std::string& w) { return w.starts_with("no interval: 100 %"); }));
}

}  // namespace
}  // namespace stepcast::validation
