#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stepcast::profiler {

/// Settings that a capture was asked for. `stepcast profile` hands them to the module in the
/// program it starts as environment variables, which can as well be set by hand.
struct CaptureSettings {
  std::filesystem::path out;  ///< folder of the trace
  /// Steps [first, last) to record; without: from the first CUDA call on.
  std::optional<std::pair<std::int64_t, std::int64_t>> steps;
  std::optional<double> seconds;  ///< stop after so long
  bool on_signal = false;         ///< SIGUSR2 starts and stops
  std::string mark;               ///< name of the ranges that are steps; empty: the usual ones
  bool own_ops = false;  ///< the program names its ops (CuptiModule::push_op); not by environment
  bool whole_graphs = false;  ///< one record per launch of a CUDA graph, not one per node
  std::uint64_t buffer_bytes = std::uint64_t{512} << 20;  ///< of records not read yet
  std::uint64_t most_records = 20'000'000;                ///< of records kept
};

/// The value of an environment variable, null where it is not set.
using Lookup = std::function<const char*(const char* name)>;

/// "STEPCAST_PROFILE_OUT=...", ...: what settings_from() reads back.
std::vector<std::string> environment_of(const CaptureSettings& settings);
/// nullopt where STEPCAST_PROFILE_OUT is not set. Errors: InputError naming a variable that is not
/// what environment_of() writes.
std::optional<CaptureSettings> settings_from(const Lookup& lookup);

/// Which rank of how many this process is, by its launcher's variables: torchrun (which may run
/// below another launcher), Open MPI, PMI (MPICH, Intel), Slurm, plain RANK. -1 and 0 where none is
/// set.
struct LaunchedRank {
  std::int32_t rank = -1;
  std::int32_t world_size = 0;
};
LaunchedRank launched_rank(const Lookup& lookup);

}  // namespace stepcast::profiler
