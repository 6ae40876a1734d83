#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/print/human.h"
#include "cli/support/progress.h"
#include "cli/support/run_command.h"
#include "cli/validate/validate.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/temporary_folder.h"
#include "core/whole_file.h"
#include "studies/run/runtime_cases.h"
#include "studies/traces/replay.h"
#include "traces/native/native_trace.h"
#include "validation/suite.h"

namespace stepcast::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kWhatIfBound = 0.05;

/// Two devices behind one link.
struct Link {
  double gigabytes_per_second = 1;
  double microseconds = 100;
};

std::string system_text(const Link& link) {
  return fmt::format(
      R"({{"name": "paced-link", "device": {{"name": "any", "memory": "8 GB", "bandwidth": "10 GB/s", "l2": "2 MB", "multiprocessors": 1, "launch": "1 us", "watts": 0,
"peak": {{"fp32": "100 GFLOP/s"}}, "source": "not used"}},
"fabric": [{{"name": "link", "size": 2, "bandwidth": "{:.6g} GB/s", "latency": "{:.6g} us"}}],
"host": {{"devices": 2, "cores": 2, "shares_core": true, "collectives_hold_core": false}}}}
)",
      link.gigabytes_per_second, link.microseconds);
}

/// A job of about a millisecond or ten whose communication matters.
std::string job_text(studies::CaseKind kind, studies::Draw& draw) {
  if (kind == studies::CaseKind::kDlrm) {
    const std::int64_t dim = 16 << draw.integer(0, 2);
    std::string tables;
    const std::int64_t count = 2 * draw.integer(2, 5);
    for (std::int64_t t = 0; t < count; ++t) {
      tables += fmt::format(
          R"({}{{"name": "t{}", "rows": {}, "dim": {}, "pooling": {}, "mode": "sum", "access": {{"zipf": 0.8}}}})",
          t > 0 ? ", " : "", t, draw.log_integer(5e3, 2e5), dim, draw.integer(2, 12));
    }
    return fmt::format(
        R"({{"stepcast": 1, "system": "x.json", "batch": {{"global": {}}}, "embedding": {{"plan": "table_wise"}},
"workload": {{"kind": "dlrm", "name": "what-if-dlrm", "dense_features": 16, "bottom_mlp": [{}, {}], "interaction": {{"kind": "dot"}}, "top_mlp": [{}, 1], "tables": [{}]}}}})",
        256 << draw.integer(0, 2), 64 << draw.integer(0, 2), dim, 128 << draw.integer(0, 2),
        tables);
  }
  const std::int64_t hidden = 64 << draw.integer(0, 1);
  return fmt::format(
      R"({{"stepcast": 1, "system": "x.json", "batch": {{"global": {}, "micro": 1, "sequence": {}}},
"workload": {{"kind": "transformer", "name": "what-if-gpt", "layers": {}, "hidden": {}, "heads": 4, "kv_heads": 4, "ffn_hidden": {}, "activation": "gelu", "vocabulary": 512, "tied_embeddings": false}}}})",
      2 << draw.integer(0, 1), 32 << draw.integer(0, 2), draw.integer(2, 4), hidden, 4 * hidden);
}

/// Runs this executable with other arguments, its standard output dropped.
void call_self(const Context& context, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"/bin/sh", "-c", R"(exec "$0" "$@" > /dev/null)",
                                   context.executable.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (!run_command(command, {}).well()) {
    throw RunError(fmt::format("`stepcast {}` failed", fmt::join(arguments, " ")));
  }
}

/// Whether the step became longer or shorter as predicted; naive: the recorded one.
bool right_sign(const validation::Row& w) {
  return (w.predicted > w.naive) == (w.measured > w.naive);
}

class WhatIfRuns {
 public:
  WhatIfRuns(const Context& context, std::uint64_t seed)
      : context_(context), seed_(seed), folder_(temporary_.path()) {}

