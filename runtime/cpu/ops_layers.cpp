#include <algorithm>
#include <cmath>

#include "runtime/cpu/kernels/jagged_attention.h"
#include "runtime/cpu/op_context.h"

// Ops of models given as lists of layers (workloads/layers/layers.cpp).

namespace stepcast::runtime::cpu {
namespace {

struct Sizes {
  std::int64_t rows, width;
};
Sizes sizes(const OpContext& c) { return {c.op.shape[0], c.op.shape[1]}; }

/// Matrices one after the other; blocks of 16 x 16 so that both sides stay in cache lines.
void transpose(OpContext& c) {
  const auto [vectors, inner, rows, columns, unused4, unused5] = c.op.shape;
  const std::int64_t matrix = rows * columns;
  const float* from = c.input(0).data;
  float* to = c.output(0).data;
  constexpr std::int64_t kBlock = 16;
  for (std::int64_t m = 0; m < vectors / matrix;
       ++m, from += matrix * inner, to += matrix * inner) {
    for (std::int64_t i0 = 0; i0 < rows; i0 += kBlock) {
      for (std::int64_t j0 = 0; j0 < columns; j0 += kBlock) {
        for (std::int64_t i = i0; i < std::min(rows, i0 + kBlock); ++i) {
          for (std::int64_t j = j0; j < std::min(columns, j0 + kBlock); ++j) {
            std::copy_n(from + (i * columns + j) * inner, inner, to + (j * rows + i) * inner);
          }
        }
      }
    }
  }
}

void multiply_forward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  const float* a = c.input(0).data;
  const float* b = c.input(1).data;
  float* y = c.output(0).data;
  for (std::int64_t i = 0; i < rows * width; ++i) {
    y[i] = a[i] * b[i];
  }
}

void multiply_backward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  const float* dy = c.input(0).data;
  const float* a = c.input(1).data;
  const float* b = c.input(2).data;
  float* da = c.output(0).data;
  float* db = c.output(1).data;
  for (std::int64_t i = 0; i < rows * width; ++i) {
    da[i] = dy[i] * b[i];
    db[i] = dy[i] * a[i];
  }
}

void softmax_forward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* x = c.input(0).data + i * width;
    float* y = c.output(0).data + i * width;
    const float most = *std::max_element(x, x + width);
    float sum = 0;
    for (std::int64_t j = 0; j < width; ++j) {
      y[j] = std::exp(x[j] - most);
      sum += y[j];
    }
    for (std::int64_t j = 0; j < width; ++j) {
      y[j] /= sum;
    }
  }
}

/// dx = y * (dy - sum(dy * y)).
void softmax_backward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* dy = c.input(0).data + i * width;
    const float* y = c.input(1).data + i * width;
    float* dx = c.output(0).data + i * width;
    float sum = 0;
    for (std::int64_t j = 0; j < width; ++j) {
      sum += dy[j] * y[j];
    }
    for (std::int64_t j = 0; j < width; ++j) {
      dx[j] = y[j] * (dy[j] - sum);
    }
  }
}

void mean_rows_forward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  const std::int64_t group = c.op.shape[2];
  for (std::int64_t i = 0; i < rows / group; ++i) {
    float* y = c.output(0).data + i * width;
    std::fill_n(y, width, 0.0F);
    for (std::int64_t r = i * group; r < (i + 1) * group; ++r) {
      const float* x = c.input(0).data + r * width;
      for (std::int64_t j = 0; j < width; ++j) {
        y[j] += x[j] / static_cast<float>(group);
      }
    }
  }
}

void mean_rows_backward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  const std::int64_t group = c.op.shape[2];
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* dy = c.input(0).data + r / group * width;
    float* dx = c.output(0).data + r * width;
    for (std::int64_t j = 0; j < width; ++j) {
      dx[j] = dy[j] / static_cast<float>(group);
    }
  }
}

/// One row of `pitch` columns for `group` rows; the op's vectors begin at column `first`.
std::int64_t vectors_at(const OpContext& c, std::int64_t row) {
  const auto [rows, width, group, first, pitch, unused] = c.op.shape;
  return row / group * pitch + first;
}

