#include "studies/predict/simulated_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace stepcast::studies {

namespace {

simulator::StepCosts priced(const ExecutionGraph& graph, const models::CostModel& model) {
  return simulator::price(
      graph, model,
      {.unfold = false, .collectives_hold_core = model.system().host.collectives_hold_core});
}

}  // namespace

SimulatedStep simulate_step(const ExecutionGraph& graph, const models::CostModel& model,
                            Observer* observer) {
  SimulatedStep step{priced(graph, model), {}};
  simulator::SimulationOptions options;
  options.steady = observer == nullptr;
  step.result = simulator::simulate(graph, step.costs, options, observer);
  return step;
}

SimulatedStep simulate_account(const ExecutionGraph& graph, const models::CostModel& model,
                               bool host_cost) {
  SimulatedStep step{priced(graph, model), {}};
  if (!host_cost) {
    step.costs.issue = step.costs.dispatch = step.costs.step = 0;
    for (simulator::OpCosts& row : step.costs.ops) {
      row.issue.clear();
    }
  }
  simulator::SimulationOptions options;
  options.steady = true;
  options.otherwise = [&](const simulator::SimulationResult& few) {
    step.followed = accounted(few);
    step.spans = simulator::Timeline(graph, step.followed);
    return &step.spans;
  };
  step.result = simulator::simulate(graph, step.costs, options);
  return step;
}

std::vector<std::int32_t> accounted(const simulator::SimulationResult& result) {
  const simulator::RankSummary& critical = result.ranks.at(result.critical);
  const auto busy = [](const simulator::RankSummary& r) { return ticks(r.end) - ticks(r.wait); };
  const auto computing = [](const simulator::RankSummary& r) { return ticks(r.compute); };
  std::vector<std::int32_t> all{critical.rank};
  for (const auto& of :
       {std::function<std::int64_t(const simulator::RankSummary&)>(busy),
        std::function<std::int64_t(const simulator::RankSummary&)>(computing)}) {
    const auto most =
        std::max_element(result.ranks.begin(), result.ranks.end(),
                         [&of](const auto& a, const auto& b) { return of(a) < of(b); });
    if (of(*most) > of(critical) * 11 / 10 && all.back() != most->rank) {
      all.push_back(most->rank);
    }
  }
  return all;
}

std::vector<TemplateTime> template_times(const simulator::Timeline& timeline,
                                         const Program& program, std::int32_t rank,
                                         const simulator::Repetition& repetition) {
  struct Ticks {
    std::int64_t executions = 0, time = 0, wait = 0;
  };
  std::vector<Ticks> sums(program.ops.size());
  for (const OpSpan& span : timeline.ops()) {
    if (span.rank == rank) {
      Ticks& s = sums[span.ref.op];
      const std::int64_t count = repetition.count(span.begin);
      s.executions += count;
      s.time += count * (ticks(span.end) - ticks(span.ready));
      s.wait += count * (ticks(span.ready) - ticks(span.begin));
    }
  }
  std::vector<TemplateTime> times;
  for (const Ticks& s : sums) {
    times.push_back({s.executions, to_seconds(SimTime{s.time}), to_seconds(SimTime{s.wait})});
  }
  return times;
}

std::string row_name(const Program& program, const Op& op, bool by_name) {
  return by_name ? fmt::format("{} [{}]", program.name(op), name_of(op.phase))
                 : std::string(name_of(op.kind));
}

}  // namespace stepcast::studies
