#include <cublasLt.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/kernels/gemm.h"
#include "tests/runtime/cuda/standin/device.h"
#include "tests/runtime/cuda/standin/numbers.h"

using stepcast::Format;

namespace {

struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  Format format = Format::kFp32;
  std::int64_t rows = 0, columns = 0, leading = 0, step = 0;
  std::int32_t batch = 1;
};
struct Operation {
  bool transpose_a = false, transpose_b = false;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
  void* aux = nullptr;           ///< mask, or input of a GELU
  std::int64_t aux_leading = 0;  ///< of a mask bits
  std::int64_t aux_step = 0;     ///< from one matrix of a batch to the next
  std::int32_t aux_type = -1;    ///< -1: the result's

  [[nodiscard]] bool is(int bits) const { return (epilogue & bits) == bits; }
  [[nodiscard]] bool adds_bias() const { return is(CUBLASLT_EPILOGUE_BIAS); }
  [[nodiscard]] bool sums() const { return is(kBgrad) || is(CUBLASLT_EPILOGUE_BGRADA); }
  [[nodiscard]] bool has_aux() const { return is(kAux); }
  [[nodiscard]] bool masks() const {
    return has_aux() && (is(CUBLASLT_EPILOGUE_RELU) || is(CUBLASLT_EPILOGUE_DRELU));
  }
  static constexpr int kAux = 128;   ///< the bit of every epilogue with an auxiliary matrix
  static constexpr int kBgrad = 16;  ///< of those whose results are summed
};

bool is_fp8(const Layout& l) { return l.type == CUDA_R_8F_E4M3 || l.type == CUDA_R_8F_E5M2; }

float number(const void* data, const Layout& l, std::int64_t i) {
  if (!is_fp8(l)) {
    return stepcast::standin::load(data, l.format, i);
  }
  const auto interpretation = l.type == CUDA_R_8F_E4M3 ? __NV_E4M3 : __NV_E5M2;
  const __half_raw half =
      __nv_cvt_fp8_to_halfraw(static_cast<const __nv_fp8_storage_t*>(data)[i], interpretation);
  return __half2float(__half(half));
}

/// Checks what the library asks of fp8 products before compute capability 10.0: A transposed, B
/// not, all 16 bytes aligned, not both e5m2, one product, a result in 16 or 32 bits.
bool takes_fp8(const Operation& o, const Layout& a, const Layout& b, const Layout& d) {
  const auto aligned = [](const Layout& l) {
    const std::int64_t bytes = is_fp8(l) ? 1 : l.format == Format::kFp32 ? 4 : 2;
    return l.rows % 16 == 0 && l.leading * bytes % 16 == 0;
  };
  return is_fp8(a) && is_fp8(b) && !is_fp8(d) && o.transpose_a && !o.transpose_b &&
         o.scale_a != nullptr && o.scale_b != nullptr && d.batch == 1 && aligned(a) && aligned(b) &&
         aligned(d) && !(a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2);
}

Format format_of(cudaDataType_t type) {
  return type == CUDA_R_16BF ? Format::kBf16 : type == CUDA_R_16F ? Format::kFp16 : Format::kFp32;
}
const Layout& of(cublasLtMatrixLayout_t l) { return *reinterpret_cast<const Layout*>(l); }

/// One matrix of a batch, row-major without gaps.
std::vector<float> gathered(const void* data, const Layout& l, std::int64_t batch, bool transpose) {
  const std::int64_t rows = transpose ? l.columns : l.rows;
  const std::int64_t columns = transpose ? l.rows : l.columns;
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at = transpose ? j + i * l.leading : i + j * l.leading;
      values[static_cast<std::size_t>(i * columns + j)] = number(data, l, batch * l.step + at);
    }
  }
  return values;
}

std::uint64_t alignment_of(const void* pointer) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  return at == 0 ? 256 : std::min<std::uintptr_t>(256, at & (~at + 1));
}

