#pragma once
#include <cublasLt.h>

#include <string>
#include <unordered_map>

#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/cuda/matmul_plan.h"
#include "runtime/cuda/quantised_copies.h"

namespace stepcast::runtime::cuda {

/// Operands that a product's epilogue reads and writes; the others are null.
struct EpilogueOperands {
  kernels::ConstVector bias;
  kernels::MatrixView aux;  ///< the mask, or the GELU's input in the format of the result
  kernels::Vector d_bias;   ///< column sums are added to it
};

/// Matrix products through cuBLASLt. The algorithm of each plan is the first that the library's
/// heuristic names, asked for once and kept: it follows from shapes and addresses alone, so that
/// ranks and runs get equal bits, which algorithms chosen by their times would not give. Products
/// of varying rows share those of rounded ones. fp8 operands that do not stand ready are quantised
/// for the product, with the scale of their largest value now.
///
///   Matmul multiply;
///   Workspace w = scratch(multiply.workspace_bytes(plan));
///   multiply(plan, a, b, c, w, stream);
class Matmul {
 public:
  Matmul();
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// Its name and version.
  [[nodiscard]] static std::string version();
  /// Reason that keeps cuBLASLt from a product with its epilogue, in words; empty: none.
  /// `workspace` as the product itself would get it.
  [[nodiscard]] std::string rejection(const MatmulPlan& plan, const EpilogueOperands& epilogue,
                                      const kernels::Workspace& workspace);

  /// Bytes that the library itself may use; with the operands that a plan converts.
  [[nodiscard]] static std::size_t library_workspace();
  [[nodiscard]] static std::size_t workspace_bytes(const MatmulPlan& plan);
  /// Enqueues the conversions a plan asks for and the product. `product` gives the stored formats
  /// of A and B. Errors: RunError when cuBLASLt has no algorithm for the plan or rejects it.
  struct Operand {
    const void* data = nullptr;
    QuantisedOperand ready{};                      ///< of fp8 products
    Operand(const void* values) : data(values) {}  // NOLINT(google-explicit-constructor)
    Operand(const void* values, QuantisedOperand copy) : data(values), ready(copy) {}
  };
  void operator()(const Product& product, const Operand& a, const Operand& b, void* c,
                  kernels::Workspace workspace, cudaStream_t stream,
                  const EpilogueOperands& epilogue = EpilogueOperands());

 private:
  struct Hash {
    std::size_t operator()(const MatmulPlan& p) const { return p.hash(); }
  };
  struct Prepared;
  struct Factors {  ///< device: of fp8 operands
    const float* first = nullptr;
    const float* second = nullptr;
  };
  Prepared& prepared(const MatmulPlan& plan, const Factors& factors,
                     const EpilogueOperands& epilogue, void* sums);

  cublasLtHandle_t handle_ = nullptr;
  std::unordered_map<MatmulPlan, Prepared, Hash> cache_;
};

}  // namespace stepcast::runtime::cuda
