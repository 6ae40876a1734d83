#include "studies/run/core_pace.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace stepcast::studies {
namespace {

System system_probed_at(const ProbeTimes& reference, double exchange_power) {
  System system;
  system.device.fitted["pace"] = reference_model(reference, exchange_power, 1, "test");
  return system;
}

ProbeTimes probe(double multiply, double stream, double exchange) {
  return {microseconds(multiply), microseconds(stream), microseconds(exchange)};
}

TEST_CASE("the pace of a step is that of its slowest core, transfers at the exchange's",
          "[studies][pace]") {
  const System system = system_probed_at(probe(10, 20, 4), 0.5);
  // Rank 0 as calibrated, rank 1 sqrt(40/10 * 20/20) = 2 times as long; exchanges 9/4 as long, to
  // the power of a half: 1.5.
  const ProbeTimes run[] = {probe(10, 20, 9), probe(40, 20, 9)};
  const StepPace pace = step_pace(run, system, 0.25);
  CHECK(pace.core == Approx(2));
  CHECK(pace.exchange == Approx(1.5));
  CHECK(pace.of_step() == Approx(0.75 * 2 + 0.25 * 1.5));
}

TEST_CASE("a run on the calibrated cores, or without probes, keeps its prediction",
          "[studies][pace]") {
  const ProbeTimes reference = probe(10, 20, 4);
  CHECK(step_pace(std::vector{reference}, system_probed_at(reference, 1), 0.5).of_step() ==
        Approx(1));
  CHECK(step_pace(std::vector{reference}, System{}, 0.5).of_step() == Approx(1));
  CHECK(step_pace({}, system_probed_at(reference, 1), 0.5).of_step() == Approx(1));
}

TEST_CASE("a system remembers between which paces its calibration ran", "[studies][pace]") {
  std::vector<double> paces;
  for (int i = 0; i <= 100; ++i) {
    paces.push_back(0.5 + 0.01 * i);  // median 1
  }
  System system = system_probed_at(probe(10, 20, 4), 1);
  CHECK(paces_met(system).core.high == 1);
  note_paces_met(system.device.fitted["pace"], {range_of(paces), {}});
  CHECK(paces_met(system).core.low == Approx(0.55));
  CHECK(paces_met(system).core.high == Approx(1.45));
  CHECK(paces_met(system).exchange.high == 1);
  CHECK(range_of({}).high == 1);
}

}  // namespace
}  // namespace stepcast::studies
