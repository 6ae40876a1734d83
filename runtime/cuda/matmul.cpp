#include "runtime/cuda/matmul.h"

#include <tuple>
#include <utility>

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/quantise.h"

namespace stepcast::runtime::cuda {
namespace {

/// Size of kLibraryWorkspace as NVIDIA recommends it for Hopper; older devices ask for less.
constexpr std::size_t kMostPlans = 4096;
constexpr std::size_t kLibraryWorkspace = std::size_t{32} << 20;

cudaDataType_t type_of(const MatmulPlan::Matrix& m) {
  switch (m.format) {
    case Format::kFp8:
      return m.gradient ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    case Format::kBf16:
      return CUDA_R_16BF;
    case Format::kFp16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cublasLtMatrixLayout_t layout_of(const MatmulPlan::Matrix& m, std::int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(m), static_cast<std::uint64_t>(m.rows),
                                   static_cast<std::uint64_t>(m.columns), m.leading),
        "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                           sizeof count),
          "cublasLtMatrixLayoutSetAttribute(BATCH_COUNT)");
    check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &m.step, sizeof m.step),
          "cublasLtMatrixLayoutSetAttribute(STRIDED_BATCH_OFFSET)");
  }
  return layout;
}

/// Column-major: a row of ours is a column of the library's, so its rows' bias is our columns', and
/// our B its A.
cublasLtEpilogue_t library_epilogue(Epilogue e) {
  switch (e) {
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::kBiasReluMask:
      return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case Epilogue::kReluBackward:
      return CUBLASLT_EPILOGUE_DRELU_BGRAD;
    case Epilogue::kColumnSums:
      return CUBLASLT_EPILOGUE_BGRADA;
    case Epilogue::kGelu:
      return CUBLASLT_EPILOGUE_GELU;
    case Epilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case Epilogue::kGeluInput:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kBiasGeluInput:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluBackward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kGeluBackwardSums:
      return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

/// Writes the matrices of one operand, without gaps, in the format they are multiplied in.
const void* converted(const MatmulPlan::Matrix& m, const void* data, Format stored,
                      std::int64_t stride, std::int64_t step, std::int64_t batch,
                      kernels::Workspace& left, cudaStream_t stream) {
  if (!m.converted) {
    return data;
  }
  void* out = left.data;
  const kernels::Index rows = m.columns;  // row-major again
  const kernels::Index columns = m.rows;
  const std::int64_t matrices = m.step == 0 ? 1 : batch;
  const std::size_t size = static_cast<std::size_t>(rows * columns) * stored_bytes(m.format);
  for (std::int64_t i = 0; i < matrices; ++i) {
    const kernels::ConstMatrixView from(
        static_cast<const char*>(data) + static_cast<std::size_t>(i * step) * stored_bytes(stored),
        stored, rows, columns, stride == 0 ? columns : stride);
    const kernels::MatrixView to(static_cast<char*>(out) + static_cast<std::size_t>(i) * size,
                                 m.format, rows, columns);
    kernels::copy_block(from, to, stream);
  }
  const std::size_t used = (static_cast<std::size_t>(matrices) * size + 255) / 256 * 256;
  STEPCAST_CHECK(used <= left.bytes, "a workspace of {} bytes is too small for {}", left.bytes,
                 used);
  left = {static_cast<char*>(left.data) + used, left.bytes - used};
  return out;
}

/// Quantises an operand into the workspace; `factor` is what turns sums of it back.
const void* quantised(const MatmulPlan::Matrix& m, const kernels::ConstMatrixView& x,
                      bool transpose, const float*& factor, kernels::Workspace& left,
                      cudaStream_t stream) {
  const auto take = [&left](std::size_t bytes) {
    const std::size_t used = (bytes + 255) / 256 * 256;
    STEPCAST_CHECK(used <= left.bytes, "a workspace of {} bytes is too small for {}", left.bytes,
                   used);
    void* taken = left.data;
    left = {static_cast<char*>(left.data) + used, left.bytes - used};
    return taken;
  };
  void* out = take(static_cast<std::size_t>(m.rows * m.columns));
  const kernels::Workspace scales{take(kernels::kQuantiseWorkspace), kernels::kQuantiseWorkspace};
  const kernels::Fp8 format = m.gradient ? kernels::Fp8::kE5m2 : kernels::Fp8::kE4m3;
  const kernels::QuantisedRows rows{out, m.rows};
  factor = kernels::quantise({x, format, transpose ? kernels::QuantisedRows() : rows,
                              transpose ? rows : kernels::QuantisedRows()},
                             scales, stream);
  return out;
}

kernels::ConstMatrixView view_of(const void* data, Format format, std::int64_t rows,
                                 std::int64_t columns, std::int64_t stride) {
  return {data, format, rows, columns, stride == 0 ? columns : stride};
}

}  // namespace

/// A plan made ready: descriptors and the algorithm that the library's heuristic prefers.
struct Matmul::Prepared {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool chosen = false;
  std::string rejection;  ///< why there is no algorithm

  explicit Prepared(const MatmulPlan& plan) {
    check(
        cublasLtMatmulDescCreate(
            &operation, plan.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
    set_transpose(CUBLASLT_MATMUL_DESC_TRANSA, plan.first.transpose);
    set_transpose(CUBLASLT_MATMUL_DESC_TRANSB, plan.second.transpose);
    first = layout_of(plan.first, plan.batch);
    second = layout_of(plan.second, plan.batch);
    out = layout_of(plan.out, plan.batch);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    for (cublasLtMatrixLayout_t layout : {first, second, out}) {
      if (layout != nullptr) {
        let_go(cublasLtMatrixLayoutDestroy(layout));
      }
    }
    if (operation != nullptr) {
      let_go(cublasLtMatmulDescDestroy(operation));
    }
  }

  /// Tells the device where it finds what sums of fp8 operands are multiplied by.
  void set_factors(const float* of_first, const float* of_second) const {
    const auto set = [this](cublasLtMatmulDescAttributes_t what, const float* value) {
      check(cublasLtMatmulDescSetAttribute(operation, what, &value, sizeof value),
            "cublasLtMatmulDescSetAttribute(SCALE_POINTER)");
    };
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_first);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_second);
  }

  /// The operands of the epilogue: `row` is the bias, or where column sums go. What it goes with is
  /// of the result's type, which is the library's own choice.
  void set_epilogue(const MatmulPlan& plan, const void* row, Format of_row, const void* aux) const {
    const auto set = [this](cublasLtMatmulDescAttributes_t what, auto value) {
      check(cublasLtMatmulDescSetAttribute(operation, what, &value, sizeof value),
            "cublasLtMatmulDescSetAttribute(EPILOGUE)");
    };
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(plan.epilogue));
    if (row != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, row);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of({.format = of_row}));
    }
    if (plan.aux_leading > 0) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, plan.aux_leading);
    }
  }

  /// The same matrices with another number of columns, which are rows of ours.
  void set_columns(const MatmulPlan& plan) const {
    for (const auto& [layout, matrix] :
         {std::pair(first, &plan.first), {second, &plan.second}, {out, &plan.out}}) {
      const auto columns = static_cast<std::uint64_t>(matrix->columns);
      check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns,
                                             sizeof columns),
            "cublasLtMatrixLayoutSetAttribute(COLS)");
    }
  }

  [[nodiscard]] cublasStatus_t run(cublasLtHandle_t handle, const Product& product,
                                   const void* of_first, const void* of_second, void* c,
                                   const kernels::Workspace& workspace, cudaStream_t stream) const {
    return cublasLtMatmul(handle, operation, &product.alpha, of_first, first, of_second, second,
                          &product.beta, c, out, c, out, &algorithm, workspace.data,
                          workspace.bytes, stream);
  }

  /// Asks for the algorithm, or why there is none.
  void choose(cublasLtHandle_t handle, const MatmulPlan& plan) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kLibraryWorkspace});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, plan.first.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, plan.second.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, plan.out.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, plan.out.alignment);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t code = cublasLtMatmulAlgoGetHeuristic(
        handle, operation, first, second, out, out, preference, 1, &result, &found);
    let_go(cublasLtMatmulPreferenceDestroy(preference));
    const bool known = code != CUBLAS_STATUS_NOT_SUPPORTED;
    check(
        known ? code : CUBLAS_STATUS_SUCCESS,
        fmt::format("cublasLtMatmulAlgoGetHeuristic for {} x {} x {} ({} operands, {} "
                    "result)",
                    plan.n, plan.m, plan.k, name_of(plan.first.format), name_of(plan.out.format)));
    if (!known || found == 0 || result.state != CUBLAS_STATUS_SUCCESS) {
      rejection = fmt::format(
          "cuBLASLt has no algorithm for a product of {} x {} x {} ({} operands, {} result{})",
          plan.n, plan.m, plan.k, name_of(plan.first.format), name_of(plan.out.format),
          plan.epilogue == Epilogue::kNone ? ""
                                           : fmt::format(", epilogue {}", name_of(plan.epilogue)));
    }
    algorithm = result.algo;
    chosen = true;
  }

 private:
  void set_transpose(cublasLtMatmulDescAttributes_t what, bool transpose) const {
    const cublasOperation_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(operation, what, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
};

Matmul::Matmul() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }

