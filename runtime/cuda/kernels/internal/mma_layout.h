#pragma once
#include "core/host_device.h"

namespace stepcast::runtime::cuda::kernels::internal {

// Who holds what in mma.sync.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16", 16-bit inputs,
// fp32 sums), as functions of the lane. A 32-bit register of an input holds two neighbouring
// elements.

struct Place {
  int row;
  int column;
};

/// C and D [16, 8], registers 0..3, one fp32 each.
STEPCAST_HOST_DEVICE constexpr Place mma_c(int lane, int reg) {
  return {lane / 4 + reg / 2 * 8, lane % 4 * 2 + reg % 2};
}

// ldmatrix.x4 reads four 8 x 8 matrices of 16-bit elements; lane i names the first element of row i
// % 8 of matrix i / 8 and receives, as register m, elements (lane / 4, 2 (lane % 4) + half) of
// matrix m; with .trans, those of its transpose. Below: the element each lane names, relative to
// the tile's first, so that the four registers are ...

/// ... the A fragment of [16 rows, 16 k] stored as [row][k].
STEPCAST_HOST_DEVICE constexpr Place ldmatrix_a(int lane) { return {lane % 16, lane / 16 * 8}; }
/// ... B fragments (b0, b1 | b0, b1) of two k steps of 16, stored as [column][k].
STEPCAST_HOST_DEVICE constexpr Place ldmatrix_b_two_steps(int lane) {
  return {lane % 8, lane / 8 * 8};
}
/// ... with .trans, B fragments (b0, b1 | b0, b1) of two neighbouring column tiles, stored as
/// [k][column].
STEPCAST_HOST_DEVICE constexpr Place ldmatrix_b_trans(int lane) {
  return {lane % 16, lane / 16 * 8};
}

/// Elements from one row of a tile in shared memory to the next: 8 more than it holds, so that the
/// 16-byte pieces that ldmatrix reads together lie in different banks.
STEPCAST_HOST_DEVICE constexpr int tile_pitch(int columns) { return columns + 8; }

}  // namespace stepcast::runtime::cuda::kernels::internal
