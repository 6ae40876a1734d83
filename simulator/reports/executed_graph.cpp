#include "simulator/reports/executed_graph.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "core/error.h"
#include "core/graph/execution_order.h"

namespace stepcast::simulator {
namespace {

using Stage = ExecutedGraph::Stage;

class Builder {
 public:
  Builder(const ExecutionGraph& graph, const StepCosts& costs, const Timeline& timeline)
      : costs_(costs), spans_(timeline.ops()) {
    for (const Program& program : graph.programs) {
      orders_.emplace_back(program, graph.communicators.size());
    }
    for (const Instance& instance : costs.folding.instances) {
      base_.push_back(total_);
      total_ += order(base_.size() - 1).ops();
      instance_of_[instance.rank] = base_.size() - 1;
    }
  }

  ExecutedGraph build() {
    place_spans();
    for (std::size_t i = 0; i < base_.size(); ++i) {
      index_core(i);
      connect_rank(i);
    }
    connect_meetings();
    connect_messages();
    return std::move(out_);
  }

 private:
  const ExecutionOrder& order(std::size_t instance) const {
    return orders_[static_cast<std::size_t>(costs_.folding.instances[instance].program)];
  }
  const OpSpan& span(std::uint64_t op) const { return spans_[out_.span_of[op]]; }

  void place_spans() {
    STEPCAST_CHECK(spans_.size() == total_, "a timeline of {} spans for {} executed ops",
                   spans_.size(), total_);
    out_.span_of.assign(total_, 0);
    out_.time.assign(2 + 3 * total_, 0);
    std::int64_t end = 0;
    for (std::size_t s = 0; s < spans_.size(); ++s) {
      const OpSpan& span = spans_[s];
      const std::size_t i = instance_of_.at(span.rank);
      STEPCAST_CHECK(span.ref.call < order(i).program().calls.size(), "a span of call {} of {}",
                     span.ref.call, order(i).program().calls.size());
      const std::uint64_t op = base_[i] + order(i).number(span.ref.call, span.ref.op);
      out_.span_of[op] = static_cast<std::uint32_t>(s);
      out_.time[ExecutedGraph::node(op, Stage::kIssued)] = ticks(span.issued);
      out_.time[ExecutedGraph::node(op, Stage::kBegun)] = ticks(span.begin);
      out_.time[ExecutedGraph::node(op, Stage::kEnded)] = ticks(span.end);
      end = std::max({end, ticks(span.end), ticks(span.issued)});
    }
    out_.time[ExecutedGraph::kSink] = end;
  }

  void edge(std::uint32_t from, std::uint32_t to, std::int64_t weight) {
    out_.edges.push_back({from, to, weight});
    reached_ = std::max(reached_, out_.time[from] + weight);
  }

  /// On a shared core: who left it when. Only work that took time can be waited for.
  void index_core(std::size_t i) {
    left_core_.clear();
    if (!costs_.shares_core) {
      return;
    }
    for (std::uint64_t op = base_[i]; op < base_[i] + order(i).ops(); ++op) {
      const OpSpan& s = span(op);
      const bool collective = is_collective(order(i).program().ops[s.ref.op].kind);
      const bool took = s.end > s.begin || (!collective && costs_.dispatch > 0);
      if (took && (!collective || costs_.collectives_hold_core)) {
        left_core_.emplace(ticks(s.end), ExecutedGraph::node(op, Stage::kEnded));
      }
      if (issue_of(i, s.ref.op) > 0) {
        left_core_.emplace(ticks(s.issued), ExecutedGraph::node(op, Stage::kIssued));
      }
    }
  }

  [[nodiscard]] std::int64_t issue_of(std::size_t i, std::uint32_t t) const {
    return costs_.ops[i].issue.empty() ? costs_.issue : costs_.ops[i].issue[t];
  }
  [[nodiscard]] std::int64_t latency_of(std::size_t i, std::uint32_t t) const {
    return costs_.ops[i].latency.empty() ? 0 : costs_.ops[i].latency[t];
  }

  [[nodiscard]] std::int64_t dispatch_of(std::size_t i, std::uint32_t t) const {
    return costs_.dispatch + (costs_.ops[i].delay.empty() ? 0 : costs_.ops[i].delay[t]);
  }

