#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "cli/command.h"
#include "cli/cuda_backend.h"
#include "cli/human.h"
#include "cli/launch_ranks.h"
#include "cli/output_files.h"
#include "cli/print_prediction.h"
#include "cli/print_validation.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "cli/validate_embedding.h"
#include "cli/validate_from_traces.h"
#include "cli/validate_models.h"
#include "cli/validate_plans.h"
#include "cli/validate_published.h"
#include "cli/validate_traces.h"
#include "cli/validate_traffic.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/whole_file.h"
#include "validation/dlrm.h"
#include "validation/memory.h"
#include "validation/overlap.h"
#include "validation/runtime.h"

namespace stepcast::cli {
namespace {

using studies::RuntimeCase;
using studies::RuntimeGroup;

constexpr std::string_view kRuntimeBound =
    "mean <= 0.10, p90 <= 0.20, mean <= half of the linear regression's";

constexpr double kOverlapBound = 0.10;

const std::vector<std::string> kTogether{"published", "dlrm", "kernels", "collectives", "memory"};
const std::vector<std::string> kAlone{"traces", "runtime", "plans", "traffic"};

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
                                          "validate it in a call of its own",
                                          fmt::join(kTogether, ", ")));
    }
  }
}

struct ValidateCommand {
  ValidateModelsCommand models;
  ValidateFromTracesCommand from_traces;
  ValidateEmbeddingCommand embedding;
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

std::string predictions_csv(const std::vector<RuntimeCase>& cases) {
  std::string text =
      csv_line({"case", "job", "bound", "predicted_s", "linear_s", "in_calibrated_range"});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    text +=
        csv_line({std::to_string(i), cases[i].job.workload.name,
                  std::string(name_of(cases[i].bound)), fmt::format("{:.6g}", cases[i].predicted),
                  fmt::format("{:.6g}", cases[i].linear), cases[i].in_range ? "true" : "false"});
  }
  return text;
}

void print_text(const std::vector<RuntimeCase>& cases, const std::vector<RuntimeGroup>& groups,
                std::ostream& out) {
  TextTable rows({"job", "bound by", "predicted", "measured", "error", "linear", "noise", "pace",
                  "exchange", "error at pace"});
  rows.left(1);
  for (const RuntimeCase& c : cases) {
    rows.row({c.job.workload.name, std::string(name_of(c.bound)), human(seconds(c.predicted)),
              human(seconds(c.measured)), c.skipped ? "void" : percent_signed(c.error()),
              percent_signed(c.linear / c.measured - 1), percent(c.noise),
              fmt::format("{:.3f}", c.pace.core), fmt::format("{:.3f}", c.pace.exchange),
              c.skipped ? "" : percent_signed(c.paced_error())});
  }
  rows.print(out);
  out << "\nerrors of the step time\n";
  TextTable table({"group", "n", "geomean", "median", "mean", "p90", "worst", "bias", "noise",
                   "linear mean", "permuted mean", "in range"});
  for (const RuntimeGroup& g : groups) {
    table.row(
        {g.name,
         std::to_string(g.ours.n) + (g.skipped > 0 ? fmt::format(" (+{} void)", g.skipped) : ""),
         percent(g.ours.geomean), percent(g.ours.median), percent(g.ours.mean), percent(g.ours.p90),
         percent(g.ours.worst), percent_signed(g.ours.bias), percent(g.noise),
         percent(g.linear.mean), percent(g.permuted), percent(g.in_range_share)});
  }
  table.print(out);
  out << "\nthe same for cores as fast, and as far from each other, as they were during each run "
         "(pace: probed time over that of the calibration)\n";
  TextTable paced({"group", "geomean", "median", "mean", "p90", "worst", "bias", "linear mean",
                   "pace, lowest", "pace, highest"});
  for (const RuntimeGroup& g : groups) {
    paced.row({g.name, percent(g.paced.geomean), percent(g.paced.median), percent(g.paced.mean),
               percent(g.paced.p90), percent(g.paced.worst), percent_signed(g.paced.bias),
               percent(g.linear_paced.mean), fmt::format("{:.3f}", g.pace_low),
               fmt::format("{:.3f}", g.pace_high)});
  }
  paced.print(out);
  out << "\nablation: mean error without a part of the model\n";
  TextTable ablation(
      {"group", "whole", studies::kAblations[0], studies::kAblations[1], studies::kAblations[2]});
  for (const RuntimeGroup& g : groups) {
    ablation.row({g.name, percent(g.ours.mean), percent(g.ablated[0].mean),
                  percent(g.ablated[1].mean), percent(g.ablated[2].mean)});
  }
  ablation.print(out);
  for (const RuntimeGroup& g : groups) {
    if (!g.name.ends_with("-bound")) {
      out << fmt::format("\n{}: {} ({})", g.name, g.pass() ? "pass" : "FAIL", kRuntimeBound);
    }
  }
  out << '\n';
}

