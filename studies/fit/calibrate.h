#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "core/system.h"
#include "runtime/calibration/device_sweep.h"
#include "runtime/mpi/session.h"
#include "runtime/trainer.h"
#include "studies/fit_rows.h"
#include "studies/run/recorded_run.h"

namespace stepcast::studies {

struct CalibrateOptions {
  bool quick = false;                 ///< about half a minute of runs instead of about four
  std::uint64_t seed = 1;             ///< of the training jobs it measures
  const System* emulate = nullptr;    ///< paces collectives; the fit sees only the times
  std::string date;                   ///< written into the source of every model
  runtime::ExecutorFactory executor;  ///< of the backend the jobs run on; empty: CPU
  /// Starts what times ops on devices, for one job; empty: events around each op.
  std::function<OpClock()> op_clock;
  double seconds = 0;            ///< of all measurements; 0: 220, 40 if quick
  bool fused_attention = true;   ///< of jobs that draw it
  std::filesystem::path traces;  ///< folder that keeps the trace of every job; empty: none is kept
  std::function<void(double done, const std::string& what)>
      progress;  ///< on rank 0; done in [0, 1]
};

struct CalibrationResult {
  System system;         ///< device inline, everything fitted, with residuals
  std::string rows_csv;  ///< everything measured, for `stepcast fit` (calibration_rows.h)
  std::int64_t configurations = 0;
  std::uint64_t dropped = 0;  ///< records that did not fit the recorders' buffers
};

/// This machine as a system of the session's ranks: memory, caches, cores.
/// Rates come from measurements.
System local_machine(const runtime::MpiSession& session);

/// Measures this machine by really training small random jobs (studies/run/runtime_cases.h) on the
/// session's ranks, and fits every model to the ops of their steps: kernels from op durations,
/// collectives from transfer times, the host from the gaps between ops. Ops are measured where they
/// occur, with the caches as their step leaves them, instead of in loops of their own. All ranks
/// call it together; the result is rank 0's.
CalibrationResult calibrate_cpu(const CalibrateOptions& options, runtime::MpiSession& session);

/// The same on CUDA devices, after a sweep of rank 0's device that covers sizes the jobs do not
/// reach. `sweep` is read on rank 0 only; the jobs get what it left of `options.seconds`, at least
/// a handful run.
CalibrationResult calibrate_cuda(const runtime::calibration::DeviceSweep& sweep,
                                 CalibrateOptions options, runtime::MpiSession& session);

/// The rows of a sweep alone, as CSV: what can be kept before training jobs are tried.
std::string sweep_csv(const runtime::calibration::DeviceSweep& sweep);

}  // namespace stepcast::studies
