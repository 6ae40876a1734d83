#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/mpi/session.h"
#include "studies/fit_traces.h"
#include "studies/validate_runtime.h"

namespace stepcast::studies {

struct FromTracesOptions {
  std::uint64_t seed = 1;
  std::size_t traces = 3;         ///< jobs of each family that are traced and fitted to
  std::size_t cases = 12;         ///< other jobs of each family, predicted and then run
  std::filesystem::path folder;   ///< where the traces are written
  std::filesystem::path library;  ///< of zoo files
  std::string producer;           ///< written into the traces
  /// On rank 0, after all predictions of both families and before the first of the runs they are
  /// about.
  std::function<void(const std::vector<RuntimeCase>&)> predicted;
  std::function<void(double done, const std::string& what)> progress;
};

struct FromTracesFamily {
  CaseKind kind = CaseKind::kDlrm;
  std::vector<std::string> traced;  ///< what each fitted job was
  FitTracesResult fit;              ///< rank 0's
};

struct FromTracesResult {
  std::vector<FromTracesFamily> families;
  std::vector<RuntimeCase> cases;  ///< of both families; only what is predicted is filled on all
};

/// Of jobs that could run, which `wanted` to trace: those that leave the least unseen. For each op
/// of a job not chosen, the distance |ln flops - ln flops'| + |ln bytes - ln bytes'| to the nearest
/// op of its model's key in a chosen job, at most 8 (a key never seen), weighted with the op's
/// share of its job by rule of thumb (50 GFLOP/s, 5 GB/s, 1 us); the sum over all jobs is least.
/// Looks at shapes only. Indices ascending.
std::vector<std::size_t> spread_of(const std::vector<ExecutionGraph>& jobs, std::size_t wanted);

/// How far a few traces carry: draws jobs of each family, traces the few that `spread_of` names
/// while they run for real, fits a model to these traces alone, writes down what it predicts for
/// the others, then runs those too. All ranks call it together.
FromTracesResult validate_from_traces(const FromTracesOptions& options,
                                      runtime::MpiSession& session);

}  // namespace stepcast::studies
