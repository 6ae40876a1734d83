#include "runtime/cpu/kernels/jagged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

constexpr Index kQueries = 32;  // rows of a tile
constexpr Index kKeys = 64;
constexpr Index kRows = 8;      // of products held in registers
constexpr Index kColumns = 16;  // likewise: one vector of 512 bits
using Vector = float __attribute__((vector_size(kColumns * sizeof(float)), aligned(4), may_alias));

constexpr Index rounded(Index n, Index to) { return (n + to - 1) / to * to; }

/// Element (i, k) of a left operand stands at data[i * row + k * depth].
struct Left {
  const float* data;
  Index row, depth;
};

/// c [rows, columns] = or += a b; b [depth, columns]. Rows in eights, columns in sixteens: operands
/// have room.
STEPCAST_INLINE void multiply(Index rows, Index columns, Index depth, const Left& a, const float* b,
                              Index pitch_b, float* c, Index pitch_c, bool accumulate) {
  for (Index i0 = 0; i0 < rows; i0 += kRows) {
    for (Index j0 = 0; j0 < columns; j0 += kColumns) {
      Vector sum[kRows];
#pragma GCC unroll 8
      for (Index i = 0; i < kRows; ++i) {
        sum[i] =
            accumulate ? *reinterpret_cast<const Vector*>(c + (i0 + i) * pitch_c + j0) : Vector{};
      }
      const float* left = a.data + i0 * a.row;
      for (Index k = 0; k < depth; ++k) {
        const Vector right = *reinterpret_cast<const Vector*>(b + k * pitch_b + j0);
#pragma GCC unroll 8
        for (Index i = 0; i < kRows; ++i) {
          sum[i] += left[i * a.row + k * a.depth] * right;
        }
      }
#pragma GCC unroll 8
      for (Index i = 0; i < kRows; ++i) {
        *reinterpret_cast<Vector*>(c + (i0 + i) * pitch_c + j0) = sum[i];
      }
    }
  }
}

/// Rows of a head, zeros beyond them and beyond their columns.
STEPCAST_INLINE void pack(ConstMatrixView from, Index rows, Index pitch, float factor, float* to) {
  for (Index i = 0; i < rows; ++i) {
    float* row = to + i * pitch;
    const Index filled = i < from.rows ? from.columns : 0;
    for (Index d = 0; d < filled; ++d) {
      row[d] = factor * from.row(i)[d];
    }
    std::fill(row + filled, row + pitch, 0.0F);
  }
}
/// The same, transposed: [columns, kKeys].
STEPCAST_INLINE void pack_transposed(ConstMatrixView from, Index rows, float* to) {
  for (Index d = 0; d < from.columns; ++d) {
    float* row = to + d * kKeys;
    for (Index j = 0; j < from.rows; ++j) {
      row[j] = from.row(j)[d];
    }
    std::fill(row + from.rows, row + rows, 0.0F);
  }
}
STEPCAST_INLINE void add(const float* from, Index pitch, MatrixView to) {
  for (Index i = 0; i < to.rows; ++i) {
    for (Index d = 0; d < to.columns; ++d) {
      to.row(i)[d] += from[i * pitch + d];
    }
  }
}

/// Scratch of a tile: packed operands, scores and sums.
struct Tiles {
  Tiles(float* at, Index head_dim) : pitch(rounded(head_dim, kColumns)) {
    const auto take = [&at](Index floats) {
      float* const taken = at;
      at += floats;
      return taken;
    };
    q = take(kQueries * pitch);
    d_out = take(kQueries * pitch);
    sum = take(kQueries * pitch);
    k = take(kKeys * pitch);
    v = take(kKeys * pitch);
    d_k = take(kKeys * pitch);
    d_v = take(kKeys * pitch);
    k_transposed = take(pitch * kKeys);
    v_transposed = take(pitch * kKeys);
    p = take(kQueries * kKeys);
    d_scores = take(kQueries * kKeys);
    largest = take(kQueries);
    total = take(kQueries);
  }
  Index pitch;
  float *q, *d_out, *sum, *k, *v, *d_k, *d_v, *k_transposed, *v_transposed, *p, *d_scores, *largest,
      *total;
};
constexpr Index kRowsOfWidth = 3 * kQueries + 6 * kKeys;  // of Tiles
constexpr Index kOther = 2 * kQueries * kKeys + 2 * kQueries;

