#pragma once
#include "core/graph/op_traits.h"
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// Coordinates of matrix products: ln m, ln n, ln k, ln batch, and a step per layout that keeps
/// residuals of one layout out of the others.
std::vector<double> gemm_coordinates(const Op& op);
std::vector<std::string_view> gemm_coordinate_names();

/// Device time of one (batched) matrix product C[m,n] = A[m,k] B[k,n] on a device with many
/// multiprocessors: the fastest of a menu of tiles and splits of k.
///
///   time    = start + min over tiles [tm, tn] and splits s of blend(compute, memory) + split
///   compute = max(waves * (max(products, load) / s + store), flops / (peak * sustained))
///   memory  = (B + (A + C) * out(A + C over resident * L2)) / (bandwidth * memory_efficiency)
///   split   = 0 for s = 1, else split_start + split_traffic * s m n 8 B / bandwidth
///
/// waves: w = (1 - wave_share) x + wave_share ceil(x), at least 1, x = tiles * s / multiprocessors.
/// All but the largest tile cost 1 + crowding (x - 1) beyond one wave: libraries leave them once
/// large ones fill the device. products: 2 tm tn k at the tile's share of a multiprocessor's peak,
/// tile_efficiency / (1 + (half_tile / h)^tile_power) with 1 / h = 1 / tm + 1 / tn, since a tile
/// moves 1 / h operand elements per product. load: the tile's operands at core_bandwidth (limit of
/// one multiprocessor) or cache_bandwidth (limit of all), in shares of the memory bandwidth.
/// store: the tile's results at that share, times epilogue. sustained: the share of peak that power
/// allows. out(x) = x^4 / (1 + x^4): A and C of a small product stay in the cache, B never is
/// there. blend(a, b) = (a^p + b^p)^(1/p), p = 1 / blend. transposed_a, transposed_b: rates of the
/// backward layouts relative to forward; 1 without measurements.
///
/// In:      shape {m, n, k, batch}, flags. Out: device time, launch included as `start`.
/// Valid:   m, n, k >= 1. Never falls as m, n, k or batch grow. Without constants: the roofline.
/// Errors:  none.
/// Source:  Williams et al., "Roofline", CACM 52(4), 2009; wave quantisation and split k as in the
/// device vendor's GEMM guides; the rest derived. Checked by tests/models/gemm_accuracy_test.cpp.
class GemmTileWave final : public KernelForm {
 public:
  std::string_view name() const override { return "gemm.tile_wave"; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  /// Peak FLOPs, and memory traffic of what cannot have been in the cache.
  Seconds limit(const OpFacts& facts, const Device& device) const override;
  bool of_op_alone() const override { return true; }
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

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
/// in MemoryLevels (near, far, capacity). In, Out: as above. Valid: 1 <= m, n, k; libraries switch
/// kernels, which is left to the residual points. A product with a vector (m or n = 1) reuses no
/// tiles: `vector` seconds per multiply-add instead of a rate. Source: derived.
class GemmShapeRate final : public KernelForm {
 public:
  std::string_view name() const override { return "gemm.shape_rate"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
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
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

}  // namespace stepcast::models
