#include "cli/support/console.h"
#include "cli/validate/validate.h"

#include <fmt/format.h>

#include <functional>

#include "cli/print/human.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/progress.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/whole_file.h"
#include "studies/fit/paced_calibration.h"
#include "validation/plans.h"

namespace stepcast::cli {
namespace {

using validation::ChoiceScore;
using validation::PlanRun;
using validation::PlanScores;
using validation::PlanTask;

constexpr std::string_view kPlansBound =
    "exact top-1 >= 0.90 (strict), mean regret <= 0.02, interval above bytes-only";

/// A plan of a task.
struct TaskPlan {
  std::size_t task, plan;
  const PlanTask& of;
  [[nodiscard]] const PlanRun& run() const { return of.runs[plan]; }
  [[nodiscard]] double measured() const { return of.score.measured[plan]; }
};

std::vector<TaskPlan> plans_of(const std::vector<PlanTask>& tasks) {
  std::vector<TaskPlan> all;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    for (std::size_t p = 0; p < tasks[t].runs.size(); ++p) {
      all.push_back({t, p, tasks[t]});
    }
  }
  return all;
}

/// Predictions, and what was measured so far.
DataTable predictions_table(const std::vector<PlanTask>& tasks) {
  return table_of(
      "predictions", "",
      Columns<TaskPlan>{
          {"task", "", [](auto& r) { return r.task; }},
          {"job", "", [](auto& r) { return r.of.job.workload.name; }},
          {"plan", "", [](auto& r) { return r.run().name; }},
          {"kinds", "", [](auto& r) { return r.run().kinds; }},
          {"predicted_s", "", [](auto& r) { return r.run().predicted; }},
          {"measured_s", "",
           [](auto& r) { return r.of.score.measured.empty() ? empty_cell() : cell(r.measured()); }},
          {"bytes", "", [](auto& r) { return r.run().bytes; }}},
      plans_of(tasks));
}

DataTable plans_table(const std::vector<PlanTask>& tasks) {
  return table_of(
      "rows", "",
      Columns<TaskPlan>{
          {"id", "", [](auto& r) { return fmt::format("{} {}", r.task, r.run().name); }, kInJson},
          {"task", "", [](auto& r) { return r.task; }, kInCsv},
          {"plan", "", [](auto& r) { return r.run().name; }, kInCsv},
          {"kinds", "", [](auto& r) { return r.run().kinds; }},
          {"predicted_s", "", [](auto& r) { return r.run().predicted; }, kInCsv},
          {"measured", "", [](auto& r) { return r.measured(); }, 0, "measured_s"},
          {"predicted", "", [](auto& r) { return r.run().predicted; }, kInJson},
          {"error", "", [](auto& r) { return r.run().predicted / r.measured() - 1; }},
          {"bytes", "", [](auto& r) { return r.run().bytes; }},
          {"rounds", "", [](auto& r) { return code(r.run().rounds); }, kInJson},
          {"repeat_noise", "", [](auto& r) { return r.of.score.noise; }, kInCsv},
          {"skipped", "", [](auto& r) { return code(or_null(r.of.score.skipped)); }}},
      plans_of(tasks), kInJson | kInCsv);
}

std::string verdict_of(const validation::TaskScore& s) {
  return s.skipped ? "does not count: " + *s.skipped : s.exact ? "right" : s.tied ? "tie" : "wrong";
}

DataTable tasks_table(const std::vector<PlanTask>& tasks, Visibility look) {
  using Task = Numbered<PlanTask>;
  return table_of(
      "tasks", "",
      Columns<Task>{
          {"id", "task", [](auto& r) { return r.number; }},
          {"job", "", [](auto& r) { return r.of.job.workload.name; }, kLeft},
          {"chosen", "", [](auto& r) { return r.of.runs[r.of.score.chosen].name; }, kLeft},
          {"best", "", [](auto& r) { return r.of.runs[r.of.score.best].name; }, kLeft},
          {"exact", "", [](auto& r) { return r.of.score.exact; }, kInJson},
          {"tied", "", [](auto& r) { return r.of.score.tied; }, kInJson},
          {"halves_agree", "", [](auto& r) { return r.of.score.halves_agree; }, kInJson},
          {"common_bias", "", [](auto& r) { return r.of.score.common_bias; }, kInJson},
          {"", "predicted", [](auto& r) { return seconds(r.of.runs[r.of.score.chosen].predicted); },
           kInText},
          {"", "measured", [](auto& r) { return seconds(r.of.score.measured[r.of.score.chosen]); },
           kInText},
          {"", "best time", [](auto& r) { return seconds(r.of.score.measured[r.of.score.best]); },
           kInText},
          {"regret", "", [](auto& r) { return share(r.of.score.regret); }},
          {"kendall_tau", "tau", [](auto& r) { return decimal(r.of.score.kendall_tau, 2); }},
          {"repeat_noise", "noise", [](auto& r) { return share(r.of.score.noise); }},
          {"close_noise", "", [](auto& r) { return r.of.score.close_noise; }, kInJson},
          {"spread", "", [](auto& r) { return share(r.of.score.spread); }},
          {"rivals", "", [](auto& r) { return r.of.score.rivals; }},
          {"skipped", "verdict",
           [](auto& r) {
             return Cell{verdict_of(r.of.score), or_null(r.of.score.skipped)};
           },
           kLeft}},
      numbered(tasks), look);
}

Cell share_cell(const validation::Share& s) {
  return {fmt::format("{} [{}, {}]", percent(s.value), percent(s.low), percent(s.high)),
          {{"value", s.value}, {"low", s.low}, {"high", s.high}}};
}

DataTable choices_table(const PlanScores& scores) {
  using C = ChoiceScore;
  return table_of(
      "choices", "",
      Columns<C>{
          {"name", "choice by", &C::name},
          {"n", "", &C::n},
          {"exact_top_1", "exact top-1 [95 %]", [](auto& c) { return share_cell(c.exact); }},
          {"exact_where_halves_agree", "where halves agree",
           [](auto& c) { return share_cell(c.agreed); }},
          {"top_1_with_ties", "with ties [95 %]", [](auto& c) { return share_cell(c.tied); }},
          {"mean_regret", "mean regret", [](auto& c) { return share(c.mean_regret); }},
          {"worst_regret", "worst regret", [](auto& c) { return share(c.worst_regret); }}},
      scores.choices, kInText | kInJson);
}

void add_scores(const PlanScores& scores, Report& group) {
  const validation::Group& plans = scores.plans;
  const auto& e = plans.errors;
  const double tau = plans.kendall_tau.value_or(0);
  const double noise = plans.repeat_noise.value_or(0);
  group.facts({{"name", plans.name},
               {"n", e.n},
               {"median", e.median},
               {"mean", e.mean},
               {"geomean", e.geomean},
               {"p90", e.p90},
               {"worst", e.worst},
               {"worst_row", plans.worst_row},
               {"bias", e.bias},
               {"baseline_mean", nullptr},
               {"baseline", scores.choices[1].name},
               {"in_range_share", nullptr},
               {"kendall_tau", tau},
               {"regret", scores.choices.front().mean_regret},
               {"repeat_noise", noise},
               {"tasks", scores.tasks},
               {"counted", scores.counted},
               {"halves_agree", scores.agreed},
               {"common_bias", scores.common_bias},
               {"common_error", scores.common_error},
               {"apart", scores.apart}});
  group.line(fmt::format("\n{} tasks ran, {} count; repeat noise {}, Kendall tau {:.2f}",
                         scores.tasks, scores.counted, percent(noise), tau));
  group.line(fmt::format("step times of all their plans: median error {}, mean {}, p90 {}, bias {}",
                         percent(e.median), percent(e.mean), percent(e.p90),
                         percent_signed(e.bias)));
  group.line(fmt::format(
      "common to the plans of a task, so that it moves no choice: bias {}, size {}; apart from it "
      "plans err by {}",
      percent_signed(scores.common_bias), percent(scores.common_error), percent(scores.apart)));
  group.line(fmt::format("both halves of the rounds have the same best plan in {} of {} tasks\n",
                         scores.agreed, scores.counted));
  group.add(choices_table(scores));
}

Report report_of(const std::vector<PlanTask>& tasks, const PlanScores& scores,
                 OutputFormat format) {
  Report report(format);
  Report& suite = report.item("suites");
  begin_suite(suite, "plans", kPlansBound, scores.pass());
  suite.add(tasks_table(tasks, kInText));
  add_scores(scores, suite.item("groups"));
  suite.add(plans_table(tasks));
  suite.add(tasks_table(tasks, kInJson));
  suite.line(
      "\na tie: measured above the best by no more than the repeat noise of the plans close to "
      "it");
  suite.line(fmt::format("plans: {} ({})", scores.pass() ? "pass" : "FAIL", kPlansBound));
  return report;
}

/// The calibrated system, on every rank.
System calibrated(const ValidateOptions& options, const System& fabric, const Context& context,
                  runtime::MpiSession& session) {
  if (!options.system.empty()) {
    return config::load_system(options.system, {context.library});
  }
  Progress progress("calibrating");
  studies::PacedCalibrationOptions calibrate;
  calibrate.emulate = &fabric;
  calibrate.seed = options.seed;
  calibrate.date = today();
  calibrate.job = [&](std::int64_t i) {
    return validation::plan_calibration_job(i, options.seed, session.size());
  };
  calibrate.progress = std::ref(progress);
  System system = studies::calibrate_paced(calibrate, session);
  if (session.rank() == 0 && !options.save_system.empty()) {
    write_whole_file(options.save_system, config::system_to_json(system) + "\n");
  }
  return system;
}

int run_suite(const ValidateOptions& options, const System& fabric, const Context& context,
              runtime::MpiSession& session) {
  const System system = calibrated(options, fabric, context, session);
  Progress progress("validating");
  validation::ValidatePlansOptions study;
  study.seed = options.seed;
  study.count = options.count.value_or(24);
  study.budget = options.budget;
  study.emulate = &fabric;
  study.predicted = [&options, first = true](const std::vector<PlanTask>& tasks) mutable {
    write_predictions(
        options, "plans", predictions_table(tasks),
        std::exchange(first, false) ? fmt::format("predictions of {} tasks", tasks.size()) : "");
  };
  study.progress = std::ref(progress);
  const std::vector<PlanTask> tasks = validation::validate_plans(system, study, session);
  if (session.rank() != 0) {
    return 0;
  }
  const PlanScores scores = validation::scores_of(tasks);
  report_of(tasks, scores, options.format).print(answer());
  return scores.pass() ? 0 : 1;
}

}  // namespace

int validate_plans(const ValidateOptions& options, Context& context) {
  const int ranks = options.ranks.value_or(4);
  const System fabric = options.emulate.empty()
                            ? validation::two_rank_nodes(ranks)
                            : config::load_system(options.emulate, {context.library});
  if (ranks < 2) {
    throw InputError("--ranks", "a plan needs at least 2 ranks to choose between");
  }
  const auto session = as_ranks(context, ranks, {.timeout = std::chrono::seconds(60)});
  if (session == nullptr) {
    return context.exit_code;
  }
  return as_one_rank(*session, [&] { return run_suite(options, fabric, context, *session); });
}

}  // namespace stepcast::cli
