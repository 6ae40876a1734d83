// Constants behind traces are found again; what cannot be fitted is said by name.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/config/config.h"
#include "core/error.h"
#include "models/cost_model.h"
#include "studies/fit/fit_traces.h"
#include "studies/predict/predict.h"
#include "tests/studies/known_machine.h"
#include "validation/runtime.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::validation;
using namespace stepcast::studies::test;
namespace fs = std::filesystem;

TEST_CASE("constants behind a trace are recovered from it", "[studies][fit]") {
  const TemporaryFolder folder("stepcast-fit");
  std::vector<fs::path> folders;
  for (const Job& job : {transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                         transformer(256, 96, 2, true)}) {
    folders.push_back(folder.path() / job.workload.name);
    write(folders.back(), simulated_trace(job, 4));
  }
  const FitTracesResult fit = fit_traces(folders, to_known_core());
  REQUIRE(fit.traces.size() == 3);
  CHECK(fit.unexplained.empty());
  CHECK(fit.system.name == "fitted");
  CHECK(fit.system.device.name == "fitted-core");

  const models::CostModel truth(known_machine(), {});
  const models::CostModel fitted(fit.system, {});
  // The host: its share of every op is the same, so that rounding to nanoseconds is all that is
  // lost.
  CHECK(fitted.host().issue / truth.host().issue == Approx(1).margin(0.02));
  CHECK(fitted.host().dispatch / truth.host().dispatch == Approx(1).margin(0.02));
  // Equal ranks that took equal times make no stragglers.
  CHECK(fitted.straggler().log_sigma < 1e-3);
  // Jobs between and a little beyond the traced ones, op by op and as steps.
  for (const Job& unseen : {transformer(128, 64, 3, true), transformer(192, 96, 2, false)}) {
    CAPTURE(unseen.workload.name);
    const ExecutionGraph graph = workloads::build_graph(unseen);
    const Program& program = graph.program_of(0);
    for (const Op& op : program.ops) {
      if (op.kind == OpKind::kGemm) {
        CAPTURE(program.name(op), op.shape[0], op.shape[1], op.shape[2]);
        CHECK(fitted.kernel(program, op).time / truth.kernel(program, op).time ==
              Approx(1).margin(0.02));
      }
    }
    Job on_fitted = unseen;
    on_fitted.system = fit.system;
    CHECK(predict(on_fitted, graph).iteration / predict(unseen, graph).iteration ==
          Approx(1).margin(0.03));
  }
}

