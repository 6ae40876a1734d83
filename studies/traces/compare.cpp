#include "studies/traces/compare.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/graph/step_traffic.h"
#include "models/cost_model.h"
#include "studies/fit/error_statistics.h"
#include "studies/traces/recorded_graph.h"
#include "studies/predict/simulated_step.h"

namespace stepcast::studies {
namespace {

/// Measured times of one op template over its executions.
struct Measured {
  std::int64_t executions = 0;
  double time = 0, wait = 0;
};

/// Of each step of a rank what no op of its compute stream took; their median.
Seconds gaps_of(const traces::Trace& trace, const Program& program, std::int32_t rank) {
  std::map<std::int32_t, double> left;
  const auto found = std::find_if(trace.ranks.begin(), trace.ranks.end(),
                                  [rank](const traces::RankTrace& r) { return r.rank == rank; });
  if (found == trace.ranks.end()) {
    return {};
  }
  for (const traces::StepMark& m : found->steps) {
    left[m.step] = static_cast<double>(ticks(m.end) - ticks(m.begin));
  }
  for (const OpSpan& s : found->ops) {
    if (const auto step = left.find(s.step);
        step != left.end() && program.ops[s.ref.op].stream == 0) {
      step->second -= static_cast<double>(ticks(s.end) - ticks(s.begin));
    }
  }
  std::vector<double> gaps;
  for (const auto& [step, ticks_left] : left) {
    gaps.push_back(ticks_left * 1e-12);
  }
  return gaps.empty() ? Seconds{} : seconds(std::max(0.0, quantile_of(gaps, 0.5)));
}

std::vector<ComparisonRow> rows_of(const Program& program,
                                   const std::vector<TemplateTime>& predicted,
                                   const std::vector<Measured>& measured, bool by_name,
                                   const Comparison& step, Seconds gaps) {
  std::map<std::string, ComparisonRow> rows;
  ComparisonRow rest;
  rest.name = "host and gaps";
  rest.predicted = step.predicted;
  rest.measured = gaps;
  // What single steps took longer than their ops' medians; a wait for the others to begin is there.
  ComparisonRow beyond;
  beyond.name = "beyond the medians";
  beyond.measured = step.measured - gaps;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const TemplateTime& p = predicted[o];
    const Measured& m = measured[o];
    if (p.executions == 0 && m.executions == 0) {
      continue;
    }
    const Op& op = program.ops[o];
    ComparisonRow& row = rows[row_name(program, op, by_name)];
    row.kind = name_of(op.kind);
    row.executions += m.executions;
    row.predicted += p.time;
    row.measured += seconds(m.time);
    row.predicted_wait += p.wait;
    row.measured_wait += seconds(m.wait);
    if (op.stream == 0) {  // other streams run beside it
      rest.predicted -= p.time + p.wait;
      beyond.measured -= seconds(m.time + m.wait);
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
  sorted.push_back(beyond);
  for (ComparisonRow& row : sorted) {
    row.contribution =
        (row.predicted + row.predicted_wait - row.measured - row.measured_wait) / step.measured;
  }
  return sorted;
}

std::vector<ComparedTraffic> traffic_of(const traces::Trace& trace, const ExecutionGraph& graph,
                                        const Job& job) {
  // What the host executed moved four bytes of every number.
  const double real_bytes = trace.op_clock.empty() ? 4 : 0;
  const StepTraffic predicted = expected_traffic(graph, LinkLevels(job.system), real_bytes);
  std::vector<double> counted(kTrafficKinds, 0.0);
  for (const traces::RankTrace& r : trace.ranks) {
    const Program& program = graph.program_of(r.rank);
    for (const OpSpan& span : r.ops) {
      const Op& op = program.ops.at(span.ref.op);
      counted[static_cast<std::size_t>(op.traffic)] +=
          span.bytes / static_cast<double>(std::max<std::size_t>(1, r.steps.size()));
    }
  }
  std::vector<ComparedTraffic> all;
  for (std::size_t k = 0; k < counted.size(); ++k) {
    const auto kind = static_cast<TrafficKind>(k);
    if (counted[k] + predicted.total(kind) > 0) {
      all.push_back({std::string(name_of(kind)), predicted.total(kind), counted[k]});
    }
  }
  return all;
}

}  // namespace

Comparison compare(const traces::Trace& trace, const Job& job) {
  const ExecutionGraph graph = rebuilt_graph(trace, job);
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
  simulator::Timeline timeline;
  const SimulatedStep step = simulate_step(graph, model, &timeline);
  c.predicted = to_seconds(step.result.makespan);
  c.error = c.predicted / c.measured - 1;
  c.rank = step.critical().rank;

  const Program& program = graph.program_of(c.rank);
  std::vector<Measured> measured(program.ops.size());
  for (const traces::OpSamples& s : traces::samples_of(trace, c.rank, 0)) {
    if (!s.seconds.empty()) {
      Measured& sums = measured[s.ref.op];
      ++sums.executions;
      sums.time += quantile_of(s.seconds, 0.5);
      sums.wait += quantile_of(s.wait_seconds, 0.5);
    }
  }
  const std::vector<TemplateTime> predicted = template_times(timeline, program, c.rank);
  const Seconds gaps = gaps_of(trace, program, c.rank);
  c.by_kind = rows_of(program, predicted, measured, false, c, gaps);
  c.by_name = rows_of(program, predicted, measured, true, c, gaps);
  c.traffic = traffic_of(trace, graph, job);
  for (const traces::RankTrace& r : trace.ranks) {
    c.dropped_records += r.dropped;
  }
  if (!trace.core_probes.empty() && reference_probe(job.system)[0] > Seconds{}) {
    c.pace = step_pace(
        trace.core_probes, job.system,
        transfers_from_core_to_core(timeline.ops(), program, c.rank, job.system) / c.predicted);
  }
  return c;
}

}  // namespace stepcast::studies
