#pragma once
#include <vector>

#include "runtime/calibration/cuda/case_body.h"

namespace stepcast::runtime::calibration {

/// What case_body says, for attention as the transformer has it and for sequences of drawn lengths.
CaseBody attention_body(const DeviceCase& c, Arena& arena, cuda::FusedAttention& attention);
CaseBody jagged_body(const DeviceCase& c, Arena& arena);

/// What attention_body will ask `attention` for, so that plans can be made together; none where the
/// case is not attention. Errors: InputError where the case does not fit the arena.
std::vector<cuda::AttentionProblem> attention_problems(const DeviceCase& c, Arena& arena);

}  // namespace stepcast::runtime::calibration
