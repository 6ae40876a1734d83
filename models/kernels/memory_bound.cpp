#include "models/kernels/memory_bound.h"

#include <algorithm>
#include <cmath>

#include "core/graph/op_traits.h"

namespace stepcast::models {
namespace {

std::vector<double> size_coordinates(const OpFacts& facts) {
  return {std::log(facts.rows), std::log(std::max(facts.elements / facts.rows, 1e-3))};
}
std::vector<std::string_view> size_coordinate_names() { return {"log_rows", "log_width"}; }

bool is_norm(const Op& op) { return kernel_kind_of(op.kind) == KernelKind::kNorm; }
bool is_softmax(const Op& op) { return traits_of(op.kind).family == OpFamily::kCrossEntropy; }

/// Runs of bytes that it starts.
double started_rows(const OpFacts& facts) {
  const auto runs = traits_of(facts.op->kind).runs;
  return runs != nullptr ? runs(*facts.op) : facts.rows;
}

}  // namespace

double longer(double a, double b) {
  const double most = std::max(a, b);
  const double ratio = most > 0 ? std::min(a, b) / most : 0;
  return most * std::sqrt(std::sqrt(1 + ratio * ratio * ratio * ratio));
}

double seconds_per_byte(double working_set, double near_bandwidth, double far_bandwidth,
                        double capacity, double called_back) {
  const double x = working_set / std::max(capacity, 1.0);
  const double outside = x * x / (1 + x * x);
  const double near = 1 / near_bandwidth;
  const double far = std::max(near, 1 / far_bandwidth);
  return near * called_back * (1 - outside) + far * outside;
}

double operand_seconds(const OpFacts& facts, double near_bandwidth, double far_bandwidth,
                       double capacity, double called_back) {
  double sum = 0;
  for (const OperandUse& use : facts.operands) {
    sum += use.bytes * seconds_per_byte(use.distance, near_bandwidth, far_bandwidth, capacity,
                                        use.sent ? called_back : 1);
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

bool MemoryRowwise::covers(const Op& op) const { return is_norm(op) || is_softmax(op); }

std::vector<Constant> MemoryRowwise::constants(const Device& device) const {
  return {{"start", device.launch.base(), 2e-5, 2e-7, 1e-4},
          {"memory_efficiency", 1, 0.8, 0.1, 1},
          {"cache", 1, 1, 0.05, 20},
          {"reread", 0, 1, 0.05, 3},
          {"row", 0, 1e-7, 1e-10, 1e-5},
          {"wide", 0, 1e-7, 1e-10, 1e-5},
          {"element", 0, 1e-10, 1e-12, 1e-8}};
}

Prediction MemoryRowwise::predict(const OpFacts& facts, const Device& device,
                                  std::span<const double> c) const {
  enum { kStart, kMemory, kCache, kReread, kRow, kWide, kElement };
  constexpr double kHeld = 1024;    // columns of a row that a warp keeps in registers
  constexpr double kStep = 512;     // columns of one step of a block
  constexpr double kInFlight = 16;  // rows of one multiprocessor
  const double width = facts.elements / facts.rows;
  const double main_bytes = facts.elements * bits_per_element(facts.op->format, 1024) / 8;
  const double multiprocessors = std::max<double>(1, static_cast<double>(device.multiprocessors));
  const bool wide = is_softmax(*facts.op) && width > kHeld;
  double bytes = facts.bytes;
  if ((wide || is_norm(*facts.op)) && device.l2 > Bytes{}) {
    const double flight = multiprocessors * kInFlight * main_bytes / facts.rows;
    const double x = flight / (c[kCache] * device.l2.base());
    bytes += main_bytes * c[kReread] * x * x / (1 + x * x);
  }
  const Seconds memory(bytes / (device.bandwidth.base() * c[kMemory]));
  const Seconds work(
      facts.rows *
      (c[kRow] + (wide ? c[kWide] : 0) + std::ceil(width / kStep) * kStep * c[kElement]) /
      multiprocessors);
  const Seconds arithmetic = facts.op->flops / FlopsPerSecond(peak_rate(device, Format::kFp32));
  Prediction p = bounded_by(std::max(work, arithmetic), memory, Seconds(c[kStart]));
  p.time = p.overhead + std::max(Seconds(longer(work.base(), memory.base())), arithmetic);
  return p;
}

std::vector<double> MemoryRowwise::coordinates(const OpFacts& facts) const {
  return size_coordinates(facts);
}
std::vector<std::string_view> MemoryRowwise::coordinate_names() const {
  return size_coordinate_names();
}

std::vector<Constant> MemoryLevels::constants(const Device& device) const {
  const double bandwidth = std::max(device.bandwidth.base(), 1.0);
  const double cache = std::max(device.l2.base(), 1e5);
  return {{"start", device.launch.base(), 1e-7, 1e-9, 1e-3},
          {"row", 0, 1e-9, 1e-12, 1e-4},
          {"element", 0, 1e-10, 1e-13, 1e-6},
          {"near", bandwidth, bandwidth * 2, bandwidth / 20, bandwidth * 1000},
          {"far", bandwidth, bandwidth, bandwidth / 20, bandwidth * 20},
          {"capacity", cache, 2e6, 1e5, 1e9},
          {"called_back", 1, 2, 1, 30}};
}

Prediction MemoryLevels::predict(const OpFacts& facts, const Device&,
                                 std::span<const double> c) const {
  const Seconds compute(started_rows(facts) * c[1] + facts.elements * c[2]);
  const Seconds memory(operand_seconds(facts, c[3], c[4], c[5], c[6]));
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
