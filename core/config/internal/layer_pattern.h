#pragma once
#include <string>
#include <vector>

#include "core/config/internal/keys.h"

namespace stepcast::config {

/// Keys of a transformer whose layers are not all alike: `mamba`, `delta` and `convolution` (one of
/// them: TransformerWorkload::recurrent) and `pattern`.
Keys<TransformerWorkload> layer_pattern_keys();
/// Checks the pattern against what the workload has. Errors: InputError naming the key.
void check_pattern(const Value& v, const TransformerWorkload& w);

/// Kinds of layers from words: "3 x (mamba mlp) attention mlp" is eight layers of one block each,
/// "3 x mamba+experts attention+experts" four layers of two. Errors: InputError at `v`.
std::vector<BlockKind> pattern_from(const Value& v);
/// The words of a workload's pattern.
std::string pattern_text(const TransformerWorkload& w);

}  // namespace stepcast::config