nlohmann::ordered_json validation_json(const std::vector<RuntimeCase>& cases,
                                       const std::vector<RuntimeGroup>& groups, bool pass) {
  nlohmann::ordered_json suite;
  suite["name"] = "runtime";
  suite["bound"] = kRuntimeBound;
  suite["pass"] = pass;
  suite["groups"] = nlohmann::ordered_json::array();
  for (const RuntimeGroup& g : groups) {
    nlohmann::ordered_json j = {{"name", g.name},
                                {"n", g.ours.n},
                                {"median", g.ours.median},
                                {"mean", g.ours.mean},
                                {"geomean", g.ours.geomean},
                                {"p90", g.ours.p90},
                                {"worst", g.ours.worst},
                                {"worst_row", g.worst_case},
                                {"bias", g.ours.bias},
                                {"baseline_mean", g.linear.mean},
                                {"baseline", "linear regression on FLOPs and bytes"},
                                {"permuted_mean", g.permuted},
                                {"in_range_share", g.in_range_share},
                                {"kendall_tau", nullptr},
                                {"regret", nullptr},
                                {"repeat_noise", g.noise},
                                {"paced",
                                 {{"median", g.paced.median},
                                  {"mean", g.paced.mean},
                                  {"geomean", g.paced.geomean},
                                  {"p90", g.paced.p90},
                                  {"worst", g.paced.worst},
                                  {"bias", g.paced.bias},
                                  {"baseline_mean", g.linear_paced.mean},
                                  {"pace_low", g.pace_low},
                                  {"pace_high", g.pace_high}}}};
    for (std::size_t a = 0; a < studies::kAblations.size(); ++a) {
      j["ablations"][studies::kAblations[a]] = g.ablated[a].mean;
    }
    suite["groups"].push_back(std::move(j));
  }
  suite["rows"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const RuntimeCase& c = cases[i];
    nlohmann::ordered_json row = {{"id", fmt::format("{} {}", i, c.job.workload.name)},
                                  {"bound", name_of(c.bound)},
                                  {"measured", c.measured},
                                  {"predicted", c.predicted},
                                  {"error", c.error()},
                                  {"repeat_noise", c.noise},
                                  {"pace", c.pace.of_step()},
                                  {"pace_core", c.pace.core},
                                  {"pace_exchange", c.pace.exchange},
                                  {"runs", c.runs}};
    row["skipped"] = c.skipped ? nlohmann::ordered_json(*c.skipped) : nlohmann::ordered_json();
    suite["rows"].push_back(std::move(row));
  }
  return {{"stepcast", provenance_json()}, {"suites", {suite}}};
}

