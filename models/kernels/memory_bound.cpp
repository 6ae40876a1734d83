#include "models/kernels/memory_bound.h"

#include <algorithm>
#include <cmath>

#include "models/kernels/internal/forms.h"

namespace stepcast::models {
namespace {

class SizedForm : public KernelForm {
 public:
  std::vector<double> coordinates(const OpFacts& facts) const final {
    return {std::log(facts.rows), std::log(std::max(facts.elements / facts.rows, 1e-3))};
  }
  std::vector<std::string_view> coordinate_names() const final { return {"log_rows", "log_width"}; }
};

bool is_norm(const Op& op) { return kernel_kind_of(op.kind) == KernelKind::kNorm; }
bool is_softmax(const Op& op) { return traits_of(op.kind).family == OpFamily::kCrossEntropy; }

/// Runs of bytes that it starts.
double started_rows(const OpFacts& facts) {
  const auto runs = traits_of(facts.op->kind).runs;
  return runs != nullptr ? runs(*facts.op) : facts.rows;
}

/// Any op as a roofline: time = start + max(flops / peak, bytes / (bandwidth * memory_efficiency)).
/// Covers every kind: the last resort.
/// Valid:   all sizes; row-wise kernels (norms, softmax) depend on the row length more than this
///          form knows.
/// Source:  Williams et al., "Roofline", CACM 52(4), 2009.
class MemoryRoofline final : public SizedForm {
 public:
  std::string_view name() const override { return "memory.roofline"; }
  bool covers(const Op& op) const override { return !is_collective(op.kind); }
  std::vector<Constant> constants(const Device& device) const override {
    return {{"start", device.launch.base(), 3e-6, 2e-7, 1e-4},
            {"memory_efficiency", 1, 0.8, 0.02, 1.2},
            {"compute_efficiency", 1, 0.5, 0.01, 1}};
  }
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override {
    const Op& op = *facts.op;
    const Seconds compute(op.flops.base() / (peak_rate(device, Format::kFp32) *
                                             c[2]));  // vector units, not tensor units
    const Seconds memory(facts.bytes / (device.bandwidth.base() * c[1]));
    return bounded_by(compute, memory, Seconds(c[0]));
  }
  bool of_op_alone() const override { return true; }
};

/// A row-wise kernel of a GPU: a norm, a softmax or what a cross entropy does with its logits. A
/// group of threads owns a row, and what it has to keep of the row decides how often it reads it.
///
///   time   = start + longer(memory, work)
///   memory = (bytes + again * reread * out(flight / (cache * l2)))
///            / (bandwidth * memory_efficiency)
///   work   = rows * (row + wide + steps * 512 * element) / multiprocessors
///
/// again: bytes of the main operand where a row is read once more: always for norms, beyond 1024
/// columns for softmax-like kernels, which hold shorter rows in a warp's registers; those longer
/// rows take a block each and cost `wide`. The second read comes from the L2 as long as the rows in
/// flight (16 per multiprocessor) fit there: out(x) = x^2 / (1 + x^2). steps = ceil(width / 512):
/// 128 threads of 4 columns.
/// In:      {rows, width}.
/// Valid:   kernels written like PyTorch 2.1's, fp32; widths of 512 to 4100 were measured.
/// Source:  derived. Checked by tests/models/kernel_accuracy_test.cpp.
class MemoryRowwise final : public SizedForm {
 public:
  std::string_view name() const override { return "memory.rowwise"; }
  bool covers(const Op& op) const override { return is_norm(op) || is_softmax(op); }
  std::vector<Constant> constants(const Device& device) const override {
    return {{"start", device.launch.base(), 2e-5, 2e-7, 1e-4},
            {"memory_efficiency", 1, 0.8, 0.1, 1},
            {"cache", 1, 1, 0.05, 20},
            {"reread", 0, 1, 0.05, 3},
            {"row", 0, 1e-7, 1e-10, 1e-5},
            {"wide", 0, 1e-7, 1e-10, 1e-5},
            {"element", 0, 1e-10, 1e-12, 1e-8}};
  }
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override {
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
  bool of_op_alone() const override { return true; }
};

/// A streaming or row-wise op on one core, whose operands may lie in a cache:
///
///   time = start + rows * row + elements * element
///          + sum over operands of bytes * seconds_per_byte(reuse distance)
///   seconds_per_byte(d) = 1/near + (1/far - 1/near) * x^2 / (1 + x^2),  x = d / capacity
///
/// near, far: bandwidth of operands in cache and in memory; capacity: the reuse distance at which
/// half of the bytes come from memory. Operands that a collective sent last are `called_back` times
/// slower in cache: the cores that read them hold them. `elements` are those of the main operand;
/// for copies of columns `rows` counts each block, for packed ids those with an owner each.
/// Monotone in rows, elements and bytes. Source: derived; the cache curve of runtime section 6
/// measured on CPU gathers has this shape.
class MemoryLevels final : public SizedForm {
 public:
  std::string_view name() const override { return "memory.levels"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override { return !is_collective(op.kind); }
  std::vector<Constant> constants(const Device& device) const override {
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
  Prediction predict(const OpFacts& facts, const Device&,
                     std::span<const double> c) const override {
    const Seconds compute(started_rows(facts) * c[1] + facts.elements * c[2]);
    const Seconds memory(operand_seconds(facts, c[3], c[4], c[5], c[6]));
    Prediction p = bounded_by(compute, memory, Seconds(c[0]));
    p.time = p.overhead + compute + memory;
    return p;
  }
};

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

std::unique_ptr<KernelForm> memory_roofline() { return std::make_unique<MemoryRoofline>(); }
std::unique_ptr<KernelForm> memory_rowwise() { return std::make_unique<MemoryRowwise>(); }
std::unique_ptr<KernelForm> memory_levels() { return std::make_unique<MemoryLevels>(); }

}  // namespace stepcast::models
