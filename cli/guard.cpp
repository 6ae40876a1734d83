#include "cli/guard.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "cli/print/bencher.h"
#include "cli/print/guard_report.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/support/recordings.h"
#include "cli/version.h"
#include "core/config/baseline.h"
#include "core/error.h"
#include "core/whole_file.h"

namespace stepcast::cli {
namespace {

/// The baseline that a file holds with these runs added, where they are repeats of its program; else
/// of the runs alone, with why.
std::pair<Baseline, std::string> kept_with(const GuardCommand& options,
                                           const std::vector<studies::GuardSamples>& samples) {
  const std::string version(kVersionText);
  if (options.keep == 0) {
    return {studies::make_baseline(samples, version), ""};
  }
  const Baseline whole_runs;  // one run is not divided: others are added
  Baseline fresh = studies::make_baseline(samples, version, &whole_runs);
  if (!std::filesystem::exists(options.update)) {
    return {std::move(fresh), ""};
  }
  const Baseline kept = config::read_baseline(config::file_source(options.update));
  const Baseline like = studies::make_baseline(samples, version, &kept);
  const studies::GuardResult result =
      studies::guard(kept, like, {.structure_warns = options.structure == "warn"});
  const auto moved = std::find_if(
      result.times.begin(), result.times.end(),
      [](const studies::GuardedTime& t) { return t.regressed || t.improved; });
  if (moved != result.times.end()) {
    return {std::move(fresh), fmt::format("{} changed from {} to {}", moved->name,
                                          human(moved->before), human(moved->after))};
  }
  if (result.verdict() == studies::GuardResult::Verdict::kRegressed) {
    return {std::move(fresh), "the structure changed"};
  }
  return {studies::extended(kept, like, options.keep), ""};
}

/// Things that recorded runs leave open, each once: of the first run that has it.
class RunWarnings {
 public:
  void add(const std::vector<std::string>& names, const std::vector<traces::MeasuredRun>& runs) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      for (const std::string& w : runs[i].warnings) {
        if (told_.insert(w.substr(w.find_first_not_of("0123456789 "))).second) {
          all.push_back(fmt::format("{}: {}", names[i], w));
        }
      }
    }
  }
  std::vector<std::string> all;

 private:
  std::set<std::string> told_;  ///< without how many
};

int update(const GuardCommand& options, const std::vector<studies::GuardSamples>& samples,
           const RunWarnings& warnings, OutputFormat format) {
  const std::string version(kVersionText);
  const auto [baseline, anew] = kept_with(options, samples);
  write_whole_file(options.update, config::baseline_to_json(baseline));
  // Verdict that a single repeat of the first run would get.
  studies::GuardResult self =
      studies::guard(baseline, studies::make_baseline({samples.data(), 1}, version, &baseline));
  self.warnings.insert(self.warnings.end(), warnings.all.begin(), warnings.all.end());
  const std::size_t runs = baseline.blocks ? 1 : baseline.steps.size();
  Report report(format);
  report.facts({{"baseline", options.update},
                {"runs", runs},
                {"steps", baseline.steps},
                {"begun_anew", anew}});
  report.line(fmt::format("baseline of {}, {}, written to {}",
                          counted(static_cast<std::int64_t>(runs), "run"),
                          counted(std::ssize(baseline.ops), "op"), options.update));
  if (!anew.empty()) {
    report.line(fmt::format("begun anew: {} since the runs it held", anew), Meaning::kWarning);
  }
  report.text("the first run against it: ");
  add_guard(self, report.section("guard"));
  report.print(answer());
  return 0;
}

/// Options of the verdict, and what is written besides.
void add_verdict_options(CLI::App& command, GuardCommand& options, CLI::Option& baseline) {
  command
      .add_option("--update-baseline", options.update,
                  "Make a baseline from the runs, repeats of one program")
      ->check(output_file())
      ->excludes(&baseline);
  command
      .add_option("--keep", options.keep,
                  "Add the runs to those that the baseline holds, the latest so many of them; where "
                  "a time or the structure changed it begins anew")
      ->check(whole_number(1))
      ->needs("--update-baseline");
  command
      .add_option("--tolerance", options.tolerance,
                  "Percent an op may slow down unnoticed, even beyond noise (default 2)")
      ->check(number_from(0.0, 1000.0))
      ->needs(&baseline);
  command
      .add_option("--structure", options.structure,
                  "Other launches, bytes or ops: fail (default), or warn where libraries choose "
                  "their kernels anew")
      ->check(CLI::IsMember({"fail", "warn"}));
  command
      .add_option("--cannot-judge", options.cannot_judge,
                  "Exit with 5 (fail, the default) or 0 (pass) when the repeats allow no verdict")
      ->check(CLI::IsMember({"fail", "pass"}))
      ->needs(&baseline);
  command.add_option("--junit", options.junit, "Write the verdict as JUnit XML")
      ->needs(&baseline)
      ->check(output_file());
  command.add_option("--markdown", options.markdown, "Write the verdict as Markdown")
      ->needs(&baseline)
      ->check(output_file());
  command.add_option("--bencher", options.bencher, "Write the times in Bencher's JSON format")
      ->check(output_file());
}

std::vector<studies::GuardSamples> samples_of(const std::vector<traces::MeasuredRun>& runs) {
  std::vector<studies::GuardSamples> samples;
  for (const traces::MeasuredRun& run : runs) {
    samples.push_back(studies::samples_of(run));
  }
  return samples;
}

