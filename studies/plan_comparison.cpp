#include "studies/plan_comparison.h"

#include <algorithm>

#include "core/error.h"
#include "planner/baselines/baselines.h"
#include "planner/ledger.h"

namespace stepcast::studies {

std::vector<ComparedPlan> compare_plans(const Job& job, const models::CostModel& model,
                                        const PlanReport& report, const PlanOptions& options) {
  const auto now = [&options] { return options.clock ? options.clock() : 0.0; };
  std::vector<ComparedPlan> rows;
  const auto add = [&](const std::string& name, const EmbeddingPlan& plan, double seconds,
                       std::string remark) {
    ComparedPlan row;
    row.name = name;
    row.seconds = seconds;
    row.remark = std::move(remark);
    row.objective = planner::objective_of_plan(job, model, plan);
    const std::vector<LedgerLine> ledger = planner::ledger_of(job, plan);
    for (const LedgerLine& line : ledger) {
      row.fullest_bytes =
          line.tier == "hbm" ? std::max(row.fullest_bytes, line.total()) : row.fullest_bytes;
    }
    row.fits = !planner::excess_of(job, plan, ledger);
    try {
      row.step = simulated_step(job, model, plan);
    } catch (const InputError& e) {
      row.remark = e.what();
    }
    rows.push_back(std::move(row));
  };
  const RankedPlan& own = report.plans.front();
  add("stepcast", own.plan, report.search_seconds, "");
  for (const planner::Baseline& baseline : planner::baselines()) {
    const double begin = now();
    const planner::BaselinePlan made = baseline.make(job, model, options.seed);
    const double seconds = now() - begin;
    if (made.plan) {
      add(std::string(baseline.name), *made.plan, seconds, made.remark);
    } else {
      rows.push_back({.name = std::string(baseline.name),
                      .objective = std::nullopt,
                      .step = std::nullopt,
                      .fits = false,
                      .seconds = seconds,
                      .remark = made.remark});
    }
  }
  return rows;
}

}  // namespace stepcast::studies
