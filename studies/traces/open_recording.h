#pragma once
#include <filesystem>
#include <span>

#include "core/config/config.h"
#include "traces/events/recording.h"

namespace stepcast::studies {

/// Opens a trace of any format (traces/open_trace.h), or the files of one run. The graph of a run
/// of ours that was kept in format 1 holds ops alone: it is built again from the job that the trace
/// carries, here and nowhere else. Where it carries none, or one whose ops are others today, the
/// graph stays as it was kept, and `GraphRun::lacks` says why.
traces::Recording open_recording(const std::filesystem::path& path,
                                 const config::Library& library = {});

/// A run's graph must have the ops of a job's. Errors: InputError naming what differs.
void require_same_ops(const ExecutionGraph& ran, const ExecutionGraph& of_job);

}  // namespace stepcast::studies
