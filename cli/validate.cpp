#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "cli/command.h"
#include "cli/support/output_files.h"
#include "cli/validate/print_validation.h"
#include "cli/validate/validate_from_traces.h"
#include "cli/validate/validate_models.h"
#include "cli/validate/validate_plans.h"
#include "cli/validate/validate_published.h"
#include "cli/validate/validate_runtime.h"
#include "cli/validate/validate_traces.h"
#include "core/config/config.h"
#include "core/error.h"
#include "validation/dlrm.h"
#include "validation/memory.h"

namespace stepcast::cli {
namespace {

const std::vector<std::string> kTogether{"published", "dlrm", "kernels", "collectives", "memory"};
const std::vector<std::string> kAlone{"traces", "runtime", "plans"};

std::vector<std::string> all_suites() {
  std::vector<std::string> all = kTogether;
  all.insert(all.end(), kAlone.begin(), kAlone.end());
  return all;
}

/// Before anything is measured: some suites print a report of their own.
void check_together(const std::vector<std::string>& suites) {
  for (const std::string& suite : suites) {
    if (suites.size() > 1 && std::find(kAlone.begin(), kAlone.end(), suite) != kAlone.end()) {
      throw InputError(suite, fmt::format("runs alone; expected one suite, or several of: {}; "
                                          "validate it in a separate call",
                                          fmt::join(kTogether, ", ")));
    }
  }
}

struct ValidateCommand {
  ValidateModelsCommand models;
  ValidateFromTracesCommand from_traces;
  ValidatePlansCommand plans;
  std::vector<std::string> suites;
  std::string system, predictions, emulate;
  std::string data, scalars, paces, calibrate;
  bool run = false;
  std::uint64_t seed = 1;
  std::int64_t count = 36;
  std::int64_t experts = 0;
  bool count_given = false;
  int ranks = 2;
  bool ranks_given = false;
  std::string backend = "cpu";
  OutputFormat format = OutputFormat::kText;
};

validation::ValidationSuite validate_dlrm(const ValidateCommand& options, const Context& context) {
  if (options.data.empty()) {
    throw InputError("--data", "is needed: the folder of mlperf_step_times.csv, or a file like it");
  }
  if (options.calibrate == "shipped") {
    throw InputError(
        "--calibrate",
        "shipped applies to published; predictions of dlrm have no pace: use facts or one-row");
  }
  if (options.calibrate == "loso") {
    throw InputError("--calibrate",
                     "loso has no other source for dlrm: each GPU occurs in one round only; use "
                     "facts or one-row");
  }
  return validation::validate_dlrm(validation::read_dlrm_step_times(options.data),
                                   {context.library},
                                   options.calibrate == "facts" ? validation::DlrmRegime::kFacts
                                                                : validation::DlrmRegime::kOneRow);
}

validation::ValidationSuite validate_memory(const ValidateCommand& options,
                                            const Context& context) {
  if (options.data.empty()) {
    throw InputError("--data", "is needed: the folder of golden.csv and cases/");
  }
  return validation::validate_memory(options.data, {context.library});
}

ValidateModelsCommand model_options(const ValidateCommand& options) {
  ValidateModelsCommand models = options.models;
  models.data = options.data;
  models.system = options.system;
  return models;
}

int validate(const ValidateCommand& options, Context& context) {
  check_together(options.suites);
  std::vector<validation::ValidationSuite> suites;
  for (const std::string& suite : options.suites) {
    if (suite == "traces") {
      return options.run ? validate_what_if(options.seed, options.count, options.format, context)
                         : validate_traces(options.data, options.format, context);
    }
    if (suite == "runtime") {
      return validate_runtime({.from_traces = options.from_traces,
                               .system = options.system,
                               .predictions = options.predictions,
                               .backend = options.backend,
                               .seed = options.seed,
                               .count = options.count,
                               .experts = options.experts,
                               .ranks = options.ranks_given         ? options.ranks
                                        : options.backend == "cuda" ? 1
                                                                    : options.ranks,
                               .format = options.format},
                              context);
    }
    if (suite == "plans") {
      return validate_plans(options.plans,
                            {.system = options.system,
                             .predictions = options.predictions,
                             .emulate = options.emulate,
                             .seed = options.seed,
                             .count = options.count_given ? options.count : 24,
                             .ranks = options.ranks_given ? options.ranks : 4,
                             .format = options.format},
                            context);
    }
    if (suite == "kernels" || suite == "collectives") {
      suites.push_back(validate_models(suite, model_options(options), context));
      continue;
    }
    if (suite == "published") {
      suites.push_back(validate_published(
          {.data = options.data,
           .scalars = options.scalars,
           .calibrate = options.calibrate.empty() ? "shipped" : options.calibrate,
           .paces = options.paces},
          context));
      continue;
    }
    if (suite == "memory") {
      suites.push_back(validate_memory(options, context));
      continue;
    }
    suites.push_back(validate_dlrm(options, context));
  }
  print_validation(suites, options.format, std::cout);
  return std::all_of(suites.begin(), suites.end(), [](const auto& s) { return s.pass; }) ? 0 : 1;
}

}  // namespace

void add_validate(CLI::App& app, Context& context) {
  auto options = std::make_shared<ValidateCommand>();
  CLI::App* command = app.add_subcommand("validate", "Predictions against measurements");
  command->add_option("suite", options->suites, fmt::format("{}", fmt::join(all_suites(), ", ")))
      ->required()
      ->check(CLI::IsMember(all_suites()));
  command->add_option("--system", options->system, "Calibrated system file");
  command->add_option("--data", options->data, "Measurements: a file or folder");
  command->add_option("--scalars", options->scalars,
                      "published: another table whose rows alone give the scalars (loso)");
  command
      ->add_option("--out-pace", options->paces,
                   "published: write the paces that the rows show, as models/stacks/paces.json")
      ->check(output_file());
  command
      ->add_option(
          "--calibrate", options->calibrate,
          "What the rows show (dlrm, published): what `predict` says (published's default), "
          "hardware facts only, a scalar from other sources, or from one row (dlrm's)")
      ->check(CLI::IsMember({"shipped", "facts", "loso", "one-row"}));
  command->add_option("--seed", options->seed, "Seed of the cases");
  command
      ->add_option_function<std::int64_t>(
          "--count",
          [options](const std::int64_t& count) {
            options->count = count;
            options->count_given = true;
          },
          "Number of cases, a third of them transformers (default: 36); plans: tasks that count "
          "(24)")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option_function<int>(
          "--ranks",
          [options](const int& ranks) {
            options->ranks = ranks;
            options->ranks_given = true;
          },
          "Ranks to run on (default: 2; cuda: 1; plans: 4)")
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--experts", options->experts,
                   "runtime: transformers with experts besides, as many (default: none)")
      ->check(CLI::Range(0, 1000));
  command->add_option("--backend", options->backend, "runtime: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--emulate", options->emulate, "plans: the fabric to pace to");
  command
      ->add_option("--predictions", options->predictions,
                   "Where the predictions are written before the runs")
      ->check(output_file());
  command->add_flag("--run", options->run,
                    "traces: instead, check what-if answers by running them");
  add_model_options(*command, options->models);
  add_from_traces_options(*command, options->from_traces);
  add_plans_options(*command, options->plans);
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = validate(*options, context); });
}

}  // namespace stepcast::cli