void print_csv(const std::vector<RuntimeCase>& cases, std::ostream& out) {
  out << csv_line({"id", "job", "bound", "predicted_s", "measured_s", "error", "linear_s",
                   "repeat_noise", "skipped"});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const RuntimeCase& c = cases[i];
    out << csv_line({std::to_string(i), c.job.workload.name, std::string(name_of(c.bound)),
                     fmt::format("{:.6g}", c.predicted), fmt::format("{:.6g}", c.measured),
                     fmt::format("{:.4f}", c.error()), fmt::format("{:.6g}", c.linear),
                     fmt::format("{:.4f}", c.noise), c.skipped.value_or("")});
  }
}

int run_suite(const ValidateCommand& options, const System& system, const Context& context,
              runtime::MpiSession& session) {
  Progress progress("validating");
  studies::ValidateRuntimeOptions study;
  study.seed = options.seed;
  study.traces = options.from_traces.keep;
  study.transformers = options.count / 3;
  study.experts = options.experts;
  if (options.backend == "cuda") {
    study.executor = timed_cuda_executors(context, session);
  }
  study.dlrm = options.count - study.transformers;
  study.predicted = [&options](const std::vector<RuntimeCase>& cases) {
    const std::string file = options.predictions.empty()
                                 ? fmt::format("runtime-predictions-{}.csv", options.seed)
                                 : options.predictions;
    write_whole_file(file, predictions_csv(cases));
    fmt::print(stderr, "stepcast: {} predictions written to {} before the first run\n",
               cases.size(), file);
  };
  study.progress = [&progress](double done, const std::string& what) {
    progress.update(done, 1, what);
  };
  const std::vector<RuntimeCase> cases = studies::validate_runtime(system, study, session);
  const std::vector<RuntimeGroup> groups = studies::runtime_groups(cases);
  const bool pass =
      groups[0].pass() && groups[1].pass() && (options.experts == 0 || groups.back().pass());
  if (session.rank() == 0) {
    switch (options.format) {
      case OutputFormat::kText:
        print_text(cases, groups, std::cout);
        break;
      case OutputFormat::kJson:
        std::cout << validation_json(cases, groups, pass).dump(2) << '\n';
        break;
      case OutputFormat::kCsv:
        print_csv(cases, std::cout);
        break;
    }
  }
  // A "no" of the check is rank 0's to tell: a rank that exits with another code than 0 would end
  // the run for the launcher.
  return pass ? 0 : 1;
}

int run_overlap(const ValidateCommand& options, const System& paced, runtime::MpiSession& session) {
  Progress progress("validating overlap");
  const auto cases = studies::validate_overlap(
      paced, options.seed, session,
      [&progress](double done, const std::string& what) { progress.update(done, 1, what); });
  bool pass = true;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  TextTable table({"case", "predicted", "measured", "error", "exposed communication", "noise"});
  for (const studies::OverlapCase& c : cases) {
    pass = pass && std::abs(c.error()) <= kOverlapBound;
    table.row({c.name, human(seconds(c.predicted)), human(seconds(c.measured)),
               percent_signed(c.error()), human(seconds(c.predicted_exposed)), percent(c.noise)});
    rows.push_back({{"id", c.name},
                    {"measured", c.measured},
                    {"predicted", c.predicted},
                    {"error", c.error()},
                    {"predicted_exposed_s", c.predicted_exposed},
                    {"repeat_noise", c.noise},
                    {"skipped", nullptr}});
  }
  if (session.rank() == 0 && options.format == OutputFormat::kJson) {
    const nlohmann::ordered_json suite = {{"name", "overlap"},
                                          {"bound", "worst <= 0.10"},
                                          {"pass", pass},
                                          {"groups", nlohmann::ordered_json::array()},
                                          {"rows", rows}};
    std::cout << nlohmann::ordered_json{{"stepcast", provenance_json()}, {"suites", {suite}}}.dump(
                     2)
              << '\n';
  } else if (session.rank() == 0) {
    table.print(std::cout);
    std::cout << fmt::format("\noverlap: {} (every case within {})\n", pass ? "pass" : "FAIL",
                             percent(kOverlapBound));
  }
  return pass ? 0 : 1;
}

