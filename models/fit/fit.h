#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/program_fwd.h"
#include "core/system.h"
#include "models/cost_model.h"

namespace stepcast::models {

/// One measured op: a microbenchmark, or an op span of a real step. The program must outlive the
/// fit.
struct MeasuredOp {
  const Program* program = nullptr;
  const Op* op = nullptr;
  Seconds time;
  /// Rows of one configuration are held out together when the error is estimated; by default each
  /// row stands alone.
  std::int64_t configuration = -1;
  /// Ops from `op` on that took `time` together. Among several, those with the key of the first are
  /// what is fitted; the others are priced and taken off.
  std::uint32_t count = 1;
};

/// One measured collective. `bytes` by the NCCL convention of the op. Time is the transfer: the
/// minimum over ranks, or of a benchmark whose ranks start together; never a raw per-rank duration,
/// which is mostly waiting.
struct MeasuredCollective {
  OpKind kind = OpKind::kAllReduce;
  double bytes = 0;
  GroupShape group;
  Seconds time;
  Format format = Format::kFp32;
  /// Since the communicator's last use on this rank (models/collectives/idle_time.h); negative: not known.
  Seconds idle_time = Seconds(-1);
};

/// Samples of the host side, each in seconds: issuing one op; stream gap before one op; a step's
/// time outside its ops.
struct MeasuredHost {
  std::vector<double> issue, dispatch, step;
};

struct FitOptions {
  std::int64_t folds =
      4;  ///< held-out folds by configuration; < 2 reports the error on the fitted rows
  std::size_t max_rows = 3000;   ///< rows used by the search of constants, evenly thinned beyond
  std::size_t max_points = 200;  ///< residual points kept per key; 0: constants only
  std::size_t max_surface_rows = 8000;  ///< rows the residual surface is smoothed over
  /// What an e-fold of a constant from where its search starts costs: as much as one row missed by
  /// this much (ln). Weak by default: rows decide. Rows of a few jobs do not tell all constants
  /// apart, and need it stronger.
  double pull = 0.0125;
  /// Search the constants of a kind from those of its class: of all memory-bound ops, of all
  /// collectives. What its own rows do not show is then as in the others.
  bool pooled = false;
  /// Kinds whose rows lie at fewer places (coordinates of their form) are left out: repeats of one
  /// shape say nothing of how time grows, however many they are.
  std::size_t fewest_places = 1;
  std::string source;  ///< written into every model
};

/// Constants, residual points, ranges and held-out errors for every kind that has at least
/// `kMinimumRows` rows, and for the class of memory-bound ops as a whole (what kinds without rows
/// fall back to).
///
///   minimise over ln(constants)   sum Huber(ln predicted - ln measured)
///                                 + sum (pull * ln(constant / start))^2 / 2
///
/// by Levenberg-Marquardt with reweighting; deterministic. The error of each model is that of
/// held-out configurations. Source: Huber, "Robust estimation of a location parameter", 1964;
/// Marquardt, SIAM J. 11(2), 1963. Checked by tests/models/fit_test.cpp.
FittedModels fit_kernels(const Device& device, std::span<const MeasuredOp> rows,
                         const FitOptions& options = {});
inline constexpr std::size_t kMinimumRows = 4;

/// Fits as above per collective kind; a kind with one rank only is skipped. `form` names the
/// collective form ("collective.knee" for ranks that share a machine, "collective.fabric" for
/// devices on a described fabric).
FittedModels fit_collectives(const System& system, std::span<const MeasuredCollective> rows,
                             std::string_view form, const FitOptions& options = {});

/// "host": constants issue, dispatch, step as means between the 5th and 95th percentile (sums over
/// ops need means, not medians).
FittedModels fit_host(const MeasuredHost& samples, const FitOptions& options = {});

/// "straggler": log_sigma and rho from segment times [repeat][rank] of equal ranks: rho is the
/// share of the variance of ln(time) that all ranks of a repeat have in common.
FittedModels fit_straggler(std::span<const std::vector<double>> segment_times,
                           const FitOptions& options = {});

/// |predicted / measured - 1| of paired values.
FitError error_of(std::span<const double> predicted, std::span<const double> measured);

}  // namespace stepcast::models
