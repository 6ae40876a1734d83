#pragma once
#include "core/graph/length_law.h"

namespace stepcast {

/// The same for sequences whose last `targets` rows see those before them, and of each other only
/// themselves: causal, with t of them and h others, h (h + 1) / 2 + t (h + 1) pairs.
double expected_pairs(const LengthLaw& law, std::int64_t rows, bool causal, std::int64_t targets);

}  // namespace stepcast
