#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/op_enums.h"
#include "runtime/cpu/kernels/matrix_view.h"
#include "runtime/cpu/kernels/optimizer.h"

namespace stepcast::runtime::kernels {

/// The lookups of one table: bag b holds indices[offsets[b]] .. indices[offsets[b + 1] - 1].
/// `offsets` has count + 1 entries and need not start at 0. Without offsets bag i is the one index
/// i: rows are gathered unpooled (sequence mode).
struct Bags {
  const std::int64_t* indices = nullptr;
  const std::int64_t* offsets = nullptr;
  Index count = 0;

  [[nodiscard]] Index begin(Index bag) const { return offsets != nullptr ? offsets[bag] : bag; }
  [[nodiscard]] Index end(Index bag) const {
    return offsets != nullptr ? offsets[bag + 1] : bag + 1;
  }
  [[nodiscard]] Index lookups() const { return count > 0 ? end(count - 1) - begin(0) : 0; }
};

enum class Pooling : std::uint8_t { kSum, kMean };

/// out[b] = sum or mean over bag b of weights[index]; an empty bag gives zeros. `out` may be a
/// column block of a wider matrix, so that several tables write side by side. weights [rows, dim];
/// out [count, dim]. Cost: one cache line fetched per 16 floats of every looked-up row, prefetched
/// ahead.
void embedding_bag_forward(ConstMatrixView weights, const Bags& bags, Pooling pooling,
                           MatrixView out);

/// Memory of embedding_bag_backward, kept between calls; grows to the largest number of lookups and
/// never shrinks.
class EmbeddingWorkspace {
 public:
  void reserve(Index lookups, Index dim);

 private:
  friend struct EmbeddingRuns;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint64_t> sorted_;
  std::vector<float> gradient_;
};

/// State of an embedding optimizer: SGD none; row-wise Adagrad `first` [rows]; Adagrad `first`
/// [rows, dim]; Adam `first`, `second` [rows, dim] (first and second moment), all contiguous.
struct EmbeddingState {
  float* first = nullptr;
  float* second = nullptr;
};

/// Backward of embedding_bag_forward fused with the optimizer: radix-sorts (row, bag), sums each
/// distinct row's gradient in the order of its bags and applies one update to it. Rows without
/// lookups are not touched (Adam is lazy: no decay of their moments); all touched rows use the bias
/// correction of settings.step. grad [count, dim]. The result of a row depends on its own lookups
/// alone, so any split of the table over ranks gives identical bits. Valid: rows <= 2^32, fewer
/// than 2^32 bags. Source of the row-wise rule: Mudigere et al., arXiv 2104.05158.
void embedding_bag_backward(ConstMatrixView grad, const Bags& bags, Pooling pooling,
                            const OptimizerSettings& settings, MatrixView weights,
                            EmbeddingState state, EmbeddingWorkspace& workspace);

/// Unfused backward for data-parallel tables: d_weights[index] += gradient of its bag, in the order
/// of the lookups. d_weights [rows, dim] (the caller zeroes it once per step).
void embedding_bag_gradient(ConstMatrixView grad, const Bags& bags, Pooling pooling,
                            MatrixView d_weights);

/// factors[b] = 1 / max(1, size of bag b). A row-wise sharded mean sums on the owners and scales
/// where the bag is whole.
void mean_factors(const Bags& bags, float* factors);

}  // namespace stepcast::runtime::kernels