Matmul::~Matmul() {
  cache_.clear();
  let_go(cublasLtDestroy(handle_));
}

std::size_t Matmul::library_workspace() { return kLibraryWorkspace; }

std::size_t Matmul::workspace_bytes(const MatmulPlan& plan) {
  return plan.converted_bytes() + kLibraryWorkspace;
}

std::string Matmul::version() {
  const std::size_t v = cublasLtGetVersion();
  return fmt::format("cublasLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

std::string Matmul::rejection(const MatmulPlan& plan, const EpilogueOperands& epilogue,
                              const kernels::Workspace& workspace) {
  return prepared(plan, {}, epilogue, workspace.data).rejection;
}

Matmul::Prepared& Matmul::prepared(const MatmulPlan& plan, const Factors& factors,
                                   const EpilogueOperands& epilogue, void* sums) {
  if (cache_.size() >= kMostPlans) {  // of experts whose rows no rounded plan serves
    cache_.clear();
  }
  Prepared& p = cache_.try_emplace(plan, plan).first->second;
  if (plan.epilogue != Epilogue::kNone) {
    p.set_epilogue(plan, plan.sums() ? sums : epilogue.bias.data,
                   plan.sums() ? plan.out.format : epilogue.bias.format, epilogue.aux.data);
  }
  if (plan.fp8()) {
    p.set_factors(factors.first, factors.second);
  }
  if (!p.chosen) {
    p.choose(handle_, plan);
  }
  return p;
}

void Matmul::operator()(const Product& product, const Operand& a, const Operand& b, void* c,
                        kernels::Workspace workspace, cudaStream_t stream,
                        const EpilogueOperands& epilogue) {
  if (product.m == 0 || product.n == 0 || product.batch == 0) {
    return;
  }
  if (product.k == 0) {
    const kernels::MatrixView out(c, product.c, product.m * product.batch, product.n);
    kernels::scale(out, product.beta, out, stream);
    return;
  }
  const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const MatmulPlan plan = matmul_plan(product, address(a.data), address(b.data), address(c),
                                      {address(epilogue.bias.data), address(epilogue.aux.data)});
  const void* first = b.ready.data;
  const void* second = a.ready.data;
  Factors factors{b.ready.factor, a.ready.factor};
  if (plan.fp8()) {
    const auto [m, n, k] = std::tuple(product.m, product.n, product.k);
    if (first == nullptr) {
      first = quantised(plan.first,
                        product.transpose_b ? view_of(b.data, product.b, n, k, product.stride_b)
                                            : view_of(b.data, product.b, k, n, product.stride_b),
                        !product.transpose_b, factors.first, workspace, stream);
    }
    if (second == nullptr) {
      second = quantised(plan.second,
                         product.transpose_a ? view_of(a.data, product.a, k, m, product.stride_a)
                                             : view_of(a.data, product.a, m, k, product.stride_a),
                         product.transpose_a, factors.second, workspace, stream);
    }
  } else {
    first = converted(plan.first, b.data, product.b, product.stride_b, product.step_b,
                      product.batch, workspace, stream);
    second = converted(plan.second, a.data, product.a, product.stride_a, product.step_a,
                       product.batch, workspace, stream);
  }
  kernels::MatrixView sums;
  if (plan.sums()) {
    sums = {workspace.data, plan.out.format, 1, product.n};
    const std::size_t taken =
        (static_cast<std::size_t>(product.n) * stored_bytes(plan.out.format) + 255) / 256 * 256;
    workspace = {static_cast<char*>(workspace.data) + taken, workspace.bytes - taken};
  }
  if (product.rows_vary && plan.batch == 1 && !plan.fp8() && plan.epilogue == Epilogue::kNone) {
    const Prepared& usual = prepared(with_rounded_rows(product, plan), factors, epilogue, nullptr);
    usual.set_columns(plan);
    if (usual.rejection.empty() &&
        usual.run(handle_, product, first, second, c, workspace, stream) == CUBLAS_STATUS_SUCCESS) {
      return;
    }  // an algorithm of its own, then
  }
  const Prepared& ready = prepared(plan, factors, epilogue, sums.data);
  if (!ready.rejection.empty()) {
    throw RunError(ready.rejection);
  }
  check(ready.run(handle_, product, first, second, c, workspace, stream), "cublasLtMatmul");
  if (plan.sums()) {
    const kernels::MatrixView d_bias(epilogue.d_bias.data, epilogue.d_bias.format, 1, product.n);
    kernels::add(sums, d_bias, d_bias, stream);
  }
}

}  // namespace stepcast::runtime::cuda