void modulate_forward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = c.input(0).data + r * width;
    const float* shift = c.input(1).data + vectors_at(c, r);
    const float* scale = shift + width;
    float* y = c.output(0).data + r * width;
    for (std::int64_t j = 0; j < width; ++j) {
      y[j] = x[j] * (1 + scale[j]) + shift[j];
    }
  }
}

void modulate_backward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* dy = c.input(0).data + r * width;
    const float* x = c.input(1).data + r * width;
    const float* scale = c.input(2).data + vectors_at(c, r) + width;
    float* dx = c.output(0).data + r * width;
    float* d_shift = c.output(1).data + vectors_at(c, r);
    float* d_scale = d_shift + width;
    for (std::int64_t j = 0; j < width; ++j) {
      dx[j] = dy[j] * (1 + scale[j]);
      d_shift[j] += dy[j];
      d_scale[j] += dy[j] * x[j];
    }
  }
}

void gate_forward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = c.input(0).data + r * width;
    const float* branch = c.input(1).data + r * width;
    const float* gate = c.input(2).data + vectors_at(c, r);
    float* y = c.output(0).data + r * width;
    for (std::int64_t j = 0; j < width; ++j) {
      y[j] = x[j] + gate[j] * branch[j];
    }
  }
}

void gate_backward(OpContext& c) {
  const auto [rows, width] = sizes(c);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* dy = c.input(0).data + r * width;
    const float* branch = c.input(1).data + r * width;
    const float* gate = c.input(2).data + vectors_at(c, r);
    float* d_branch = c.output(0).data + r * width;
    float* d_gate = c.output(1).data + vectors_at(c, r);
    for (std::int64_t j = 0; j < width; ++j) {
      d_branch[j] = dy[j] * gate[j];
      d_gate[j] += dy[j] * branch[j];
    }
  }
}

/// Sequences of the micro-batch, and the columns of queries, keys and values side by side.
struct Jagged {
  explicit Jagged(const OpContext& c)
      : offsets(draw_offsets(c.graph, c.op, c.rank, c.microbatch, c.step)),
        shape{offsets,       c.op.shape[3], c.op.shape[1],
              c.op.shape[2], c.op.shape[5], (c.op.flags & op_flags::kCausal) != 0} {}
  [[nodiscard]] kernels::MatrixView part(const Matrix& qkv, int which) const {
    const std::int64_t queries = shape.heads * shape.head_dim;
    const std::int64_t keys = shape.kv_heads * shape.head_dim;
    return which == 0 ? view(qkv).block(0, queries)
                      : view(qkv).block(queries + (which - 1) * keys, keys);
  }
  std::vector<std::int32_t> offsets;
  kernels::JaggedShape shape;
};

void jagged_attention_forward(OpContext& c) {
  const Jagged j(c);
  const Matrix qkv = c.input(0);
  kernels::jagged_attention_forward(
      j.shape, j.part(qkv, 0), j.part(qkv, 1), j.part(qkv, 2), view(c.output(0)), c.output(1).data,
      c.scratch_floats(static_cast<std::size_t>(j.shape.scratch_floats())));
}

void jagged_attention_backward(OpContext& c) {
  const Jagged j(c);
  const Matrix qkv = c.input(0);
  const Matrix d_qkv = c.output(0);
  kernels::jagged_attention_backward(
      j.shape,
      {j.part(qkv, 0), j.part(qkv, 1), j.part(qkv, 2), view(c.input(1)), view(c.input(3)),
       c.input(2).data, j.part(d_qkv, 0), j.part(d_qkv, 1), j.part(d_qkv, 2)},
      c.scratch_floats(static_cast<std::size_t>(j.shape.scratch_floats())));
}

}  // namespace

OpFamily layer_ops() { return {{STEPCAST_LAYER_OPS(STEPCAST_OP)}}; }

}  // namespace stepcast::runtime::cpu
