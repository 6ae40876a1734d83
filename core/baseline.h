#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/kernel_kind.h"
#include "core/graph/op.h"

namespace stepcast {

/// A time per step in several runs of one program.
struct BaselineTimes {
  std::vector<double> median;          ///< by run, seconds: over its steps
  std::vector<double> standard_error;  ///< by run, seconds: of that
};

/// Range of one machine-independent figure of a step, over all steps of all runs.
struct BaselineRange {
  double low = 0, high = 0;
};

/// Ops of one name, kind and phase.
struct BaselineOp {
  std::string name;
  OpKind kind = OpKind::kRecorded;
  Phase phase = Phase::kForward;
  KernelKind kernel = KernelKind::kOther;
  /// Too small to be judged alone; part of Baseline::small_ops.
  bool small = false;
  BaselineTimes time;  ///< per rank: mean over ranks; of collectives that end together the least
  BaselineRange launches;  ///< sum over ranks
  BaselineRange bytes;     ///< sent by collectives, sum over ranks
};

/// Times of a program's ops over several runs: what a later run is held against
/// (studies/guard/guard.h).
struct Baseline {
  std::string version;  ///< of the tool that made it
  std::int64_t ranks = 0;
  std::vector<std::int64_t> steps;  ///< by run
  bool blocks = false;              ///< one run only: its runs are blocks of that run's steps
  std::vector<BaselineOp> ops;      ///< longest first
  BaselineTimes step;               ///< first begin to last end, over all ranks
  BaselineTimes step_mean, step_p95;  ///< mean, 95th percentile for median; empty in old files
  BaselineTimes host;               ///< between issues, waits stripped; mean over ranks
  BaselineTimes exposed;            ///< communication while nothing computes; mean over ranks
  BaselineTimes small_ops;          ///< sum of the ops marked small
};

}  // namespace stepcast
