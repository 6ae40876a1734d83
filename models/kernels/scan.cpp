#include <algorithm>
#include <cmath>

#include "models/kernels/internal/forms.h"

namespace stepcast::models {
namespace {

/// Chunked scans of state-space layers and linear attention: several kernels one after the other,
/// bound by what they hand on.
///   time = start + max(bytes / (bandwidth * memory_efficiency), flops / peak)
/// FLOPs and bytes: core/graph/traits/scan.cpp.
class ScanRoofline final : public KernelForm {
 public:
  std::string_view name() const override { return "scan.roofline"; }
  bool covers(const Op& op) const override { return class_of(op.kind) == OpClass::kScan; }
  std::vector<Constant> constants(const Device& device) const override {
    return {{"start", device.launch.base(), 1e-5, 2e-7, 1e-3},
            {"memory_efficiency", 1, 0.4, 0.02, 1}};
  }
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override {
    enum { kStart, kMemory };
    const Seconds compute(facts.op->flops.base() / peak_rate(device, facts.op->format));
    const Seconds memory(facts.bytes / (device.bandwidth.base() * c[kMemory]));
    return bounded_by(compute, memory, Seconds(c[kStart]));
  }
  bool of_op_alone() const override { return true; }
  std::vector<double> coordinates(const OpFacts& facts) const override {
    const auto log_of = [&](std::size_t axis) {
      return std::log(static_cast<double>(std::max<std::int64_t>(facts.op->shape[axis], 1)));
    };
    return {log_of(0), log_of(1), log_of(2), log_of(3), log_of(5)};
  }
  std::vector<std::string_view> coordinate_names() const override {
    return {"log_tokens", "log_heads", "log_key_dim", "log_value_dim", "log_chunk"};
  }
};

}  // namespace

std::unique_ptr<KernelForm> scan_roofline() { return std::make_unique<ScanRoofline>(); }

}  // namespace stepcast::models
