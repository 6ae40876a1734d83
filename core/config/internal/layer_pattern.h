#pragma once
#include "core/config/internal/keys.h"

namespace stepcast::config {

/// Keys of a transformer whose layers are not all alike: `mamba`, `delta` and `convolution` (one of
/// them: TransformerWorkload::recurrent) and `pattern`.
Keys<TransformerWorkload> layer_pattern_keys();
/// Checks the pattern against what the workload has. Errors: InputError naming the key.
void check_pattern(const Value& v, const TransformerWorkload& w);

}  // namespace stepcast::config
