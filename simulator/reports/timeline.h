#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/graph/observer.h"
#include "core/graph/program.h"

namespace stepcast::simulator {

/// Keeps the spans of a run, of some ranks or of all. The other reports read it, and a trace writer
/// turns it into a file. Spans of a stream come in order, streams interleaved.
///
///   Timeline timeline;
///   simulate(graph, costs, {}, &timeline);
class Timeline : public Observer {
 public:
  Timeline() = default;
  /// Keeps only these ranks' spans: a long pipeline has millions.
  explicit Timeline(std::vector<std::int32_t> only) : only_(std::move(only)) {}
  explicit Timeline(std::int32_t only) : only_{only} {}
  /// The same, with room for all ops that these ranks execute in a step: a long one has millions,
  /// and no two copies of them are held.
  Timeline(const ExecutionGraph& graph, std::vector<std::int32_t> only)
      : Timeline(std::move(only)) {
    std::uint64_t ops = 0;
    for (const std::int32_t rank : only_) {
      ops += graph.program_of(rank).executed_ops();
    }
    ops_.reserve(ops);
  }

  void on_op(const OpSpan& span) override {
    if (keeps(span.rank)) {
      ops_.push_back(span);
    }
  }
  void on_host(const HostSpan& span) override {
    if (keeps(span.rank)) {
      hosts_.push_back(span);
    }
  }
  /// The spans of one rank out of these.
  [[nodiscard]] Timeline of(std::int32_t rank) const {
    Timeline own(rank);
    for (const OpSpan& span : ops_) {
      own.on_op(span);
    }
    for (const HostSpan& span : hosts_) {
      own.on_host(span);
    }
    return own;
  }
  [[nodiscard]] const std::vector<OpSpan>& ops() const { return ops_; }
  [[nodiscard]] const std::vector<HostSpan>& hosts() const { return hosts_; }

 private:
  [[nodiscard]] bool keeps(std::int32_t rank) const {
    return only_.empty() || std::find(only_.begin(), only_.end(), rank) != only_.end();
  }

  std::vector<std::int32_t> only_;  ///< empty: all
  std::vector<OpSpan> ops_;
  std::vector<HostSpan> hosts_;
};

}  // namespace stepcast::simulator
