#pragma once
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// Chunked scans of state-space layers and linear attention: several kernels one after the other,
/// bound by what they hand on.
///   time = start + max(bytes / (bandwidth * memory_efficiency), flops / peak)
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
