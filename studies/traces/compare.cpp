#include "studies/traces/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/graph/step_traffic.h"
#include "models/cost_model.h"
#include "studies/fit/error_statistics.h"
#include "studies/predict/simulated_step.h"
#include "studies/run/core_speed.h"
#include "studies/traces/shaped_work.h"
#include "studies/traces/step_views.h"

namespace stepcast::studies {
namespace {

/// The predicted step, and what its critical rank does in it.
struct PredictedStep {
  simulator::Timeline timeline;
  Seconds time;
  std::int32_t rank = 0;
  const Program* program = nullptr;
  std::vector<TemplateTime> ops;  ///< by op template of `program`
};

PredictedStep predicted_step(const ExecutionGraph& graph, const models::CostModel& model) {
  PredictedStep p;
  const SimulatedStep step = simulate_step(graph, model, &p.timeline);
  p.time = to_seconds(step.result.makespan);
  p.rank = step.critical().rank;
  p.program = &graph.program_of(p.rank);
  p.ops = template_times(p.timeline, *p.program, p.rank);
  return p;
}

/// Measured times of one op template over its executions.
struct Measured {
  std::int64_t executions = 0;
  double time = 0, wait = 0;
};

/// Time of each step of a rank that no op of its compute stream took; their median.
Seconds gaps_of(const traces::MeasuredRun& run, const Program& program, std::size_t rank) {
  std::vector<double> gaps;
  for (const traces::MeasuredStep& step : run.steps) {
    const traces::MeasuredRank& r = step.ranks[rank];
    auto left = static_cast<double>(r.end - r.begin);
    for (const OpSpan& s : r.spans) {
      if (program.ops[s.ref.op].stream == 0) {
        left -= static_cast<double>(ticks(s.end) - ticks(s.begin));
      }
    }
    gaps.push_back(left * 1e-12);
  }
  return seconds(std::max(0.0, quantile_of(gaps, 0.5)));
}

/// Medians of each executed op of a rank, summed by op template.
std::vector<Measured> measured_ops(const traces::MeasuredRun& run, const Program& program,
                                   std::size_t rank) {
  struct Samples {
    std::vector<double> time, wait;
  };
  std::vector<std::size_t> first{0};  // executed ops before each call
  for (const Call& c : program.calls) {
    first.push_back(first.back() + program.segments[c.segment].op_count);
  }
  std::vector<Samples> executed(first.back());
  for (const traces::MeasuredStep& step : run.steps) {
    for (const OpSpan& s : step.ranks[rank].spans) {
      const Segment& segment = program.segments[program.calls[s.ref.call].segment];
      Samples& of = executed[first[s.ref.call] + s.ref.op - segment.first_op];
      of.time.push_back(to_seconds(SimTime{ticks(s.end) - ticks(s.ready)}).base());
      of.wait.push_back(to_seconds(SimTime{ticks(s.ready) - ticks(s.begin)}).base());
    }
  }
  std::vector<Measured> measured(program.ops.size());
  std::size_t i = 0;
  for (const Call& c : program.calls) {
    const Segment& segment = program.segments[c.segment];
    for (std::uint32_t o = 0; o < segment.op_count; ++o, ++i) {
      if (!executed[i].time.empty()) {
        Measured& sums = measured[segment.first_op + o];
        ++sums.executions;
        sums.time += quantile_of(std::move(executed[i].time), 0.5);
        sums.wait += quantile_of(std::move(executed[i].wait), 0.5);
      }
    }
  }
  return measured;
}

std::vector<ComparisonRow> rows_of(const PredictedStep& predicted,
                                   const std::vector<Measured>& measured, bool by_name,
                                   Seconds measured_step, Seconds gaps) {
  const Program& program = *predicted.program;
  std::map<std::string, ComparisonRow> rows;
  ComparisonRow rest;
  rest.name = "host and gaps";
  rest.predicted = predicted.time;
  rest.measured = gaps;
  // Time of single steps beyond their ops' medians; a wait for the others to begin is there.
  ComparisonRow beyond;
  beyond.name = "beyond the medians";
  beyond.measured = measured_step - gaps;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const TemplateTime& p = predicted.ops[o];
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
    if (op.stream == 0) {  // other streams overlap with it
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
        (row.predicted + row.predicted_wait - row.measured - row.measured_wait) / measured_step;
  }
  return sorted;
}

std::vector<ComparedTraffic> traffic_of(const traces::MeasuredRun& run, const ExecutionGraph& graph,
                                        const Job& job) {
  // Bytes of a number as the host executed it: four of every format.
  const double real_bytes = run.op_clock.empty() ? 4 : 0;
  const StepTraffic predicted = expected_traffic(graph, LinkLevels(job.system), real_bytes);
  std::vector<double> counted(kTrafficKinds, 0.0);
  for (std::size_t r = 0; r < run.steps.front().ranks.size(); ++r) {
    const Program& program = graph.program_of(static_cast<std::int32_t>(r));
    for (const traces::MeasuredStep& step : run.steps) {
      for (const OpSpan& span : step.ranks[r].spans) {
        const Op& op = program.ops.at(span.ref.op);
        counted[static_cast<std::size_t>(op.traffic)] +=
            span.bytes / static_cast<double>(run.steps.size());
      }
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

Comparison::ByOp by_op(const traces::MeasuredRun& run, const Job& job, const ExecutionGraph& graph,
                       const PredictedStep& predicted, const Comparison& c) {
  Comparison::ByOp by;
  by.error = predicted.time / c.measured - 1;
  by.rank = predicted.rank;
  std::vector<double> walls;
  for (const traces::MeasuredStep& s : run.steps) {
    walls.push_back(to_seconds(SimTime{s.wall}).base());
  }
  by.spread = (quantile_of(walls, 0.95) - quantile_of(walls, 0.05)) / c.measured.base();
  const Program& program = *predicted.program;
  const auto rank = static_cast<std::size_t>(by.rank);
  const std::vector<Measured> measured = measured_ops(run, program, rank);
  const Seconds gaps = gaps_of(run, program, rank);
  by.by_kind = rows_of(predicted, measured, false, c.measured, gaps);
  by.by_name = rows_of(predicted, measured, true, c.measured, gaps);
  by.traffic = traffic_of(run, graph, job);
  return by;
}

/// Collects the ops of one kind.
struct KindSums {
  ComparedKind row;
  std::vector<double> errors;
  std::int64_t inside = 0;

  void add(const models::Prediction& p, const std::vector<double>& measured) {
    const double typical = median_of(measured);
    const auto calls = static_cast<double>(measured.size());
    ++row.distinct;
    row.calls += static_cast<std::int64_t>(measured.size());
    row.predicted += p.time * calls;
    row.measured += seconds(typical * calls);
    if (typical > 0) {
      errors.push_back(std::abs(p.time.base() / typical - 1));
    }
    inside += p.in_range ? 1 : 0;
  }
  ComparedKind finish(double parts) {
    const ErrorStatistics e = statistics_of(errors);
    row.predicted = row.predicted / parts;
    row.measured = row.measured / parts;
    row.median = e.median;
    row.mean = e.mean;
    row.p90 = e.p90;
    row.in_range = static_cast<double>(inside) / static_cast<double>(row.distinct);
    return row;
  }
};

/// Time of each kind on the critical rank of a predicted step.
std::map<std::string, Seconds> kinds_of(const PredictedStep& predicted) {
  std::map<std::string, Seconds> kinds;
  for (std::size_t o = 0; o < predicted.ops.size(); ++o) {
    kinds[std::string(name_of(predicted.program->ops[o].kind))] += predicted.ops[o].time;
  }
  return kinds;
}

Comparison::ByShape by_shape(const traces::MeasuredRun& run, const Job& job,
                             const std::optional<PredictedStep>& predicted,
                             const models::CostModel& model, const Comparison& c) {
  const ShapedWork work = shaped_work(run, job.system);
  if (work.kernels.empty() && work.transfers.empty()) {
    throw InputError("trace",
                     "tells no kernel's shape, so no model can be asked; record it with shapes "
                     "(PyTorch profiler: record_shapes=True)");
  }
  Comparison::ByShape by;
  by.seconds = work.seconds;
  by.unexplained = work.unexplained;
  std::map<std::string, KindSums> kinds;
  for (const ShapedWork::Kernel& k : work.kernels) {
    const Op& op = work.program.ops[k.op];
    kinds[std::string(name_of(op.kind))].add(model.kernel(work.program, op), k.seconds);
  }
  const auto parts = static_cast<double>(c.steps * c.ranks);
  for (const ShapedWork::Transfer& t : work.transfers) {
    const auto members = static_cast<std::size_t>(std::max<std::int64_t>(1, t.group.size));
    kinds[std::string(name_of(t.op.kind))].add(model.collective(t.op, t.group),
                                               std::vector<double>(members, t.seconds));
    by.wait += seconds(t.wait * static_cast<double>(members) / parts);
  }
  std::map<std::string, Seconds> planned;
  if (predicted) {
    planned = kinds_of(*predicted);
  }
  for (auto& [kind, sums] : kinds) {
    sums.row.kind = kind;
    by.kinds.push_back(sums.finish(parts));
    if (const auto found = planned.find(kind); found != planned.end()) {
      by.kinds.back().job = found->second;
      planned.erase(found);
    }
  }
  for (const auto& [kind, time] : planned) {  // what the record has nothing of
    if (time > Seconds{}) {
      ComparedKind& missing = by.kinds.emplace_back();
      missing.kind = kind;
      missing.job = time;
    }
  }
  std::stable_sort(
      by.kinds.begin(), by.kinds.end(),
      [](const ComparedKind& a, const ComparedKind& b) { return a.measured > b.measured; });
  return by;
}

}  // namespace

void require_same_ops(const ExecutionGraph& ran, const ExecutionGraph& of_job) {
  const auto differ = [](const std::string& what) {
    throw InputError("trace", "was recorded from another job: " + what +
                                  "; compare it with the job it was recorded from");
  };
  if (ran.ranks() != of_job.ranks()) {
    differ(fmt::format("{} ranks ran, the job has {}", ran.ranks(), of_job.ranks()));
  }
  for (std::int32_t r = 0; r < ran.ranks(); ++r) {
    const Program& a = ran.program_of(r);
    const Program& b = of_job.program_of(r);
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

Comparison compare(const traces::MeasuredRun& run, const Job& job,
                   const ExecutionGraph* predicted) {
  Comparison c;
  c.workload = job.workload.name;
  c.system = job.system.name;
  c.ranks = static_cast<std::int64_t>(run.steps.front().ranks.size());
  c.steps = static_cast<std::int64_t>(run.step_count());
  c.dropped_records = run.dropped;
  c.warnings = run.warnings;
  if (auto warning = core_speed_warning(run.core_probe, job.system)) {
    c.warnings.push_back(std::move(*warning));
  }
  std::vector<double> walls;
  for (const StepView& s : step_views(run)) {
    walls.push_back(static_cast<double>(s.wall) * 1e-12);
  }
  c.measured = seconds(median_of(walls));
  const models::CostModel model(job.system, job.calibration);
  if (predicted == nullptr && run.of_our_own()) {
    predicted = run.steps.front().graph.get();
  }
  std::optional<PredictedStep> step;
  if (predicted != nullptr) {
    if (run.of_our_own()) {
      require_same_ops(*run.steps.front().graph, *predicted);
    }
    step = predicted_step(*predicted, model);
    c.predicted = step->time;
  }
  if (run.of_our_own()) {
    c.by_op = by_op(run, job, *predicted, *step, c);
  } else {
    c.by_shape = by_shape(run, job, step, model, c);
  }
  return c;
}

}  // namespace stepcast::studies
