#pragma once
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// `matrices` row-major matrices [rows, columns] of vectors of `inner` elements, one after the
/// other: out [columns, rows] of the same vectors. out and x do not overlap.
struct Transpose {
  Index matrices = 0;
  Index rows = 0;
  Index columns = 0;
  Index inner = 1;
};
void transpose(const Transpose& shape, const void* x, Format format, void* out,
               cudaStream_t stream);

/// out = a * b, element by element; backward: da = dy * b, db = dy * a.
void multiply_forward(ConstMatrixView a, ConstMatrixView b, MatrixView out, cudaStream_t stream);
void multiply_backward(ConstMatrixView dy, ConstMatrixView a, ConstMatrixView b, MatrixView da,
                       MatrixView db, cudaStream_t stream);

/// out [rows / group, columns] = mean of each `group` neighbouring rows of x; backward: dx = dy of
/// the row's group / group.
void mean_rows_forward(ConstMatrixView x, Index group, MatrixView out, cudaStream_t stream);
void mean_rows_backward(ConstMatrixView dy, Index group, MatrixView dx, cudaStream_t stream);

/// y = x * (1 + scale) + shift. `shift` and `scale` [x.rows / group, columns] have one row for
/// `group` neighbouring rows of x. Backward: dx = dy * (1 + scale); d_shift += sum over the group
/// of dy; d_scale += sum of dy * x. dx is neither dy nor x.
void modulate_forward(ConstMatrixView x, ConstMatrixView shift, ConstMatrixView scale, Index group,
                      MatrixView y, cudaStream_t stream);
void modulate_backward(ConstMatrixView dy, ConstMatrixView x, ConstMatrixView scale, Index group,
                       MatrixView dx, MatrixView d_shift, MatrixView d_scale, cudaStream_t stream);

/// y = x + gate * branch, gate as the scale of modulate. Backward: d_branch = dy * gate; d_gate +=
/// sum over the group of dy * branch. d_branch is neither dy nor branch.
void gate_forward(ConstMatrixView x, ConstMatrixView branch, ConstMatrixView gate, Index group,
                  MatrixView y, cudaStream_t stream);
void gate_backward(ConstMatrixView dy, ConstMatrixView branch, ConstMatrixView gate, Index group,
                   MatrixView d_branch, MatrixView d_gate, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
