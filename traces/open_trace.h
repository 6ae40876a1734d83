#pragma once
#include <filesystem>
#include <span>

#include "traces/events/recording.h"

namespace stepcast::traces {

/// Opens what others record: Kineto and other Chrome JSON (2021 on), PyTorch execution traces,
/// Chakra protobuf, our native folders; plain, gzip or zstd. The format is told by content, never
/// by name (traces/formats.h lists them).
///
/// `path` is a file (one rank), a folder whose files are the ranks of one run, a tar archive of
/// such files, or a native trace. In a folder all ranks must be there; to look at some of many
/// ranks give their files (below). Ranks are those of the metadata, else those in the file names,
/// else the order of names; each may come once.
///
/// Memory is bounded by what is kept: input is read in windows. Oddities that a reader can live
/// with are counted in the result; anything else is an InputError naming file and byte.
Recording open_trace(const std::filesystem::path& path);
/// The same for files of one run given one by one; missing ranks are counted, not rejected.
Recording open_traces(std::span<const std::filesystem::path> paths);

}  // namespace stepcast::traces
