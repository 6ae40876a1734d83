#pragma once
#include <vector>

#include "traces/events/recording.h"

namespace stepcast::traces {

/// Which part of the step launched device work, by the innermost host range around the launch that
/// says so: an optimizer's step (torch.optim's "Optimizer.step#", or an annotation), a node of
/// autograd (an operator with a forward thread, "autograd::engine::evaluate_function: ...",
/// "torch::autograd::..."), an annotation whose words say forward, backward, optimizer or data
/// loading. Forward operators that run again inside a checkpoint's backward are recomputation.
/// Threads on which most outermost operators are autograd's work for the backward pass also where
/// no range says so. Where nothing tells: forward.
class Phases {
 public:
  Phases(const Names& names, const RankRecording& rank);
  /// For device work, by its launch; work without one is forward.
  [[nodiscard]] Phase of(EventId device_work) const;
  /// For an event of the host.
  [[nodiscard]] Phase of_host(EventId event) const { return of_host_[event]; }

 private:
  const RankRecording& rank_;
  std::vector<Phase> of_host_;  ///< by event
};

}  // namespace stepcast::traces