  /// The answer, then the run it is about.
  validation::Row check(std::int64_t index) const {
    studies::Draw draw(seed_ * 1000003 + static_cast<std::uint64_t>(index));
    const auto kind = index % 2 == 0 ? studies::CaseKind::kDlrm : studies::CaseKind::kTransformer;
    write_whole_file(folder_ / "job.json", job_text(kind, draw));
    const Link x{draw.log_uniform(0.2, 2), draw.uniform(50, 200)};
    write_whole_file(folder_ / "x.json", system_text(x));
    const char* family = kind == studies::CaseKind::kDlrm ? "dlrm" : "gpt";

    studies::ReplayOptions options;
    options.library = {context_.library};
    validation::Row result;
    result.in_range = true;
    Link y = x;
    std::int64_t before = 2, after = 2;
    System network;
    switch (index % 3) {
      case 0: {
        const double faster = draw.integer(0, 1) == 0 ? 0.25 : 4;
        y = {x.gigabytes_per_second * faster * draw.uniform(0.8, 1.25),
             x.microseconds * draw.uniform(0.5, 2)};
        result.id = fmt::format("{} --network, {:.2f} to {:.2f} GB/s", family,
                                x.gigabytes_per_second, y.gigabytes_per_second);
        break;
      }
      case 1: {
        const double factor = draw.integer(0, 1) == 0 ? 0.5 : 2.5;
        y = {x.gigabytes_per_second / factor, x.microseconds * factor};
        options.change.scales = {{"comm", factor}};
        result.id = fmt::format("{} --scale comm={}", family, factor);
        break;
      }
      default:
        before = 1 + index / 3 % 2;
        after = 3 - before;
        options.ranks = after;
        result.id = fmt::format("{} --ranks {}, recorded with {}", family, after, before);
    }
    write_whole_file(folder_ / "y.json", system_text(y));
    if (index % 3 != 1 && after > 1) {
      network = config::load_system((folder_ / "y.json").string(), options.library);
      options.change.network = &network;
    }
    const traces::MeasuredRun recorded = run("x", before);
    const studies::Replay answer = studies::replay(recorded, options);
    result.naive = answer.measured_step.base();
    result.predicted = result.naive * answer.change;
    result.measured = step_of(run("y", after));
    return result;
  }

 private:
  traces::MeasuredRun run(const std::string& fabric, std::int64_t ranks) const {
    const fs::path trace = folder_ / ("trace-" + fabric);
    fs::remove_all(trace);
    call_self(context_, {"run", (folder_ / "job.json").string(), "--backend", "cpu", "--ranks",
                         std::to_string(ranks), "--steps", "60", "--warmup", "10", "--emulate",
                         (folder_ / (fabric + ".json")).string(), "--trace", trace.string()});
    return traces::measured_run(traces::read_native(trace));
  }
  static double step_of(const traces::MeasuredRun& run) {
    std::vector<double> steps;
    for (const traces::MeasuredStep& s : run.steps) {
      steps.push_back(to_seconds(SimTime{s.wall}).base());
    }
    return median_of(steps);
  }

  const Context& context_;
  std::uint64_t seed_;
  TemporaryFolder temporary_{"stepcast-what-if"};
  fs::path folder_;
};

}  // namespace

std::optional<validation::Suite> validate_what_if(const ValidateOptions& options,
                                                  Context& context) {
  Progress progress("validating");
  const std::int64_t count = options.count.value_or(36);
  const WhatIfRuns runs(context, options.seed);
  validation::Suite suite{.name = "traces", .bound = "median <= 0.05, sign of every change right"};
  std::size_t signs = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    progress.update(static_cast<double>(i), static_cast<double>(count), "what-if");
    validation::Row w = runs.check(i);
    signs += right_sign(w) ? 1 : 0;
    w.id = fmt::format("{} {} ({} recorded{})", i, w.id, human(seconds(w.naive)),
                       right_sign(w) ? "" : ", sign WRONG");
    suite.rows.push_back(std::move(w));
  }
  validation::Group group = validation::group_of("what-if, checked by running", suite.rows,
                                                 "the recorded step, unchanged");
  suite.pass = group.errors.median <= kWhatIfBound && signs == suite.rows.size();
  group.pass = suite.pass;
  group.bound = suite.bound;
  suite.groups.push_back(std::move(group));
  suite.notes.push_back(fmt::format("sign of the change right in {} of {}", signs, count));
  return suite;
}

}  // namespace stepcast::cli
