// Answers of `compare` on a recorded run and the cores it ran on.
#include <catch2/catch.hpp>

#include "studies/fit/fit_traces.h"
#include "studies/run/core_speed.h"
#include "studies/traces/compare.h"
#include "tests/studies/known_machine.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::studies::test;

TEST_CASE("compare tells the gaps between ops from slow moments of single ops",
          "[studies][compare]") {
  // In each of seven steps another op takes 20 us longer, on both ranks. Every op's median, and
  // what no op took, are as before; the step is longer by the 20 us.
  const Job job = transformer(64, 32, 2, false);
  traces::GraphRun trace = simulated_trace(job, 7);
  const auto back = [](SimTime& t) { t = SimTime{ticks(t) - 3'000'000'000LL}; };
  for (OpSpan& s : trace.ranks[1].ops) {  // one clock
    back(s.issued), back(s.begin), back(s.ready), back(s.end);
  }
  for (traces::StepMark& m : trace.ranks[1].steps) {
    back(m.begin), back(m.end);
  }
  const Comparison before = compare(traces::measured_run(trace), job, nullptr);
  const std::int64_t longer = 20'000'000;
  for (traces::RankTrace& rank : trace.ranks) {
    std::map<std::int32_t, SimTime> since;
    for (const OpSpan& s : rank.ops) {
      if (s.ref.op == static_cast<std::uint32_t>(s.step) + 2) {
        since.emplace(s.step, s.begin);
      }
    }
    REQUIRE(since.size() == 7);
    for (OpSpan& s : rank.ops) {
      const bool later = s.begin > since.at(s.step);
      for (SimTime* t : {&s.begin, &s.ready}) {
        *t = SimTime{ticks(*t) + (later ? longer : 0)};
      }
      s.end = SimTime{ticks(s.end) + (later || s.begin == since.at(s.step) ? longer : 0)};
    }
    for (traces::StepMark& m : rank.steps) {
      m.end = SimTime{ticks(m.end) + longer};
    }
  }
  const Comparison after = compare(traces::measured_run(trace), job, nullptr);
  const auto row = [](const Comparison& c, const std::string& name) {
    const auto found = std::find_if(c.by_op->by_kind.begin(), c.by_op->by_kind.end(),
                                    [&](const ComparisonRow& r) { return r.name == name; });
    REQUIRE(found != c.by_op->by_kind.end());
    return *found;
  };
  CHECK((after.measured - before.measured) / microseconds(20) == Approx(1).margin(0.01));
  const ComparisonRow gaps = row(after, "host and gaps");
  CHECK(gaps.measured / row(before, "host and gaps").measured == Approx(1).margin(0.01));
  CHECK(gaps.measured / gaps.predicted == Approx(1).margin(0.05));
  CHECK(std::abs(row(before, "beyond the medians").measured / before.measured) < 1e-3);
  CHECK(row(after, "beyond the medians").measured / microseconds(20) == Approx(1).margin(0.02));
  double sum = 0;
  for (const ComparisonRow& r : after.by_op->by_kind) {
    sum += r.contribution;
  }
  CHECK(sum == Approx(after.by_op->error).margin(1e-9));
}

TEST_CASE("compare warns where the cores were not as fast as in the calibration",
          "[studies][compare]") {
  const TemporaryFolder folder("stepcast-fit");
  std::vector<std::filesystem::path> folders;
  for (const double probe : {39, 40, 90}) {  // the median stands for the calibration
    traces::GraphRun trace = simulated_trace(transformer(64, 32, 2, false), 4);
    trace.core_probe = microseconds(probe);
    folders.push_back(folder.path() / std::to_string(folders.size()));
    write(folders.back(), trace);
  }
  Job job = transformer(64, 32, 2, false);
  job.system = fit_traces(folders, to_known_core()).system;
  traces::GraphRun trace = simulated_trace(job, 4);
  const auto warnings = [&](Seconds probe) {
    trace.core_probe = probe;
    return compare(traces::measured_run(trace), job, nullptr).warnings;
  };
  CHECK(warnings(Seconds{}).empty());
  CHECK(warnings(microseconds(36)).empty());
  CHECK(warnings(microseconds(46)).empty());
  CHECK(warnings(microseconds(57)) ==
        std::vector<std::string>{"the cores ran at 0.7 of the speed of the calibration"});
  CHECK(warnings(microseconds(20)) ==
        std::vector<std::string>{"the cores ran at 2 of the speed of the calibration"});
}
