#include "runtime/cuda/kernels/loss.h"

#include <cfloat>

#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Operand;

constexpr unsigned kRowThreads = 512;
constexpr unsigned kTotalThreads = 1024;

__device__ inline std::int32_t token_of(const TokenRows& tokens, Index row) {
  return tokens.data[row / tokens.sequence * tokens.pitch + row % tokens.sequence];
}

/// Calls visit(column, x) for the packs of this thread; the last columns % N one by one.
template <class T, int N, class Visit>
__device__ inline void for_each_in_row(const Operand& m, Index row, Index columns, Visit visit) {
  const Index whole = columns / N * N;
  for (Index column = static_cast<Index>(threadIdx.x) * N; column < whole;
       column += static_cast<Index>(blockDim.x) * N) {
    float x[N];
    internal::load<T, N>(m.data, m.format, row * m.stride + column, x);
    visit(column, x);
  }
  for (Index column = whole + threadIdx.x; column < columns; column += blockDim.x) {
    float x[1];
    internal::load<T, 1>(m.data, m.format, row * m.stride + column, x);
    visit(column, x);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    maximum_kernel(Operand logits, Index columns, float* maximum) {
  __shared__ float shared[32];
  const Index row = blockIdx.x;
  float largest = -FLT_MAX;
  for_each_in_row<T, N>(logits, row, columns, [&](Index, auto& x) {
    for (const float value : x) {
      largest = fmaxf(largest, value);
    }
  });
  largest = internal::block_reduce(largest, -FLT_MAX, internal::Maximum{}, shared);
  if (threadIdx.x == 0) {
    maximum[row] = largest;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    sum_kernel(Operand logits, Index columns, std::int64_t first, TokenRows targets,
               const float* maximum, float* sum, float* target_logit) {
  __shared__ float shared[32];
  const Index row = blockIdx.x;
  const float largest = maximum[row];
  float total = 0;
  for_each_in_row<T, N>(logits, row, columns, [&](Index, auto& x) {
    for (const float value : x) {
      total += expf(value - largest);
    }
  });
  total = internal::block_reduce(total, 0.0F, internal::Add{}, shared);
  if (threadIdx.x == 0) {
    const std::int32_t target = token_of(targets, row);
    const Index column = target - first;
    sum[row] = total;
    target_logit[row] =
        target >= 0 && column >= 0 && column < columns
            ? internal::load_one(logits.data, logits.format, row * logits.stride + column)
            : 0.0F;
  }
}

/// row_loss [rows]: what each row adds to the loss, before the factor.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    loss_kernel(Operand logits, Index columns, std::int64_t first, TokenRows targets,
                const float* maximum, const float* sum, const float* target_logit, float factor,
                Operand d_logits, double* row_loss) {
  const Index row = blockIdx.x;
  const std::int32_t target = token_of(targets, row);
  const bool counted = target >= 0;
  const float largest = maximum[row];
  if (threadIdx.x == 0) {
    row_loss[row] = counted ? log(static_cast<double>(sum[row])) + static_cast<double>(largest) -
                                  static_cast<double>(target_logit[row])
                            : 0.0;
  }
  if (d_logits.data == nullptr) {
    return;
  }
  const float row_factor = counted ? factor / sum[row] : 0.0F;
  const Index marked = counted ? target - first : -1;
  for_each_in_row<T, N>(logits, row, columns, [&](Index column, auto& x) {
    constexpr int kCount = sizeof(x) / sizeof(float);
    for (int i = 0; i < kCount; ++i) {
      x[i] = row_factor * expf(x[i] - largest) - (column + i == marked ? factor : 0.0F);
    }
    internal::store<T, kCount>(d_logits.data, d_logits.format, row * d_logits.stride + column, x);
  });
}

__global__ void binary_kernel(Operand logits, Operand labels, Index rows, float factor,
                              Operand d_logits, double* row_loss) {
  const Index row = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) {
    return;
  }
  const float z = internal::load_one(logits.data, logits.format, row * logits.stride);
  const float y = internal::load_one(labels.data, labels.format, row * labels.stride);
  const float decay = expf(-fabsf(z));
  row_loss[row] = static_cast<double>(fmaxf(z, 0.0F) - z * y) + log1p(static_cast<double>(decay));
  if (d_logits.data != nullptr) {
    const float sigmoid = (z >= 0 ? 1.0F : decay) / (1.0F + decay);
    internal::store_one(d_logits.data, d_logits.format, row * d_logits.stride,
                        factor * (sigmoid - y));
  }
}

/// One block: *loss += factor * sum of row_loss.
__global__ void __launch_bounds__(kTotalThreads)
    total_kernel(const double* row_loss, Index rows, double factor, double* loss) {
  __shared__ double shared[32];
  double total = 0;
  for (Index row = threadIdx.x; row < rows; row += blockDim.x) {
    total += row_loss[row];
  }
  total = internal::block_reduce(total, 0.0, internal::Add{}, shared);
  if (threadIdx.x == 0) {
    *loss += factor * total;
  }
}

void add_total(const Workspace& workspace, Index rows, float factor, double* loss,
               cudaStream_t stream) {
  internal::launch("loss total", total_kernel, {1, kTotalThreads}, stream,
                   static_cast<const double*>(workspace.data), rows, static_cast<double>(factor),
                   loss);
}

/// Calls visit(Type<T>, constant N): packs where every row starts aligned.
template <class Visit>
void for_rows(const ConstMatrixView& logits, const ConstMatrixView& other, Visit visit) {
  internal::with_element(logits.format, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kN = internal::kPack<T>;
    const auto aligned = [](const ConstMatrixView& m) {
      return m.data == nullptr ||
             internal::packs(ConstMatrixView(m.data, m.format, m.rows, 0, m.stride), kN);
    };
    if (aligned(logits) && aligned(other)) {
      visit(type, std::integral_constant<int, kN>{});
    } else {
      visit(type, std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace

void cross_entropy_maximum(ConstMatrixView logits, float* maximum, cudaStream_t stream) {
  if (logits.rows == 0) {
    return;
  }
  for_rows(logits, {}, [&](auto type, auto n) {
    internal::launch("cross_entropy_maximum",
                     maximum_kernel<typename decltype(type)::type, decltype(n)::value>,
                     {static_cast<unsigned>(logits.rows), kRowThreads}, stream,
                     internal::operand(logits), logits.columns, maximum);
  });
}

void cross_entropy_sum(ConstMatrixView logits, std::int64_t first, TokenRows targets,
                       const float* maximum, float* sum, float* target_logit, cudaStream_t stream) {
  if (logits.rows == 0) {
    return;
  }
  for_rows(logits, {}, [&](auto type, auto n) {
    internal::launch(
        "cross_entropy_sum", sum_kernel<typename decltype(type)::type, decltype(n)::value>,
        {static_cast<unsigned>(logits.rows), kRowThreads}, stream, internal::operand(logits),
        logits.columns, first, targets, maximum, sum, target_logit);
  });
}

std::size_t loss_workspace(Index rows) { return static_cast<std::size_t>(rows) * sizeof(double); }

void cross_entropy_loss(ConstMatrixView logits, std::int64_t first, TokenRows targets,
                        const float* maximum, const float* sum, const float* target_logit,
                        float factor, MatrixView d_logits, double* loss, Workspace workspace,
                        cudaStream_t stream) {
  if (logits.rows == 0) {
    return;
  }
  internal::require_workspace(workspace.bytes, loss_workspace(logits.rows), "cross_entropy_loss");
  internal::require(d_logits.data == nullptr || d_logits.format == logits.format,
                    "logits and their gradient have one format");
  for_rows(logits, d_logits, [&](auto type, auto n) {
    internal::launch(
        "cross_entropy_loss", loss_kernel<typename decltype(type)::type, decltype(n)::value>,
        {static_cast<unsigned>(logits.rows), kRowThreads}, stream, internal::operand(logits),
        logits.columns, first, targets, maximum, sum, target_logit, factor,
        internal::operand(d_logits), static_cast<double*>(workspace.data));
  });
  add_total(workspace, logits.rows, factor, loss, stream);
}

void binary_cross_entropy(ConstMatrixView logits, ConstMatrixView labels, float factor,
                          MatrixView d_logits, double* loss, Workspace workspace,
                          cudaStream_t stream) {
  const Index rows = logits.rows;
  if (rows == 0) {
    return;
  }
  internal::require_workspace(workspace.bytes, loss_workspace(rows), "binary_cross_entropy");
  constexpr Index kThreads = 256;
  internal::launch("binary_cross_entropy", binary_kernel,
                   {static_cast<unsigned>(internal::ceil_div(rows, kThreads)), kThreads}, stream,
                   internal::operand(logits), internal::operand(labels), rows, factor,
                   internal::operand(d_logits), static_cast<double*>(workspace.data));
  add_total(workspace, rows, factor, loss, stream);
}

}  // namespace stepcast::runtime::cuda::kernels
