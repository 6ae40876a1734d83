#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/graph/observer.h"
#include "traces/trace.h"

namespace stepcast::profiler {

/// Records what the runtime of one rank reports, for a native trace. Buffers are laid out before
/// the run, one per stream and one for the host thread, so that recording an op is one 64-byte
/// store: no lock, no allocation. What does not fit is counted, never lost in silence.
///
///   HostRecorder recorder(rank, program, steps);
///   run_training(..., &recorder);
///   traces::write_rank(folder, recorder.finish());
class HostRecorder final : public Observer {
 public:
  HostRecorder(std::int32_t rank, const Program& program, std::int32_t steps);

  void on_step_begin(std::int32_t rank, std::int32_t step, SimTime at) override;
  void on_op(const OpSpan& span) override;
  void on_host(const HostSpan& span) override;
  void on_step_end(std::int32_t rank, std::int32_t step, SimTime at) override;

  /// Hands over what was recorded; the run must be over.
  [[nodiscard]] traces::RankTrace finish();

 private:
  const Program& program_;
  traces::RankTrace trace_;
  std::vector<std::vector<OpSpan>> per_stream_;
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace stepcast::profiler
