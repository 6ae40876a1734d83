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

struct ValidateRuntimeOptions {
  std::uint64_t seed = 1;
  std::int64_t dlrm = 24, transformers = 12;
  std::int64_t experts = 0;  ///< transformers with experts besides; they change no other case
  runtime::ExecutorFactory executor;  ///< of the backend the cases run on; empty: CPU
  double noise_limit =
      0.05;  ///< noisier cases run again, at most twice more, then are listed as void
  /// Every case runs once more, recorded, and its trace stays here; empty: it does not.
  std::filesystem::path traces;
  /// On rank 0, after all predictions, before the first run and after every one: write them down.
  std::function<void(const std::vector<RuntimeCase>&)> predicted;
  std::function<void(double done, const std::string& what)> progress;
};

/// Draws jobs (a quarter each bound by host, embedding, matrix products, communication), predicts
/// them all, then really runs them and compares medians. All ranks call it together and return the
/// same cases.
std::vector<RuntimeCase> validate_runtime(const System& system,
                                          const ValidateRuntimeOptions& options,
                                          runtime::MpiSession& session);

/// Really runs a case and fills what it took. A noisy case runs again, at most twice more; of
/// several runs the quietest counts, and one that never came below the limit is marked as skipped.
/// All ranks call it together, with the same prediction.
void measure_case(RuntimeCase& c, const ValidateRuntimeOptions& options,
                  runtime::MpiSession& session);

/// A case as a suite lists it; naive: the linear regression.
Row row_of(const RuntimeCase& c, std::string id);
/// Errors of cases, compared with the linear regression; the noise is the median.
Group group_of_cases(const std::string& name, const std::vector<RuntimeCase>& cases,
                     std::string baseline);

/// Families "dlrm", "transformer" and, where there are any, "experts", each with its bar, and each
/// bound over the first two. A group also says what it would score if its predictions were
/// exchanged, and without parts of the model.
Suite runtime_suite(const std::vector<RuntimeCase>& cases);

}  // namespace stepcast::validation
