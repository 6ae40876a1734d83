#include "runtime/cpu/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "runtime/cpu/kernels/gemm.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

struct Blocks {
  Index block;  // queries per block
  Index count;
  Index diagonal;  // query i sees keys 0 .. i + diagonal
  float scale;
  Index window;  // 0: all keys
};

Blocks blocks_of(const AttentionShape& shape) {
  const Index block =
      std::clamp<Index>(shape.query_block, 1, std::max<Index>(shape.query_length, 1));
  return {block, (shape.query_length + block - 1) / block,
          shape.causal ? shape.kv_length - shape.query_length : shape.kv_length,
          1.0F / std::sqrt(static_cast<float>(shape.head_dim)), shape.causal ? shape.window : 0};
}

/// One block of queries of one head: rows [first, first + rows) against keys [begin, begin + keys).
struct Tile {
  Index first;
  Index rows;
  Index begin;
  Index keys;
  Index diagonal;  // last key of the tile's first row, from `begin` on
};

/// First column that row i sees.
Index hidden_before(Index i, Index diagonal, Index window) {
  return window > 0 ? std::max<Index>(0, i + diagonal + 1 - window) : 0;
}

Tile tile_of(const AttentionShape& shape, const Blocks& blocks, Index index) {
  const Index first = index * blocks.block;
  const Index rows = std::min(blocks.block, shape.query_length - first);
  const Index begin = hidden_before(first, blocks.diagonal, blocks.window);
  return {first, rows, begin, std::min(shape.kv_length, first + rows + blocks.diagonal) - begin,
          first + blocks.diagonal - begin};
}

void check_shape(const AttentionShape& shape, ConstMatrixView q, ConstMatrixView k) {
  STEPCAST_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
                 "{} heads over {} key heads", shape.heads, shape.kv_heads);
  STEPCAST_CHECK(!shape.causal || shape.kv_length >= shape.query_length,
                 "causal attention of {} queries over {} keys", shape.query_length,
                 shape.kv_length);
  STEPCAST_CHECK(
      q.rows == shape.batch * shape.query_length && q.columns == shape.heads * shape.head_dim,
      "queries are {}x{}", q.rows, q.columns);
  STEPCAST_CHECK(
      k.rows == shape.batch * shape.kv_length && k.columns == shape.kv_heads * shape.head_dim,
      "keys are {}x{}", k.rows, k.columns);
}

/// The rows of one head in one sequence.
template <class T>
BasicView<T> head_of(BasicView<T> x, Index sequence, Index length, Index head, Index head_dim) {
  return x.slice(sequence * length, length).block(head * head_dim, head_dim);
}

STEPCAST_MULTIVERSION void exponentiate(MatrixView scores, Index diagonal, Index window,
                                        const float* log_sum_exp) {
  for (Index i = 0; i < scores.rows; ++i) {
    float* row = scores.row(i);
    const Index visible = std::min(scores.columns, i + diagonal + 1);
    const Index hidden = hidden_before(i, diagonal, window);
    const float offset = log_sum_exp[i];
    std::fill(row, row + hidden, 0.0F);
#pragma omp simd
    for (Index j = hidden; j < visible; ++j) {
      row[j] = internal::exponential(row[j] - offset);
    }
    std::fill(row + visible, row + scores.columns, 0.0F);
  }
}

/// d_probabilities becomes the gradient of the unscaled scores.
STEPCAST_MULTIVERSION void score_gradient(ConstMatrixView probabilities, ConstMatrixView out,
                                          ConstMatrixView d_out, float scale,
                                          MatrixView d_probabilities) {
  for (Index i = 0; i < out.rows; ++i) {
    const float mean = internal::dot_of(out.row(i), d_out.row(i), out.columns);
    const float* p = probabilities.row(i);
    float* d = d_probabilities.row(i);
#pragma omp simd
    for (Index j = 0; j < probabilities.columns; ++j) {
      d[j] = scale * p[j] * (d[j] - mean);
    }
  }
}

void clear(MatrixView x) {
  for (Index i = 0; i < x.rows; ++i) {
    std::fill(x.row(i), x.row(i) + x.columns, 0.0F);
  }
}

struct Head {
  ConstMatrixView q, k, v, out, d_out;
  const float* log_sum_exp;
  MatrixView d_q, d_k, d_v;
};

/// `beta` is 0 for the first tile that adds to d_k and d_v of this key head, which must see every
/// key.
void backward_tile(const Head& whole, const Tile& tile, const Blocks& blocks, float beta,
                   float* scratch) {
  const float scale = blocks.scale;
  Head head = whole;
  head.k = whole.k.slice(tile.begin, tile.keys);
  head.v = whole.v.slice(tile.begin, tile.keys);
  head.d_k = whole.d_k.slice(tile.begin, tile.keys);
  head.d_v = whole.d_v.slice(tile.begin, tile.keys);
  const Index dim = head.q.columns;
  const ConstMatrixView q = head.q.slice(tile.first, tile.rows);
  const ConstMatrixView d_out = head.d_out.slice(tile.first, tile.rows);
  const MatrixView d_q = head.d_q.slice(tile.first, tile.rows);
  const MatrixView p(scratch, tile.rows, tile.keys);
  const MatrixView d_scores(scratch + tile.rows * tile.keys, tile.rows, tile.keys);
  gemm({tile.rows, tile.keys, dim, false, true, scale, 0, q.stride, head.k.stride, 0}, q.data,
       head.k.data, p.data);
  exponentiate(p, tile.diagonal, blocks.window, head.log_sum_exp + tile.first);
  gemm({tile.keys, dim, tile.rows, true, false, 1, beta, 0, d_out.stride, head.d_v.stride}, p.data,
       d_out.data, head.d_v.data);
  gemm({tile.rows, tile.keys, dim, false, true, 1, 0, d_out.stride, head.v.stride, 0}, d_out.data,
       head.v.data, d_scores.data);
  score_gradient(p, head.out.slice(tile.first, tile.rows), d_out, scale, d_scores);
  gemm({tile.rows, dim, tile.keys, false, false, 1, 0, 0, head.k.stride, d_q.stride}, d_scores.data,
       head.k.data, d_q.data);
  gemm({tile.keys, dim, tile.rows, true, false, 1, beta, 0, q.stride, head.d_k.stride},
       d_scores.data, q.data, head.d_k.data);
}

}  // namespace

