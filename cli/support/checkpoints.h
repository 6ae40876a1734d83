#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "cli/print/report.h"
#include "core/job/job.h"
#include "runtime/trainer.h"

namespace stepcast::cli {

/// Facts of a run besides its job that a checkpoint goes on with.
struct RunFacts {
  std::uint64_t seed = 0;
  std::string data;  ///< size and hash of its file; empty: drawn from the job
};

/// Text of the file that says what a checkpoint is.
std::string checkpoint_manifest(const Job& job, const RunFacts& facts, std::int64_t step);

/// Steps that led to a checkpoint. Errors: InputError where it is of another model, batch,
/// optimizer, seed or data; ranks and plan may be others.
std::int64_t checkpoint_step(const std::filesystem::path& checkpoint, const Job& job,
                             const RunFacts& facts);

/// Adds what checkpoints cost, beside what flows (docs/jobs.md) predict of the job: its own flow of
/// the state, else one that waits for the copy to the host's memory.
void add_checkpoints(const Job& job, const runtime::RunResult& run, std::int64_t every,
                     Report& report);

}  // namespace stepcast::cli
