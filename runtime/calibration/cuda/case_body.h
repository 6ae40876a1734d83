#pragma once
#include <functional>

#include "runtime/calibration/cuda/arena.h"
#include "runtime/calibration/device_sweep.h"
#include "runtime/cuda/fused_attention.h"
#include "runtime/cuda/matmul.h"

namespace stepcast::runtime::calibration {

/// Enqueues one run of a case. `repeat` picks another batch where the case reads one.
using CaseBody = std::function<void(std::int64_t repeat, cudaStream_t stream)>;

/// Takes the operands of a case from the arena, as the runtime lays them out, and returns what runs
/// it through the runtime's own kernels. Errors: InputError when the case does not fit, or this
/// backend has no kernel for it.
CaseBody case_body(const DeviceCase& c, Arena& arena, cuda::Matmul& matmul,
                   cuda::FusedAttention& attention, std::uint64_t seed);

}  // namespace stepcast::runtime::calibration
