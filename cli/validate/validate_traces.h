#pragma once
#include <cstdint>
#include <string>

#include "cli/command.h"

namespace stepcast::cli {

/// Replays the runs below a folder: counts, errors, controls, next steps. Returns the exit code.
int validate_traces(const std::string& data, OutputFormat format, const Context& context);
/// What-if answers checked by running: `count` jobs, drawn by `seed`, DLRMs and transformers in
/// turn, are recorded on a paced fabric, replayed with --network, --scale or --ranks in turn, then
/// really run so. The prediction is the recorded step times the replay's ratio.
int validate_what_if(std::uint64_t seed, std::int64_t count, OutputFormat format,
                     const Context& context);

}  // namespace stepcast::cli
