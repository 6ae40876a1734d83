#include "cli/validate/validate_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>

#include "cli/print/human.h"
#include "cli/support/cuda_backend.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/progress.h"
#include "cli/validate/print_validation.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/statistics.h"
#include "studies/run/core_speed.h"
#include "validation/runtime.h"

namespace stepcast::cli {
namespace {

using studies::ErrorStatistics;
using validation::RuntimeCase;
using validation::RuntimeGroup;

constexpr std::string_view kRuntimeBound =
    "mean <= 0.10, p90 <= 0.20, mean <= half of the linear regression's";

DataTable cases_table(const std::vector<RuntimeCase>& cases, Look look) {
  using Row = Numbered<RuntimeCase>;
  const auto job = [](auto& r) { return r.of.job.workload.name; };
  const auto skipped = [](auto& r) { return r.of.skipped ? code(*r.of.skipped) : empty_cell(); };
  return table_of(
      "rows", "",
      Columns<Row>{
          {"id", "",
           [](auto& r) { return code(fmt::format("{} {}", r.number, r.of.job.workload.name)); },
           kInJson},
          {"id", "", [](auto& r) { return code(r.number); }, kInCsv},
          {"job", "", job, kInText | kInCsv},
          {"bound", "bound by", [](auto& r) { return name_of(r.of.bound); }, kLeft},
          {"predicted_s", "predicted", [](auto& r) { return seconds(r.of.predicted); },
           kInText | kInCsv},
          {"measured", "", [](auto& r) { return seconds(r.of.measured); }, 0, "measured_s"},
          {"predicted", "", [](auto& r) { return code(r.of.predicted); }, kInJson},
          {"error", "",
           [](auto& r) {
             return r.of.skipped ? Cell{"void", r.of.error()} : signed_share(r.of.error());
           }},
          {"", "linear", [](auto& r) { return signed_share(r.of.linear / r.of.measured - 1); },
           kInText},
          {"linear_s", "", [](auto& r) { return r.of.linear; }, kInCsv},
          {"repeat_noise", "noise", [](auto& r) { return share(r.of.noise); }},
          {"runs", "", [](auto& r) { return code(r.of.runs); }, kInJson},
          {"skipped", "", skipped, kInJson | kInCsv}},
      numbered(cases), look);
}

/// Errors as they are, where an error statistics of the group says them.
using Statistics = ErrorStatistics RuntimeGroup::*;
ColumnOf<RuntimeGroup> column_of(const std::string& key, Statistics of,
                                 double ErrorStatistics::*figure, const std::string& title = "") {
  const bool is_signed = figure == &ErrorStatistics::bias;
  return {key, title,
          [=](auto& g) { return is_signed ? signed_share(g.*of.*figure) : share(g.*of.*figure); }};
}

Columns<RuntimeGroup> group_columns() {
  using G = RuntimeGroup;
  using E = ErrorStatistics;
  const auto noise = [](auto& g) { return share(g.noise); };
  return {
      {"name", "group", &G::name},
      {"n", "",
       [](auto& g) {
         return Cell{std::to_string(g.ours.n) +
                         (g.skipped > 0 ? fmt::format(" (+{} void)", g.skipped) : ""),
                     g.ours.n};
       }},
      {"", "geomean", [](auto& g) { return share(g.ours.geomean); }, kInText},
      column_of("median", &G::ours, &E::median),
      column_of("mean", &G::ours, &E::mean),
      {"geomean", "", [](auto& g) { return code(g.ours.geomean); }, kInJson},
      column_of("p90", &G::ours, &E::p90),
      column_of("worst", &G::ours, &E::worst),
      {"worst_row", "", &G::worst_case, kInJson},
      column_of("bias", &G::ours, &E::bias),
      {"", "noise", noise, kInText},
      column_of("baseline_mean", &G::linear, &E::mean, "linear mean"),
      {"baseline", "", [](auto&) { return code("linear regression on FLOPs and bytes"); }, kInJson},
      {"permuted_mean", "permuted mean", [](auto& g) { return share(g.permuted); }},
      {"in_range_share", "in range", [](auto& g) { return share(g.in_range_share); }},
      {"kendall_tau", "", [](auto&) { return empty_cell(); }, kInJson},
      {"regret", "", [](auto&) { return empty_cell(); }, kInJson},
      {"repeat_noise", "", noise, kInJson}};
}

Columns<RuntimeGroup> ablation_columns() {
  using G = RuntimeGroup;
  Columns<G> columns{{"", "group", &G::name, kInText},
                     {"", "whole", [](auto& g) { return share(g.ours.mean); }, kInText}};
  for (std::size_t a = 0; a < validation::kAblations.size(); ++a) {
    columns.emplace_back(std::string("ablations/") + validation::kAblations[a], validation::kAblations[a],
                         [a](const G& g) { return share(g.ablated[a].mean); });
  }
  return columns;
}

Report runtime_report(const std::vector<RuntimeCase>& cases,
                      const std::vector<RuntimeGroup>& groups, bool pass, OutputFormat format) {
  Report report(format);
  Report& suite = report.item("suites");
  begin_suite(suite, "runtime", kRuntimeBound, pass);
  suite.add(cases_table(cases, kInText | kInCsv));
  Columns<RuntimeGroup> all;
  for (const auto& [title, columns] :
       {std::pair("errors of the step time", group_columns()),
        std::pair("ablation: mean error without a part of the model", ablation_columns())}) {
    suite.line();
    suite.add(table_of("groups", title, columns, groups, kInText));
    all.insert(all.end(), columns.begin(), columns.end());
  }
  suite.add(table_of("groups", "", all, groups, kInJson));
  suite.add(cases_table(cases, kInJson));
  for (const RuntimeGroup& g : groups) {
    if (!g.name.ends_with("-bound")) {
      suite.text(fmt::format("\n{}: {} ({})", g.name, g.pass() ? "pass" : "FAIL", kRuntimeBound));
    }
  }
  suite.line();
  return report;
}

int run_suite(const ValidateRuntimeRun& run, const System& system, const Context& context,
              runtime::MpiSession& session) {
  Progress progress("validating");
  validation::ValidateRuntimeOptions study;
  study.seed = run.seed;
  study.traces = run.from_traces.keep;
  study.transformers = run.count / 3;
  study.experts = run.experts;
  if (run.backend == "cuda") {
    study.executor = timed_cuda_executors(context, session);
  }
  study.dlrm = run.count - study.transformers;
  study.predicted = [&run](const std::vector<RuntimeCase>& cases) {
    write_predictions(run.predictions.empty() ? fmt::format("runtime-predictions-{}.csv", run.seed)
                                              : run.predictions,
                      case_predictions(cases, true), fmt::format("{} predictions", cases.size()));
  };
  study.progress = std::ref(progress);
  const std::vector<RuntimeCase> cases = validation::validate_runtime(system, study, session);
  const std::vector<RuntimeGroup> groups = validation::runtime_groups(cases);
  const bool pass =
      groups[0].pass() && groups[1].pass() && (run.experts == 0 || groups.back().pass());
  if (session.rank() == 0) {
    runtime_report(cases, groups, pass, run.format).print(std::cout);
    std::vector<double> probes;
    for (const RuntimeCase& c : cases) {
      probes.push_back(c.core_probe.base());
    }
    if (const auto warning = studies::core_speed_warning(Seconds(median_of(probes)), system)) {
      fmt::print(stderr, "stepcast: warning: {}\n", *warning);
    }
  }
  // A "no" of the check is rank 0's to tell: a rank that exits with another code than 0 would end
  // the run for the launcher.
  return pass ? 0 : 1;
}

}  // namespace

int validate_runtime(const ValidateRuntimeRun& run, Context& context) {
  const bool cuda = run.backend == "cuda";
  const bool calibrated = run.from_traces.traces == 0;
  if (calibrated && run.system.empty()) {
    throw InputError("--system",
                     "is needed: the file that `stepcast calibrate --backend cpu --out FILE` wrote "
                     "on this machine");
  }
  if (calibrated && cuda) {
    require_cuda(context);
  }
  System system;
  if (calibrated) {
    system = config::load_system(run.system, {context.library});
  }
  const auto session = as_ranks(context, run.ranks, 60);
  if (session == nullptr) {
    return context.exit_code;
  }
  return as_one_rank(*session, [&] {
    return calibrated ? run_suite(run, system, context, *session)
                      : validate_from_traces(run.from_traces,
                                             {run.seed, run.count, run.predictions, run.format},
                                             context, *session);
  });
}

}  // namespace stepcast::cli
