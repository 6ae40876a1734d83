#include "studies/compare.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "models/cost_model.h"
#include "simulator/reports/timeline.h"
#include "simulator/simulate.h"
#include "studies/error_statistics.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

void require_same_graph(const ExecutionGraph& ran, const ExecutionGraph& predicted) {
  const auto differ = [](const std::string& what) {
    throw InputError("trace", "was recorded from another job: " + what +
                                  "; compare it with the job it was recorded from");
  };
  if (ran.ranks() != predicted.ranks()) {
    differ(fmt::format("{} ranks ran, the job has {}", ran.ranks(), predicted.ranks()));
  }
  for (std::int32_t r = 0; r < ran.ranks(); ++r) {
    const Program& a = ran.program_of(r);
    const Program& b = predicted.program_of(r);
    if (a.ops.size() != b.ops.size() || a.calls.size() != b.calls.size()) {
      differ(fmt::format("rank {} ran {} ops in {} calls, the job has {} in {}", r, a.ops.size(),
                         a.calls.size(), b.ops.size(), b.calls.size()));
    }
    for (std::size_t o = 0; o < a.ops.size(); ++o) {
      if (a.ops[o].kind != b.ops[o].kind || a.ops[o].shape != b.ops[o].shape) {
        differ(fmt::format("op {} '{}' of rank {} differs", o, a.name(a.ops[o]), r));
      }
    }
  }
}

struct Sums {
  std::int64_t executions = 0;
  double predicted = 0, measured = 0, predicted_wait = 0, measured_wait = 0;
};

std::vector<ComparisonRow> rows_of(const Program& program, const std::vector<Sums>& templates,
                                   bool by_name, const Comparison& step) {
  std::map<std::string, ComparisonRow> rows;
  ComparisonRow rest;
  rest.name = "host and gaps";
  rest.predicted = step.predicted;
  rest.measured = step.measured;
  for (std::size_t o = 0; o < templates.size(); ++o) {
    const Sums& s = templates[o];
    if (s.executions == 0) {
      continue;
    }
    const Op& op = program.ops[o];
    ComparisonRow& row = rows[by_name ? fmt::format("{} [{}]", program.name(op), name_of(op.phase))
                                      : std::string(name_of(op.kind))];
    row.kind = name_of(op.kind);
    row.executions += s.executions;
    row.predicted += seconds(s.predicted);
    row.measured += seconds(s.measured);
    row.predicted_wait += seconds(s.predicted_wait);
    row.measured_wait += seconds(s.measured_wait);
    if (op.stream == 0) {  // other streams run beside it
      rest.predicted -= seconds(s.predicted + s.predicted_wait);
      rest.measured -= seconds(s.measured + s.measured_wait);
    }
  }
  std::vector<ComparisonRow> sorted;
  for (auto& [name, row] : rows) {
    row.name = name;
    sorted.push_back(row);
  }
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [](const ComparisonRow& a, const ComparisonRow& b) { return a.measured > b.measured; });
  sorted.push_back(rest);
  for (ComparisonRow& row : sorted) {
    row.contribution =
        (row.predicted + row.predicted_wait - row.measured - row.measured_wait) / step.measured;
  }
  return sorted;
}

}  // namespace

Comparison compare(const traces::Trace& trace, const Job& job) {
  const ExecutionGraph graph = workloads::build_graph(job);
  require_same_graph(trace.graph, graph);
  Comparison c;
  c.workload = job.workload.name;
  c.system = job.system.name;
  const std::vector<double> steps = traces::step_seconds(trace, 0);
  if (steps.empty()) {
    throw InputError("trace", "holds no complete step; record at least one step after the warm-up");
  }
  c.steps = static_cast<std::int64_t>(steps.size());
  c.measured = seconds(quantile_of(steps, 0.5));
  c.spread = (quantile_of(steps, 0.95) - quantile_of(steps, 0.05)) / c.measured.base();

  const models::CostModel model(job.system, job.calibration);
  const simulator::StepCosts costs = simulator::price(
      graph, model,
      {.unfold = false, .collectives_hold_core = job.system.host.collectives_hold_core});
  simulator::Timeline timeline;
  const simulator::SimulationResult result = simulator::simulate(graph, costs, {}, &timeline);
  c.predicted = to_seconds(result.makespan);
  c.error = c.predicted / c.measured - 1;
  c.rank = result.ranks.at(result.critical).rank;

  const Program& program = graph.program_of(c.rank);
  std::vector<Sums> templates(program.ops.size());
  for (const OpSpan& s : timeline.ops()) {
    if (s.rank == c.rank) {
      templates[s.ref.op].predicted += to_seconds(SimTime{ticks(s.end) - ticks(s.ready)}).base();
      templates[s.ref.op].predicted_wait +=
          to_seconds(SimTime{ticks(s.ready) - ticks(s.begin)}).base();
    }
  }
  for (const traces::OpSamples& s : traces::samples_of(trace, c.rank, 0)) {
    if (!s.seconds.empty()) {
      Sums& sums = templates[s.ref.op];
      ++sums.executions;
      sums.measured += quantile_of(s.seconds, 0.5);
      sums.measured_wait += quantile_of(s.wait_seconds, 0.5);
    }
  }
  c.by_kind = rows_of(program, templates, false, c);
  c.by_name = rows_of(program, templates, true, c);
  for (const traces::RankTrace& r : trace.ranks) {
    c.dropped_records += r.dropped;
  }
  return c;
}

}  // namespace stepcast::studies