/// Prints what moved since the baseline; returns the exit code.
int verdict_on(const Baseline& before, const std::string& baseline_name,
               const GuardCommand& options, const std::vector<std::string>& names,
               const std::vector<traces::MeasuredRun>& runs, const RunWarnings& warnings,
               OutputFormat format) {
  studies::GuardOptions study;
  study.structure_warns = options.structure == "warn";
  if (options.tolerance >= 0) {
    study.tolerance = options.tolerance / 100;
    study.without_spread = true;
  }
  studies::GuardResult result =
      studies::guard(before, samples_of(runs), names, std::string(kVersionText), study);
  result.warnings.insert(result.warnings.end(), warnings.all.begin(), warnings.all.end());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].dropped > 0 && runs[i].of_our_own()) {
      result.warnings.push_back(fmt::format(
          "{} lacks {} records that the recorder dropped; its times and launches are too low",
          names[i], runs[i].dropped));
    }
  }
  const bool passes = options.cannot_judge == "pass";
  if (!options.junit.empty()) {
    write_output(options.junit, guard_junit(result, passes));
  }
  if (!options.markdown.empty()) {
    write_output(options.markdown, guard_markdown(result));
  }
  Report report(format);
  report.fact("baseline", baseline_name);
  add_guard(result, report.section("guard"));
  report.print(answer());
  switch (result.verdict()) {
    case studies::GuardResult::Verdict::kPass:
      return 0;
    case studies::GuardResult::Verdict::kRegressed:
      return 1;
    case studies::GuardResult::Verdict::kCannotJudge:
      break;
  }
  return passes ? 0 : 5;
}

struct GuardRuns : GuardCommand {
  std::vector<std::string> now, before;
  std::string mark;
  OutputFormat format = OutputFormat::kText;
};

std::vector<traces::MeasuredRun> read_runs(const std::vector<std::string>& paths,
                                           const std::string& mark) {
  std::vector<traces::MeasuredRun> runs;
  for (const std::string& path : paths) {
    runs.push_back(read_run(path, mark));
  }
  return runs;
}

/// A baseline file, or one made of recorded runs.
Baseline baseline_of(const GuardRuns& options, RunWarnings& warnings) {
  if (options.before.size() == 1 && !is_recording(options.before.front())) {
    return config::read_baseline(config::file_source(options.before.front()));
  }
  const auto runs = read_runs(options.before, options.mark);
  warnings.add(options.before, runs);
  return studies::make_baseline(samples_of(runs), std::string(kVersionText));
}

int guard_runs(const GuardRuns& options, const std::vector<traces::MeasuredRun>& runs) {
  if (!options.bencher.empty()) {
    write_output(options.bencher,
                 bencher_json(studies::make_baseline(samples_of(runs), std::string(kVersionText))));
  }
  RunWarnings warnings;
  warnings.add(options.now, runs);
  const Baseline before = baseline_of(options, warnings);
  return verdict_on(before, fmt::format("{}", fmt::join(options.before, " ")), options, options.now,
                    runs, warnings, options.format);
}

}  // namespace

void add_guard_options(CLI::App& command, GuardCommand& options) {
  auto* baseline = command.add_option(
      "--baseline", options.baseline,
      "Compare the runs with this baseline; exit code 1 when a time or the structure regressed, 5 "
      "when the repeats allow no verdict");
  add_verdict_options(command, options, *baseline);
  for (const char* other : {"--scale", "--drop", "--network", "--device", "--ranks"}) {
    for (const char* own : {"--baseline", "--update-baseline", "--bencher"}) {
      command.get_option(own)->excludes(command.get_option(other));
    }
  }
}

int guard(const GuardCommand& options, const std::vector<std::string>& names,
          const std::vector<traces::MeasuredRun>& runs, OutputFormat format) {
  if (!options.bencher.empty()) {
    write_output(options.bencher,
                 bencher_json(studies::make_baseline(samples_of(runs), std::string(kVersionText))));
    if (options.baseline.empty() && options.update.empty()) {
      return 0;
    }
  }
  RunWarnings warnings;
  warnings.add(names, runs);
  if (!options.update.empty()) {
    return update(options, samples_of(runs), warnings, format);
  }
  return verdict_on(config::read_baseline(config::file_source(options.baseline)), options.baseline,
                    options, names, runs, warnings, format);
}

void add_guard(CLI::App& app, Context& context) {
  auto options = std::make_shared<GuardRuns>();
  CLI::App* command =
      app.add_subcommand("guard", "Whether recorded runs are slower than those of a baseline");
  command->add_option("now", options->now, "Recorded runs, repeats of one program")->required();
  auto* baseline = command->add_option(
      "--baseline", options->before,
      "Recorded runs to compare with, or a file of --update-baseline; exit code 1 when a time or "
      "the structure regressed, 5 when the repeats allow no verdict");
  add_verdict_options(*command, *options, *baseline);
  command->add_option("--mark", options->mark,
                      "Traces of others: the name of the ranges that are steps");
  add_format_option(*command, options->format);
  command->callback([options, &context] {
    if (options->before.empty() && !options->asked()) {
      throw InputError("--baseline",
                       "missing: runs or a baseline file to compare with, such as "
                       "`stepcast guard now-* --baseline base-*`");
    }
    const auto runs = read_runs(options->now, options->mark);
    context.exit_code = options->before.empty()
                            ? guard(*options, options->now, runs, options->format)
                            : guard_runs(*options, runs);
  });
}

}  // namespace stepcast::cli
