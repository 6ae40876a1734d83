#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "core/graph/program.h"
#include "runtime/cuda/device_batch.h"
#include "runtime/cuda/streams.h"

namespace stepcast::runtime::cuda {

/// A step as one CUDA graph, which later steps replay as long as their batches have the same
/// layout.
///
///   if (captured.serves(batch.layout())) captured.launch(stream, [&] { issue_all(); });
class CapturedStep {
 public:
  CapturedStep() = default;
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  /// Whether a step with this batch may be captured or replayed: when the one before had a batch of
  /// the same layout. Then every buffer has its size, and nothing is allocated while the step is
  /// captured. A batch of another layout may move buffers: the graph is invalid then.
  [[nodiscard]] bool serves(const BatchLayout& batch);
  /// Replays the graph; the first time it is captured of what `issue` enqueues, all of which begins
  /// and ends on `stream`. Returns when the host launched it, in ns of the steady clock.
  std::int64_t launch(const Stream& stream, const std::function<void()>& issue);

 private:
  void capture(const Stream& stream, const std::function<void()>& issue);

  cudaGraphExec_t graph_ = nullptr;
  std::optional<BatchLayout> last_batch_;  ///< of the step before
};

/// A captured step runs without the host: nothing in it may depend on what the host learns while it
/// runs, and its addresses are fixed. Errors: InputError saying what of the program does not do.
void reject_capture(const Program& program, bool pipelined);

}  // namespace stepcast::runtime::cuda
