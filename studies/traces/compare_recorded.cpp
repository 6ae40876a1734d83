#include "studies/traces/compare_recorded.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "models/cost_model.h"
#include "studies/fit/error_statistics.h"
#include "studies/traces/recorded_work.h"
#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

/// Collects the ops of one kind.
struct KindSums {
  RecordedKind row;
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
  RecordedKind finish(double parts) {
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

}  // namespace

RecordedComparison compare_recorded(const traces::MeasuredRun& run, const Job& job, bool of_job) {
  const RecordedWork work = recorded_work(run, job.system);
  if (work.kernels.empty() && work.transfers.empty()) {
    throw InputError("trace",
                     "tells no kernel's shape, so no model can be asked; record it with shapes "
                     "(PyTorch profiler: record_shapes=True)");
  }
  RecordedComparison c;
  c.system = job.system.name;
  c.workload = of_job ? job.workload.name : "";
  c.steps = static_cast<std::int64_t>(run.steps.size());
  c.ranks = static_cast<std::int64_t>(run.steps.front().ranks.size());
  c.seconds = work.seconds;
  c.unexplained = work.unexplained;
  c.warnings = run.warnings;
  const models::CostModel model(job.system, job.calibration);
  std::map<std::string, KindSums> kinds;
  for (const RecordedWork::Kernel& k : work.kernels) {
    const Op& op = work.program.ops[k.op];
    kinds[std::string(name_of(op.kind))].add(model.kernel(work.program, op), k.seconds);
  }
  const auto parts = static_cast<double>(c.steps * c.ranks);
  for (const RecordedWork::Transfer& t : work.transfers) {
    const auto members = static_cast<std::size_t>(std::max<std::int64_t>(1, t.group.size));
    kinds[std::string(name_of(t.op.kind))].add(model.collective(t.op, t.group),
                                               std::vector<double>(members, t.seconds));
    c.wait += seconds(t.wait * static_cast<double>(members) / parts);
  }
  std::map<std::string, Seconds> planned;
  if (of_job) {
    const ExecutionGraph graph = workloads::build_graph(job);
    simulator::Timeline timeline;
    const SimulatedStep step = simulate_step(graph, model, &timeline);
    c.predicted_step = to_seconds(step.result.makespan);
    const std::int32_t rank = step.critical().rank;
    const Program& program = graph.program_of(rank);
    const std::vector<TemplateTime> times = template_times(timeline, program, rank);
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      planned[std::string(name_of(program.ops[o].kind))] += times[o].time;
    }
  }
  for (auto& [kind, sums] : kinds) {
    sums.row.kind = kind;
    c.kinds.push_back(sums.finish(parts));
    if (const auto found = planned.find(kind); found != planned.end()) {
      c.kinds.back().job = found->second;
      planned.erase(found);
    }
  }
  for (const auto& [kind, time] : planned) {  // what the record has nothing of
    if (time > Seconds{}) {
      RecordedKind& missing = c.kinds.emplace_back();
      missing.kind = kind;
      missing.job = time;
    }
  }
  std::stable_sort(
      c.kinds.begin(), c.kinds.end(),
      [](const RecordedKind& a, const RecordedKind& b) { return a.measured > b.measured; });
  std::vector<double> walls;
  for (const traces::MeasuredStep& s : run.steps) {
    walls.push_back(static_cast<double>(s.wall) * 1e-12);
  }
  c.measured_step = seconds(median_of(walls));
  return c;
}

}  // namespace stepcast::studies