Index AttentionShape::scratch_floats() const { return blocks_of(*this).block * kv_length; }

STEPCAST_MULTIVERSION void softmax_rows(MatrixView x, Index diagonal, float* log_sum_exp,
                                        Index window) {
  for (Index i = 0; i < x.rows; ++i) {
    float* row = x.row(i);
    const Index visible = std::min(x.columns, i + diagonal + 1);
    const Index hidden = hidden_before(i, diagonal, window);
    const float largest =
        internal::maximum_of(row + hidden, visible - hidden, std::numeric_limits<float>::lowest());
    float sum = 0;
    std::fill(row, row + hidden, 0.0F);
#pragma omp simd reduction(+ : sum)
    for (Index j = hidden; j < visible; ++j) {
      row[j] = internal::exponential(row[j] - largest);
      sum += row[j];
    }
    const float factor = 1.0F / sum;
#pragma omp simd
    for (Index j = 0; j < visible; ++j) {
      row[j] *= factor;
    }
    std::fill(row + visible, row + x.columns, 0.0F);
    if (log_sum_exp != nullptr) {
      log_sum_exp[i] = largest + std::log(sum);
    }
  }
}

void attention_forward(const AttentionShape& shape, ConstMatrixView q, ConstMatrixView k,
                       ConstMatrixView v, MatrixView out, float* log_sum_exp, float* scratch) {
  check_shape(shape, q, k);
  const Blocks blocks = blocks_of(shape);
  const Index dim = shape.head_dim;
  const Index group = shape.heads / shape.kv_heads;
  for (Index sequence = 0; sequence < shape.batch; ++sequence) {
    for (Index h = 0; h < shape.heads; ++h) {
      const ConstMatrixView queries = head_of(q, sequence, shape.query_length, h, dim);
      const ConstMatrixView keys = head_of(k, sequence, shape.kv_length, h / group, dim);
      const ConstMatrixView values = head_of(v, sequence, shape.kv_length, h / group, dim);
      const MatrixView results = head_of(out, sequence, shape.query_length, h, dim);
      float* lse = log_sum_exp + (sequence * shape.heads + h) * shape.query_length;
      for (Index index = 0; index < blocks.count; ++index) {
        const Tile tile = tile_of(shape, blocks, index);
        gemm({tile.rows, tile.keys, dim, false, true, blocks.scale, 0, queries.stride, keys.stride,
              0},
             queries.row(tile.first), keys.row(tile.begin), scratch);
        softmax_rows({scratch, tile.rows, tile.keys}, tile.diagonal, lse + tile.first,
                     blocks.window);
        gemm({tile.rows, dim, tile.keys, false, false, 1, 0, 0, values.stride, results.stride},
             scratch, values.row(tile.begin), results.row(tile.first));
      }
    }
  }
}

void attention_backward(const AttentionShape& shape, const AttentionBackward& tensors,
                        float* scratch) {
  check_shape(shape, tensors.q, tensors.k);
  const Blocks blocks = blocks_of(shape);
  const Index dim = shape.head_dim;
  const Index group = shape.heads / shape.kv_heads;
  const Index queries = shape.query_length;
  for (Index sequence = 0; sequence < shape.batch; ++sequence) {
    for (Index h = 0; h < shape.heads; ++h) {
      const Index kv = h / group;
      const Head head{head_of(tensors.q, sequence, queries, h, dim),
                      head_of(tensors.k, sequence, shape.kv_length, kv, dim),
                      head_of(tensors.v, sequence, shape.kv_length, kv, dim),
                      head_of(tensors.out, sequence, queries, h, dim),
                      head_of(tensors.d_out, sequence, queries, h, dim),
                      tensors.log_sum_exp + (sequence * shape.heads + h) * queries,
                      head_of(tensors.d_q, sequence, queries, h, dim),
                      head_of(tensors.d_k, sequence, shape.kv_length, kv, dim),
                      head_of(tensors.d_v, sequence, shape.kv_length, kv, dim)};
      // The last block sees every key, so it goes first and overwrites d_k and d_v; with a window
      // none does.
      if (blocks.window > 0 && h % group == 0) {
        clear(head.d_k);
        clear(head.d_v);
      }
      for (Index index = blocks.count - 1; index >= 0; --index) {
        const bool first = h % group == 0 && index == blocks.count - 1 && blocks.window == 0;
        backward_tile(head, tile_of(shape, blocks, index), blocks, first ? 0.0F : 1.0F, scratch);
      }
    }
  }
}

}  // namespace stepcast::runtime::kernels
