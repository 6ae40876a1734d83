#include "cli/guard.h"


#include "cli/print/bencher.h"
#include "cli/print/guard_report.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/version.h"
#include "core/config/baseline.h"
#include "core/error.h"
#include "core/whole_file.h"

namespace stepcast::cli {
namespace {

int update(const GuardCommand& options, const std::vector<studies::GuardSamples>& samples,
           OutputFormat format) {
  const std::string version(kVersionText);
  const Baseline baseline = studies::make_baseline(samples, version);
  write_whole_file(options.update, config::baseline_to_json(baseline));
  // Verdict that a single repeat of the first run would get.
  const studies::GuardResult self =
      studies::guard(baseline, studies::make_baseline({samples.data(), 1}, version, &baseline));
  Report report(format);
  report.facts({{"baseline", options.update}, {"runs", samples.size()}, {"steps", baseline.steps}});
  report.line(fmt::format("baseline of {} runs, {} ops, written to {}", samples.size(),
                          baseline.ops.size(), options.update));
  report.text("the first run against it: ");
  add_guard(self, report.section("guard"));
  report.print(answer());
  return 0;
}

}  // namespace

void add_guard_options(CLI::App& command, GuardCommand& options) {
  auto* baseline = command.add_option(
      "--baseline", options.baseline,
      "Compare the runs with this baseline; exit code 1 when a time or the structure regressed, 5 "
      "when the repeats allow no verdict");
  auto* made = command
                   .add_option("--update-baseline", options.update,
                               "Make a baseline from the runs, repeats of one program")
                   ->check(output_file());
  baseline->excludes(made);
  command
      .add_option("--tolerance", options.tolerance,
                  "Percent an op may slow down unnoticed, even beyond noise (default 2)")
      ->check(CLI::Range(0.0, 1000.0))
      ->needs(baseline);
  command
      .add_option("--structure", options.structure,
                  "Other launches, bytes or ops: fail (default), or warn where libraries choose "
                  "their kernels anew")
      ->check(CLI::IsMember({"fail", "warn"}))
      ->needs(baseline);
  command.add_option("--junit", options.junit, "Write the verdict as JUnit XML")
      ->needs(baseline)
      ->check(output_file());
  command.add_option("--markdown", options.markdown, "Write the verdict as Markdown")
      ->needs(baseline)
      ->check(output_file());
  auto* bencher =
      command.add_option("--bencher", options.bencher, "Write the times in Bencher's JSON format")
          ->check(output_file());
  for (const char* other : {"--scale", "--drop", "--network", "--device", "--ranks"}) {
    baseline->excludes(command.get_option(other));
    made->excludes(command.get_option(other));
    bencher->excludes(command.get_option(other));
  }
}

int guard(const GuardCommand& options, const std::vector<std::string>& names,
          const std::vector<traces::MeasuredRun>& runs, OutputFormat format) {
  std::vector<studies::GuardSamples> samples;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    samples.push_back(studies::samples_of(runs[i]));
  }
  if (!options.bencher.empty()) {
    write_output(options.bencher,
                 bencher_json(studies::make_baseline(samples, std::string(kVersionText))));
    if (options.baseline.empty() && options.update.empty()) {
      return 0;
    }
  }
  if (!options.update.empty()) {
    return update(options, samples, format);
  }
  const Baseline before = config::read_baseline(config::file_source(options.baseline));
  studies::GuardOptions study;
  study.structure_warns = options.structure == "warn";
  if (options.tolerance >= 0) {
    study.tolerance = options.tolerance / 100;
    study.without_spread = true;
  }
  studies::GuardResult result =
      studies::guard(before, samples, names, std::string(kVersionText), study);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].dropped > 0) {
      result.warnings.push_back(fmt::format(
          "{} lacks {} records that the recorder dropped; its times and launches are too low",
          names[i], runs[i].dropped));
    }
  }
  if (!options.junit.empty()) {
    write_output(options.junit, guard_junit(result));
  }
  if (!options.markdown.empty()) {
    write_output(options.markdown, guard_markdown(result));
  }
  Report report(format);
  report.fact("baseline", options.baseline);
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
  return 5;
}

}  // namespace stepcast::cli
