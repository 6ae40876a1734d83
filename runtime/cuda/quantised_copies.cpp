#include "runtime/cuda/quantised_copies.h"

#include "runtime/cuda/kernels/quantise.h"
#include "runtime/cuda/matmul_plan.h"

namespace stepcast::runtime::cuda {

QuantisedCopies::QuantisedCopies(QuantisedPlan plan, void* in_graph, Ledger& ledger)
    : plan_(std::move(plan)),
      in_graph_(in_graph),
      memory_(Buffer::Kind::kDevice, "quantised copies", &ledger) {
  if (plan_.bytes > plan_.in_graph) {
    memory_.reserve(plan_.bytes - plan_.in_graph);
  }
}

kernels::Workspace QuantisedCopies::scales(std::int32_t cast) const {
  return {at(plan_.casts[static_cast<std::size_t>(cast)].scales), kernels::kQuantiseWorkspace};
}

void QuantisedCopies::make(std::size_t issue, const kernels::ConstMatrixView& values,
                           cudaStream_t stream) const {
  const std::int32_t number = plan_.uses[issue].cast;
  if (number == QuantisedPlan::kNone) {
    return;
  }
  const QuantisedPlan::Cast& cast = plan_.casts[static_cast<std::size_t>(number)];
  const kernels::Fp8 format = cast.gradient ? kernels::Fp8::kE5m2 : kernels::Fp8::kE4m3;
  const auto rows_of = [&](std::int32_t layout) {
    if (layout == QuantisedPlan::kNone) {
      return kernels::QuantisedRows();
    }
    const QuantisedPlan::Copy& copy = plan_.copies[static_cast<std::size_t>(layout)];
    return kernels::QuantisedRows{at(copy.offset), copy.pitch};
  };
  kernels::quantise({values, format, rows_of(cast.plain), rows_of(cast.turned)}, scales(number),
                    stream);
}

QuantisedOperand QuantisedCopies::of(std::int32_t copy) const {
  if (copy == QuantisedPlan::kNone) {
    return {};
  }
  const QuantisedPlan::Copy& c = plan_.copies[static_cast<std::size_t>(copy)];
  return {at(c.offset), kernels::quantise_factor(scales(c.cast))};
}

std::unique_ptr<QuantisedCopies> quantised_copies(const Program& program, const IssueList& order,
                                                  const DeviceTensors& tensors, Ledger& ledger) {
  std::vector<IssuedOp> issues;
  for (const Issue& issue : order.issues) {
    issues.push_back({issue.op, issue.microbatch});
  }
  const auto bytes = [](const kernels::MatrixView& v) {
    return static_cast<std::size_t>(v.elements()) * stored_bytes(v.format);
  };
  const std::optional<TensorId> kept = quantised_buffer(program);
  const kernels::MatrixView buffer = kept ? tensors.view(*kept, 0) : kernels::MatrixView();
  QuantisedPlan plan = quantised_plan(
      program, issues,
      [&](TensorId t, std::int32_t microbatch) {
        const kernels::MatrixView v = tensors.view(t, microbatch);
        return std::pair(reinterpret_cast<std::uintptr_t>(v.data), bytes(v));
      },
      kept ? bytes(buffer) / 256 * 256 : 0);
  return std::make_unique<QuantisedCopies>(std::move(plan), buffer.data, ledger);
}

}  // namespace stepcast::runtime::cuda
