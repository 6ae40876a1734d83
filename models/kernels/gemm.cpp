#include <algorithm>
#include <cmath>

#include "models/kernels/internal/forms.h"
#include "models/kernels/memory_bound.h"

namespace stepcast::models {
namespace {

/// A layout costs a category step in the coordinates, so that residuals of one layout do not leak
/// into another.
double layout_coordinate(const Op& op) {
  constexpr double kStep = 8;
  return kStep * ((op.flags & op_flags::kTransposeA) != 0 ? 1 : 0) +
         2 * kStep * ((op.flags & op_flags::kTransposeB) != 0 ? 1 : 0);
}

/// Time of one matrix product on one core, as a sustained rate with shape penalties.
///
///   time = start + cold * idle / (idle + cold_ops)
///        + batch * (call + 2 m n k / (rate layout) * (1 + half_m/m + half_n/n + half_k/k))
///        + operands
///
/// idle: ops the step runs between two products of this shape. A product in every layer finds its
/// code in the caches, one that runs once per step does not: `cold` seconds more at most.
///
/// half_x / x are per-element costs of B, A and C (packing, edges, storing) relative to the
/// products; A^T B has its own half_n, because its A is packed across rows. `layout` is 1 for A B,
/// nt for A B^T, tn for A^T B. `operands`: bytes at the level their reuse distance puts them in, as
/// in MemoryLevels (near, far, capacity). In, Out: as of GemmTileWave. Valid: 1 <= m, n, k;
/// libraries switch kernels, which is left to the residual points. A product with a vector (m or n
/// = 1) reuses no tiles: `vector` seconds per multiply-add instead of a rate. Source: derived.
class GemmShapeRate final : public KernelForm {
 public:
  std::string_view name() const override { return "gemm.shape_rate"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override { return op.kind == OpKind::kGemm; }
  std::vector<Constant> constants(const Device& device) const override {
    const double peak = std::min(peak_rate(device, Format::kFp32), 1e16);
    const double bandwidth = std::max(device.bandwidth.base(), 1.0);
    return {{"start", device.launch.base(), 2e-7, 1e-8, 1e-3},
            {"call", 0, 1e-7, 1e-9, 1e-4},
            {"rate", peak, peak, peak / 1000, peak * 1000},
            {"half_m", 0, 8, 0.01, 500},
            {"half_n", 0, 8, 0.01, 500},
            {"half_k", 0, 4, 0.01, 500},
            {"nt", 1, 0.8, 0.1, 3},
            {"tn", 1, 1, 0.1, 3},
            {"near", bandwidth, bandwidth * 10, bandwidth / 20, bandwidth * 1000},
            {"far", bandwidth, bandwidth, bandwidth / 20, bandwidth * 1000},
            {"capacity", std::max(device.l2.base(), 1e5), 2e6, 1e5, 1e9},
            {"tn_half_n", 0, 30, 0.01, 1000},
            {"vector", 2 / peak, 1e-10, 1e-12, 1e-8},
            {"cold", 0, 3e-7, 1e-10, 2e-5},
            {"cold_ops", 100, 100, 10, 3000}};
  }
  Prediction predict(const OpFacts& facts, const Device&,
                     std::span<const double> c) const override {
    enum {
      kStart0,
      kCall,
      kRate,
      kHalfM,
      kHalfN,
      kHalfK,
      kNt,
      kTn,
      kNear,
      kFar,
      kCapacity,
      kTnHalfN,
      kVector,
      kCold,
      kColdOps
    };
    const Op& op = *facts.op;
    const double m = extent(op, 0);
    const double n = extent(op, 1);
    const double k = extent(op, 2);
    // Operand and result elements cost their packing and edges: seconds per element of B, A and C
    // over those of the products.
    const bool transposed_a = (op.flags & op_flags::kTransposeA) != 0;
    const double half_n = transposed_a ? c[kTnHalfN] : c[kHalfN];
    const double layout =
        ((op.flags & op_flags::kTransposeB) != 0 ? c[kNt] : 1) * (transposed_a ? c[kTn] : 1);
    const double rate = c[kRate] * layout / (1 + c[kHalfM] / m + half_n / n + c[kHalfK] / k);
    const bool vector = m == 1 || n == 1;
    const Seconds compute(vector ? op.flops.base() / 2 * c[kVector] : op.flops.base() / rate);
    const Seconds memory(operand_seconds(facts, c[kNear], c[kFar], c[kCapacity]));
    const double cold = c[kCold] * facts.idle_ops / (facts.idle_ops + c[kColdOps]);
    const Seconds overhead(c[kStart0] + cold + extent(op, 3) * c[kCall]);
    Prediction p = bounded_by(compute, memory, overhead);
    p.time = overhead + compute + memory;  // one core: operand traffic is not hidden
    return p;
  }
  std::vector<double> coordinates(const OpFacts& facts) const override {
    return gemm_coordinates(*facts.op);
  }
  std::vector<std::string_view> coordinate_names() const override {
    return gemm_coordinate_names();
  }
};

/// Pairwise dots of a batch of small matrices on one core (DLRM's interaction), one product per
/// sample:
///
///   time = start + samples * (sample + F F pair + F F D product) + operands
///
/// F features of width D. Forward computes all F F dots and keeps the lower half; backward spreads
/// the pairs into a symmetric F x F matrix and multiplies.
/// Valid:   F, D >= 1.
/// Source:  derived.
class DotInteractionParts final : public KernelForm {
 public:
  std::string_view name() const override { return "interaction.parts"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override {
    return traits_of(op.kind).family == OpFamily::kDotInteraction;
  }
  std::vector<Constant> constants(const Device& device) const override {
    const double peak = std::min(peak_rate(device, Format::kFp32), 1e16);
    const double bandwidth = std::max(device.bandwidth.base(), 1.0);
    return {{"start", device.launch.base(), 1e-6, 1e-8, 1e-3},
            {"sample", 0, 2e-7, 1e-10, 1e-4},
            {"pair", 0, 3e-10, 1e-13, 1e-7},
            {"product", 1 / peak, 4 / peak, 0.1 / peak, 1e3 / peak},
            {"near", bandwidth, bandwidth * 2, bandwidth / 20, bandwidth * 1000},
            {"far", bandwidth, bandwidth, bandwidth / 20, bandwidth * 20},
            {"capacity", std::max(device.l2.base(), 1e5), 2e6, 1e5, 1e9}};
  }
  Prediction predict(const OpFacts& facts, const Device&,
                     std::span<const double> c) const override {
    const double samples = extent(*facts.op, 0);
    const double pairs = extent(*facts.op, 1) * extent(*facts.op, 1);
    const Seconds compute(samples * (c[1] + pairs * c[2] + pairs * extent(*facts.op, 2) * c[3]));
    const Seconds memory(operand_seconds(facts, c[4], c[5], c[6]));
    Prediction p = bounded_by(compute, memory, Seconds(c[0]));
    p.time = p.overhead + compute + memory;
    return p;
  }
  std::vector<double> coordinates(const OpFacts& facts) const override {
    const Op& op = *facts.op;
    return {std::log(extent(op, 0)), std::log(extent(op, 1)), std::log(extent(op, 2))};
  }
  std::vector<std::string_view> coordinate_names() const override {
    return {"log_samples", "log_features", "log_dim"};
  }
};

}  // namespace

std::vector<double> gemm_coordinates(const Op& op) {
  return {std::log(extent(op, 0)), std::log(extent(op, 1)), std::log(extent(op, 2)),
          std::log(extent(op, 3)), layout_coordinate(op)};
}
std::vector<std::string_view> gemm_coordinate_names() {
  return {"log_m", "log_n", "log_k", "log_batch", "layout"};
}

std::unique_ptr<KernelForm> gemm_shape_rate() { return std::make_unique<GemmShapeRate>(); }
std::unique_ptr<KernelForm> dot_interaction_parts() {
  return std::make_unique<DotInteractionParts>();
}

}  // namespace stepcast::models
