#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "core/graph/observer.h"
#include "core/graph/program.h"

namespace stepcast::traces {

/// A slice that is no op: what a report says of a stretch of time, on a track of its own.
struct Annotation {
  std::int32_t rank = 0;
  std::string track;
  std::string name;
  SimTime begin{}, end{};
};

/// Writes a timeline, predicted or measured, as Chrome trace JSON, which Perfetto (ui.perfetto.dev)
/// opens: one process per rank, one track per stream and one for the host. Times in microseconds
/// with three decimals. A collective's wait is a slice of its own before the transfer, so that
/// stragglers can be seen. Annotations follow the streams, one track per name; those of a track
/// must not overlap. The file appears whole or not at all.
void write_perfetto(const std::filesystem::path& file, const ExecutionGraph& graph,
                    std::span<const OpSpan> ops, std::span<const HostSpan> host = {},
                    const std::string& title = "stepcast",
                    std::span<const Annotation> annotations = {});

}  // namespace stepcast::traces
