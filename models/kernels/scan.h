#pragma once
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// Chunked scans of state-space layers and linear attention: products in the op's format at a share
/// of the peak, or its bytes, whichever takes longer, after a start.
///   time = start + max(flops / (peak * compute_efficiency), bytes / (bandwidth *
///   memory_efficiency))
/// FLOPs and bytes: core/graph/traits/scan.cpp.
class ScanRoofline : public KernelForm {
 public:
  [[nodiscard]] std::string_view name() const override { return "scan.roofline"; }
  [[nodiscard]] bool covers(const Op& op) const override;
  [[nodiscard]] std::vector<Constant> constants(const Device& device) const override;
  [[nodiscard]] Prediction predict(const OpFacts& facts, const Device& device,
                                   std::span<const double> c) const override;
  [[nodiscard]] bool of_op_alone() const override { return true; }
  [[nodiscard]] std::vector<double> coordinates(const OpFacts& facts) const override;
  [[nodiscard]] std::vector<std::string_view> coordinate_names() const override;
};

}  // namespace stepcast::models
