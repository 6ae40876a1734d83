#pragma once
#include "core/graph/op_traits.h"
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// Embedding bags of a table group on a device whose many lookups in flight share one last-level
/// cache.
///
///   forward : time = start + max(miss_bytes / (bandwidth eff),
///                                all_bytes / (bandwidth cache_ratio))
///   backward: time = start + sort + gather + update, each bytes / bandwidth:
///     sort   = lookups * ceil(log2(rows) / 8) passes * 24 B (8 B key + 4 B position, read and
///              written)
///     gather = one pooled gradient row per lookup, from cache as far as the [bags, dim] gradients
///              fit there
///     update = rows updated * (row and optimizer state, read and written)
///   miss_bytes = sum over tables of misses(window, across) * sectors(row)
///                + indices + offsets + pooled output
///
/// window: the lookups whose distinct rows fill cache_share * l2, common to the group's tables
/// (Che, Tung, Wang, JSAC 20(7), 2002); across: the same over successive steps with all they
/// stream, so that tables smaller than the cache stay there in a loop of their own. `sorted` 1: the
/// kernel sorts and updates each distinct row once; 0: it updates with every lookup, and a row is
/// read and written again whenever it has left the cache.
/// In:      the op's EmbeddingGroup with an Access law per shard.
/// Valid:   any law; E -> infinity gives all-DRAM, one hot row gives one miss. Sectors of 32 B. All
///          lookups of a table are independent.
/// Source:  embedding-and-step-time sections 2 and 13; runtime section 9.4. Checked by
///          tests/models/embedding_test.cpp and kernel_accuracy_test.cpp.
class EmbeddingSharedCache final : public KernelForm {
 public:
  std::string_view name() const override { return "embedding.shared_cache"; }
  bool covers(const Op& op) const override;
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

/// Embedding forward on one core that walks table after table through a two-level cache (own,
/// shared).
///
///   time = start + tables * table + bags * bag + lookups * lookup + elements * element
///        + misses_near * (near_miss + lines * near_line)
///        + misses_far * (far_miss + lines * far_line)
///
/// misses_x: lookups that leave level x of capacity near / far bytes. While a table is walked it
/// has the level to itself; from one step to the next all tables and everything else the step
/// streams pass through it (embedding_traffic.h). lines = row bytes / 64. Source: derived from
/// Denning & Schwartz (1972). Checked by `stepcast validate kernels --measure embedding`.
class EmbeddingForwardLevels final : public KernelForm {
 public:
  std::string_view name() const override { return "embedding_forward.levels"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override { return op.kind == OpKind::kEmbeddingForward; }
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

/// Embedding backward with the optimizer fused, on one core: sort the lookups of a table by row,
/// add up the gradients of each row, update it.
///
///   time = start + tables * table + sum over tables of
///            lookups * (lookup + passes * sort + dim * gradient
///                       + gradient lines * gradient_line * out(gradient bytes / gradient_capacity))
///          + unique * (row + (dim + state) * update + lines * line(touched bytes))
///
/// passes of a radix sort: ceil(log2(rows) / 8), / 11 from 16384 lookups on. line(touched): seconds
/// per 64-byte line of weights and state, near while the rows touched by all tables fit `capacity`,
/// far beyond; out(x) = x^2 / (1 + x^2).
/// Source:  derived; embedding-and-step-time section 13 requirement 5.
class EmbeddingBackwardLevels final : public KernelForm {
 public:
  std::string_view name() const override { return "embedding_backward.levels"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override { return looks_up(op.kind) && is_backward(op.kind); }
  std::vector<Constant> constants(const Device& device) const override;
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override;
  std::vector<double> coordinates(const OpFacts& facts) const override;
  std::vector<std::string_view> coordinate_names() const override;
};

}  // namespace stepcast::models