  /// Explains a node that is later than the edges so far: the core was taken until then.
  void explain(std::uint32_t node, std::int64_t delay) {
    if (reached_ < out_.time[node]) {
      const auto it = left_core_.find(out_.time[node] - delay);
      if (it != left_core_.end()) {
        edge(it->second, node, delay);
      }
    }
    if (reached_ < out_.time[node]) {
      ++out_.unexplained;
      edge(ExecutedGraph::kSource, node, out_.time[node]);
    }
  }

  void connect_rank(std::size_t i) {
    const ExecutionOrder& o = order(i);
    const Program& program = o.program();
    const auto depth = static_cast<std::uint64_t>(costs_.queue_depth);
    std::vector<std::vector<std::uint64_t>> on_stream(o.streams());
    std::vector<std::uint64_t> recorder;  // executed op by record
    std::uint64_t op = base_[i];
    for (std::uint32_t c = 0; c < program.calls.size(); ++c) {
      const Segment& segment = program.segments[program.calls[c].segment];
      for (std::uint32_t t = segment.first_op; t < segment.first_op + segment.op_count; ++t, ++op) {
        const std::uint32_t issued = ExecutedGraph::node(op, Stage::kIssued);
        const std::uint32_t begun = ExecutedGraph::node(op, Stage::kBegun);
        const std::uint32_t ended = ExecutedGraph::node(op, Stage::kEnded);
        auto& before = on_stream[o.stream(t)];
        std::vector<std::uint32_t> awaited;  // ends of the ops whose records it waits for
        for (const ExecutionOrder::Wait wait : o.waits(t)) {
          const std::int32_t record = o.awaited(c, wait);
          if (record >= 0) {
            awaited.push_back(
                ExecutedGraph::node(recorder.at(static_cast<std::size_t>(record)), Stage::kEnded));
          }
        }
        const std::int64_t issue = issue_of(i, t);
        reached_ = 0;
        edge(op == base_[i] ? ExecutedGraph::kSource : ExecutedGraph::node(op - 1, Stage::kIssued),
             issued, issue + (op == base_[i] ? costs_.step : 0));
        if (before.size() >= depth) {
          edge(ExecutedGraph::node(before[before.size() - depth], Stage::kEnded), issued, issue);
        }
        if ((program.ops[t].flags & op_flags::kHostWaits) != 0) {
          for (const std::uint32_t end : awaited) {
            edge(end, issued, issue);
          }
        }
        explain(issued, issue);
        reached_ = 0;
        const std::int64_t dispatch = dispatch_of(i, t);
        edge(issued, begun, latency_of(i, t) + dispatch);
        if (!before.empty()) {
          edge(ExecutedGraph::node(before.back(), Stage::kEnded), begun, dispatch);
        }
        for (const std::uint32_t end : awaited) {
          edge(end, begun, dispatch);
        }
        explain(begun, dispatch);
        if (o.role(t) == OpRole::kCompute || o.role(t) == OpRole::kSend) {
          edge(begun, ended, out_.time[ended] - out_.time[begun]);
        } else {
          register_collective(i, c, t, op);
        }
        if (o.record(c, t) >= 0) {
          recorder.push_back(op);
        }
        if (o.role(t) == OpRole::kSend) {
          register_collective(i, c, t, op);
        }
        before.push_back(op);
      }
    }
    for (const auto& row : on_stream) {
      if (!row.empty()) {
        edge(ExecutedGraph::node(row.back(), Stage::kEnded), ExecutedGraph::kSink, 0);
      }
    }
    if (o.ops() > 0) {
      edge(ExecutedGraph::node(op - 1, Stage::kIssued), ExecutedGraph::kSink, 0);
    }
  }

  struct Attendance {
    std::size_t instance = 0;
    std::uint64_t op = 0;
  };

