#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "core/graph/execution_order.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/device_tensors.h"
#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/cuda/quantised_plan.h"

namespace stepcast::runtime::cuda {

/// An fp8 operand that stands ready: its bytes, and what turns sums of it back (both device).
/// Without data: the product quantises its operand itself.
struct QuantisedOperand {
  const void* data = nullptr;
  const float* factor = nullptr;
};

/// The copies of a quantised plan in device memory: written when a cast runs, found by the products
/// that read them.
class QuantisedCopies {
 public:
  /// `in_graph`: device address of the graph's buffer for copies; null without one.
  QuantisedCopies(QuantisedPlan plan, void* in_graph, Ledger& ledger);

  /// Enqueues the copies of the cast that is issue number `issue`; nothing where no product reads
  /// them.
  void make(std::size_t issue, const kernels::ConstMatrixView& values, cudaStream_t stream) const;
  [[nodiscard]] QuantisedOperand a(std::size_t issue) const { return of(plan_.uses[issue].a); }
  [[nodiscard]] QuantisedOperand b(std::size_t issue) const { return of(plan_.uses[issue].b); }

 private:
  [[nodiscard]] QuantisedOperand of(std::int32_t copy) const;
  [[nodiscard]] char* at(std::size_t offset) const {
    return offset < plan_.in_graph ? static_cast<char*>(in_graph_) + offset
                                   : memory_.as<char>() + (offset - plan_.in_graph);
  }
  [[nodiscard]] kernels::Workspace scales(std::int32_t cast) const;

  QuantisedPlan plan_;
  void* in_graph_;
  Buffer memory_;
};

/// The copies of a program's step, whose ops the host issues in this order.
std::unique_ptr<QuantisedCopies> quantised_copies(const Program& program, const IssueList& order,
                                                  const DeviceTensors& tensors, Ledger& ledger);

}  // namespace stepcast::runtime::cuda
