#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/system.h"
#include "runtime/calibration/link_sweep.h"
#include "runtime/mpi/session.h"

namespace stepcast::studies {

/// Fabric levels as the times of messages between pairs of ranks show them. Ranks are joined in
/// consecutive nodes of the largest size inside which every pair is markedly closer than pairs
/// across; one level where no size does. Bandwidth is the slope between the two larger sizes,
/// latency what is left of the smallest message, both medians over the pairs of a level.
std::vector<FabricLevel> recovered_fabric(std::span<const runtime::calibration::LinkSample> pairs,
                                          std::int64_t ranks);

/// Models of collectives on a fabric ("collective.fabric"): the form's ideal constants, the start
/// of a call from the samples, and for what is no exchange residual points per group and size.
FittedModels fit_links(const System& system,
                       std::span<const runtime::calibration::LinkSample> samples,
                       const std::string& source);

struct PacedCalibrationOptions {
  const System* emulate = nullptr;  ///< paces; the fits see only times
  double seconds = 90;              ///< of training runs
  std::uint64_t seed = 1;
  std::string date;
  std::function<Job(std::int64_t i)> job;  ///< what to train; the same on every rank
  std::function<void(double done, const std::string& what)> progress;
};

/// A calibrated system of ranks that share cores and a paced fabric: links from sweeps, kernels and
/// the host from recorded training of `options.job`. All ranks call it together; the result is
/// rank 0's. Errors: RunError where records of the training were lost.
System calibrate_paced(const PacedCalibrationOptions& options, runtime::MpiSession& session);

}  // namespace stepcast::studies
