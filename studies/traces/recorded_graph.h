#pragma once
#include "core/job/job.h"
#include "traces/trace.h"

namespace stepcast::studies {

/// The whole graph a trace ran, rebuilt from its job: with the tensors, tables and exchanges that a
/// trace does not carry. Errors: InputError when the job's graph is not the one the trace ran.
ExecutionGraph rebuilt_graph(const traces::Trace& trace, const Job& job);

}  // namespace stepcast::studies
