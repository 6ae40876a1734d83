#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/job/system.h"
#include "runtime/mpi/session.h"

namespace stepcast::validation {

/// A step on a paced fabric whose communication overlaps compute.
struct OverlapCase {
  std::string name;
  bool hidden = false;                 ///< the communication should disappear under compute
  double predicted = 0, measured = 0;  ///< seconds
  double predicted_exposed = 0;        ///< exposed communication of the prediction
  double noise = 0;
  [[nodiscard]] double error() const { return predicted / measured - 1; }
};

/// Does the prediction know when communication hides? Calibrates quickly under the paced fabric
/// (the fit sees times only, never the description that paces), predicts one DLRM and one
/// transformer each with little and with much communication beside its compute, and a DLRM that
/// exchanges the next batch's ids beside this one, then runs them. All ranks call it together and
/// return the same cases.
std::vector<OverlapCase> validate_overlap(
    const System& paced, std::uint64_t seed, runtime::MpiSession& session,
    const std::function<void(double, const std::string&)>& progress);

}  // namespace stepcast::validation