/// Checks what the header says of the operands of an epilogue: a bias and what goes with a GELU are
/// of the result's type; an auxiliary matrix begins its columns a multiple of 8 numbers apart, a
/// mask of 128 bits, no closer than the result has rows, and so its batches.
bool takes_epilogue(const Operation& o, const Layout& d) {
  const std::int64_t pack = o.masks() ? 128 : 8;
  const bool row = !(o.adds_bias() || o.sums()) || (o.bias != nullptr && o.bias_type == d.type);
  const bool aux =
      !o.has_aux() || (o.aux != nullptr && o.aux_leading % pack == 0 && o.aux_leading >= d.rows &&
                       (d.batch == 1 || (o.aux_step > 0 && o.aux_step % pack == 0)) &&
                       (o.masks() || o.aux_type == -1 || o.aux_type == d.type) &&
                       alignment_of(o.aux) >= (d.format == Format::kFp32 || o.masks() ? 4U : 2U));
  return row && aux;
}

/// The tanh form and its slope, in double: not the kernels' own arithmetic.
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/// Value that the epilogue makes of element (i, j) of a column-major result; its mask has a bit for
/// each.
float after_product(const Operation& o, const Layout& d, std::int64_t batch, std::int64_t i,
                    std::int64_t j, float x) {
  const std::int64_t at = batch * o.aux_step + i + j * o.aux_leading;
  auto* const words = static_cast<std::uint32_t*>(o.aux);
  const auto word = static_cast<std::size_t>(at / 32);
  const std::uint32_t one = std::uint32_t{1} << (at % 32);
  if (o.adds_bias()) {
    x += stepcast::standin::load(o.bias, format_of(o.bias_type), i);
  }
  if (o.is(CUBLASLT_EPILOGUE_DRELU)) {
    return (words[word] & one) != 0 ? x : 0.0F;
  }
  if (o.is(CUBLASLT_EPILOGUE_DGELU)) {
    return static_cast<float>(x * gelu_slope(stepcast::standin::load(o.aux, d.format, at)));
  }
  if (o.masks()) {
    words[word] = x > 0 ? words[word] | one : words[word] & ~one;
  } else if (o.has_aux()) {
    stepcast::standin::store(o.aux, d.format, at, x);
  }
  return o.is(CUBLASLT_EPILOGUE_RELU)   ? std::max(0.0F, x)
         : o.is(CUBLASLT_EPILOGUE_GELU) ? static_cast<float>(gelu(x))
                                        : x;
}

template <class T>
T value_at(const void* buffer) {
  return *static_cast<const T*>(buffer);
}

}  // namespace

