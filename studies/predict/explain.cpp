#include "studies/predict/explain.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/clearly_less.h"
#include "core/error.h"
#include "models/cost_model.h"
#include "simulator/reports/breakdown.h"
#include "studies/predict/context_choice.h"
#include "studies/predict/simulated_step.h"
#include "studies/traces/step_views.h"

namespace stepcast::studies {
namespace {

/// Rows of one rank's step under construction, by name.
using Rows = std::map<std::string, AccountRow>;

AccountRow& row_of(Rows& rows, const std::string& name, std::string_view kind) {
  AccountRow& row = rows[name];
  row.name = name;
  row.kind = kind;
  return row;
}

void add(Rows& rows, const Program& program, const simulator::Breakdown& parts, double weight) {
  for (std::size_t o = 0; o < parts.by_op.size(); ++o) {
    const simulator::OpShare& share = parts.by_op[o];
    if (share.executions == 0) {
      continue;
    }
    const Op& op = program.ops[o];
    AccountRow& row = row_of(rows, row_name(program, op, true), name_of(op.kind));
    row.executions += weight * static_cast<double>(share.executions);
    row.compute += to_seconds(share.compute) * weight;
    row.exposed_communication += to_seconds(share.exposed_communication) * weight;
    row.bubble += to_seconds(share.bubble) * weight;
  }
  const auto rest = [&](const char* name, SimTime t, Seconds AccountRow::*part) {
    if (ticks(t) > 0) {
      row_of(rows, name, "").*part += to_seconds(t) * weight;
    }
  };
  rest("done before the others", parts.done, &AccountRow::bubble);
  rest("host", parts.host, &AccountRow::host);
  rest("gaps", parts.other, &AccountRow::other);
}

StepAccount finished(StepAccount account, Rows rows) {
  for (auto& [name, row] : rows) {
    account.step += row.total();
    account.rows.push_back(std::move(row));
  }
  account.expected = account.step;
  return account;
}

/// Share of the step that rows found in `other` account for.
double matched(const StepAccount& account, const StepAccount& other) {
  Seconds sum;
  for (const AccountRow& row : account.rows) {
    const bool found = std::any_of(other.rows.begin(), other.rows.end(), [&](const AccountRow& o) {
      return o.name == row.name && o.kind == row.kind;
    });
    sum += found ? row.total() : Seconds{};
  }
  return account.step > Seconds{} ? sum / account.step : 1;
}

constexpr double kMostOfAStep = 0.5;  // below it names say little, and kinds are compared

}  // namespace

StepAccount account_of(const Job& of) {
  const Job job = settled(of);
  const ExecutionGraph graph = workloads::build_graph(job);
  const models::CostModel model(job.system, job.calibration);
  const SimulatedStep simulated = simulate_step(graph, model);
  const simulator::RankSummary& critical = simulated.critical();
  simulator::Timeline timeline(graph, {critical.rank});
  simulator::simulate(graph, simulated.costs, {}, &timeline);
  Rows rows;
  const Program& program = graph.program_of(critical.rank);
  add(rows, program,
      simulator::breakdown(program, timeline, critical.rank,
                           {.begin = SimTime{},
                            .end = simulated.result.makespan,
                            .rank_end = critical.end,
                            .shares_core = simulated.costs.shares_core}),
      1);
  StepAccount account =
      finished({.label = {}, .rank = critical.rank, .step = {}, .expected = {}, .rows = {}},
               std::move(rows));
  account.expected = expected_step(job, graph, account.step);
  return account;
}

StepAccount account_of(const traces::MeasuredRun& run) {
  const std::vector<StepView> steps = step_views(run);
  const std::int32_t rank = critical_rank(steps);
  Rows rows;
  for (const StepView& step : steps) {
    add(rows, step.graph->program_of(rank), parts_of(step, static_cast<std::size_t>(rank)),
        1 / static_cast<double>(steps.size()));
  }
  return finished({.label = {}, .rank = rank, .step = {}, .expected = {}, .rows = {}},
                  std::move(rows));
}

Explanation explain(StepAccount a, StepAccount b) {
  Explanation e;
  e.by_name = std::min(matched(a, b), matched(b, a)) >= kMostOfAStep;
  std::map<std::string, WaterfallRow> rows;
  const auto collect = [&](const StepAccount& account, double sign, Seconds WaterfallRow::*side,
                           double WaterfallRow::*executions) {
    for (const AccountRow& row : account.rows) {
      const std::string& key = e.by_name || row.kind.empty() ? row.name : row.kind;
      WaterfallRow& w = rows[key];
      w.name = key;
      w.kind = row.kind;
      w.*executions += row.executions;
      w.*side += row.total();
      w.compute += row.compute * sign;
      w.exposed_communication += row.exposed_communication * sign;
      w.bubble += row.bubble * sign;
      w.host += row.host * sign;
      w.other += row.other * sign;
    }
  };
  collect(a, -1, &WaterfallRow::a, &WaterfallRow::executions_a);
  collect(b, 1, &WaterfallRow::b, &WaterfallRow::executions_b);
  for (auto& [name, row] : rows) {
    e.rows.push_back(std::move(row));
  }
  const auto size = [](const WaterfallRow& r) { return std::max(r.delta(), -r.delta()); };
  std::stable_sort(e.rows.begin(), e.rows.end(), [&](const WaterfallRow& x, const WaterfallRow& y) {
    return clearly_less(size(y), size(x));
  });
  e.a = std::move(a);
  e.b = std::move(b);
  return e;
}

Explanation explain(const Job& a, const Job& b, const ChangeJob& change) {
  Explanation e = explain(account_of(a), account_of(b));
  std::vector<config::Difference> applied;
  ChangeRow row;
  Seconds before = e.a.step;
  const std::vector<config::Difference> all = config::differences(a, b);
  for (std::size_t i = 0; i < all.size(); ++i) {
    applied.push_back(all[i]);
    row.changes.push_back(all[i]);
    if (i + 1 == all.size()) {
      row.step = e.b.step;
    } else {
      try {
        row.step = account_of(change(a, applied)).step;
      } catch (const InputError&) {
        continue;  // no job by itself: together with the next
      }
    }
    row.delta = row.step - before;
    before = row.step;
    e.changes.push_back(std::exchange(row, {}));
  }
  return e;
}

}  // namespace stepcast::studies
