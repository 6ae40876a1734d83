// Cores differ in speed between runs and ranks: what is fitted is as at their common pace.
#include <catch2/catch.hpp>
#include <filesystem>

#include "studies/fit/fit_traces.h"
#include "studies/predict/predict.h"
#include "studies/run/core_pace.h"
#include "studies/traces/compare.h"
#include "tests/studies/known_machine.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::studies::test;
namespace fs = std::filesystem;

namespace {

/// Predicted step on a fitted machine over that on the known one.
double over_known(const System& fitted, const Job& unseen) {
  const ExecutionGraph graph = workloads::build_graph(unseen);
  Job on_fitted = unseen;
  on_fitted.system = fitted;
  return predict(on_fitted, graph).iteration / predict(unseen, graph).iteration;
}

}  // namespace

TEST_CASE("times are fitted as cores of the common pace would have taken them", "[studies][fit]") {
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  for (const Job& job : {transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                         transformer(256, 96, 2, true)}) {
    traces::GraphRun trace = simulated_trace(job, 4);
    // The second job met cores that took twice as long, and so did both probes.
    const std::int64_t slow = folders.size() == 1 ? 2 : 1;
    for (traces::RankTrace& rank : trace.ranks) {
      for (OpSpan& s : rank.ops) {
        for (SimTime* t : {&s.issued, &s.begin, &s.ready, &s.end}) {
          *t = SimTime{ticks(*t) * slow};
        }
      }
      for (HostSpan& s : rank.host) {
        s.begin = SimTime{ticks(s.begin) * slow};
        s.end = SimTime{ticks(s.end) * slow};
      }
      for (traces::StepMark& m : rank.steps) {
        m.begin = SimTime{ticks(m.begin) * slow};
        m.end = SimTime{ticks(m.end) * slow};
      }
      trace.core_probes.push_back({microseconds(40) * static_cast<double>(slow),
                                   microseconds(20) * static_cast<double>(slow)});
    }
    folders.push_back(folder.path / job.workload.name);
    write(folders.back(), trace);
  }
  const System fitted = fit_traces(folders, to_known_core()).system;
  CHECK(reference_probe(fitted)[0] / microseconds(40) == Approx(1));
  CHECK(reference_probe(fitted)[1] / microseconds(20) == Approx(1));
  CHECK(pace_of({microseconds(80), microseconds(40)}, reference_probe(fitted)) == Approx(2));
  CHECK(pace_of({}, reference_probe(fitted)) == 1);
  CHECK(over_known(fitted, transformer(128, 64, 3, true)) == Approx(1).margin(0.03));
}

TEST_CASE("ranks of a recording are told apart by the ops they share, not by a probe",
          "[studies][fit]") {
  // Both ranks took the same, and rank 1's sum of vectors was probed at half the time.
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  for (const Job& job : {transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                         transformer(256, 96, 2, true)}) {
    traces::GraphRun trace = simulated_trace(job, 4);
    trace.core_probes = {{microseconds(40), microseconds(20)},
                         {microseconds(40), microseconds(10)}};
    folders.push_back(folder.path / job.workload.name);
    write(folders.back(), trace);
  }
  const System fitted = fit_traces(folders, to_known_core()).system;
  CHECK(reference_probe(fitted)[1] / microseconds(20) == Approx(1));
  CHECK(over_known(fitted, transformer(128, 64, 3, true)) == Approx(1).margin(0.03));
}

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

TEST_CASE("collectives are fitted as an exchange at the common pace would have taken them",
          "[studies][fit]") {
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  const std::vector<Job> jobs{transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                              transformer(256, 96, 2, true), transformer(128, 64, 2, true)};
  for (const bool apart : {false, true, false}) {
    for (std::size_t i = 0; i < jobs.size() - (folders.size() > 4 ? 1 : 0); ++i) {
      // Every second round the cores are twice as far from each other, and as fast as before.
      Job job = jobs[i];
      if (apart) {
        auto& c = job.system.fitted.at("collective").constants;
        for (const char* cost : {"start", "member", "rendezvous", "self"}) {
          c.at(cost) *= 2;
        }
        c.at("near") /= 2;
        c.at("far") /= 2;
      }
      traces::GraphRun trace = simulated_trace(job, 4);
      trace.core_probes.assign(
          2, {microseconds(40), microseconds(20), microseconds(5) * (apart ? 2.0 : 1.0)});
      folders.push_back(folder.path / std::to_string(folders.size()));
      write(folders.back(), trace);
    }
  }
  const System fitted = fit_traces(folders, to_known_core()).system;
  CHECK(reference_probe(fitted)[2] / microseconds(5) == Approx(1));
  CHECK(exchange_power(fitted) == Approx(1).margin(0.02));
  CHECK(over_known(fitted, transformer(128, 96, 3, true)) == Approx(1).margin(0.03));
}

TEST_CASE("a step's pace is that of its parts", "[studies]") {
  CHECK(StepPace{.core = 1.2, .exchange = 2, .transfers = 0.25}.of_step() == Approx(1.4));
  const ProbeTimes near{microseconds(40), microseconds(20), microseconds(5)};
  const ProbeTimes apart{microseconds(40), microseconds(20), microseconds(15)};
  CHECK(pace_of(apart, near) == 1);
  CHECK(exchange_pace_of(apart, near) == Approx(3));
  CHECK(exchange_pace_of({microseconds(40), microseconds(20)}, near) == 1);
}
