#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/optimizer_settings.h"

namespace stepcast::runtime::cuda::kernels {

/// The lookups of one table, all in device memory: bag b holds indices[offsets[b]] ..
/// indices[offsets[b + 1] - 1]. Without offsets bag i is the one index i (rows are gathered
/// unpooled). `lookups` is what the host knows of their number: exact, or an upper bound (a
/// captured graph); the kernels read the number itself from the offsets.
struct Bags {
  const std::int64_t* indices = nullptr;
  const std::int64_t* offsets = nullptr;  ///< count + 1, need not start at 0
  Index count = 0;
  Index lookups = 0;
};

enum class Pooling : std::uint8_t { kSum, kMean };

/// One table (or shard of one) of an embedding op. Indices are not checked.
struct EmbeddingTable {
  MatrixView weights;  ///< [rows, dim]; embedding_gradient: the dense gradient
  Bags bags;
  Pooling pooling = Pooling::kSum;
  const float* factors =
      nullptr;        ///< by bag, may be null: times the pooled row, times its gradient
  MatrixView pooled;  ///< [bags.count, dim]: the output, or its gradient (read only)
  float* first =
      nullptr;  ///< optimizer state: row-wise Adagrad [rows], Adagrad and Adam [rows, dim]
  float* second = nullptr;  ///< Adam [rows, dim]
};

/// pooled[b] = factor of b * sum or mean over bag b of weights[index], for all tables of an op
/// together; an empty bag gives zeros. Tables of one call share the format of weights and that of
/// pooled; the two may differ.
void embedding_forward(const EmbeddingTable* tables, Index count, cudaStream_t stream);

std::size_t embedding_backward_workspace(const EmbeddingTable* tables, Index count);

/// Backward of embedding_forward fused with the optimizer: lookups are sorted by row (stable, so a
/// row's gradients are added in the order of its bags), each distinct row gets one update. Rows
/// without lookups are not touched. Valid: dims up to 1,024, fewer than 2^31 lookups and bags
/// in a call. `factors_on_device`: see optimizer_update. Source of the row-wise rule: Mudigere et
/// al., arXiv 2104.05158.
void embedding_backward(const EmbeddingTable* tables, Index count,
                        const OptimizerSettings& settings, const AdamFactors* factors_on_device,
                        Workspace workspace, cudaStream_t stream);

/// Unfused backward for data-parallel tables: weights[index] += gradient of its bag; workspace as
/// above.
void embedding_gradient(const EmbeddingTable* tables, Index count, Workspace workspace,
                        cudaStream_t stream);

/// factors[b] = 1 / max(1, size of bag b).
void mean_factors(const Bags& bags, float* factors, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
