#pragma once
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/calibration/cuda/arena.h"
#include "runtime/calibration/device_sweep.h"
#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/matmul.h"

namespace stepcast::runtime::calibration {

/// Enqueues one run of a case. `repeat` picks another batch where the case reads one.
using CaseBody = std::function<void(std::int64_t repeat, cudaStream_t stream)>;

/// Source of the operands and kernels of bodies.
struct Bench {
  Arena& arena;
  cuda::Matmul& matmul;
  cuda::CudnnAttention* attention;  ///< null: no case is fused attention
  std::uint64_t seed;
};
using MakeBody = CaseBody (*)(const DeviceCase& c, const Bench& b);
/// The body of each op kind of a family.
using CaseBodies = std::span<const std::pair<OpKind, MakeBody>>;
CaseBodies attention_bodies();  ///< as the transformer has it, and of sequences of drawn lengths
CaseBodies expert_bodies();     ///< routing, dispatch and combination of experts' tokens
CaseBodies other_bodies();

/// Problems that the body of a case will ask `Bench::attention` for, so that plans can be made
/// together; none where the case is not attention. Errors: InputError where the case does not fit
/// the arena.
std::vector<cuda::AttentionProblem> attention_problems(const DeviceCase& c, Arena& arena);

/// Takes the operands of a case from the arena, as the runtime lays them out, and returns what runs
/// it through the runtime's own kernels. Errors: InputError when the case does not fit, or this
/// backend has no kernel for it.
CaseBody case_body(const DeviceCase& c, const Bench& bench);

}  // namespace stepcast::runtime::calibration
