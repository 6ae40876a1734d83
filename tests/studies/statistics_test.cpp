#include <catch2/catch.hpp>

#include "studies/fit/error_statistics.h"
#include "studies/fit/linear_baseline.h"

using namespace stepcast;
using namespace stepcast::studies;

TEST_CASE("error statistics follow their definitions", "[studies]") {
  const std::vector<double> errors{0.1, -0.2, 0.0, 0.3, -0.1};
  const ErrorStatistics s = statistics_of(errors);
  CHECK(s.n == 5);
  CHECK(s.mean == Approx(0.14));  // (0.1 + 0.2 + 0 + 0.3 + 0.1) / 5
  CHECK(s.bias == Approx(0.02));
  CHECK(s.median == Approx(0.1));  // of 0, 0.1, 0.1, 0.2, 0.3
  CHECK(s.p90 == Approx(0.3));     // nearest rank: the 5th of 5
  CHECK(s.worst == Approx(0.3));
  CHECK(s.worst_index == 3);
  // exp(mean of ln(|e| + 4e-4)): the product of 0.1004, 0.2004, 0.0004, 0.3004, 0.1004 to the power
  // of a fifth.
  CHECK(s.geomean == Approx(std::pow(0.1004 * 0.2004 * 0.0004 * 0.3004 * 0.1004, 0.2)));
  CHECK(statistics_of({}).n == 0);
  const std::vector<double> even{0.09, -0.01, 0.02, -0.04};
  CHECK(statistics_of(even).median == Approx(0.03));  // between 0.02 and 0.04
  CHECK(statistics_of(even).p90 == Approx(0.09));     // the 4th of 4
}

TEST_CASE("a permuted predictor is set beside every other case", "[studies]") {
  const std::vector<double> predicted{1, 2, 4};
  const std::vector<double> measured{1, 2, 4};
  // Rotations: (2,4,1) gives 1, 1, 0.75; (4,1,2) gives 3, 0.5, 0.5. Mean of the six: 6.75 / 6.
  CHECK(permuted_error(predicted, measured) == Approx(6.75 / 6));
  CHECK(permuted_error(std::vector<double>{1}, std::vector<double>{1}) == 0);
}

TEST_CASE("the linear baseline recovers known constants and never has one below zero",
          "[studies]") {
  std::vector<StepSample> samples;
  for (int i = 1; i <= 12; ++i) {
    const double flops = 1e9 * i;
    const double bytes = 1e7 * ((i * 7) % 13);
    samples.push_back({flops, bytes, 2e-3 + 5e-12 * flops + 1e-10 * bytes});
  }
  const FittedModel m = fit_linear_baseline(samples, "test");
  CHECK(m.constants.at("step") == Approx(2e-3).epsilon(1e-6));
  CHECK(m.constants.at("per_flop") == Approx(5e-12).epsilon(1e-6));
  CHECK(m.constants.at("per_byte") == Approx(1e-10).epsilon(1e-6));
  CHECK(m.error.mean < 1e-6);
  // Time that falls with bytes cannot be said with constants >= 0: that constant is zero.
  for (StepSample& s : samples) {
    s.seconds = 1e-2 + 1e-11 * s.flops - 2e-11 * s.bytes;
  }
  const FittedModel bounded = fit_linear_baseline(samples, "test");
  CHECK(bounded.constants.at("per_byte") == 0);
  CHECK(bounded.constants.at("per_flop") > 0);
}
