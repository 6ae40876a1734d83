#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "core/graph/observer.h"
#include "core/graph/program.h"
#include "traces/events/edit.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// Writes the Chrome trace JSON of today's Kineto: times in microseconds with three digits,
/// relative to baseTimeNanoseconds; distributedInfo always; launch arrows (ac2g) from the
/// correlation ids. One rank gives a file, several a folder of rank-R.json. Every file appears
/// whole or not at all. read_kineto gets the same recording back, but for what is returned as lost.
/// Errors: InputError when the recording has no times (execution graphs).
Losses write_kineto(const std::filesystem::path& out, const Recording& recording);

/// Writes one Chrome trace JSON of all ranks for timeline viewers (ui.perfetto.dev,
/// chrome://tracing): a process per rank, a track per thread and stream. Slices of a track nest, as
/// viewers demand: what crosses another goes to a second track of the same name.
/// Errors: as write_kineto.
Losses write_timeline(const std::filesystem::path& file, const Recording& recording);

/// A slice that is no op: what a report says of a stretch of time, on a track of its own.
struct Annotation {
  std::int32_t rank = 0;
  std::string track;
  std::string name;
  SimTime begin{}, end{};
};

/// The same of a graph's ops, predicted or measured: one track per stream and one for the host. A
/// collective's wait is a slice of its own before the transfer, so that stragglers can be seen.
/// Annotations follow the streams, one track per name; those of a track must not overlap.
void write_timeline(const std::filesystem::path& file, const ExecutionGraph& graph,
                    std::span<const OpSpan> ops, std::span<const HostSpan> host = {},
                    const std::string& title = "stepcast",
                    std::span<const Annotation> annotations = {});

}  // namespace stepcast::traces
