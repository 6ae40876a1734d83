#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/job.h"
#include "runtime/mpi/session.h"
#include "runtime/trainer.h"
#include "traces/trace.h"

namespace stepcast::studies {

/// A real run with its trace. The trace's ranks are complete on rank 0 only.
struct RecordedRun {
  runtime::RunResult result;
  traces::Trace trace;
};

/// Runs a job for real on this session's ranks and records every op; all ranks call it together. On
/// rank 0 the trace holds all ranks, on one clock, waits separated from transfers. Nothing is
/// written.
RecordedRun run_recorded(const Job& job, const ExecutionGraph& graph,
                         const runtime::RunOptions& options, runtime::MpiSession& session);

/// The same with every rank writing its part of a native trace into `folder`; rank 0 writes the
/// manifest last.
runtime::RunResult run_traced(const Job& job, const ExecutionGraph& graph,
                              const runtime::RunOptions& options, runtime::MpiSession& session,
                              const std::filesystem::path& folder, const std::string& job_text,
                              const std::string& producer);

}  // namespace stepcast::studies
