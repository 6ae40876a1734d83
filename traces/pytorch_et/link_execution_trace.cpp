#include "traces/pytorch_et/link_execution_trace.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/error.h"

namespace stepcast::traces {
namespace {

/// Operators and ranges of a host thread by name, each in order.
using ByName = std::map<NameId, std::vector<EventId>>;

bool is_host_operator(EventCategory category) {
  return category == EventCategory::kCpuOp || category == EventCategory::kUserRange;
}

std::vector<ByName> threads_of(const RankRecording& rank) {
  std::vector<ByName> threads;
  for (const Lane& lane : rank.lanes) {
    ByName& thread = threads.emplace_back();
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      if (is_host_operator(rank.events.category[i])) {
        thread[rank.events.name[i]].push_back(i);
      }
    }
  }
  return threads;
}

/// Pairs of equal names, each as often on both threads.
std::size_t names_shared(const ByName& a, const ByName& b) {
  std::size_t n = 0;
  for (const auto& [name, events] : a) {
    const auto found = b.find(name);
    n += found != b.end() && found->second.size() == events.size() ? events.size() : 0;
  }
  return n;
}

/// By node of the graph: its operator in the timeline, kNoEvent where none is found.
using Operators = std::vector<EventId>;

Operators by_record_function(const RankRecording& timeline, const RankRecording& graph) {
  const auto id_of = [](const RankRecording& rank, EventId i) {
    const bool told =
        is_host_operator(rank.events.category[i]) && rank.events.detail[i] != kNoDetail;
    return told ? rank.ops[static_cast<std::size_t>(rank.events.detail[i])].record_function : -1;
  };
  std::map<std::int64_t, EventId> timed;
  for (EventId i = 0; i < timeline.events.size(); ++i) {
    timed.try_emplace(id_of(timeline, i), i);
  }
  timed.erase(-1);
  Operators found(graph.events.size(), kNoEvent);
  for (EventId i = 0; i < graph.events.size(); ++i) {
    const auto at = timed.find(id_of(graph, i));
    const bool same = at != timed.end() && timeline.events.name[at->second] == graph.events.name[i];
    found[i] = same ? at->second : kNoEvent;
  }
  return found;
}

Operators by_order(const RankRecording& timeline, const RankRecording& graph) {
  const std::vector<ByName> timed = threads_of(timeline);
  Operators found(graph.events.size(), kNoEvent);
  for (const ByName& nodes : threads_of(graph)) {
    const auto same =
        std::max_element(timed.begin(), timed.end(), [&nodes](const ByName& a, const ByName& b) {
          return names_shared(nodes, a) < names_shared(nodes, b);
        });
    for (const auto& [name, events] : nodes) {
      const auto at = same == timed.end() ? ByName::const_iterator{} : same->find(name);
      if (same != timed.end() && at != same->end() && at->second.size() == events.size()) {
        for (std::size_t k = 0; k < events.size(); ++k) {
          found[events[k]] = at->second[k];
        }
      }
    }
  }
  return found;
}

std::size_t count_linked(const Operators& operators) {
  return operators.size() -
         static_cast<std::size_t>(std::count(operators.begin(), operators.end(), kNoEvent));
}

}  // namespace

void link_execution_trace(RankRecording& timeline, const RankRecording& graph) {
  Operators operators = by_record_function(timeline, graph);
  if (count_linked(operators) == 0) {
    operators = by_order(timeline, graph);
  }
  constexpr double kLeast = 0.9;
  const auto nodes = static_cast<double>(operators.size());
  if (static_cast<double>(count_linked(operators)) < kLeast * nodes) {
    throw InputError(graph.source,
                     fmt::format("{} of its {} nodes are operators of {}; expected the execution "
                                 "trace of the step that was profiled: record both of one step",
                                 count_linked(operators), operators.size(), timeline.source));
  }
  std::vector<std::vector<EventId>> edges(timeline.events.size());
  for (EventId i = 0; i < graph.events.size(); ++i) {
    for (std::uint32_t d = graph.dependencies.offsets.empty() ? 0 : graph.dependencies.offsets[i];
         !graph.dependencies.offsets.empty() && d < graph.dependencies.offsets[i + 1]; ++d) {
      const EventId on = operators[graph.dependencies.targets[d]];
      if (graph.dependencies.kinds[d] == Dependencies::Kind::kData && operators[i] != kNoEvent &&
          on != kNoEvent && on != operators[i]) {
        edges[operators[i]].push_back(on);
      }
    }
  }
  Dependencies& to = timeline.dependencies;
  to.added = true;
  to.offsets.assign(1, 0);
  for (const std::vector<EventId>& list : edges) {
    to.targets.insert(to.targets.end(), list.begin(), list.end());
    to.kinds.insert(to.kinds.end(), list.size(), Dependencies::Kind::kData);
    to.offsets.push_back(static_cast<std::uint32_t>(to.targets.size()));
  }
}

}  // namespace stepcast::traces
