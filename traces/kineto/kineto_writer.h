#pragma once
#include <filesystem>

#include "traces/events/edit.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// Writes the Chrome trace JSON of today's Kineto: times in microseconds with three digits,
/// relative to baseTimeNanoseconds; distributedInfo always; launch arrows (ac2g) from the
/// correlation ids. One rank gives a file, several a folder of rank-R.json. Every file appears
/// whole or not at all. read_kineto gets the same recording back, but for what is returned as lost.
/// Errors: InputError when the recording has no times (execution graphs).
Losses write_kineto(const std::filesystem::path& out, const Recording& recording);

/// Writes one Chrome trace JSON of all ranks for timeline viewers (Perfetto, chrome://tracing): a
/// process per rank, a track per thread and stream. Slices of a track nest, as viewers demand: what
/// crosses another goes to a second track of the same name.
/// Errors: as write_kineto.
Losses write_timeline(const std::filesystem::path& file, const Recording& recording);

}  // namespace stepcast::traces
