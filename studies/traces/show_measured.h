#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/kernel_kind.h"
#include "core/units.h"
#include "traces/chrome/chrome_writer.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// Step of one rank's main stream (the one that computes most), by part; means over steps. The
/// parts from `compute` to `drain` sum to `step`.
struct StreamUse {
  std::int32_t rank = 0;
  std::string stream;
  Seconds step;
  Seconds compute, communication;  ///< on the stream itself; waits of its collectives are for_rank
  // Idle, by cause:
  Seconds host;               ///< the next op was not launched yet: host-bound
  Seconds for_communication;  ///< launched, while another stream transfers: exposed communication
  Seconds for_rank;           ///< launched, while a collective waits for its last member
  Seconds for_stream;         ///< launched, while another stream computes
  Seconds gap;                ///< launched, and nothing runs
  Seconds drain;              ///< after its last op
  double queue_mean = 0;      ///< ops launched and not ended, at launches
  std::int64_t queue_most = 0;
};

struct MeasuredKernel {
  std::string name;
  OpKind kind = OpKind::kRecorded;
  KernelKind kernel = KernelKind::kOther;
  double launches = 0;       ///< per step, all ranks
  Seconds time;              ///< per step, sum over ranks; of collectives the transfer
  Seconds on_critical_path;  ///< of the replayed step
  Seconds slack;             ///< least, over its launches: how much later it could end
};

/// Why a recorded run of any program was idle, from its spans, step by step (StepTimes); critical
/// path and slack from all its steps, replayed back to back with their own times. With
/// studies/traces/recorded_step.h.
struct MeasuredShow {
  std::vector<StreamUse> ranks;
  std::vector<MeasuredKernel> kernels;                       ///< longest first
  Seconds path_host, path_compute, path_transfer, path_gap;  ///< per step, replayed
  double replay_error = 0;                                   ///< of that replay's step
  /// The largest part of that path; where two controls contradict it, the one of compute and host
  /// that shortens the recording more, or both where neither does so by itself. Empty where the
  /// replay is too far off to tell.
  std::string bound;
  double bound_share = 0;                  ///< of the critical path
  double half_compute = 0, half_host = 0;  ///< change of the whole recording with either halved
};

/// A critical path of a replay that is farther off says nothing.
constexpr double kTrustedReplay = 0.03;

/// Steps before `skip` are left out. Errors: InputError when no step remains.
MeasuredShow show_measured(const traces::MeasuredRun& run, std::int32_t skip = 0);

/// The last recorded step with what is said of it: its spans, why the main stream of each rank was
/// idle (the cause that takes most of a stretch), and which of its ops the critical path of the
/// replayed step goes through.
struct AnnotatedStep {
  std::shared_ptr<const ExecutionGraph> graph;
  std::vector<OpSpan> spans;
  std::vector<traces::Annotation> annotations;
};
AnnotatedStep annotated_step(const traces::MeasuredRun& run);

}  // namespace stepcast::studies
