#include "simulator/reports/critical_path.h"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <iterator>

#include "core/error.h"
#include "simulator/reports/executed_graph.h"

namespace stepcast::simulator {
namespace {

struct Weight {
  std::int64_t ticks = 0;
};
using Sparse = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, Weight,
                                                  boost::no_property, std::uint32_t, std::uint64_t>;

Sparse sparse(const ExecutedGraph& graph) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ends;
  std::vector<Weight> weights;
  ends.reserve(graph.edges.size());
  weights.reserve(graph.edges.size());
  for (const auto& e : graph.edges) {
    ends.emplace_back(e.from, e.to);
    weights.push_back({e.weight});
  }
  return {boost::edges_are_unsorted_multi_pass, ends.begin(), ends.end(), weights.begin(),
          graph.nodes()};
}

/// Longest distances from the source, and the edge's start that decided each.
struct Longest {
  std::vector<std::int64_t> distance;
  std::vector<std::uint32_t> previous;
};

template <typename Visit>
void for_each_out_edge(const Sparse& graph, std::uint32_t node, Visit visit) {
  for (auto [e, last] = boost::out_edges(node, graph); e != last; ++e) {
    visit(boost::target(*e, graph), graph[*e].ticks);
  }
}

Longest longest_paths(const Sparse& graph, const std::vector<std::uint32_t>& reverse_order) {
  Longest best{std::vector<std::int64_t>(reverse_order.size(), 0),
               std::vector<std::uint32_t>(reverse_order.size(), ExecutedGraph::kSource)};
  for (auto n = reverse_order.rbegin(); n != reverse_order.rend(); ++n) {
    for_each_out_edge(graph, *n, [&](std::uint32_t to, std::int64_t weight) {
      const std::int64_t through = best.distance[*n] + weight;
      if (through > best.distance[to] ||
          (through == best.distance[to] && best.previous[to] == ExecutedGraph::kSource)) {
        best.distance[to] = through;
        best.previous[to] = *n;
      }
    });
  }
  return best;
}

/// Latest time of each node that does not delay the sink.
std::vector<std::int64_t> latest_times(const Sparse& graph,
                                       const std::vector<std::uint32_t>& reverse_order,
                                       std::int64_t length) {
  std::vector<std::int64_t> latest(reverse_order.size(), length);
  for (const std::uint32_t n : reverse_order) {
    for_each_out_edge(graph, n, [&](std::uint32_t to, std::int64_t weight) {
      latest[n] = std::min(latest[n], latest[to] - weight);
    });
  }
  return latest;
}

const Program& program_of(const ExecutionGraph& graph, const StepCosts& costs, std::int32_t rank) {
  const auto instance = costs.folding.instance_of.at(static_cast<std::size_t>(rank));
  return graph.programs[static_cast<std::size_t>(
      costs.folding.instances[static_cast<std::size_t>(instance)].program)];
}

}  // namespace

CriticalPath critical_path(const ExecutionGraph& graph, const StepCosts& costs,
                           const Timeline& timeline) {
  const ExecutedGraph executed = executed_graph(graph, costs, timeline);
  STEPCAST_CHECK(executed.unexplained == 0, "{} executed ops begin later than anything explains",
                 executed.unexplained);
  const Sparse edges = sparse(executed);
  std::vector<std::uint32_t> reverse_order;
  reverse_order.reserve(executed.nodes());
  boost::topological_sort(edges, std::back_inserter(reverse_order));
  const Longest longest = longest_paths(edges, reverse_order);

  CriticalPath path;
  path.length = SimTime{longest.distance[ExecutedGraph::kSink]};
  for (std::uint32_t n = longest.previous[ExecutedGraph::kSink]; n != ExecutedGraph::kSource;
       n = longest.previous[n]) {
    const std::uint32_t from = longest.previous[n];
    const OpSpan& span = timeline.ops()[executed.span_of[ExecutedGraph::op_of(n)]];
    CriticalPath::Piece piece{.part = CriticalPath::Part::kGap,
                              .rank = span.rank,
                              .ref = span.ref,
                              .begin = SimTime{longest.distance[from]},
                              .end = SimTime{longest.distance[n]}};
    if (piece.end == piece.begin) {
      continue;
    }
    SimTime* sum = &path.gap;
    if (ExecutedGraph::stage_of(n) == ExecutedGraph::Stage::kIssued) {
      piece.part = CriticalPath::Part::kHost;
      sum = &path.host;
    } else if (ExecutedGraph::stage_of(n) == ExecutedGraph::Stage::kEnded) {
      const Op& op = program_of(graph, costs, span.rank).ops[span.ref.op];
      const bool collective = is_collective(op.kind);
      piece.part = collective ? CriticalPath::Part::kTransfer : CriticalPath::Part::kCompute;
      sum = collective ? &path.transfer : &path.compute;
    }
    *sum = SimTime{ticks(*sum) + ticks(piece.end) - ticks(piece.begin)};
    path.pieces.push_back(piece);
  }
  std::reverse(path.pieces.begin(), path.pieces.end());

  const auto latest = latest_times(edges, reverse_order, ticks(path.length));
  path.slack.assign(timeline.ops().size(), SimTime{0});
  for (std::uint64_t op = 0; op < executed.span_of.size(); ++op) {
    const std::uint32_t n = ExecutedGraph::node(op, ExecutedGraph::Stage::kEnded);
    path.slack[executed.span_of[op]] = SimTime{latest[n] - longest.distance[n]};
  }
  return path;
}

}  // namespace stepcast::simulator
