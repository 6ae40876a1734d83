#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "profiler/cupti/module.h"
#include "runtime/mpi/session.h"
#include "runtime/trainer.h"
#include "traces/trace.h"

namespace stepcast::studies {

/// A real run with its trace. The trace's ranks are complete on rank 0 only.
struct RecordedRun {
  runtime::RunResult result;
  traces::GraphRun trace;
  /// For every rank, steps and the host's part of a second run, whose ops nothing recorded; empty:
  /// the trace's own.
  std::vector<traces::RankTrace> alone;
};

/// Clock of the ops of a run on a device.
struct OpClock {
  /// Started, before the first CUDA call of this process; null: events around each op.
  profiler::CuptiModule* cupti = nullptr;
  std::string reason;  ///< why it is not CUPTI; goes into the trace
};

/// Runs a job for real on this session's ranks and records every op; all ranks call it together. On
/// rank 0 the trace holds all ranks, on one clock, waits separated from transfers. Nothing is
/// written. With CUPTI the ops are those of a run that it recorded, steps and the host's part those
/// of a second run, of which nothing is recorded but them: neither is in the other's way.
RecordedRun run_recorded(const Job& job, const ExecutionGraph& graph,
                         const runtime::RunOptions& options, runtime::MpiSession& session,
                         const OpClock& clock = {});

/// Writes what `run_recorded` recorded as a native trace; rank 0 calls it.
void write_recorded(const std::filesystem::path& folder, const Job& job, traces::GraphRun trace);

/// Starts CUPTI's recording of this process through the module at `file` (libstepcast_cupti.so), or
/// says why that cannot be. Never throws for what the machine lacks: that is its answer.
OpClock start_cupti(const std::filesystem::path& file);

/// Ranks that cannot all have CUPTI have none: one trace, one clock. All ranks call it together.
OpClock same_on_all_ranks(OpClock own, runtime::MpiSession& session);

struct TraceOptions {
  std::filesystem::path folder;
  std::string job, producer;  ///< as the trace says them
  OpClock clock = {};
};

/// The same with every rank writing its part of a native trace into the folder; rank 0 writes the
/// manifest last. Errors: RunError, with nothing written, when CUPTI was to measure and recorded no
/// op.
runtime::RunResult run_traced(const Job& job, const ExecutionGraph& graph,
                              const runtime::RunOptions& options, runtime::MpiSession& session,
                              const TraceOptions& trace);

}  // namespace stepcast::studies
