#include <algorithm>
#include <cmath>

#include "models/kernels/internal/forms.h"

namespace stepcast::models {
namespace {

struct Extents {
  explicit Extents(const Op& op)
      : tokens(extent(op, 0)), experts(extent(op, 1)), choices(extent(op, 2)) {}
  double tokens, experts, choices;
};

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
  std::vector<Constant> constants(const Device& device) const override {
    return {{"start", device.launch.base(), 1e-6, 1e-9, 1e-3},
            {"count", 0, 1e-7, 1e-10, 1e-4},
            {"element", 0, 2e-9, 1e-12, 1e-6},
            {"choice", 0, 5e-8, 1e-10, 1e-5}};
  }
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override {
    enum { kStart, kCount, kElement, kChoice };
    const Extents e(*facts.op);
    const Seconds compute(e.experts * c[kCount] + e.tokens * e.experts * c[kElement] +
                          e.tokens * e.choices * c[kChoice]);
    const Seconds memory(facts.bytes / std::max(device.bandwidth.base(), 1.0));
    Prediction p = bounded_by(compute, memory, Seconds(c[kStart]));
    p.time = p.overhead + compute + memory;
    return p;
  }
  bool of_op_alone() const override { return true; }
  std::vector<double> coordinates(const OpFacts& facts) const override {
    const Extents e(*facts.op);
    return {std::log(e.tokens), std::log(e.experts), std::log(e.choices)};
  }
  std::vector<std::string_view> coordinate_names() const override {
    return {"log_tokens", "log_experts", "log_choices"};
  }
};

}  // namespace

std::unique_ptr<KernelForm> routing_draw() { return std::make_unique<RoutingDraw>(); }

}  // namespace stepcast::models
