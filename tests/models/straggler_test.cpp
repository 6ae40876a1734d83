#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "models/cost_model.h"
#include "models/fit/fit.h"

namespace stepcast::models {

TEST_CASE("the expected maximum of n normals", "[models][straggler]") {
  // Tabulated expected maxima (embedding-and-step-time 9.1); the quantile formula is within 1 % for
  // 8 <= n <= 4096, 4 % at n = 2.
  CHECK(expected_maximum(1) == 0);
  CHECK(expected_maximum(2) == Approx(0.5642).epsilon(0.05));
  CHECK(expected_maximum(8) == Approx(1.4236).epsilon(0.01));
  CHECK(expected_maximum(64) == Approx(2.3437).epsilon(0.01));
  CHECK(expected_maximum(512) == Approx(3.0365).epsilon(0.01));
  CHECK(expected_maximum(4096) == Approx(3.63).epsilon(0.01));
}

TEST_CASE("sigma and rho are recovered from segment times", "[models][straggler][fit]") {
  // ln t = 0.03 common + 0.04 own: sigma = 0.05, rho = 9 / 25. 2000 repeats: a standard error of
  // about 2 % of each variance.
  std::mt19937_64 engine(7);
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> times;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const double common = 0.03 * normal(engine);
    times.emplace_back();
    for (int rank = 0; rank < 8; ++rank) {
      times.back().push_back(1e-3 * std::exp(common + 0.04 * normal(engine)));
    }
  }
  const FittedModel model = fit_straggler(times).at("straggler");
  CHECK(model.constants.at("log_sigma") == Approx(0.05).epsilon(0.05));
  CHECK(model.constants.at("rho") == Approx(0.36).epsilon(0.1));
}

TEST_CASE("host costs are trimmed means", "[models][host][fit]") {
  MeasuredHost samples;
  for (int i = 0; i < 100; ++i) {
    samples.issue.push_back(i == 50 ? 1.0
                                    : 2e-6);  // one preempted sample of a second must not count
    samples.dispatch.push_back(1e-6);
  }
  const FittedModel host = fit_host(samples).at("host");
  CHECK(host.constants.at("issue") == Approx(2e-6));
  CHECK(host.constants.at("dispatch") == Approx(1e-6));
  CHECK(host.constants.at("step") == 0);
}

}  // namespace stepcast::models
