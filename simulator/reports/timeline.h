#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/observer.h"

namespace stepcast::simulator {

/// Keeps the spans of a run, of one rank or of all. The other reports read it, and a trace writer
/// turns it into a file. Spans of a stream come in order, streams interleaved.
///
///   Timeline timeline;
///   simulate(graph, costs, {}, &timeline);
class Timeline : public Observer {
 public:
  Timeline() = default;
  /// Keeps only this rank's spans: a long pipeline has millions.
  explicit Timeline(std::int32_t only) : only_(only) {}

  void on_op(const OpSpan& span) override {
    if (!only_ || *only_ == span.rank) {
      ops_.push_back(span);
    }
  }
  void on_host(const HostSpan& span) override {
    if (!only_ || *only_ == span.rank) {
      hosts_.push_back(span);
    }
  }
  [[nodiscard]] const std::vector<OpSpan>& ops() const { return ops_; }
  [[nodiscard]] const std::vector<HostSpan>& hosts() const { return hosts_; }

 private:
  std::optional<std::int32_t> only_;
  std::vector<OpSpan> ops_;
  std::vector<HostSpan> hosts_;
};

}  // namespace stepcast::simulator