TEST_CASE("a device that looks like a file is one", "[studies][fit][malformed]") {
  const TemporaryFolder folder("stepcast-fit");
  const auto told = [&](const std::string& device) {
    try {
      fit_traces(std::vector<fs::path>{recorded("dlrm-2")},
                 {.device = device, .library = STEPCAST_SOURCE_DIR});
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(told(folder.path() / "nosuch.json"),
             Catch::Contains("--device") && Catch::Contains("does not exist"));
  const fs::path system = folder.path() / "machine.json";
  std::ofstream(system) << config::system_to_json(known_machine());
  CHECK_THAT(told(system), Catch::Contains("is the file of system known"));
  const fs::path device = folder.path() / "core.json";
  std::ofstream(device) << config::device_to_json(known_machine().device);
  CHECK(fit_traces(std::vector<fs::path>{recorded("dlrm-2")},
                   {.device = device, .library = STEPCAST_SOURCE_DIR})
            .system.device.name == "known-core");
}

TEST_CASE("spans outside steps, steps that are not whole and drops are counted by name",
          "[studies][fit]") {
  traces::GraphRun trace = simulated_trace(transformer(64, 32, 2, true), 6);
  const std::string lost = trace.graph.program_of(0).name(trace.graph.program_of(0).ops[0]);
  OpSpan stray = trace.ranks[0].ops.front();
  stray.step = 99;  // no such step
  trace.ranks[0].ops.push_back(stray);
  auto& ops = trace.ranks[1].ops;
  ops.erase(std::find_if(ops.begin(), ops.end(), [](const OpSpan& s) { return s.step == 2; }));
  trace.ranks[1].dropped = 1;
  const TemporaryFolder folder("stepcast-fit");
  write(folder.path(), trace);
  const FitTracesResult fit = fit_traces(std::vector<fs::path>{folder.path()}, to_known_core());
  const auto count = [&fit](const std::string& reason, const std::string& name) {
    for (const Unexplained& u : fit.unexplained) {
      if (u.reason == reason && u.name == name) {
        return u.count;
      }
    }
    return std::int64_t{0};
  };
  CHECK(count("outside every step", lost) == 1);
  CHECK(count("step not whole", "rank 1") == 1);
  CHECK(count("dropped by the recorder", "rank 1") == 1);
  CHECK(fit.traces[0].steps == 6);
}

TEST_CASE("a trace holds its tables and exchanges, also without its job", "[studies][fit]") {
  traces::GraphRun trace = traces::read_native(recorded("dlrm-2"));
  trace.job.clear();
  const TemporaryFolder folder("stepcast-fit");
  write(folder.path(), trace);
  const FitTracesResult fit = fit_traces(std::vector<fs::path>{folder.path()}, to_known_core());
  CHECK(std::none_of(fit.unexplained.begin(), fit.unexplained.end(), [](const Unexplained& u) {
    return u.reason.starts_with("no tables") || u.reason.starts_with("no exchange");
  }));
  CHECK(fit.system.device.fitted.count("embedding_forward") == 1);
  CHECK(fit.system.device.fitted.count("gemm") == 1);
}

TEST_CASE("recordings of the CPU runtime give a usable machine, the same bytes twice",
          "[studies][fit]") {
  const std::string ranks = GENERATE("2", "4");
  CAPTURE(ranks);
  const std::vector<fs::path> folders{recorded("dlrm-" + ranks), recorded("gpt-" + ranks)};
  const FitTracesResult fit = fit_traces(folders, to_known_core());
  const std::string text = config::system_to_json(fit.system);
  CHECK(config::system_to_json(
            fit_traces(std::vector<fs::path>{folders[1], folders[0]}, to_known_core()).system) ==
        text);
  // It loads back, and a core does between 1 and 1000 GFLOP/s and issues an op in 5 us at most.
  const System loaded =
      config::read_system(config::text_source(text, "fitted"), {STEPCAST_SOURCE_DIR});
  CHECK(loaded.device.peak.at(Format::kFp32).base() > 1e9);
  CHECK(loaded.device.peak.at(Format::kFp32).base() < 1e12);
  const models::HostCost host = models::CostModel(loaded, {}).host();
  CHECK(host.issue > Seconds{});
  CHECK(host.issue < microseconds(5));
  CHECK(loaded.host.shares_core);
  if (ranks == "4") {
    return;  // four ranks on two cores also wait for a core, which no op shows
  }
  // The recorded jobs themselves, predicted by what was fitted to them.
  for (const fs::path& folder : folders) {
    const traces::GraphRun trace = traces::read_native(folder);
    Job job = config::load_job(config::text_source(trace.job, "job"), {}, {STEPCAST_SOURCE_DIR});
    job.system = loaded;
    std::vector<double> steps = traces::step_seconds(trace, 0);
    std::sort(steps.begin(), steps.end());
    CAPTURE(folder.string());
    CHECK(predict(job).iteration.base() / steps[steps.size() / 2] == Approx(1).margin(0.25));
  }
}

TEST_CASE("a recording more of one program never makes its fit worse", "[studies][fit]") {
  const TemporaryFolder folder("stepcast-fit");
  const traces::GraphRun trace = traces::read_native(recorded("dlrm-2"));
  const Job job =
      config::load_job(config::text_source(trace.job, "job"), {}, {STEPCAST_SOURCE_DIR});
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto fitted_to = [&](const std::vector<fs::path>& folders) {
    return fit_traces(folders, to_known_core());
  };
  // Times of all kernels over those of another machine: nearest to and furthest above or below 1.
  const auto furthest = [&](const System& system, const System& other) {
    const models::CostModel model(system, {}), reference(other, {});
    double worst = 0;
    for (const std::int32_t rank : {0, 1}) {
      const Program& program = graph.program_of(rank);
      for (const Op& op : program.ops) {
        if (!is_collective(op.kind)) {
          const double ratio = model.kernel(program, op).time / reference.kernel(program, op).time;
          worst = std::max(worst, std::abs(std::log(ratio)));
        }
      }
    }
    return worst;
  };
  const System once = fitted_to({recorded("dlrm-2")}).system;
  std::vector<fs::path> exact{recorded("dlrm-2")}, noisy = exact;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> shorter(0.9, 1.0);
  for (int copy = 0; copy < 3; ++copy) {
    traces::GraphRun again = trace;
    again.producer = fmt::format("copy {}", copy);  // other bytes, the same times
    exact.push_back(folder.path() / fmt::format("exact-{}", copy));
    write(exact.back(), again);
    for (traces::RankTrace& rank : again.ranks) {
      for (OpSpan& s : rank.ops) {
        const auto length = static_cast<double>(ticks(s.end) - ticks(s.begin));
        const auto cut = static_cast<std::int64_t>(length * (1 - shorter(random)));
        s.end = SimTime{ticks(s.end) - cut / 1000 * 1000};
      }
    }
    noisy.push_back(folder.path() / fmt::format("noisy-{}", copy));
    write(noisy.back(), again);
    // Twice and four times the same; medians of copies up to 10 % shorter.
    CAPTURE(copy);
    const FitTracesResult fit = fitted_to(exact);
    CHECK(fit.traces.size() == exact.size());
    CHECK(furthest(fit.system, once) < 0.01);
    CHECK(furthest(fitted_to(noisy).system, once) < 0.12);
    Job on_once = job, on_fit = job;
    on_once.system = once;
    on_fit.system = fit.system;
    CHECK(predict(on_fit, graph).iteration / predict(on_once, graph).iteration ==
          Approx(1).epsilon(0.01));
  }
  // The same bytes under another name are one recording, and said to be.
  fs::copy(recorded("dlrm-2"), folder.path() / "same");
  const FitTracesResult same = fitted_to({recorded("dlrm-2"), folder.path() / "same"});
  CHECK(same.traces.size() == 1);
  REQUIRE(same.warnings.size() == 1);
  CHECK_THAT(same.warnings[0], Catch::Contains("is the same recording as"));
  CHECK(config::system_to_json(same.system) == config::system_to_json(once));
}

TEST_CASE("a kind of one shape is predicted as it was measured, however many programs have it",
          "[studies][fit]") {
  // Three programs that differ in depth alone have one shape of the loss: six rows of one place.
  // It takes an eighth of what its class would.
  const TemporaryFolder folder("stepcast-fit");
  std::vector<fs::path> folders;
  const Job shallow = transformer(64, 32, 2, true);
  const ExecutionGraph graph = workloads::build_graph(shallow);
  const Program& program = graph.program_of(0);
  const auto loss = std::find_if(program.ops.begin(), program.ops.end(), [&](const Op& op) {
    return class_of(op.kind) == OpClass::kMemoryBound && program.name(op).starts_with("loss");
  });
  REQUIRE(loss != program.ops.end());
  for (const std::int64_t layers : {2, 3, 4}) {
    traces::GraphRun trace = simulated_trace(transformer(64, 32, layers, true), 4);
    for (traces::RankTrace& rank : trace.ranks) {
      const Program& deep = trace.graph.program_of(rank.rank);
      for (OpSpan& s : rank.ops) {
        if (deep.ops[s.ref.op].kind == loss->kind) {
          const std::int64_t length = ticks(s.end) - ticks(s.begin);
          s.end = SimTime{ticks(s.begin) + length / 8};
        }
      }
    }
    folders.push_back(folder.path() / std::to_string(layers));
    write(folders.back(), trace);
  }
  const System fitted = fit_traces(folders, to_known_core()).system;
  const Seconds measured = models::CostModel(known_machine(), {}).kernel(program, *loss).time / 8;
  CHECK(models::CostModel(fitted, {}).kernel(program, *loss).time / measured ==
        Approx(1).margin(0.03));
}

TEST_CASE("traces that cannot be fitted are refused by name", "[studies][fit][malformed]") {
  const TemporaryFolder folder("stepcast-fit");
  const fs::path empty = folder.path() / "empty";
  fs::create_directories(empty);
  CHECK_THAT(error_of({empty}), Catch::Contains("empty: holds no trace (it is empty)"));
  CHECK_THAT(error_of({folder.path() / "absent"}), Catch::Contains("absent: does not exist"));
  CHECK_THAT(error_of({}), Catch::Contains("at least one trace"));

  const traces::GraphRun trace = simulated_trace(transformer(64, 32, 2, true), 2);
  traces::GraphRun unmarked = trace;
  for (traces::RankTrace& r : unmarked.ranks) {
    r.steps.clear();
  }
  write(folder.path() / "unmarked", unmarked);
  CHECK_THAT(error_of({folder.path() / "unmarked"}),
             Catch::Contains("unmarked: holds no step that is whole on every rank"));

  write(folder.path() / "lost", trace);
  fs::remove(folder.path() / "lost" / "rank-1.csv");
  CHECK_THAT(error_of({folder.path() / "lost"}),
             Catch::Contains("rank-1.csv") && Catch::Contains("cannot be opened"));

  write(folder.path() / "two", trace);
  CHECK_THAT(error_of({folder.path() / "two", recorded("gpt-4")}),
             Catch::Contains("gpt-4: was recorded on 4 ranks") && Catch::Contains("2"));
}

TEST_CASE("the jobs to trace are those that leave nothing unseen, where there are such",
          "[studies]") {
  std::vector<ExecutionGraph> jobs, candidates;
  for (const std::int64_t hidden : {64, 128, 256}) {
    jobs.push_back(workloads::build_graph(transformer(hidden, 64, 2, true)));
  }
  // By length: the three jobs, each beside two of another split that lack its collectives.
  for (const std::int64_t hidden : {64, 128, 256}) {
    candidates.push_back(workloads::build_graph(transformer(hidden - 16, 64, 2, false)));
    candidates.push_back(workloads::build_graph(transformer(hidden, 64, 2, true)));
    candidates.push_back(workloads::build_graph(transformer(hidden + 16, 64, 2, false)));
  }
  CHECK(traces_for(jobs, candidates, 3) == std::vector<std::size_t>{1, 4, 7});
}
