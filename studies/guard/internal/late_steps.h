#pragma once
#include <span>
#include <string>

#include "studies/guard/guard.h"

namespace stepcast::studies::internal {

/// Steps that take much longer than the others: "every 4th step takes 5.2 ms, the others 3.8 ms;
/// gemm_down +1.4 ms". Empty where no step stands out.
std::string late_steps(std::span<const GuardSamples> runs);

}  // namespace stepcast::studies::internal
