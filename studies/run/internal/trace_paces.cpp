#include "studies/run/internal/trace_paces.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "studies/fit/error_statistics.h"
#include "studies/run/core_pace.h"
#include "studies/run/internal/quiet_steps.h"

namespace stepcast::studies::internal {
namespace {

/// How long each rank takes over the slowest, by the compute ops that it has in common with the
/// first rank: the median of the ratios, each weighted by its time. Hundreds of ops of a whole run
/// tell two cores apart better than a probe of some 20 us before and after it, whose sums of
/// vectors differed by 1.5 times between ranks whose ops took the same. Empty where ranks have next
/// to nothing in common.
std::vector<double> relative_paces(const ExecutionGraph& graph, const traces::GraphRun& trace) {
  using WorkKey = std::tuple<OpKind, Format, std::array<std::int64_t, 6>, std::string>;
  constexpr std::size_t kFewestShared = 5;
  std::vector<std::map<WorkKey, double>> times;
  for (const traces::RankTrace& rank : trace.ranks) {
    const Program& program = graph.program_of(rank.rank);
    std::map<WorkKey, double>& of_rank = times.emplace_back();
    for (const traces::OpSamples& s : traces::samples_of(trace, rank.rank, 0)) {
      const Op& op = program.ops[s.ref.op];
      if (!s.seconds.empty() && !is_collective(op.kind) &&
          class_of(op.kind) != OpClass::kEmbedding) {  // whose tables differ
        of_rank[{op.kind, op.format, op.shape, std::string(program.name(op))}] +=
            without(median_of(s.seconds), trace.clock_cost);
      }
    }
  }
  std::vector<double> paces;
  for (const std::map<WorkKey, double>& of_rank : times) {
    std::vector<std::pair<double, double>> ratios;  // and their weights
    double all = 0;
    for (const auto& [key, time] : of_rank) {
      const auto first = times.front().find(key);
      if (first != times.front().end() && first->second > 0 && time > 0) {
        ratios.emplace_back(time / first->second, first->second);
        all += first->second;
      }
    }
    if (ratios.size() < kFewestShared) {
      return {};
    }
    std::sort(ratios.begin(), ratios.end());
    double below = 0;
    const auto middle = std::find_if(ratios.begin(), ratios.end(), [&](const auto& r) {
      below += r.second;
      return 2 * below >= all;
    });
    paces.push_back(middle->first);
  }
  const double slowest = *std::max_element(paces.begin(), paces.end());
  for (double& p : paces) {
    p /= slowest;
  }
  return paces;
}

}  // namespace

Paces paces_of(FitRows& all, const ExecutionGraph& graph, const traces::GraphRun& trace) {
  Paces paces{std::vector<double>(trace.ranks.size(), 1.0)};
  if (trace.core_probes.empty()) {
    return paces;
  }
  if (all.paces.empty()) {
    all.reference = trace.core_probes.front();
  }
  paces.slowest = 0;
  for (std::size_t r = 0; r < trace.core_probes.size(); ++r) {
    paces.of_rank[r] = pace_of(trace.core_probes[r], all.reference);
    paces.slowest = std::max(paces.slowest, paces.of_rank[r]);
  }
  all.paces.push_back(paces.slowest);
  const std::vector<double> relative = relative_paces(graph, trace);
  for (std::size_t r = 0; r < relative.size(); ++r) {
    paces.of_rank[r] = paces.slowest * relative[r];
  }
  if (trace.collectives_hold_core && trace.core_probes.front()[2] > Seconds{}) {
    if (all.reference[2] <= Seconds{}) {
      all.reference[2] = trace.core_probes.front()[2];
    }
    std::vector<double> of_rank;
    for (const ProbeTimes& probe : trace.core_probes) {
      of_rank.push_back(exchange_pace_of(probe, all.reference));
    }
    paces.exchange = median_of(of_rank);
    all.exchange_paces.push_back(*paces.exchange);
  }
  return paces;
}

}  // namespace stepcast::studies::internal
