#pragma once
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// x = value, in every element.
void fill(MatrixView x, float value, cudaStream_t stream);

/// x[i, j] = initial_value(rows[i], first_column + j, scale): runtime/initial_value.h. `rows` is on
/// the device.
void fill_initial(MatrixView x, const std::uint64_t* rows, Index first_column, float scale,
                  cudaStream_t stream);

/// out = x, converted to out's format, equal shapes of any strides. The same address and format is
/// left alone; otherwise the two do not overlap. `round_to` (kBf16, kFp16) rounds on the way, for
/// casts whose result is stored wider.
void copy_block(ConstMatrixView x, MatrixView out, cudaStream_t stream);
void copy_rounded(ConstMatrixView x, Format round_to, MatrixView out, cudaStream_t stream);

/// One strided block of a copy, in elements of its matrices.
struct BlockCopy {
  ConstMatrixView from;
  MatrixView to;
};
/// Disjoint blocks in as few launches as possible (column blocks side by side; 32 blocks a launch).
/// Blocks of one call may differ in shape and format.
void copy_blocks(const BlockCopy* blocks, Index count, cudaStream_t stream);

/// out = factor * x; out may be x.
void scale(ConstMatrixView x, float factor, MatrixView out, cudaStream_t stream);
/// out = a + b; out may be a or b.
void add(ConstMatrixView a, ConstMatrixView b, MatrixView out, cudaStream_t stream);
/// out = a + b + row, `row` [columns] added to every row; out may be a or b.
void add_with_row(ConstMatrixView a, ConstMatrixView b, ConstVector row, MatrixView out,
                  cudaStream_t stream);
/// y += alpha * x.
void axpy(float alpha, ConstMatrixView x, MatrixView y, cudaStream_t stream);

/// sums[j] += sum over rows of x[i, j].
std::size_t column_sums_workspace(Index rows, Index columns);
void add_column_sums(ConstMatrixView x, Vector sums, Workspace workspace, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
