#include "runtime/cpu/kernels/embedding.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

constexpr Index kLanes = 16;  // floats per cache line
/// 16 floats that the compiler maps to one AVX-512, two AVX or four SSE registers.
using Lanes = float __attribute__((vector_size(64)));

STEPCAST_INLINE void load(const float* from, Lanes& to) { std::memcpy(&to, from, sizeof(Lanes)); }
STEPCAST_INLINE void store(const Lanes& from, float* to) { std::memcpy(to, &from, sizeof(Lanes)); }

/// How many lookups ahead to prefetch: about 4 KiB of rows in flight, at least 4 rows.
Index prefetch_distance(Index dim) {
  return std::clamp<Index>(1024 / std::max<Index>(dim, 1), 4, 32);
}

struct BagTask {
  const float* weights;
  Index stride;
  Index dim;
  const std::int64_t* indices;
  Index begin;
  Index end;
  Index all_end;   // end of all bags: prefetching does not stop at this one
  Index distance;  // in lookups
  float factor;
};

/// Columns [column, column + 16 * Width) of one bag, accumulated in registers. The first column
/// block prefetches whole rows.
template <int Width>
STEPCAST_INLINE void pool_columns(const BagTask& task, Index column, float* out) {
  Lanes sum[Width] = {};
  for (Index i = task.begin; i < task.end; ++i) {
    if (column == 0 && i + task.distance < task.all_end) {
      internal::prefetch_row(task.weights + task.indices[i + task.distance] * task.stride,
                             task.dim);
    }
    const float* row = task.weights + task.indices[i] * task.stride + column;
    for (int w = 0; w < Width; ++w) {
      Lanes lanes;
      load(row + w * kLanes, lanes);
      sum[w] += lanes;
    }
  }
  for (int w = 0; w < Width; ++w) {
    sum[w] *= task.factor;
    store(sum[w], out + column + w * kLanes);
  }
}

/// The last dim % 16 columns.
STEPCAST_INLINE void pool_tail(const BagTask& task, Index column, float* out) {
  float sum[kLanes] = {};
  const Index width = task.dim - column;
  for (Index i = task.begin; i < task.end; ++i) {
    if (column == 0 && i + task.distance < task.all_end) {
      internal::prefetch_row(task.weights + task.indices[i + task.distance] * task.stride,
                             task.dim);
    }
    const float* row = task.weights + task.indices[i] * task.stride + column;
    for (Index j = 0; j < width; ++j) {
      sum[j] += row[j];
    }
  }
  for (Index j = 0; j < width; ++j) {
    out[column + j] = sum[j] * task.factor;
  }
}

STEPCAST_INLINE void pool_bag(const BagTask& task, float* out) {
  Index column = 0;
  for (; column + 8 * kLanes <= task.dim; column += 8 * kLanes) {
    pool_columns<8>(task, column, out);
  }
  if (column + 4 * kLanes <= task.dim) {
    pool_columns<4>(task, column, out);
    column += 4 * kLanes;
  }
  if (column + 2 * kLanes <= task.dim) {
    pool_columns<2>(task, column, out);
    column += 2 * kLanes;
  }
  if (column + kLanes <= task.dim) {
    pool_columns<1>(task, column, out);
    column += kLanes;
  }
  if (column < task.dim) {
    pool_tail(task, column, out);
  }
}

STEPCAST_MULTIVERSION void pool_all(ConstMatrixView weights, const Bags& bags, Pooling pooling,
                                    MatrixView out) {
  BagTask task{};
  task.weights = weights.data;
  task.stride = weights.stride;
  task.dim = weights.columns;
  task.indices = bags.indices;
  task.all_end = bags.end(bags.count - 1);
  task.distance = prefetch_distance(weights.columns);
  for (Index bag = 0; bag < bags.count; ++bag) {
    task.begin = bags.begin(bag);
    task.end = bags.end(bag);
    const Index size = task.end - task.begin;
    task.factor = pooling == Pooling::kMean && size > 1 ? 1.0F / static_cast<float>(size) : 1.0F;
    pool_bag(task, out.row(bag));
  }
}

STEPCAST_MULTIVERSION void scatter_all(ConstMatrixView grad, const Bags& bags, Pooling pooling,
                                       MatrixView d_weights) {
  const Index distance = prefetch_distance(grad.columns);
  const Index all_end = bags.end(bags.count - 1);
  for (Index bag = 0; bag < bags.count; ++bag) {
    const Index size = bags.end(bag) - bags.begin(bag);
    const float factor =
        pooling == Pooling::kMean && size > 1 ? 1.0F / static_cast<float>(size) : 1.0F;
    const float* gradient = grad.row(bag);
    for (Index i = bags.begin(bag); i < bags.end(bag); ++i) {
      if (i + distance < all_end) {
        internal::prefetch_row(d_weights.row(bags.indices[i + distance]), grad.columns);
      }
      float* row = d_weights.row(bags.indices[i]);
#pragma omp simd
      for (Index j = 0; j < grad.columns; ++j) {
        row[j] += factor * gradient[j];
      }
    }
  }
}

}  // namespace

void embedding_bag_forward(ConstMatrixView weights, const Bags& bags, Pooling pooling,
                           MatrixView out) {
  STEPCAST_CHECK(out.rows == bags.count && out.columns == weights.columns,
                 "{} bags of width {} into {}x{}", bags.count, weights.columns, out.rows,
                 out.columns);
  if (bags.count > 0) {
    pool_all(weights, bags, pooling, out);
  }
}

void embedding_bag_gradient(ConstMatrixView grad, const Bags& bags, Pooling pooling,
                            MatrixView d_weights) {
  STEPCAST_CHECK(grad.rows == bags.count && grad.columns == d_weights.columns,
                 "gradient {}x{} of {} bags of width {}", grad.rows, grad.columns, bags.count,
                 d_weights.columns);
  if (bags.count > 0) {
    scatter_all(grad, bags, pooling, d_weights);
  }
}

void mean_factors(const Bags& bags, float* factors) {
  for (Index bag = 0; bag < bags.count; ++bag) {
    factors[bag] = 1.0F / static_cast<float>(std::max<Index>(1, bags.end(bag) - bags.begin(bag)));
  }
}

}  // namespace stepcast::runtime::kernels
