#include "models/kernels/scan.h"

#include <algorithm>
#include <cmath>

namespace stepcast::models {

bool ScanRoofline::covers(const Op& op) const { return class_of(op.kind) == OpClass::kScan; }

std::vector<Constant> ScanRoofline::constants(const Device& device) const {
  return {{"start", device.launch.base(), 1e-5, 2e-7, 1e-3},
          {"memory_efficiency", 1, 0.4, 0.02, 1}};
}

Prediction ScanRoofline::predict(const OpFacts& facts, const Device& device,
                                 std::span<const double> c) const {
  enum { kStart, kMemory };
  const Seconds compute(facts.op->flops.base() / peak_rate(device, facts.op->format));
  const Seconds memory(facts.bytes / (device.bandwidth.base() * c[kMemory]));
  return bounded_by(compute, memory, Seconds(c[kStart]));
}

std::vector<double> ScanRoofline::coordinates(const OpFacts& facts) const {
  const auto log_of = [&](std::size_t axis) {
    return std::log(static_cast<double>(std::max<std::int64_t>(facts.op->shape[axis], 1)));
  };
  return {log_of(0), log_of(1), log_of(2), log_of(3), log_of(5)};
}

std::vector<std::string_view> ScanRoofline::coordinate_names() const {
  return {"log_tokens", "log_heads", "log_key_dim", "log_value_dim", "log_chunk"};
}

}  // namespace stepcast::models
