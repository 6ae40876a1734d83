#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/system.h"
#include "runtime/mpi/session.h"
#include "runtime/trainer.h"
#include "studies/run/runtime_cases.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// Parts of the prediction that the ablation leaves out, one at a time.
inline constexpr std::array<const char*, 3> kAblations{"no data distribution", "no host cost",
                                                       "no rendezvous"};

/// One training job that calibration never saw: what was predicted before it ran, and what it took.
struct RuntimeCase {
  studies::CaseKind kind = studies::CaseKind::kDlrm;
  studies::Bound bound = studies::Bound::kMatrix;  ///< largest part of the predicted step
  Job job;
  double predicted = 0;  ///< seconds, as are all that follow
  double linear = 0;     ///< regression on FLOPs and bytes, same calibration
  std::array<double, kAblations.size()> ablated{};
  bool in_range = false;
  double measured = 0;  ///< median step
  double noise = 0;     ///< |median of the first half / median of the second half - 1|
  Seconds core_probe;   ///< around the run (studies/run/core_speed.h)
  int runs = 0;         ///< runs it took to get below the limit of noise
  std::optional<std::string> skipped;  ///< why the case does not count
};
using RuntimeCases = std::vector<RuntimeCase>;

struct ValidateRuntimeOptions {
  std::uint64_t seed = 1;
  std::int64_t dlrm = 24, transformers = 12;
  std::int64_t experts = 0;  ///< transformers with experts besides; they change no other case
  runtime::ExecutorFactory executor;  ///< of the backend the cases run on; empty: CPU
  /// Every case runs once more, recorded, and its trace stays here; empty: it does not. Where jobs
  /// are fitted to traces, a folder for those.
  std::filesystem::path traces;
  /// On rank 0, after all predictions, before the first run and after every one: write them down.
  std::function<void(const Suite&)> predicted;
  std::function<void(double done, const std::string& what)> progress;

  // How far a few traces carry:
  std::size_t traced = 3;         ///< jobs of each family that are traced and fitted to
  std::size_t cases = 12;         ///< other jobs of each family, predicted and then run
  std::size_t candidates = 60;    ///< drawn jobs that could be traced
  std::filesystem::path library;  ///< of zoo files
  std::string producer;           ///< written into the traces
};

/// Draws jobs (a quarter each bound by host, embedding, matrix products, communication), predicts
/// them all, then really runs them and compares medians. A noisy case runs again, at most twice
/// more; of several runs the quietest counts, and one that never came below 5 % is void. All ranks
/// call it together and return the same cases.
RuntimeCases validate_runtime(const System& system, const ValidateRuntimeOptions& options,
                              runtime::MpiSession& session);
/// Families "dlrm", "transformer" and, where there are any, "experts", each with its bar, and each
/// bound over the first two. A group also says what it would score if its predictions were
/// exchanged, and without parts of the model. Naive: the linear regression.
Suite runtime_suite(const RuntimeCases& cases);

/// Chooses `wanted` candidates to trace, so that the jobs to predict hold little that no trace
/// shows: one from each range of step lengths by rule of thumb (50 GFLOP/s, 5 GB/s), of these
/// combinations one that leaves least unseen. Unseen is the distance of each op of a job to the
/// nearest op of its model's key in a chosen candidate, in the model's own coordinates (logarithms
/// of sizes) and that of its operands' reuse distance, at most 8 (a key never seen), weighted with
/// the op's share of its job. Looks at shapes only. Ascending by length.
std::vector<std::size_t> traces_for(const std::vector<ExecutionGraph>& jobs,
                                    const std::vector<ExecutionGraph>& candidates,
                                    std::size_t wanted);

/// Jobs of both families, predicted by what was fitted to traces of others.
struct FromTraces {
  RuntimeCases cases;               ///< `linear` and `in_range` are rank 0's
  std::vector<std::string> fitted;  ///< by family: what each fitted job was
};
/// Draws jobs of each family, traces the few that `traces_for` names while they run for real, fits
/// a model to these traces alone, writes down what it predicts for the others, then runs those too.
/// All ranks call it together.
FromTraces validate_from_traces(const ValidateRuntimeOptions& options,
                                runtime::MpiSession& session);
/// Both families' errors, compared with a linear regression on the same traces; passes where the
/// mean of each is at most 10 %.
Suite from_traces_suite(const FromTraces& result);

/// Really runs the cases and fills what they took. All ranks call it together, with the same
/// predictions.
void measure_cases(RuntimeCases& cases, const ValidateRuntimeOptions& options,
                   runtime::MpiSession& session, const std::function<Suite()>& suite);
/// The cases of a family or a bound, with the linear regression.
Group group_of_cases(const std::string& name, const RuntimeCases& cases, std::string baseline);
/// A case as a suite lists it.
Row row_of(const RuntimeCase& c, std::string id);

}  // namespace stepcast::validation
