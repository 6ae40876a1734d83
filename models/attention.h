#pragma once
#include "models/kernel_form.h"

namespace stepcast::models {

/// Attention core (scores, softmax, weighted sum), fused or unfused, causal or full, forward or
/// backward.
///
///   time = start + max(flops (1 + causal diagonal) / (peak * efficiency * q / (q + half_queries)),
///   bytes / (bandwidth * memory_efficiency))
///
/// FLOPs and bytes are those of the op (fused: no score traffic; unfused: the score matrix is
/// written and read back). Whole tiles on the causal diagonal are executed: (1 + diagonal / kv)
/// with `diagonal` about the tile width. Backward has its own efficiency factor. In:      {batch,
/// heads, kv_heads, queries, keys, head_dim}. Valid: sizes >= 1. Source:  Dao, "FlashAttention-2",
/// arXiv 2307.08691 (work partition); FLOP counts by fill_work. Backward is not measured: lower
/// trust.
class AttentionTiles final : public KernelForm {
 public:
  std::string_view name() const override { return "attention.tiles"; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

/// Attention on one core as the sum of its parts.
///
///   time = start + batch heads call + flops / (rate d / (d + half_dim) keys / (keys + half_keys))
///   + scores * softmax + bytes / bandwidth
///
/// `scores` = batch heads queries keys (half when causal), each an exponential and its bookkeeping.
/// Source: derived.
class AttentionParts final : public KernelForm {
 public:
  std::string_view name() const override { return "attention.parts"; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

}  // namespace stepcast::models
