// The guard on perturbed copies of a real recording (ResNet-50 on a V100, six steps that wait for
// their data loader): what it sees, what it cannot, and that repeats are no regression.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <random>

#include "studies/guard/guard.h"
#include "traces/measured_step.h"
#include "traces/open_trace.h"

using namespace stepcast;
using studies::GuardResult;
using studies::GuardSamples;
using traces::Nanoseconds;
using traces::Recording;

namespace {

struct Perturbed {
  double kernels = 1, everything = 1, gemm = 1, host = 1;
  double jitter = 0.01;
};

/// A copy whose kernels took `kernels` times as long each, with jitter; later work of a stream is
/// pushed back, as a queue would. `everything`: all times, the host's too. The recording stays as
/// it was.
GuardSamples run_of(Recording& recording, const Perturbed& how, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(1, how.jitter);
  traces::RankRecording& rank = recording.ranks.front();
  traces::Events& e = rank.events;
  const std::vector<Nanoseconds> begin = e.begin;
  const auto duration = e.duration;
  const std::vector<traces::StepRange> steps = rank.steps;
  const auto times = [](Nanoseconds t, double factor) {
    return Nanoseconds(std::llround(static_cast<double>(t.count()) * factor));
  };
  for (const traces::Lane& lane : rank.lanes) {
    if (lane.kind != traces::Lane::Kind::kStream) {
      continue;
    }
    Nanoseconds free = Nanoseconds::min();
    for (traces::EventId i = lane.first; i < lane.first + lane.count; ++i) {
      if (!traces::is_device_work(e.category[i])) {
        continue;
      }
      const bool gemm = recording.names.view(e.name[i]).find("sgemm") != std::string_view::npos;
      e.duration.set(i, times(e.duration[i],
                              how.kernels * (gemm ? how.gemm : 1) * std::max(0.2, normal(random))));
      e.begin[i] = std::max(e.begin[i], free);
      free = e.end(i);
    }
  }
  for (traces::EventId i = 0; i < e.size(); ++i) {
    e.begin[i] = times(e.begin[i], how.everything);
    e.duration.set(i, times(e.duration[i], how.everything));
  }
  for (traces::StepRange& step : rank.steps) {
    step.begin = times(step.begin, how.everything);
    step.end = times(step.end, how.everything);
  }
  GuardSamples samples = studies::samples_of(traces::measured_run(recording));
  e.begin = begin;
  e.duration = duration;
  rank.steps = steps;
  return samples;
}

Recording resnet() {
  const std::filesystem::path file = std::filesystem::path(STEPCAST_SHARED_DATA) /
                                     "traces/kineto-tb/resnet50_nw4.1623212756351.json.gz";
  if (!std::filesystem::exists(file)) {
    WARN("skipped: no recorded traces in " << file.parent_path().string());
    return {};
  }
  return traces::open_trace(file);
}

std::vector<GuardSamples> runs_of(Recording& recording, std::size_t runs, const Perturbed& how,
                                  std::uint64_t seed) {
  std::vector<GuardSamples> all;
  for (std::size_t r = 0; r < runs; ++r) {
    all.push_back(run_of(recording, how, seed + r));
  }
  return all;
}

GuardResult judged(const Baseline& before, const std::vector<GuardSamples>& runs) {
  return studies::guard(before, studies::make_baseline(runs, before.version, &before));
}

}  // namespace

TEST_CASE("a slowdown of everything in a real trace is no repeat", "[studies][guard][traces]") {
  Recording recording = resnet();
  if (recording.ranks.empty()) {
    return;
  }
  using Verdict = GuardResult::Verdict;
  const Baseline before = studies::make_baseline(runs_of(recording, 6, {}, 100), "test");
  // 24 repeats, three by three and each as several threes: every run is drawn on its own.
  const std::vector<GuardSamples> repeats = runs_of(recording, 24, {}, 500);
  int alarms = 0;
  double power = 0;
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    const GuardResult same = judged(
        before, {repeats[i], repeats[(i + 1) % repeats.size()], repeats[(i + 2) % repeats.size()]});
    alarms += same.verdict() == Verdict::kRegressed ? 1 : 0;
    power = std::max(power, same.power.all_ops);
    CHECK(same.power.all_ops <= 0.05);
    CHECK(same.stale.empty());
  }
  CHECK(alarms == 0);
  const struct {
    const char* what;
    Perturbed how;
  } slower[] = {
      {"all kernels +5 %", {.kernels = 1.05}},        {"all kernels +10 %", {.kernels = 1.10}},
      {"all kernels +30 %", {.kernels = 1.30}},       {"all kernels +100 %", {.kernels = 2}},
      {"whole timeline +30 %", {.everything = 1.30}}, {"GEMMs +5 %", {.gemm = 1.05}}};
  std::string told;
  for (const auto& [what, how] : slower) {
    CAPTURE(what);
    const GuardResult result = judged(before, runs_of(recording, 3, how, 900));
    CHECK(result.verdict() == Verdict::kRegressed);
    told += fmt::format("{} ({:+.1f} % in common)  ", what, 100 * result.common_change);
  }
  std::cout << fmt::format(
      "guard: ResNet-50, 6 runs against 3: {} of 24 repeats alarm; all ops together seen from "
      "{:.1f} %; caught: {}\n",
      alarms, 100 * power, told);
  // Faster by a tenth: no regression, and a baseline that would hide one.
  const GuardResult faster = judged(before, runs_of(recording, 3, {.kernels = 0.9}, 950));
  CHECK(faster.pass());
  CHECK_FALSE(faster.stale.empty());
}

