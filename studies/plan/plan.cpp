#include "studies/plan/plan.h"

#include <algorithm>
#include <cmath>

#include "core/clearly_less.h"
#include "core/error.h"
#include "core/graph/program.h"
#include "core/job/plan_settings.h"
#include "models/cost_model.h"
#include "planner/embedding/ledger.h"
#include "simulator/simulate.h"
#include "simulator/step_costs.h"
#include "studies/plan/plan_comparison.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_rules.h"
#include "workloads/embedding_plan/plan_summary.h"

namespace stepcast::studies {

double simulated_step(const Job& job, const models::CostModel& model, const EmbeddingPlan& plan) {
  Job with = job;
  with.embedding_plan = plan;
  const ExecutionGraph graph = workloads::build_graph(with);
  const simulator::StepCosts costs = simulator::price(
      graph, model,
      {.unfold = false, .collectives_hold_core = job.system.host.collectives_hold_core});
  return to_seconds(simulator::simulate(graph, costs).makespan).base();
}

namespace {

constexpr std::size_t kManyTables = 2000;  // beyond, a plan's price costs as much as the search
// Tables times devices: beyond, a simulation takes as long as the search, so few plans have one.
constexpr std::int64_t kManyParts = 500'000;
constexpr double kSearching = 0.7;     // of a time limit; the rest is for simulating
constexpr double kClose = 1.25;        // of the best objective: worth a simulation
constexpr std::size_t kSimulated = 2;  // plans of others, unless all are compared

/// Whether plans of others may answer: not where another system has to carry the plan out or the
/// job constrains tables or finds rows by keys, which they know nothing of.
bool others_may_answer(const Job& job, const PlanOptions& options) {
  const auto& tables = job.workload.layered()->tables;
  return options.form.any() && job.plan_constraints.empty() &&
         std::none_of(tables.begin(), tables.end(), [](const auto& t) { return t.keyed(); });
}

RankedPlan ranked_plan(planner::PlannedCandidate candidate) {
  RankedPlan ranked;
  ranked.objective = candidate.objective;
  ranked.mix = std::move(candidate.mix);
  ranked.plan = std::move(candidate.plan);
  return ranked;
}

/// Simulates the plans of others that come close to the best objective, or all; what fits and can
/// be built joins the answer.
void add_proposed(const Job& job, const models::CostModel& model, const PlanOptions& options,
                  std::vector<ProposedPlan> proposed, const std::function<bool()>& over,
                  PlanReport& report) {
  std::stable_sort(proposed.begin(), proposed.end(), [](const auto& a, const auto& b) {
    return clearly_less(a.row.objective.value_or(0), b.row.objective.value_or(0));
  });
  std::size_t simulated = 0;
  for (ProposedPlan& p : proposed) {
    const auto is_known = [&](const RankedPlan& ours) {
      return p.row.objective &&
             std::abs(ours.objective - *p.row.objective) <= 1e-9 * *p.row.objective;
    };
    const bool known = std::any_of(report.plans.begin(), report.plans.end(), is_known);
    const bool joins = p.row.fits && others_may_answer(job, options);
    const bool close = joins && !known && simulated < kSimulated &&
                       p.row.objective.value_or(0) <= kClose * report.objective;
    const bool compared = options.compare && p.rival;
    if (p.plan && (compared || close)) {
      if (over()) {
        p.row.remark = "not simulated: the time limit is over";
        report.cut = true;
      } else if (const auto broken = workloads::broken_rule(job, *p.plan)) {
        p.row.remark = fmt::format("plan: {}: {}", broken->key, broken->what);
      } else {
        p.row.step = simulated_step(job, model, *p.plan);
        simulated += close ? 1 : 0;
      }
    }
    // A plan of the same price may lie on other ranks, and step faster.
    const auto faster = [&p](const RankedPlan& ours) {
      return *p.row.step < ours.plan.predicted_step;
    };
    if (p.row.step && joins &&
        (!known || std::all_of(report.plans.begin(), report.plans.end(), faster))) {
      RankedPlan ranked;
      ranked.planner = p.row.name;
      ranked.plan = std::move(*p.plan);
      ranked.plan.predicted_step = *p.row.step;
      ranked.objective = p.row.objective.value_or(0);
      for (const workloads::PlanPart& part : workloads::plan_parts(ranked.plan)) {
        ranked.mix.emplace_back(part.placed, part.tables);
      }
      report.plans.push_back(std::move(ranked));
    }
    if (compared) {
      report.compared.push_back(std::move(p.row));
    }
  }
}

/// The search's own best plan as a row of the comparison.
ComparedPlan own_row(const PlanReport& report) {
  ComparedPlan row;
  row.name = "stepcast";
  row.seconds = report.search_seconds;
  const RankedPlan& own = report.plans.front();
  row.objective = own.objective;
  row.step = own.plan.predicted_step;
  for (const LedgerLine& line : own.plan.ledger) {
    row.fullest_bytes =
        line.tier == "hbm" ? std::max(row.fullest_bytes, line.total()) : row.fullest_bytes;
  }
  return row;
}

/// A thorough search goes on from what a normal one finds, and answers with no less.
planner::EmbeddingPlanning searched(const Job& job, const models::CostModel& model,
                                    const PlanOptions& options, planner::PlannerOptions search) {
  if (options.effort != PlanEffort::kThorough || options.time_limit) {
    return planner::plan_embeddings(job, model, search);
  }
  planner::PlannerOptions less = search;
  less.search.effort = PlanEffort::kNormal;
  planner::EmbeddingPlanning normal = planner::plan_embeddings(job, model, less);
  for (const planner::PlannedCandidate& c : normal.candidates) {
    search.proposed.push_back(c.plan);
  }
  planner::EmbeddingPlanning found = planner::plan_embeddings(job, model, search);
  found.evaluations += normal.evaluations;
  found.step_bound = std::max(found.step_bound, normal.step_bound);
  for (planner::PlannedCandidate& c : normal.candidates) {
    const bool known =
        std::any_of(found.candidates.begin(), found.candidates.end(),
                    [&c](const auto& other) { return other.objective == c.objective; });
    if (!known) {
      found.candidates.push_back(std::move(c));
    }
  }
  return found;
}

void sort_by_step(std::vector<RankedPlan>& plans) {
  std::stable_sort(plans.begin(), plans.end(), [](const RankedPlan& a, const RankedPlan& b) {
    return clearly_less(a.plan.predicted_step, b.plan.predicted_step);
  });
}

/// Bound, gap, settings and names of hot rows in every plan file.
void complete_plans(const Job& job, double step_bound, PlanReport& report) {
  for (RankedPlan& p : report.plans) {
    p.plan.lower_bound = step_bound;
    p.plan.gap = step_bound > 0 ? std::max(0.0, p.plan.predicted_step / step_bound - 1) : 0;
    p.plan.made_for = plan_settings(job);
    for (std::size_t t = 0; t < p.plan.tables.size(); ++t) {
      if (p.plan.tables[t].order == nullptr) {  // of other planners
        workloads::name_hot_rows(job.workload.layered()->tables[t], p.plan.tables[t]);
      }
    }
  }
}

/// Steps and bounds as runs of the framework take them.
void take_efficiency(const Job& job, PlanReport& report) {
  report.efficiency = efficiency_of(job);
  const double factor = report.efficiency ? report.efficiency->factor : 1;
  for (RankedPlan& p : report.plans) {
    p.plan.predicted_step *= factor;
    p.plan.lower_bound *= factor;
  }
  for (ComparedPlan& p : report.compared) {
    if (p.step) {
      *p.step *= factor;
    }
  }
}

}  // namespace

PlanReport plan(const Job& job, const PlanOptions& options) {
  const auto now = [&options] { return options.clock ? options.clock() : 0.0; };
  PlanReport report;
  report.job = job;
  const models::CostModel model(job.system, job.calibration);
  planner::PlannerOptions search;
  const std::size_t tables =
      job.workload.layered() != nullptr ? job.workload.layered()->tables.size() : 0;
  const bool large = static_cast<std::int64_t>(tables) * job.devices > kManyParts;
  search.keep =
      large ? std::min<std::size_t>(options.top, 2) : std::max<std::size_t>(options.top, 4);
  search.search.keep = search.keep;
  search.search.seed = options.seed;
  search.search.effort = options.effort;
  search.search.time_limit = options.time_limit;
  search.search.clock = options.clock;
  search.search.interrupted = options.interrupted;
  search.row_tiers = options.row_tiers;
  search.slow_tiers = options.slow_tiers;
  search.form = options.form;
  const bool others = tables <= kManyTables && others_may_answer(job, options);
  planner::check_plannable(job);
  const double begin = now();
  const auto over = [&] {
    return (options.interrupted && options.interrupted()) ||
           (options.time_limit && options.clock && now() - begin >= *options.time_limit);
  };
  const auto tell = [&](double done, std::string_view of, double best) {
    if (options.progress) {
      options.progress(done, best > 0 ? fmt::format("{}, best so far {:.4g} ms", of, best * 1e3)
                                      : std::string(of));
    }
  };
  search.progress = [&](double done, double objective) {
    tell(kSearching * done, "searching: what plans decide", objective);
  };
  tell(0, "plans of others", 0);
  std::vector<ProposedPlan> proposed;
  if (others || options.compare) {
    proposed = proposed_plans(job, model, options);
  }
  for (const ProposedPlan& p : proposed) {
    // Whether all are compared or not, the search starts from the same.
    if (others && p.plan && p.row.fits) {
      search.proposed.push_back(*p.plan);
    }
  }
  const double searching = now();
  if (options.time_limit && options.clock) {
    search.search.time_limit =
        std::max(0.0, kSearching * *options.time_limit - (searching - begin));
  }
  planner::EmbeddingPlanning found = searched(job, model, options, std::move(search));
  report.search_seconds = now() - searching;
  report.bound = found.bound;
  report.bound_reason = found.bound_reason;
  report.gap = found.gap;
  report.evaluations = found.evaluations;
  report.space_log10 = found.space_log10;
  report.cut = found.cut;
  report.shortage = found.shortage;

  const double simulating = now();
  double best = 0;
  for (planner::PlannedCandidate& c : found.candidates) {
    if (!report.plans.empty() && over()) {  // the best by its price is simulated in any case
      report.cut = true;
      break;
    }
    c.plan.predicted_step = simulated_step(job, model, c.plan);
    report.plans.push_back(ranked_plan(std::move(c)));
    best = best > 0 ? std::min(best, report.plans.back().plan.predicted_step)
                    : report.plans.back().plan.predicted_step;
    tell(kSearching + (1 - kSearching) * static_cast<double>(report.plans.size()) /
                          static_cast<double>(found.candidates.size() + 1),
         "simulating: step", best);
  }
  sort_by_step(report.plans);
  if (!report.plans.empty()) {
    report.objective = std::min_element(report.plans.begin(), report.plans.end(),
                                        [](const RankedPlan& a, const RankedPlan& b) {
                                          return a.objective < b.objective;
                                        })
                           ->objective;
    if (options.compare) {
      report.compared.push_back(own_row(report));
    }
    if (!proposed.empty()) {
      add_proposed(job, model, options, std::move(proposed), over, report);
      sort_by_step(report.plans);
    }
  }
  complete_plans(job, found.step_bound, report);
  take_efficiency(job, report);
  report.plans.resize(std::min(report.plans.size(), options.top));
  report.simulation_seconds = now() - simulating;
  return report;
}

}  // namespace stepcast::studies
