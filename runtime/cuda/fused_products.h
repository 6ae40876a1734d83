#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/graph/program.h"
#include "runtime/cuda/matmul.h"
#include "runtime/step_executor.h"

namespace stepcast::runtime::cuda {

/// Whether an op is a product with an epilogue (core/graph/epilogue.h).
inline bool has_epilogue(const Op& op) {
  return op.as<GemmAttributes>().epilogue != Epilogue::kNone;
}

/// A product with an epilogue, and its operands.
struct FusedProduct {
  Product product;
  const void* a = nullptr;
  void* b = nullptr;  ///< not changed
  kernels::MatrixView out;
  EpilogueOperands epilogue;
  kernels::ConstMatrixView y;  ///< of a backward ReLU: what its mask is of
};
FusedProduct fused_product(const Program& program, const Op& op,
                           const std::function<kernels::MatrixView(TensorId)>& view);

/// Products with an epilogue, by cuBLASLt or, where it has no algorithm, as the plain product and
/// then the backend's own kernels: which of them is decided once for each product, before it first
/// runs. An algorithm that is named and then fails in its first run counts as none: the library
/// does not promise that what its heuristic finds will run.
///
///   FusedProducts products(multiply);
///   products.prepare(product, scratch(products.workspace_bytes(product)));  // all, at set-up
///   products.run(product, scratch(products.workspace_bytes(product)), stream);
class FusedProducts {
 public:
  explicit FusedProducts(Matmul& multiply) : multiply_(multiply) {}

  /// Decides. Forward products go first: a backward ReLU whose mask cuBLASLt did not write cannot
  /// be left to it.
  void prepare(const FusedProduct& product, const kernels::Workspace& workspace) {
    choice(product, workspace);
  }
  [[nodiscard]] static std::size_t workspace_bytes(const FusedProduct& product);
  /// Enqueues the product and all that its epilogue does.
  void run(const FusedProduct& product, kernels::Workspace workspace, cudaStream_t stream);
  /// Kernels that compute the epilogues of the products so far.
  [[nodiscard]] KernelUse used() const;

 private:
  struct Choice {
    MatmulPlan plan;
    bool masked = true;     ///< its mask, if it reads one, is there
    std::string rejection;  ///< why it is not cuBLASLt's; empty: it is
    bool ran = false;       ///< by cuBLASLt, once at least
  };
  Choice& choice(const FusedProduct& product, const kernels::Workspace& workspace);

  void forget_backward_masks();

  Matmul& multiply_;
  std::vector<Choice> choices_;  ///< a program has few
  std::set<const void*> no_masks_;
};

}  // namespace stepcast::runtime::cuda
