#pragma once
#include <cstdint>

#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// Vocabulary shard: rows [first, first + weights.rows) of the table live here. out[i] =
/// weights[tokens[i] - first], zeros for tokens of other shards (so the sum over shards is the
/// whole lookup). out [count, hidden].
void token_embedding_forward(ConstMatrixView weights, std::int64_t first,
                             const std::int32_t* tokens, MatrixView out);

/// d_weights[tokens[i] - first] += d_out[i] for the tokens of this shard, in their order.
void token_embedding_backward(ConstMatrixView d_out, std::int64_t first, const std::int32_t* tokens,
                              MatrixView d_weights);

}  // namespace stepcast::runtime::kernels
