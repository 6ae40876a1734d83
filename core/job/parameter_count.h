#pragma once
#include <cstdint>

#include "core/job/workload.h"

namespace stepcast {

/// Parameters of the model, each counted once; GPT style has `sequence` learned positions.
std::int64_t transformer_parameters(const TransformerWorkload& model, std::int64_t sequence);
/// Those that one token passes: of the experts only the ones it is sent to.
std::int64_t transformer_active_parameters(const TransformerWorkload& model, std::int64_t sequence);

}  // namespace stepcast
