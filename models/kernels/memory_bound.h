#pragma once
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// Any op as a roofline: time = start + max(flops / peak, bytes / (bandwidth * memory_efficiency)).
/// Covers every kind: the last resort.
/// Valid:   all sizes; row-wise kernels (norms, softmax) depend on the row length more than this
///          form knows.
/// Source:  Williams et al., "Roofline", CACM 52(4), 2009.
class MemoryRoofline final : public KernelForm {
 public:
  std::string_view name() const override { return "memory.roofline"; }
  bool covers(const Op& op) const override { return !is_collective(op.kind); }
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  bool of_op_alone() const override { return true; }
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
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
class MemoryRowwise final : public KernelForm {
 public:
  std::string_view name() const override { return "memory.rowwise"; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  bool of_op_alone() const override { return true; }
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
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
class MemoryLevels final : public KernelForm {
 public:
  std::string_view name() const override { return "memory.levels"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override { return !is_collective(op.kind); }
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

/// The longer of two times that overlap, rounded off where they are equal: (a^4 + b^4)^(1/4).
double longer(double a, double b);

/// Seconds per byte of a working set: near in cache, far beyond `capacity`, smooth between; never
/// falls as the set grows. What is in cache takes `called_back` times as long.
double seconds_per_byte(double working_set, double near_bandwidth, double far_bandwidth,
                        double capacity, double called_back = 1);

/// Time to move all operands of an op, each from the level its reuse distance puts it in; those
/// that were sent last at 1 / `called_back` of the bandwidth in cache.
double operand_seconds(const OpFacts& facts, double near_bandwidth, double far_bandwidth,
                       double capacity, double called_back = 1);

}  // namespace stepcast::models
