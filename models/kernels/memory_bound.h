#pragma once
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// The longer of two times that overlap, rounded off where they are equal: (a^4 + b^4)^(1/4).
double longer(double a, double b);

/// Seconds per byte of a working set: near in cache, far beyond `capacity`, smooth between; never
/// falls as the set grows. What is in cache takes `called_back` times as long.
double seconds_per_byte(double working_set, double near_bandwidth, double far_bandwidth,
                        double capacity, double called_back = 1);

/// Time to move all operands of an op, each from the level its reuse distance puts it in; those
/// that were sent last at 1 / `called_back` of the bandwidth in cache.
double operand_seconds(const OpFacts& facts, double near_bandwidth, double far_bandwidth,
                       double capacity, double called_back = 1);

}  // namespace stepcast::models
