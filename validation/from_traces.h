#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/mpi/session.h"
#include "studies/fit/fit_traces.h"
#include "validation/runtime.h"
#include "validation/suite.h"

namespace stepcast::validation {

struct FromTracesOptions {
  std::uint64_t seed = 1;
  std::size_t traces = 3;         ///< jobs of each family that are traced and fitted to
  std::size_t cases = 12;         ///< other jobs of each family, predicted and then run
  std::size_t candidates = 60;    ///< drawn jobs that could be traced
  std::filesystem::path folder;   ///< where the traces are written
  std::filesystem::path library;  ///< of zoo files
  std::string producer;           ///< written into the traces
  /// On rank 0, after all predictions of both families and before the first of the runs they are
  /// about.
  std::function<void(const std::vector<RuntimeCase>&)> predicted;
  std::function<void(double done, const std::string& what)> progress;
};

struct FromTracesFamily {
  studies::CaseKind kind = studies::CaseKind::kDlrm;
  std::vector<std::string> traced;  ///< what each fitted job was
  studies::FitTracesResult fit;     ///< rank 0's
};

struct FromTracesResult {
  std::vector<FromTracesFamily> families;
  std::vector<RuntimeCase> cases;  ///< of both families; `linear` and `in_range` are rank 0's
};

/// Which `wanted` of the candidates to trace so that the jobs to predict hold little that no trace
/// shows: one from each range of step lengths by rule of thumb (50 GFLOP/s, 5 GB/s), of these
/// combinations one that leaves least unseen. Unseen is the distance of each op of a job to the
/// nearest op of its model's key in a chosen candidate, in the model's own coordinates (logarithms
/// of sizes) and that of its operands' reuse distance, at most 8 (a key never seen), weighted with
/// the op's share of its job. Looks at shapes only. Ascending by length.
std::vector<std::size_t> traces_for(const std::vector<ExecutionGraph>& jobs,
                                    const std::vector<ExecutionGraph>& candidates,
                                    std::size_t wanted);

/// How far a few traces carry: draws jobs of each family, traces the few that `traces_for` names
/// while they run for real, fits a model to these traces alone, writes down what it predicts for
/// the others, then runs those too. All ranks call it together.
FromTracesResult validate_from_traces(const FromTracesOptions& options,
                                      runtime::MpiSession& session);

/// Both families' errors, compared with a linear regression on the same traces; passes where the
/// mean of each is at most 10 %.
Suite from_traces_suite(const FromTracesResult& result);

}  // namespace stepcast::validation
