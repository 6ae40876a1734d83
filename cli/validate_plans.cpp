#include "cli/validate_plans.h"

#include <fmt/format.h>

#include <iostream>

#include "cli/human.h"
#include "cli/launch_ranks.h"
#include "cli/output_files.h"
#include "cli/print_prediction.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/whole_file.h"
#include "studies/fit/paced_calibration.h"
#include "validation/plans.h"

namespace stepcast::cli {
namespace {

using studies::ChoiceScore;
using studies::PlanRun;
using studies::PlanScores;
using studies::PlanTask;

constexpr std::string_view kPlansBound =
    "exact top-1 >= 0.90 (strict), mean regret <= 0.02, interval above bytes-only";

std::string plan_predictions_csv(const std::vector<PlanTask>& tasks) {
  std::string text = csv_line({"task", "job", "plan", "kinds", "predicted_s", "bytes"});
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    for (const PlanRun& r : tasks[t].runs) {
      text += csv_line({std::to_string(t), tasks[t].job.workload.name, r.name, r.kinds,
                        fmt::format("{:.6g}", r.predicted), fmt::format("{:.6g}", r.bytes)});
    }
  }
  return text;
}

std::string share_text(const studies::Share& s) {
  return fmt::format("{} [{}, {}]", percent(s.value), percent(s.low), percent(s.high));
}

void print_text(const std::vector<PlanTask>& tasks, const PlanScores& scores, std::ostream& out) {
  TextTable rows({"task", "job", "chosen", "best", "predicted", "measured", "best time", "regret",
                  "tau", "noise", "spread", "rivals", "verdict"});
  rows.left(1);
  rows.left(2);
  rows.left(3);
  rows.left(12);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const auto& [job, candidates, runs, s] = tasks[t];
    rows.row({std::to_string(t), job.workload.name, runs[s.chosen].name, runs[s.best].name,
              human(seconds(runs[s.chosen].predicted)), human(seconds(s.measured[s.chosen])),
              human(seconds(s.measured[s.best])), percent(s.regret),
              fmt::format("{:.2f}", s.kendall_tau), percent(s.noise), percent(s.spread),
              std::to_string(s.rivals),
              s.skipped ? "does not count: " + *s.skipped
              : s.exact ? "right"
              : s.tied  ? "tie"
                        : "wrong"});
  }
  rows.print(out);
  out << fmt::format("\n{} tasks ran, {} count; repeat noise {}, Kendall tau {:.2f}\n",
                     scores.tasks, scores.counted, percent(scores.noise), scores.kendall_tau);
  out << fmt::format("step times of all their plans: median error {}, mean {}, p90 {}, bias {}\n",
                     percent(scores.errors.median), percent(scores.errors.mean),
                     percent(scores.errors.p90), percent_signed(scores.errors.bias));
  out << fmt::format(
      "common to the plans of a task, so that it moves no choice: bias {}, size {}; apart from it "
      "plans err by {}\n",
      percent_signed(scores.common_bias), percent(scores.common_error), percent(scores.apart));
  out << fmt::format("both halves of the rounds have the same best plan in {} of {} tasks\n\n",
                     scores.agreed, scores.counted);
  TextTable table({"choice by", "n", "exact top-1 [95 %]", "where halves agree", "with ties [95 %]",
                   "mean regret", "worst regret"});
  for (const ChoiceScore& c : scores.choices) {
    table.row({c.name, std::to_string(c.n), share_text(c.exact), share_text(c.agreed),
               share_text(c.tied),
               percent(c.mean_regret), percent(c.worst_regret)});
  }
  table.print(out);
  out << "\na tie: measured above the best by no more than the repeat noise of the plans close to "
         "it\n";
  out << fmt::format("plans: {} ({})\n", scores.pass() ? "pass" : "FAIL", kPlansBound);
}

nlohmann::ordered_json share_json(const studies::Share& s) {
  return {{"value", s.value}, {"low", s.low}, {"high", s.high}};
}

