#include "studies/predict/explain.h"

#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "core/error.h"
#include "tests/jobs.h"
#include "traces/native/native_trace.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

Job job_with(const fixtures::Words& more) {
  return fixtures::zoo_job("gpt-22b", "dgx-a100-80gb",
                           "devices=16 parallel.tensor=4 batch.global=64 batch.micro=2" + more);
}

Job change(const Job& base, const std::vector<config::Difference>& changes) {
  std::vector<std::string> overrides{"parallel.data=auto"};
  for (const config::Difference& d : changes) {
    overrides.push_back(d.key + "=" + d.after);
  }
  return fixtures::loaded(overrides, config::job_to_json(base));
}

Seconds sum_of_deltas(const Explanation& e) {
  Seconds sum;
  for (const WaterfallRow& r : e.rows) {
    CHECK((r.compute + r.exposed_communication + r.bubble + r.host + r.other).base() ==
          Approx(r.delta().base()).margin(1e-15));
    sum += r.delta();
  }
  return sum;
}

}  // namespace

TEST_CASE("a waterfall of two jobs sums to their difference", "[studies][explain]") {
  const Job a = job_with({});
  const Job b = job_with({"parallel.pipeline=2", "parallel.recompute=full", "devices=32"});
  const Explanation e = explain(a, b, change);
  CHECK(e.a.step.base() == Approx(predict(a).iteration.base()).epsilon(1e-12));
  CHECK(e.b.step.base() == Approx(predict(b).iteration.base()).epsilon(1e-12));
  CHECK(e.by_name);
  CHECK(sum_of_deltas(e).base() == Approx((e.b.step - e.a.step).base()).epsilon(1e-9));
  Seconds changed;
  for (const ChangeRow& c : e.changes) {
    changed += c.delta;
  }
  CHECK(changed.base() == Approx((e.b.step - e.a.step).base()).epsilon(1e-9));
  // In the order of the keys of a job: devices, then parallel (pipeline, recompute).
  REQUIRE(e.changes.size() == 3);
  CHECK(e.changes[0].changes.front().key == "devices");
  CHECK(e.changes[0].delta < Seconds{});  // twice the devices for the same batch
  CHECK(e.changes[2].changes.front().key == "parallel.recompute");
}

TEST_CASE("changes that are no job alone are taken together", "[studies][explain]") {
  // batch.global = 60 does not divide by data * micro = 4 * 2; with micro = 3 it does.
  const Job a = job_with({});
  const Job b = job_with({"batch.global=60", "batch.micro=3"});
  const Explanation e = explain(a, b, change);
  REQUIRE(e.changes.size() == 1);
  CHECK(e.changes[0].changes.size() == 2);
  CHECK(e.changes[0].step == e.b.step);
}

TEST_CASE("recordings are explained by op, and beside a prediction", "[studies][explain]") {
  const traces::GraphRun two = traces::read_native(STEPCAST_SOURCE_DIR "/traces/recorded/gpt-2");
  const traces::MeasuredRun run = traces::measured_run(two);
  const StepAccount measured = account_of(run);
  double mean = 0;
  for (const traces::MeasuredStep& step : run.steps) {
    const traces::MeasuredRank& rank = step.ranks.at(static_cast<std::size_t>(measured.rank));
    mean +=
        to_seconds(SimTime{rank.end - rank.begin}).base() / static_cast<double>(run.steps.size());
  }
  CHECK(measured.step.base() == Approx(mean).epsilon(1e-9));
  const Explanation e = explain(account_of(fixtures::loaded({}, two.job)), measured);
  CHECK(e.by_name);  // a prediction and its recording share op names
  CHECK(sum_of_deltas(e).base() == Approx((e.b.step - e.a.step).base()).epsilon(1e-9));
}
