#pragma once
#include <cstdint>
#include <vector>

#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// cos and sin of position p times theta^(-2 i / head_dim), i < head_dim / 2: rows of `head_dim`
/// floats, cosines first.
class RotaryTable {
 public:
  /// Positions first_position .. first_position + length - 1. `head_dim` is even. Llama: theta
  /// 10000 (2) or 500000 (3).
  RotaryTable(Index length, Index head_dim, double theta = 10000, Index first_position = 0);
  [[nodiscard]] const float* row(Index position) const {
    return values_.data() + position * head_dim_;
  }
  [[nodiscard]] Index length() const { return length_; }
  [[nodiscard]] Index head_dim() const { return head_dim_; }

 private:
  Index length_;
  Index head_dim_;
  std::vector<float> values_;
};

/// Rotates, in place, the pairs (x[i], x[i + head_dim / 2]) of each head by the angle of its
/// token's position. x [tokens, heads * head_dim], heads inferred; row t holds position t mod
/// table.length() (rows are [batch, sequence] with sequence = length). Source: Su et al., arXiv
/// 2104.09864, in the half-split pairing of Llama's published checkpoints.
void rotary_forward(const RotaryTable& table, MatrixView x);

/// The inverse rotation, in place on the gradient.
void rotary_backward(const RotaryTable& table, MatrixView dx);

/// Learned positions: x[t] += positions[t mod positions.rows].
void add_positions(ConstMatrixView positions, MatrixView x);
/// d_positions[t mod rows] += dx[t].
void add_positions_backward(ConstMatrixView dx, MatrixView d_positions);

}  // namespace stepcast::runtime::kernels
