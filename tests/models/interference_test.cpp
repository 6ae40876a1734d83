#include "models/fit/interference.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "models/cost_model.h"

namespace stepcast::models {
namespace {

/// Rows of ops slowed by s in a random share of their time, with noise, and one in `outliers` seven
/// times too long.
std::vector<MeasuredOverlap> overlaps(double s, double bias, double sigma, int outliers,
                                      std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> noise(0, sigma > 0 ? sigma : 1);
  std::uniform_real_distribution<double> share(0, 1);
  std::vector<MeasuredOverlap> rows;
  for (int i = 0; i < 400; ++i) {
    const double alone = std::exp(-12 + 6 * share(engine));
    const double f = i % 4 == 0 ? 0 : share(engine);
    const double t = bias * alone / (1 - f + f / s) * std::exp(sigma > 0 ? noise(engine) : 0) *
                     (outliers > 0 && i % outliers == 1 ? 7 : 1);
    rows.push_back({Seconds(alone), Seconds(t), Seconds(f * t), i / 10});
  }
  return rows;
}

double factor_of(const FittedModels& models) {
  return models.at("slowdown").constants.at("compute");
}

}  // namespace

TEST_CASE("the slowdown of compute under transfers is recovered", "[models][fit][slowdown]") {
  const double s = GENERATE(1.0, 1.07, 1.5, 3.0);
  CHECK(factor_of(fit_slowdown(overlaps(s, 1, 0, 0, 1))) == Approx(s).epsilon(2e-3));
  // 300 overlapping rows of 5 % noise: a standard error below 1 % of s.
  CHECK(factor_of(fit_slowdown(overlaps(s, 1, 0.05, 0, 2))) == Approx(s).epsilon(0.03));
  // One row in twenty preempted, and a baseline 20 % off for every op.
  CHECK(factor_of(fit_slowdown(overlaps(s, 1.2, 0.05, 20, 3))) == Approx(s).epsilon(0.05));
}

TEST_CASE("one op worked by hand", "[models][fit][slowdown]") {
  // 10 ms alone; 15 ms with a transfer in flight for 10 ms of them: 5 ms at full rate, 10 ms at
  // 1/2.
  const std::vector<MeasuredOverlap> rows(
      4, {milliseconds(10), milliseconds(15), milliseconds(10), -1});
  const FittedModel model = fit_slowdown(rows).at("slowdown");
  CHECK(model.constants.at("compute") == Approx(2).epsilon(1e-3));
  CHECK(model.samples == 4);
  CHECK(model.error.worst < 1e-3);
}

TEST_CASE("no overlap, no slowdown", "[models][fit][slowdown]") {
  std::vector<MeasuredOverlap> rows = overlaps(2, 1, 0, 0, 4);
  for (MeasuredOverlap& row : rows) {
    row.overlapped = Seconds{};
  }
  CHECK(fit_slowdown(rows).empty());
  // Transfers that seem to make compute faster are noise: the factor stays at 1.
  CHECK(factor_of(fit_slowdown(overlaps(0.8, 1, 0, 0, 5))) == Approx(1).epsilon(1e-6));
}

TEST_CASE("the cost model reads the fitted slowdown", "[models][fit][slowdown]") {
  System system;
  CHECK(CostModel(system, {}).compute_slowdown() == 1);
  system.fitted = fit_slowdown(overlaps(1.5, 1, 0, 0, 6));
  CHECK(CostModel(system, {}).compute_slowdown() == Approx(1.5).epsilon(2e-3));
}

}  // namespace stepcast::models
