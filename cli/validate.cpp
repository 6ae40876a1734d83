#include "cli/validate/validate.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/support/output_files.h"
#include "core/error.h"

namespace stepcast::cli {
namespace {

std::vector<std::string> names_of(bool alone_too) {
  std::vector<std::string> names;
  for (const SuiteEntry& entry : validation_suites()) {
    if (alone_too || !entry.alone) {
      names.emplace_back(entry.name);
    }
  }
  return names;
}

const SuiteEntry& suite_named(const std::string& name) {
  return *std::find_if(validation_suites().begin(), validation_suites().end(),
                       [&](const SuiteEntry& entry) { return entry.name == name; });
}

void validate(const ValidateOptions& options, Context& context) {
  for (const std::string& name : options.suites) {  // before anything is measured
    if (options.suites.size() > 1 && suite_named(name).alone) {
      throw InputError(name, fmt::format("runs alone; expected one suite, or several of: {}; "
                                         "validate it in a separate call",
                                         fmt::join(names_of(false), ", ")));
    }
  }
  std::vector<validation::Suite> suites;
  for (const std::string& name : options.suites) {
    const SuiteEntry& entry = suite_named(name);
    if (entry.data != nullptr && options.data.empty()) {
      throw InputError("--data", fmt::format("is needed: {}", entry.data));
    }
    if (auto suite = entry.run(options, context)) {
      suites.push_back(std::move(*suite));
    }
  }
  if (!suites.empty()) {
    print_suites(suites, options.format, answer());
    context.exit_code =
        std::all_of(suites.begin(), suites.end(), [](const auto& s) { return s.pass; }) ? 0 : 1;
  }
}

}  // namespace

void add_validate(CLI::App& app, Context& context) {
  auto options = std::make_shared<ValidateOptions>();
  ValidateOptions& o = *options;
  CLI::App* command = app.add_subcommand("validate", "Predictions against measurements");
  const auto add = [command](const char* name, auto& value, const std::string& help) {
    return command->add_option(name, value, help);
  };
  add("suite", o.suites, fmt::format("{}", fmt::join(names_of(true), ", ")))
      ->required()
      ->check(CLI::IsMember(names_of(true)));
  add("--system", o.system, "Calibrated system file");
  add("--data", o.data, "Measurements: a file or folder");
  add("--scalars", o.scalars,
      "published: another table whose rows alone give the efficiencies (with --leave-out source)");
  add("--leave-out", o.leave_out,
      "published: efficiencies and intervals of a row from rows of other publications, other "
      "makers of software, other generations of GPUs, other releases")
      ->check(CLI::IsMember({"source", "vendor", "gpu-generation", "release"}));
  add("--out-pace", o.out_pace,
      "published: write the efficiencies that the rows show, as models/stacks/paces.json")
      ->check(output_file());
  add("--calibrate", o.calibrate,
      "What the rows show (dlrm, published): what `predict` says (published's default), hardware "
      "facts only, from other sources (loso: as --leave-out source), or from one row (dlrm's)")
      ->check(CLI::IsMember({"shipped", "facts", "loso", "one-row"}));
  add("--seed", o.seed, "Seed of the cases")->check(whole_number(0));
  add("--count", o.count,
      "Number of cases, a third of them transformers (default: 36); plans: tasks that count (24)")
      ->check(whole_number(1, 1000));
  add("--ranks", o.ranks, "Ranks to run on (default: 2; cuda: 1; plans: 4)")
      ->check(whole_number(1, 64));
  add("--experts", o.experts, "runtime: transformers with experts besides, as many (default: none)")
      ->check(whole_number(0, 1000));
  add("--backend", o.backend, "runtime: cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  add("--emulate", o.emulate, "plans: the fabric to emulate");
  add("--predictions", o.predictions, "File for the predictions, written before the runs")
      ->check(output_file());
  command->add_flag("--run", o.run, "traces: instead, check what-if answers by running them");
  add("--device", o.device, "Only rows of this device (kernels, collectives)");
  add("--stack", o.framework, "Only rows of this software stack");
  add("--holdout", o.holdout,
      "What a fit does not see (default: pairs of kernels, sizes of collectives)")
      ->check(CLI::IsMember({"pairs", "sizes", "ranks", "device", "rows"}));
  command->add_flag("--form-only", o.form_only,
                    "The analytical form alone, without residual points");
  add("--points", o.points, "Residual points per model")->check(whole_number(0, 5000));
  add("--thin", o.thin, "Look at every n-th configuration of kernels only")
      ->check(whole_number(1, 1000));
  add("--from-traces", o.from_traces,
      "runtime: fit on traces of this many jobs of each family instead of on a system file")
      ->check(whole_number(1, 60));
  add("--keep-traces", o.keep_traces,
      "runtime: folder for a trace of every case, recorded in a separate run; with --from-traces "
      "for the traces it fits (default: none stays)");
  add("--budget", o.budget,
      "plans: seconds of runs after which no further task begins (default: none)")
      ->check(number_from(1.0, 86400.0));
  add("--save-system", o.save_system, "plans: where the calibrated system is written, for --system")
      ->check(output_file());
  add_format_option(*command, o.format);
  command->callback([options, &context] { validate(*options, context); });
}

}  // namespace stepcast::cli