namespace stepcast::standin {
std::int64_t algorithms_asked_for = 0;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
std::size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "standin"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "standin"; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, format_of(type), static_cast<std::int64_t>(rows),
                 static_cast<std::int64_t>(columns), leading, 0, 1});
  return leading >= static_cast<std::int64_t>(rows) ? CUBLAS_STATUS_SUCCESS
                                                    : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<const Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, std::size_t) {
  auto& l = *reinterpret_cast<Layout*>(layout);
  if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
    l.batch = value_at<std::int32_t>(value);
  } else if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
    l.step = value_at<std::int64_t>(value);
  } else if (what == CUBLASLT_MATRIX_LAYOUT_COLS) {
    l.columns = static_cast<std::int64_t>(value_at<std::uint64_t>(value));
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t,
                                        cudaDataType_t) {
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t operation) {
  delete reinterpret_cast<const Operation*>(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, std::size_t) {
  auto& o = *reinterpret_cast<Operation*>(operation);
  if (what == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
      what == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) {
    (what == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ? o.scale_a : o.scale_b) =
        value_at<const float*>(value);
    return CUBLAS_STATUS_SUCCESS;
  }
  switch (what) {
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      o.epilogue = value_at<cublasLtEpilogue_t>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      o.bias = value_at<void*>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      o.bias_type = value_at<cudaDataType_t>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      o.aux = value_at<void*>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      o.aux_leading = value_at<std::int64_t>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      o.aux_step = value_at<std::int64_t>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      o.aux_type = value_at<std::int32_t>(value);
      return CUBLAS_STATUS_SUCCESS;
    default:
      break;
  }
  const bool transpose = value_at<cublasOperation_t>(value) == CUBLAS_OP_T;
  (what == CUBLASLT_MATMUL_DESC_TRANSA ? o.transpose_a : o.transpose_b) = transpose;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<const int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 1;
  ++stepcast::standin::algorithms_asked_for;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].algo.data[2] = static_cast<std::uint64_t>(of(d).columns);
  if (is_fp8(of(a)) || is_fp8(of(b))) {
    return takes_fp8(*reinterpret_cast<const Operation*>(operation), of(a), of(b), of(d))
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto& o = *reinterpret_cast<const Operation*>(operation);
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    // Results narrower than this have no algorithm with an epilogue, nor has this one of them.
    const bool has = of(d).rows >= stepcast::standin::setting("STANDIN_EPILOGUE_WIDTH", 0) &&
                     o.epilogue != stepcast::standin::setting("STANDIN_NO_EPILOGUE", 0);
    if (!has || !takes_epilogue(o, of(d))) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    // The algorithm counts on the alignment that these addresses have now.
    results[0].algo.data[0] = alignment_of(o.bias);
    results[0].algo.data[1] = alignment_of(o.aux);
  }
  return of(a).format == of(b).format ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t,
                              cudaStream_t stream) {
  const Operation o = *reinterpret_cast<const Operation*>(operation);
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      stepcast::standin::setting("STANDIN_EPILOGUE_FAILS", 0) != 0) {
    return CUBLAS_STATUS_NOT_SUPPORTED;  // what the heuristic found does not run
  }
  const Layout la = of(a_layout);
  const Layout lb = of(b_layout);
  const Layout ld = of(d_layout);
  if (stepcast::standin::setting("STANDIN_ALGORITHMS_OF_ONE_SIZE", 0) != 0 &&
      algorithm->data[2] != static_cast<std::uint64_t>(ld.columns)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const std::int64_t k = o.transpose_a ? la.rows : la.columns;
  if (k != (o.transpose_b ? lb.columns : lb.rows) ||
      ld.rows != (o.transpose_a ? la.columns : la.rows) ||
      ld.columns != (o.transpose_b ? lb.rows : lb.columns) || c != d) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool fp8 = is_fp8(la);
  if (fp8 && (!takes_fp8(o, la, lb, ld) || reinterpret_cast<std::uintptr_t>(a) % 16 != 0 ||
              reinterpret_cast<std::uintptr_t>(b) % 16 != 0)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      (!takes_epilogue(o, ld) || alignment_of(o.bias) < algorithm->data[0] ||
       alignment_of(o.aux) < algorithm->data[1])) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const float factor_of_all = *static_cast<const float*>(alpha);
  const float more = *static_cast<const float*>(beta);
  stepcast::standin::arrive(stream);
  stepcast::standin::enqueue([=] {
    // The scales are read when the product runs.
    const float factor = fp8 ? factor_of_all * *o.scale_a * *o.scale_b : factor_of_all;
    for (std::int64_t batch = 0; batch < ld.batch; ++batch) {
      const auto left = gathered(a, la, batch, o.transpose_a);
      const auto right = gathered(b, lb, batch, o.transpose_b);
      std::vector<float> product(static_cast<std::size_t>(ld.rows * ld.columns));
      stepcast::runtime::kernels::Gemm g;
      g.m = ld.rows;
      g.n = ld.columns;
      g.k = k;
      stepcast::runtime::kernels::gemm(g, left.data(), right.data(), product.data());
      for (std::int64_t i = 0; i < ld.rows; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < ld.columns; ++j) {
          const std::int64_t at = batch * ld.step + i + j * ld.leading;
          const float before = more == 0 ? 0 : more * stepcast::standin::load(d, ld.format, at);
          const float value = after_product(
              o, ld, batch, i, j,
              factor * product[static_cast<std::size_t>(i * ld.columns + j)] + before);
          sum += value;
          stepcast::standin::store(d, ld.format, at, value);
        }
        if (o.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
          sum = 0;
          for (std::int64_t j = 0; j < k; ++j) {
            sum += left[static_cast<std::size_t>(i * k + j)];
          }
        }
        if (o.sums()) {
          stepcast::standin::store(o.bias, format_of(o.bias_type), i, static_cast<float>(sum));
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
