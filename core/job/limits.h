#pragma once
#include <cstdint>

namespace stepcast {

/// Micro-batches of a replica that a step is simulated with: the report of a rank keeps every op it
/// executes, some 0.5 MB a micro-batch where one device holds a hundred layers.
constexpr std::int64_t kMostMicrobatches = 16384;

}  // namespace stepcast
