#pragma once
#include "runtime/calibration/cuda/case_body.h"

namespace stepcast::runtime::calibration {

/// What case_body says, for routing, dispatch and combination of kSweptExperts experts' tokens,
/// each expert with the same share.
constexpr std::int64_t kSweptExperts = 8;
CaseBody expert_body(const DeviceCase& c, Arena& arena);

}  // namespace stepcast::runtime::calibration
