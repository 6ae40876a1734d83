#pragma once
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// The router of a layer with experts on one core: a softmax over all experts, and the draw of who
/// goes where, which is arithmetic on token numbers and hardly touches memory.
///
///   time = start + experts * count + tokens * experts * element + tokens * choices * choice
///          + bytes / bandwidth
///
/// count: working out how many copies of each expert come from and go to each rank; element: one
/// exponential; choice: finding one copy's expert and its place. In: {tokens, experts, choices}.
/// Valid: fp32, as the runtime's CPU backend routes; a device's router is bound by its bytes and
/// stays a roofline. Monotone in all three. Source: derived (core/graph/expert_draw.h). Checked by
/// tests/models/fit_test.cpp.
class RoutingDraw final : public KernelForm {
 public:
  std::string_view name() const override { return "routing.draw"; }
  bool on_core() const override { return true; }
  bool like_its_class() const override { return false; }
  bool covers(const Op& op) const override { return op.kind == OpKind::kRouteForward; }
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  bool of_op_alone() const override { return true; }
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

}  // namespace stepcast::models
