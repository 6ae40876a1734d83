#pragma once
#include "core/graph/program_fwd.h"
#include "core/units.h"

namespace stepcast {

/// Bytes of one rank in its own memory, by role. Activations are the peak of live per-microbatch
/// tensors over the calls of the step plus the largest segment's temporaries; everything else is
/// allocated for good.
struct MemoryUse {
  Bytes parameters, gradients, optimizer, embeddings, activations, buffers;
  [[nodiscard]] Bytes total() const {
    return parameters + gradients + optimizer + embeddings + activations + buffers;
  }
};
MemoryUse memory_use(const Program& program);
/// True if it is one of MemoryUse::buffers.
bool is_held_buffer(const Tensor& tensor);
/// Bytes of one rank in Program::tiers[tier], per-microbatch ones at their peak.
Bytes held_in_tier(const Program& program, std::size_t tier);

}  // namespace stepcast
