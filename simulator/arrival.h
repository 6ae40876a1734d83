#pragma once
#include <cstdint>
#include <span>

namespace stepcast::simulator {

/// Ranks that reach a rendezvous at normally distributed times.
struct Arrival {
  double mean = 0;    ///< ticks
  double spread = 0;  ///< standard deviation over the ranks, ticks
  std::int64_t ranks = 1;
};

/// When the last of all ranks is expected.
///
/// Equal ranks, n: mean + spread * d_n (models::expected_maximum). Unequal ones: the x with
///   sum_i ranks_i * Q((x - mean_i) / spread_i) = 0.625 n / (n + 0.25),
/// Q the upper tail of the normal, which is the same formula when all are equal, and never below
/// the latest mean. So ranks that are folded into one and ranks simulated one by one give the same
/// rendezvous. Source: Blom's plotting position; reference embedding-and-step-time 9.1. Tests:
/// straggler_test.cpp.
std::int64_t expected_last(std::span<const Arrival> arrivals);

}  // namespace stepcast::simulator
