// Verdicts on recorded steps: of published traces, and of the cases that an engineer made where they
// misled. Read from the shared data and trials, never copied.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "core/config/config.h"
#include "studies/predict/explain.h"
#include "studies/traces/recorded_step.h"
#include "studies/traces/replay.h"
#include "studies/traces/show_measured.h"
#include "traces/open_trace.h"

using namespace stepcast;
namespace fs = std::filesystem;

namespace {

/// Empty where the data is not there: the case is skipped.
fs::path traces_of(const char* folder) {
  const fs::path path = fs::path(STEPCAST_SHARED_DATA) / folder;
  if (!fs::exists(path)) {
    WARN("skipped: no recorded traces in " << path.string());
    return {};
  }
  return path;
}
const char* const kCases = "../trials/2026-11-29/inputs/traces";

traces::MeasuredRun run_of(const fs::path& file) {
  return traces::measured_run(traces::open_trace(file));
}

double milliseconds_of(Seconds t) { return t.base() * 1e3; }

}  // namespace

TEST_CASE("what bounds a published step is what its controls say", "[studies][show][traces]") {
  const fs::path folder = traces_of("traces/kineto-tb");
  if (folder.empty()) {
    return;
  }
  for (const char* file :
       {"resnet50_nw0.1623143089861.json.gz", "resnet50_nw4.1623212756351.json.gz"}) {
    CAPTURE(file);
    const traces::MeasuredRun run = run_of(folder / file);
    const studies::MeasuredShow show = studies::show_measured(run);
    CHECK(studies::recorded_step(run).mostly == "compute");
    CHECK(show.bound == "host");  // its data loader: halving all compute gains 1 %
    CHECK(show.half_compute > -0.02);
    CHECK(show.half_host < -0.15);
    CHECK(studies::replay(run).host_bound);
  }
}

TEST_CASE("where the host decides, compute is not said to bound", "[studies][show][traces]") {
  const fs::path folder = traces_of(kCases);
  if (folder.empty()) {
    return;
  }
  const traces::MeasuredRun launches = run_of(folder / "28-host-bound-called-compute.json");
  const studies::MeasuredShow show = studies::show_measured(launches);
  CHECK(show.bound == "host");
  CHECK(show.half_compute == Approx(0).margin(0.01));
  CHECK(studies::recorded_step(launches).mostly == "compute");
  // 50 us of a kernel, then 900 us of operators on the CPU.
  const studies::RecordedStep tail =
      studies::recorded_step(run_of(folder / "27-host-after-last-kernel.json"));
  CHECK(tail.mostly == "host");
  CHECK(milliseconds_of(tail.by_rank[0].host) == Approx(0.948).margin(0.001));
  CHECK(milliseconds_of(tail.by_rank[0].other) < 0.01);
}

TEST_CASE("steps without device work count, and are told", "[studies][show][traces]") {
  const fs::path folder = traces_of(kCases);
  if (folder.empty()) {
    return;
  }
  for (const auto& [file, told] :
       {std::pair("09-most-steps-without-gpu.json", "missing in 10 of 12 steps"),
        std::pair("25-every-other-step-on-host.json", "missing in 4 of 8 steps")}) {
    CAPTURE(file);
    const studies::RecordedStep step = studies::recorded_step(run_of(folder / file));
    CHECK(milliseconds_of(step.step) == Approx(1).margin(0.01));
    CHECK(milliseconds_of(step.median) == Approx(1).margin(0.01));
    REQUIRE_FALSE(step.warnings.empty());
    CHECK_THAT(step.warnings.front(), Catch::Contains(told));
  }
}

TEST_CASE("the step that fills the pipeline counts in no answer", "[studies][explain][traces]") {
  const fs::path folder = traces_of(kCases);
  if (folder.empty()) {
    return;
  }
  const traces::MeasuredRun a = run_of(folder / "26a.json"),
                            b = run_of(folder / "26b-first-step-partial.json");
  const studies::Explanation e = studies::explain(studies::account_of(a), studies::account_of(b));
  CHECK(milliseconds_of(e.a.step) == Approx(1));
  CHECK(e.a.step == e.b.step);
  for (const studies::WaterfallRow& row : e.rows) {
    CAPTURE(row.name);
    CHECK(row.delta().base() == Approx(0).margin(1e-12));
  }
  CHECK(studies::recorded_step(a).step == e.a.step);
}

TEST_CASE("the sign of a step on another device is the truth's, or is not told",
          "[studies][replay][traces]") {
  // The same program was recorded on both devices.
  const fs::path folder = traces_of("two_vendors");
  if (folder.empty()) {
    return;
  }
  const config::Library library{STEPCAST_SOURCE_DIR};
  const Device h100 = config::load_device("h100-sxm-80gb", library);
  const Device mi300x = config::load_device("mi300x", library);
  for (const char* program : {"facebook_timesformer-base-finetuned-k400__1016002.json.gz",
                              "Falconsai_nsfw_image_detection__1016002.json.gz"}) {
    const traces::MeasuredRun on_h100 = run_of(folder / (std::string("h100_") + program));
    const traces::MeasuredRun on_mi300x = run_of(folder / (std::string("mi300_") + program));
    for (const auto& [from, to, device] :
         {std::tuple(&on_h100, &on_mi300x, &mi300x), std::tuple(&on_mi300x, &on_h100, &h100)}) {
      CAPTURE(program, device->name);
      studies::ReplayOptions options;
      options.library = library;
      options.change.device = device;
      const studies::Replay r = studies::replay(*from, options);
      REQUIRE(r.device_time_ratio);
      const double truth = studies::recorded_step(*to).step / studies::recorded_step(*from).step;
      CHECK((r.host_decides || (r.change < 1) == (truth < 1)));
    }
  }
}

TEST_CASE("a replay without a change is the recording, or says nothing",
          "[studies][replay][traces]") {
  std::size_t checked = 0, trusted = 0;
  for (const char* name : {kCases, "traces", "two_vendors"}) {
    const fs::path folder = traces_of(name);
    if (folder.empty()) {
      return;
    }
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string file = entry.path().filename().string();
      if (!entry.is_regular_file() || file.find(".json") == std::string::npos) {
        continue;
      }
      traces::MeasuredRun run;
      try {
        run = run_of(entry.path());
      } catch (const std::exception&) {
        continue;  // no timeline, or broken: other tests say which
      }
      CAPTURE(file);
      const studies::MeasuredShow show = studies::show_measured(run);
      ++checked;
      trusted += std::abs(show.replay_error) <= studies::kTrustedReplay ? 1 : 0;
      CHECK(show.bound.empty() == (std::abs(show.replay_error) > studies::kTrustedReplay));
    }
  }
  CHECK(checked >= 60);
  CHECK(trusted == checked);
}