struct Sequence {
  Index begin, length;
  float scale;
  bool causal;
};

template <class T>
BasicView<T> rows_of(BasicView<T> x, const Sequence& s, Index head, Index dim) {
  return x.slice(s.begin, s.length).block(head * dim, dim);
}

/// First column of row `i` of a tile that it does not see.
STEPCAST_INLINE Index seen(const Sequence& s, Index query, Index first_key, Index keys) {
  return s.causal ? std::clamp<Index>(query - first_key + 1, 0, keys) : keys;
}

struct HeadForward {
  ConstMatrixView q, k, v;
  MatrixView out;
  float* log_sum_exp;
};

/// The running softmax of a block: p becomes exp(score - maximum), what is summed is rescaled.
STEPCAST_INLINE void softmax_block(const Sequence& s, Index first_query, Index rows,
                                   Index first_key, Index keys, Index width, const Tiles& t) {
  for (Index i = 0; i < rows; ++i) {
    float* p = t.p + i * kKeys;
    const Index visible = seen(s, first_query + i, first_key, keys);
    const float top = std::max(
        t.largest[i], internal::maximum_of(p, visible, std::numeric_limits<float>::lowest()));
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (Index j = 0; j < visible; ++j) {
      p[j] = internal::exponential(p[j] - top);
      total += p[j];
    }
    std::fill(p + visible, p + width, 0.0F);
    const float shrink = internal::exponential(t.largest[i] - top);
    t.largest[i] = top;
    t.total[i] = t.total[i] * shrink + total;
    float* sum = t.sum + i * t.pitch;
#pragma omp simd
    for (Index d = 0; d < t.pitch; ++d) {
      sum[d] *= shrink;
    }
  }
}

STEPCAST_MULTIVERSION void forward_head(const Sequence& s, const HeadForward& h, const Tiles& t) {
  const Index dim = h.q.columns;
  for (Index first = 0; first < s.length; first += kQueries) {
    const Index rows = std::min(kQueries, s.length - first);
    const Index padded = rounded(rows, kRows);
    pack(h.q.slice(first, rows), padded, t.pitch, s.scale, t.q);
    std::fill_n(t.sum, padded * t.pitch, 0.0F);
    std::fill_n(t.largest, rows, std::numeric_limits<float>::lowest());
    std::fill_n(t.total, rows, 0.0F);
    const Index end = s.causal ? first + rows : s.length;
    for (Index key = 0; key < end; key += kKeys) {
      const Index keys = std::min(kKeys, end - key);
      const Index width = rounded(keys, kColumns);
      pack_transposed(h.k.slice(key, keys), width, t.k_transposed);
      pack(h.v.slice(key, keys), keys, t.pitch, 1, t.v);
      multiply(padded, width, dim, {t.q, t.pitch, 1}, t.k_transposed, kKeys, t.p, kKeys, false);
      softmax_block(s, first, rows, key, keys, width, t);
      multiply(padded, t.pitch, keys, {t.p, kKeys, 1}, t.v, t.pitch, t.sum, t.pitch, true);
    }
    for (Index i = 0; i < rows; ++i) {
      const float factor = 1.0F / t.total[i];
      for (Index d = 0; d < dim; ++d) {
        h.out.row(first + i)[d] = factor * t.sum[i * t.pitch + d];
      }
      h.log_sum_exp[first + i] = t.largest[i] + std::log(t.total[i]);
    }
  }
}

