#pragma once
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// Attention core (scores, softmax, weighted sum) as blocks of query rows that walk over tiles of
/// keys; causal or full, windowed, grouped queries, forward or backward, in one kernel.
///
///   time  = start + longer(work, streams) + serial * shorter(work, streams)
///   work  = (steps * step + blocks * block) / multiprocessors + critical * longest * step
///   step  = 4 * 128 * 64 * (head_dim + softmax_columns) / (peak / multiprocessors *
///           compute_efficiency)
///   streams = bytes / (bandwidth * memory_efficiency)
///
/// A block holds 128 query rows of one head; in the share `packing` of the kernels rows of all
/// heads that share keys fill it together. steps = key tiles of 64 that the mask and the window
/// leave to all blocks, the diagonal ones whole; longest = those of the last block, which ends the
/// kernel when the others are done (Graham, SIAM J. Appl. Math. 17(2), 1969). A single block per
/// head splits its keys over idle multiprocessors. `serial`: share of the streams (preparing q, k,
/// v) not hidden under the blocks. Unfused: the mask skips nothing and bytes count the score
/// matrix. Backward: the op's products (5 instead of 2 when fused) divided by
/// `backward_efficiency`; no rows were measured, so its constants are transferred and marked so.
///
/// In:      {batch, heads, kv_heads, queries, keys, head_dim}; AttentionAttributes.
/// Valid:   sizes >= 1. One software stack per set of constants: stacks differ by 24 % median.
/// Source:  Dao, "FlashAttention-2", arXiv 2307.08691 (partition of work); derived. Checked by
///          tests/models/kernel_accuracy_test.cpp.
class AttentionTiles final : public KernelForm {
 public:
  std::string_view name() const override { return "attention.tiles"; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  bool like_measured(const Op& op) const override;
  bool of_op_alone() const override { return true; }
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
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  bool of_op_alone() const override { return true; }
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

}  // namespace stepcast::models