int validate_runtime(const ValidateCommand& options, Context& context) {
  if (!options.emulate.empty()) {
    const System paced = config::load_system(options.emulate, {context.library});
    const auto session = as_ranks(context, options.ranks, 60);
    return session == nullptr
               ? context.exit_code
               : as_one_rank(*session, [&] { return run_overlap(options, paced, *session); });
  }
  if (options.from_traces.traces > 0) {
    const auto session = as_ranks(context, options.ranks, 60);
    return session == nullptr ? context.exit_code : as_one_rank(*session, [&] {
      return validate_from_traces(
          options.from_traces, {options.seed, options.count, options.predictions, options.format},
          context, *session);
    });
  }
  if (options.system.empty()) {
    throw InputError("--system",
                     "is needed: the file that `stepcast calibrate --backend cpu --out FILE` wrote "
                     "on this machine");
  }
  const bool cuda = options.backend == "cuda";
  if (cuda) {
    require_cuda(context);
  }
  const System system = config::load_system(options.system, {context.library});
  const auto session = as_ranks(context, cuda && !options.ranks_given ? 1 : options.ranks, 60);
  if (session == nullptr) {
    return context.exit_code;
  }
  return as_one_rank(*session, [&] { return run_suite(options, system, context, *session); });
}

studies::ValidationSuite validate_dlrm(const ValidateCommand& options, const Context& context) {
  if (options.data.empty()) {
    throw InputError("--data", "is needed: the folder of mlperf_step_times.csv, or a file like it");
  }
  if (options.calibrate == "shipped") {
    throw InputError(
        "--calibrate",
        "shipped is of published: predictions of dlrm have no pace; use facts or one-row");
  }
  if (options.calibrate == "loso") {
    throw InputError("--calibrate",
                     "loso has no other source for dlrm: each GPU occurs in one round only; use "
                     "facts or one-row");
  }
  return studies::validate_dlrm(
      studies::read_dlrm_step_times(options.data), {context.library},
      options.calibrate == "facts" ? studies::DlrmRegime::kFacts : studies::DlrmRegime::kOneRow);
}

studies::ValidationSuite validate_memory(const ValidateCommand& options, const Context& context) {
  if (options.data.empty()) {
    throw InputError("--data", "is needed: the folder of golden.csv and cases/");
  }
  return studies::validate_memory(options.data, {context.library});
}

ValidateModelsCommand model_options(const ValidateCommand& options) {
  ValidateModelsCommand models = options.models;
  models.data = options.data;
  models.system = options.system;
  return models;
}

int validate(const ValidateCommand& options, Context& context) {
  check_together(options.suites);
  std::vector<studies::ValidationSuite> suites;
  for (const std::string& suite : options.suites) {
    if (suite == "traces") {
      return options.run ? validate_what_if(options.seed, options.count, options.format, context)
                         : validate_traces(options.data, options.format);
    }
    if (suite == "traffic") {
      return validate_traffic(options.data, options.format, context);
    }
    if (suite == "runtime") {
      return validate_runtime(options, context);
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
    if (suite == "kernels" && !options.embedding.measure.empty()) {
      suites.push_back(validate_embedding(options.embedding, options.seed));
      continue;
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
           .paces = options.paces,
           .pictures = options.models.pictures},
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
  command->add_option(
      "--emulate", options->emulate,
      "runtime: instead, steps whose communication overlaps compute, on this system's fabric "
      "(paced); plans: the fabric to pace to");
  command
      ->add_option("--predictions", options->predictions,
                   "Where the predictions are written before the runs")
      ->check(output_file());
  command->add_flag("--run", options->run,
                    "traces: instead, check what-if answers by running them");
  add_model_options(*command, options->models);
  add_from_traces_options(*command, options->from_traces);
  add_measure_options(*command, options->embedding);
  add_plans_options(*command, options->plans);
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = validate(*options, context); });
}

}  // namespace stepcast::cli