nlohmann::ordered_json validation_json(const std::vector<PlanTask>& tasks,
                                       const PlanScores& scores) {
  const ChoiceScore& own = scores.choices.front();
  const ChoiceScore& bytes = scores.choices[1];
  const auto& e = scores.errors;
  nlohmann::ordered_json group = {{"name", "plans"},
                                  {"n", e.n},
                                  {"median", e.median},
                                  {"mean", e.mean},
                                  {"geomean", e.geomean},
                                  {"p90", e.p90},
                                  {"worst", e.worst},
                                  {"worst_row", scores.worst_row},
                                  {"bias", e.bias},
                                  {"baseline_mean", nullptr},
                                  {"baseline", bytes.name},
                                  {"in_range_share", nullptr},
                                  {"kendall_tau", scores.kendall_tau},
                                  {"regret", own.mean_regret},
                                  {"repeat_noise", scores.noise},
                                  {"tasks", scores.tasks},
                                  {"counted", scores.counted},
                                  {"halves_agree", scores.agreed},
                                  {"common_bias", scores.common_bias},
                                  {"common_error", scores.common_error},
                                  {"apart", scores.apart}};
  for (const ChoiceScore& c : scores.choices) {
    group["choices"].push_back({{"name", c.name},
                                {"n", c.n},
                                {"exact_top_1", share_json(c.exact)},
                                {"exact_where_halves_agree", share_json(c.agreed)},
                                {"top_1_with_ties", share_json(c.tied)},
                                {"mean_regret", c.mean_regret},
                                {"worst_regret", c.worst_regret}});
  }
  nlohmann::ordered_json suite = {
      {"name", "plans"}, {"bound", kPlansBound}, {"pass", scores.pass()}, {"groups", {group}}};
  suite["rows"] = nlohmann::ordered_json::array();
  suite["tasks"] = nlohmann::ordered_json::array();
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const PlanTask& task = tasks[t];
    const auto skipped =
        task.score.skipped ? nlohmann::ordered_json(*task.score.skipped) : nlohmann::ordered_json();
    for (std::size_t p = 0; p < task.runs.size(); ++p) {
      const PlanRun& r = task.runs[p];
      suite["rows"].push_back({{"id", fmt::format("{} {}", t, r.name)},
                               {"kinds", r.kinds},
                               {"measured", task.score.measured[p]},
                               {"predicted", r.predicted},
                               {"error", r.predicted / task.score.measured[p] - 1},
                               {"bytes", r.bytes},
                               {"rounds", r.rounds},
                               {"skipped", skipped}});
    }
    suite["tasks"].push_back({{"id", t},
                              {"job", task.job.workload.name},
                              {"chosen", task.runs[task.score.chosen].name},
                              {"best", task.runs[task.score.best].name},
                              {"exact", task.score.exact},
                              {"tied", task.score.tied},
                              {"halves_agree", task.score.halves_agree},
                              {"common_bias", task.score.common_bias},
                              {"regret", task.score.regret},
                              {"kendall_tau", task.score.kendall_tau},
                              {"repeat_noise", task.score.noise},
                              {"close_noise", task.score.close_noise},
                              {"spread", task.score.spread},
                              {"rivals", task.score.rivals},
                              {"skipped", skipped}});
  }
  return {{"stepcast", provenance_json()}, {"suites", {suite}}};
}

void print_csv(const std::vector<PlanTask>& tasks, std::ostream& out) {
  out << csv_line({"task", "plan", "kinds", "predicted_s", "measured_s", "error", "bytes",
                   "repeat_noise", "skipped"});
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    for (std::size_t p = 0; p < tasks[t].runs.size(); ++p) {
      const PlanRun& r = tasks[t].runs[p];
      const double measured = tasks[t].score.measured[p];
      out << csv_line({std::to_string(t), r.name, r.kinds, fmt::format("{:.6g}", r.predicted),
                       fmt::format("{:.6g}", measured),
                       fmt::format("{:.4f}", r.predicted / measured - 1),
                       fmt::format("{:.6g}", r.bytes), fmt::format("{:.4f}", tasks[t].score.noise),
                       tasks[t].score.skipped.value_or("")});
    }
  }
}

