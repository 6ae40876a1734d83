// A machine whose every cost is known, and traces of jobs on it: what a fit must find again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/temporary_folder.h"
#include "studies/fit/fit_traces.h"
#include "traces/native/native_trace.h"

namespace stepcast::studies::test {

/// A core of 50 GFLOP/s on a machine of two, with constants for every model a trace can tell.
System known_machine();

/// A GELU transformer of a 512-token vocabulary on two ranks of the known machine, split by tensor
/// or by data.
Job transformer(std::int64_t hidden, std::int64_t sequence, std::int64_t layers, bool tensor);

/// Trace that the CPU runtime would have recorded of `steps` steps had they taken exactly as long
/// as the known machine says. Rank 1's clock runs 3 ms ahead.
traces::GraphRun simulated_trace(const Job& job, std::int32_t steps);

void write(const std::filesystem::path& folder, const traces::GraphRun& trace);

/// Fits a device and a system from nothing but traces.
const FitTracesOptions& to_known_core();

std::filesystem::path recorded(const std::string& name);

/// Error that the fit of these folders gives, or "no error".
std::string error_of(const std::vector<std::filesystem::path>& folders);

}  // namespace stepcast::studies::test
