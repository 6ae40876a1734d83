#include "models/memory_bound.h"

#include <algorithm>
#include <cmath>

namespace stepcast::models {
namespace {

std::vector<double> size_coordinates(const OpFacts& facts) {
  return {std::log(facts.rows), std::log(std::max(facts.elements / facts.rows, 1e-3))};
}
std::vector<std::string_view> size_coordinate_names() { return {"log_rows", "log_width"}; }

/// Rows that start something: a copy of column blocks starts one run of bytes per row and block.
double started_rows(const OpFacts& facts) {
  const double blocks = std::max<double>(1, facts.op->inputs + facts.op->outputs - 1);
  return facts.rows * (facts.op->kind == OpKind::kCopyColumns ? blocks : 1);
}

}  // namespace

double seconds_per_byte(double working_set, double near_bandwidth, double far_bandwidth,
                        double capacity) {
  const double x = working_set / std::max(capacity, 1.0);
  const double outside = x * x / (1 + x * x);
  const double near = 1 / near_bandwidth;
  const double far = std::max(near, 1 / far_bandwidth);
  return near + (far - near) * outside;
}

double operand_seconds(const OpFacts& facts, double near_bandwidth, double far_bandwidth,
                       double capacity) {
  double sum = 0;
  for (const OperandUse& use : facts.operands) {
    sum += use.bytes * seconds_per_byte(use.distance, near_bandwidth, far_bandwidth, capacity);
  }
  return sum;
}

std::vector<Constant> MemoryRoofline::constants(const Device& device) const {
  return {{"start", device.launch.base(), 3e-6, 2e-7, 1e-4},
          {"memory_efficiency", 1, 0.8, 0.02, 1.2},
          {"compute_efficiency", 1, 0.5, 0.01, 1}};
}

Prediction MemoryRoofline::predict(const OpFacts& facts, const Device& device,
                                   std::span<const double> c) const {
  const Op& op = *facts.op;
  const Seconds compute(op.flops.base() / (peak_rate(device, Format::kFp32) *
                                           c[2]));  // vector units, not tensor units
  const Seconds memory(facts.bytes / (device.bandwidth.base() * c[1]));
  return bounded_by(compute, memory, Seconds(c[0]));
}

std::vector<double> MemoryRoofline::coordinates(const OpFacts& facts) const {
  return size_coordinates(facts);
}
std::vector<std::string_view> MemoryRoofline::coordinate_names() const {
  return size_coordinate_names();
}

std::vector<Constant> MemoryLevels::constants(const Device& device) const {
  const double bandwidth = std::max(device.bandwidth.base(), 1.0);
  const double cache = std::max(device.l2.base(), 1e5);
  return {{"start", device.launch.base(), 5e-7, 1e-9, 1e-3},
          {"row", 0, 1e-9, 1e-12, 1e-4},
          {"element", 0, 1e-10, 1e-13, 1e-6},
          {"near", bandwidth, bandwidth * 2, bandwidth / 20, bandwidth * 1000},
          {"far", bandwidth, bandwidth, bandwidth / 20, bandwidth * 20},
          {"capacity", cache, 2e6, 1e5, 1e9}};
}

Prediction MemoryLevels::predict(const OpFacts& facts, const Device&,
                                 std::span<const double> c) const {
  const Seconds compute(started_rows(facts) * c[1] + facts.elements * c[2]);
  const Seconds memory(operand_seconds(facts, c[3], c[4], c[5]));
  Prediction p = bounded_by(compute, memory, Seconds(c[0]));
  p.time = p.overhead + compute + memory;
  return p;
}

std::vector<double> MemoryLevels::coordinates(const OpFacts& facts) const {
  return size_coordinates(facts);
}
std::vector<std::string_view> MemoryLevels::coordinate_names() const {
  return size_coordinate_names();
}

}  // namespace stepcast::models