/// The calibrated system, on every rank.
System calibrated(const ValidatePlansCommand& options, const ValidatePlansRun& run,
                  const System& fabric, const Context& context, runtime::MpiSession& session) {
  if (!run.system.empty()) {
    return config::load_system(run.system, {context.library});
  }
  Progress progress("calibrating");
  studies::PacedCalibrationOptions calibrate;
  calibrate.emulate = &fabric;
  calibrate.seconds = options.calibrate_seconds;
  calibrate.seed = run.seed;
  calibrate.date = today();
  calibrate.job = [&](std::int64_t i) {
    return studies::plan_calibration_job(i, run.seed, session.size());
  };
  calibrate.progress = [&](double done, const std::string& what) {
    progress.update(done, 1, what);
  };
  System system = studies::calibrate_paced(calibrate, session);
  if (session.rank() == 0 && !options.save_system.empty()) {
    write_whole_file(options.save_system, config::system_to_json(system) + "\n");
  }
  return system;
}

int run_suite(const ValidatePlansCommand& options, const ValidatePlansRun& run,
              const System& fabric, const Context& context, runtime::MpiSession& session) {
  const System system = calibrated(options, run, fabric, context, session);
  Progress progress("validating");
  studies::ValidatePlansOptions study;
  study.seed = run.seed;
  study.count = run.count;
  study.budget = options.budget;
  study.emulate = &fabric;
  study.predicted = [&run](const std::vector<PlanTask>& tasks) {
    const std::string file = run.predictions.empty()
                                 ? fmt::format("plans-predictions-{}.csv", run.seed)
                                 : run.predictions;
    write_whole_file(file, plan_predictions_csv(tasks));
    fmt::print(stderr, "stepcast: predictions of {} tasks written to {} before the first run\n",
               tasks.size(), file);
  };
  study.progress = [&progress](double done, const std::string& what) {
    progress.update(done, 1, what);
  };
  const std::vector<PlanTask> tasks = studies::validate_plans(system, study, session);
  if (session.rank() != 0) {
    return 0;
  }
  std::vector<std::vector<PlanRun>> runs;
  std::vector<studies::TaskScore> verdicts;
  for (const PlanTask& t : tasks) {
    runs.push_back(t.runs);
    verdicts.push_back(t.score);
  }
  const PlanScores scores = studies::scores_of(runs, verdicts);
  switch (run.format) {
    case OutputFormat::kText:
      print_text(tasks, scores, std::cout);
      break;
    case OutputFormat::kJson:
      std::cout << validation_json(tasks, scores).dump(2) << '\n';
      break;
    case OutputFormat::kCsv:
      print_csv(tasks, std::cout);
      break;
  }
  return scores.pass() ? 0 : 1;
}

}  // namespace

void add_plans_options(CLI::App& command, ValidatePlansCommand& options) {
  command
      .add_option("--budget", options.budget,
                  "plans: seconds of runs after which no further task begins (default: none)")
      ->check(CLI::Range(1.0, 86400.0));
  command
      .add_option("--calibrate-seconds", options.calibrate_seconds,
                  "plans: time to train for calibration (default: 90), without --system")
      ->check(CLI::Range(1.0, 3600.0));
  command
      .add_option("--save-system", options.save_system,
                  "plans: where the calibrated system is written, for --system")
      ->check(output_file());
}

int validate_plans(const ValidatePlansCommand& options, const ValidatePlansRun& run,
                   Context& context) {
  const System fabric = run.emulate.empty() ? studies::two_rank_nodes(run.ranks)
                                            : config::load_system(run.emulate, {context.library});
  if (run.ranks < 2) {
    throw InputError("--ranks", "a plan needs at least 2 ranks to choose between");
  }
  const auto session = as_ranks(context, run.ranks, 60);
  if (session == nullptr) {
    return context.exit_code;
  }
  return as_one_rank(*session, [&] { return run_suite(options, run, fabric, context, *session); });
}

}  // namespace stepcast::cli