struct HeadBackward {
  ConstMatrixView q, k, v, out, d_out;
  const float* log_sum_exp;
  MatrixView d_q;
};

/// p = exp(score - log-sum-exp) and d_scores = scale p (d_p - rowsum(d_out out)), in place of
/// scores and d_p; zeros where nothing is seen.
STEPCAST_INLINE void score_gradients(const Sequence& s, const HeadBackward& h, Index first,
                                     Index rows, Index padded, Index key, Index keys, Index width,
                                     const Tiles& t) {
  for (Index i = 0; i < padded; ++i) {
    float* p = t.p + i * kKeys;
    float* d = t.d_scores + i * kKeys;
    const Index visible = i < rows ? seen(s, first + i, key, keys) : 0;
    if (visible > 0) {
      const float offset = h.log_sum_exp[first + i];
      const float mean =
          internal::dot_of(h.out.row(first + i), h.d_out.row(first + i), h.out.columns);
#pragma omp simd
      for (Index j = 0; j < visible; ++j) {
        p[j] = internal::exponential(s.scale * p[j] - offset);
        d[j] = s.scale * p[j] * (d[j] - mean);
      }
    }
    std::fill(p + visible, p + width, 0.0F);
    std::fill(d + visible, d + width, 0.0F);
  }
}

/// Adds what one query head gives to d_k and d_v of a block of keys, and to its own d_q.
STEPCAST_INLINE void backward_block(const Sequence& s, const HeadBackward& h, Index key, Index keys,
                                    const Tiles& t) {
  const Index dim = h.q.columns;
  const Index width = rounded(keys, kColumns);
  for (Index first = s.causal ? key / kQueries * kQueries : 0; first < s.length;
       first += kQueries) {
    const Index rows = std::min(kQueries, s.length - first);
    const Index padded = rounded(rows, kRows);
    pack(h.q.slice(first, rows), padded, t.pitch, 1, t.q);
    pack(h.d_out.slice(first, rows), padded, t.pitch, 1, t.d_out);
    multiply(padded, width, dim, {t.q, t.pitch, 1}, t.k_transposed, kKeys, t.p, kKeys, false);
    multiply(padded, width, dim, {t.d_out, t.pitch, 1}, t.v_transposed, kKeys, t.d_scores, kKeys,
             false);
    score_gradients(s, h, first, rows, padded, key, keys, width, t);
    multiply(width, t.pitch, rows, {t.p, 1, kKeys}, t.d_out, t.pitch, t.d_v, t.pitch, true);
    multiply(width, t.pitch, rows, {t.d_scores, 1, kKeys}, t.q, t.pitch, t.d_k, t.pitch, true);
    multiply(padded, t.pitch, keys, {t.d_scores, kKeys, 1}, t.k, t.pitch, t.sum, t.pitch, false);
    add(t.sum, t.pitch, h.d_q.slice(first, rows));
  }
}

void clear(MatrixView x) {
  for (Index i = 0; i < x.rows; ++i) {
    std::fill_n(x.row(i), x.columns, 0.0F);
  }
}

void store(const float* from, Index pitch, MatrixView to) {
  for (Index i = 0; i < to.rows; ++i) {
    std::copy_n(from + i * pitch, to.columns, to.row(i));
  }
}

/// One key head of a sequence, under all query heads that read it.
STEPCAST_MULTIVERSION void backward_keys(const Sequence& s, const HeadBackward* heads, Index count,
                                         MatrixView d_k, MatrixView d_v, const Tiles& t) {
  for (Index key = 0; key < s.length; key += kKeys) {
    const Index keys = std::min(kKeys, s.length - key);
    const Index width = rounded(keys, kColumns);
    const ConstMatrixView k = heads->k.slice(key, keys);
    const ConstMatrixView v = heads->v.slice(key, keys);
    pack_transposed(k, width, t.k_transposed);
    pack_transposed(v, width, t.v_transposed);
    pack(k, keys, t.pitch, 1, t.k);
    for (Index i = 0; i < width * t.pitch; ++i) {
      t.d_k[i] = 0;
      t.d_v[i] = 0;
    }
    for (Index h = 0; h < count; ++h) {
      backward_block(s, heads[h], key, keys, t);
    }
    store(t.d_k, t.pitch, d_k.slice(key, keys));
    store(t.d_v, t.pitch, d_v.slice(key, keys));
  }
}

