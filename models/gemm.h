#pragma once
#include "models/kernel_form.h"

namespace stepcast::models {

/// Device time of one (batched) matrix product C[m,n] = A[m,k] B[k,n] on a device with many
/// multiprocessors.
///
///   time    = start + blend(compute, memory)
///   compute = min over tiles of ceil-like waves(tiles, multiprocessors) * tile work / (peak share
///   * tile efficiency) memory  = (m k + k n + m n) bytes / (bandwidth * memory_efficiency) blend
///   = (compute^p + memory^p)^(1/p), p = 1 / blend; the maximum where blend is 0
///
/// A tile of tm x tn reaches compute_efficiency / (1 + tile_cost (1/tm + 1/tn)): smaller tiles move
/// more operand bytes per product. The last wave is paid in full up to `wave_share`; the rest is
/// smoothed (split-k and persistent kernels fill it). In:      shape {m, n, k, batch}. Out: device
/// time, launch included as `start`. Valid:   m, n, k >= 1; layouts are not told apart (only
/// forward layouts are measured). Errors: none. Source:  Williams et al., "Roofline", CACM 52(4),
/// 2009; wave quantisation as in the device vendor's GEMM guides. Checked by
/// tests/models/gemm_accuracy_test.cpp.
class GemmTileWave final : public KernelForm {
 public:
  std::string_view name() const override { return "gemm.tile_wave"; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

/// Time of one matrix product on one core, as a sustained rate with shape penalties.
///
///   time = start + batch * (call + 2 m n k / (rate layout) * (1 + half_m/m + half_n/n + half_k/k))
///   + operands
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
///   time = start + samples * (sample + F F pair + F F D product) + operands,  F features of width
///   D
///
/// Forward computes all F F dots and keeps the lower half; backward spreads the pairs into a
/// symmetric F x F matrix and multiplies. Source:  derived. Valid: F, D >= 1.
class DotInteractionParts final : public KernelForm {
 public:
  std::string_view name() const override { return "interaction.parts"; }
  bool covers(const Op& op) const override {
    return op.kind == OpKind::kDotInteractionForward || op.kind == OpKind::kDotInteractionBackward;
  }
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

}  // namespace stepcast::models
