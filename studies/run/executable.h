#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/job/job.h"

namespace stepcast::studies {

/// Something of a job that is predicted, but not executed by both backends.
struct PredictedOnly {
  std::string_view key;   ///< of the job
  std::string_view what;  ///< as in "running WHAT is not implemented"
  bool cpu, cuda;         ///< whether that backend runs it
  std::string_view remedy;
  /// Whether the job has it: nullopt, or its tables or layer that do; empty: `what` says it all.
  std::optional<std::string> (*found)(const Job&);
};
std::span<const PredictedOnly> predicted_only();

/// The list as docs/reference/what-runs.md.
std::string what_runs_page();

/// Can the kernels of the CPU or the CUDA backend execute the job's graph? The first entry of the
/// list that cannot is rejected, before ranks start. Errors: InputError naming the job's key and
/// what to do.
void require_executable(const Job& job, bool cuda);

}  // namespace stepcast::studies