void check_jagged(const JaggedShape& shape, ConstMatrixView q, ConstMatrixView k) {
  STEPCAST_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
                 "{} heads over {} key heads", shape.heads, shape.kv_heads);
  STEPCAST_CHECK(!shape.offsets.empty() && shape.offsets.back() == q.rows && k.rows == q.rows,
                 "sequences of {} rows over {} queries and {} keys",
                 shape.offsets.empty() ? 0 : shape.offsets.back(), q.rows, k.rows);
  STEPCAST_CHECK(
      q.columns == shape.heads * shape.head_dim && k.columns == shape.kv_heads * shape.head_dim,
      "{} and {} columns", q.columns, k.columns);
}

/// Calls visit(sequence, sample, first row within it).
template <class Visit>
void each_sequence(const JaggedShape& shape, Visit visit) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  for (std::size_t i = 0; i + 1 < shape.offsets.size(); ++i) {
    const Index begin = shape.offsets[i];
    visit(Sequence{begin, shape.offsets[i + 1] - begin, scale, shape.causal},
          begin / shape.sample_rows, begin % shape.sample_rows);
  }
}

}  // namespace

Index JaggedShape::scratch_floats() const {
  return kRowsOfWidth * rounded(head_dim, kColumns) + kOther;
}

void jagged_attention_forward(const JaggedShape& shape, ConstMatrixView q, ConstMatrixView k,
                              ConstMatrixView v, MatrixView out, float* log_sum_exp,
                              float* scratch) {
  check_jagged(shape, q, k);
  const Tiles tiles(scratch, shape.head_dim);
  const Index group = shape.heads / shape.kv_heads;
  each_sequence(shape, [&](const Sequence& s, Index sample, Index row) {
    for (Index h = 0; h < shape.heads; ++h) {
      forward_head(s,
                   {rows_of(q, s, h, shape.head_dim), rows_of(k, s, h / group, shape.head_dim),
                    rows_of(v, s, h / group, shape.head_dim), rows_of(out, s, h, shape.head_dim),
                    log_sum_exp + (sample * shape.heads + h) * shape.sample_rows + row},
                   tiles);
    }
  });
}

void jagged_attention_backward(const JaggedShape& shape, const AttentionBackward& b,
                               float* scratch) {
  check_jagged(shape, b.q, b.k);
  const Tiles tiles(scratch, shape.head_dim);
  const Index group = shape.heads / shape.kv_heads;
  std::vector<HeadBackward> heads(static_cast<std::size_t>(group));
  each_sequence(shape, [&](const Sequence& s, Index sample, Index row) {
    for (Index kv = 0; kv < shape.kv_heads; ++kv) {
      const auto of = [&](auto x, Index head) { return rows_of(x, s, head, shape.head_dim); };
      for (Index g = 0; g < group; ++g) {
        const Index h = kv * group + g;
        heads[static_cast<std::size_t>(g)] = {
            of(b.q, h),     of(b.k, kv),
            of(b.v, kv),    of(b.out, h),
            of(b.d_out, h), b.log_sum_exp + (sample * shape.heads + h) * shape.sample_rows + row,
            of(b.d_q, h)};
        clear(of(b.d_q, h));
      }
      backward_keys(s, heads.data(), group, of(b.d_k, kv), of(b.d_v, kv), tiles);
    }
  });
}

}  // namespace stepcast::runtime::kernels