  void register_collective(std::size_t i, std::uint32_t c, std::uint32_t t, std::uint64_t op) {
    const ExecutionOrder& o = order(i);
    const Op& source = o.program().ops[t];
    const std::int32_t g = costs_.folding.group(static_cast<std::int32_t>(i), source.communicator);
    if (o.role(t) == OpRole::kSend || o.role(t) == OpRole::kReceive) {
      const std::int32_t own = static_cast<std::int32_t>(i);
      const std::int32_t peer = costs_.folding.groups[static_cast<std::size_t>(g)]
                                    .members[static_cast<std::size_t>(source.peer)];
      const bool sends = o.role(t) == OpRole::kSend;
      auto& both = messages_[{source.communicator, sends ? own : peer, sends ? peer : own,
                              source.shape[1], o.program().calls[c].microbatch}];
      (sends ? both.first : both.second).push_back(op);
      return;
    }
    const std::uint32_t sequence = o.sequence(c, t);
    meetings_[{g, sequence}].push_back({i, op});
  }

  /// True if `a` waits for `b` in a meeting.
  bool needs(const Attendance& a, const Attendance& b) const {
    const ExecutionOrder& o = order(a.instance);
    const std::uint32_t t = span(a.op).ref.op;
    const Op& source = o.program().ops[t];
    if (a.op == b.op || o.role(t) == OpRole::kSymmetric) {
      return true;
    }
    if (o.role(t) == OpRole::kBroadcast) {
      const std::int32_t g =
          costs_.folding.group(static_cast<std::int32_t>(a.instance), source.communicator);
      const auto& members = costs_.folding.groups[static_cast<std::size_t>(g)].members;
      const auto root = static_cast<std::size_t>(members[static_cast<std::size_t>(source.peer)]);
      return b.instance == root && a.instance != root;
    }
    const std::int32_t need = costs_.ops[a.instance].needs[t];
    if (need < 0) {
      return true;
    }
    const auto& list = costs_.needs[static_cast<std::size_t>(need)];
    return std::find(list.begin(), list.end(), static_cast<std::int32_t>(b.instance)) != list.end();
  }

  /// From every needed arrival to the end. The last arrival carries the whole way to the end (with
  /// the wait for the slowest of folded ranks); the others at least the transfer.
  void connect_meetings() {
    for (const auto& [key, attendance] : meetings_) {
      for (const Attendance& a : attendance) {
        const std::uint32_t ended = ExecutedGraph::node(a.op, Stage::kEnded);
        const OpSpan& own = span(a.op);
        const Attendance* last = &a;
        for (const Attendance& b : attendance) {
          if (needs(a, b) && span(b.op).begin > span(last->op).begin) {
            last = &b;
          }
        }
        for (const Attendance& b : attendance) {
          if (needs(a, b)) {
            const std::int64_t from = &b == last ? ticks(span(b.op).begin) : ticks(own.ready);
            edge(ExecutedGraph::node(b.op, Stage::kBegun), ended, ticks(own.end) - from);
          }
        }
      }
    }
  }

  void connect_messages() {
    for (const auto& [key, both] : messages_) {
      for (std::size_t k = 0; k < both.second.size(); ++k) {
        const std::uint64_t receive = both.second[k];
        const OpSpan& own = span(receive);
        const std::uint32_t ended = ExecutedGraph::node(receive, Stage::kEnded);
        const std::int64_t transfer = ticks(own.end) - ticks(own.ready);
        edge(ExecutedGraph::node(receive, Stage::kBegun), ended, transfer);
        STEPCAST_CHECK(k < both.first.size(), "a receive of rank {} without its send", own.rank);
        edge(ExecutedGraph::node(both.first[k], Stage::kEnded), ended, transfer);
      }
    }
  }

  const StepCosts& costs_;
  const std::vector<OpSpan>& spans_;
  std::vector<ExecutionOrder> orders_;
  std::vector<std::uint64_t> base_;  // first executed op by instance
  std::uint64_t total_ = 0;
  std::map<std::int32_t, std::size_t> instance_of_;
  std::unordered_map<std::int64_t, std::uint32_t> left_core_;
  std::map<std::pair<std::int32_t, std::uint32_t>, std::vector<Attendance>> meetings_;
  /// (communicator, sender, receiver, tag, microbatch) -> sends, receives in issue order.
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int64_t, std::int32_t>,
           std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>>>
      messages_;
  ExecutedGraph out_;
  std::int64_t reached_ = 0;
};

}  // namespace

ExecutedGraph executed_graph(const ExecutionGraph& graph, const StepCosts& costs,
                             const Timeline& timeline) {
  return Builder(graph, costs, timeline).build();
}

}  // namespace stepcast::simulator