TEST_CASE("where repeats differ too much the guard says so, not \"no regression\"",
          "[studies][guard][traces]") {
  Recording recording = resnet();
  if (recording.ranks.empty()) {
    return;
  }
  using Verdict = GuardResult::Verdict;
  // Clocks that differ by a fifth from run to run hide five percent.
  std::vector<GuardSamples> runs;
  for (const double efficiency : {0.8, 1.0, 1.2, 0.9, 1.15, 1.05}) {
    runs.push_back(run_of(recording, {.kernels = efficiency}, runs.size()));
  }
  const Baseline before = studies::make_baseline(runs, "test");
  const GuardResult result = judged(before, runs_of(recording, 3, {.kernels = 1.05}, 40));
  CHECK(result.verdict() == Verdict::kCannotJudge);
  CHECK_FALSE(result.pass());
  CHECK(result.power.all_ops > 0.05);
}

// Prints what docs/accuracy/guard.md shows; by hand: test_studies "[curves]".
TEST_CASE("curves of power and false alarms on a real trace", "[.][curves]") {
  Recording recording = resnet();
  if (recording.ranks.empty()) {
    return;
  }
  std::mt19937_64 random(11);
  std::cout << "| kernels scatter by | runs differ by | 3 runs of 24, alarms | said to be seen | "
               "+1 % | +2 % | +3 % | +5 % | +10 % |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& [jitter, clock] :
       {std::pair(0.01, 0.0), {0.03, 0.0}, {0.01, 0.005}, {0.01, 0.01}, {0.01, 0.03}}) {
    std::uint64_t seed = 7000;
    const auto runs = [&, jitter = jitter, clock = clock](std::size_t count, double slower) {
      std::vector<GuardSamples> all;
      for (std::size_t r = 0; r < count; ++r) {
        std::normal_distribution<double> efficiency(1, clock);
        all.push_back(run_of(
            recording, {.kernels = slower * (clock > 0 ? efficiency(random) : 1), .jitter = jitter},
            ++seed));
      }
      return all;
    };
    const Baseline before = studies::make_baseline(runs(6, 1), "test");
    const std::vector<GuardSamples> repeats = runs(24, 1);
    int alarms = 0, threes = 0;
    double promised = 0;
    for (std::size_t i = 0; i + 3 <= repeats.size(); i += 3) {
      const GuardResult same = judged(before, {repeats[i], repeats[i + 1], repeats[i + 2]});
      alarms += same.verdict() == GuardResult::Verdict::kRegressed ? 1 : 0;
      promised += same.power.all_ops;
      ++threes;
    }
    std::string row = fmt::format("| {:.0f} % | {:.1f} % | {} of {} | {:.1f} % |", 100 * jitter,
                                  100 * clock, alarms, threes, 100 * promised / threes);
    for (const double slower : {1.01, 1.02, 1.03, 1.05, 1.10}) {
      const std::vector<GuardSamples> now = runs(12, slower);
      int caught = 0, unable = 0;
      for (std::size_t i = 0; i + 3 <= now.size(); i += 3) {
        const auto verdict = judged(before, {now[i], now[i + 1], now[i + 2]}).verdict();
        caught += verdict == GuardResult::Verdict::kRegressed ? 1 : 0;
        unable += verdict == GuardResult::Verdict::kCannotJudge ? 1 : 0;
      }
      row += fmt::format(" {} of 4{} |", caught,
                         unable > 0 ? fmt::format(", {} cannot judge", unable) : "");
    }
    std::cout << row << '\n';
  }
}
