#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/op_attributes.h"

namespace stepcast {

/// Rule by which a mixer's state takes in a token.
enum class RecurrentRule : std::uint8_t {
  kMamba2,      ///< decays by head and adds (Dao and Gu, arXiv 2405.21060)
  kGatedDelta,  ///< and first takes out what the key held (Yang et al., arXiv 2412.06464)
  kKimiDelta,   ///< decays by column of the key (Kimi Linear, arXiv 2510.26692)
  kConvolution  ///< no state: a gated causal convolution (LFM2, arXiv 2511.23404)
};

/// Mixes the tokens of a sequence through a state of constant size, where attention keeps all keys:
///
///   norm -> projection in -> causal convolution -> scan -> norm and gate -> projection out
///
/// The scan is the chunked one of the papers: products inside chunks of tokens, and a state of
/// [key_dim, value_dim] for each head handed from chunk to chunk.
struct RecurrentMixer {
  RecurrentRule rule = RecurrentRule::kMamba2;
  std::int64_t heads = 0;      ///< of values, each with a state
  std::int64_t key_heads = 0;  ///< of keys and queries; several heads of values share one
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t kernel = 4;     ///< taps of the convolution
  std::int64_t chunk = 64;     ///< tokens of a chunk of the scan
  std::int64_t gate_rank = 0;  ///< kKimiDelta: width between the two matrices of each gate

  [[nodiscard]] std::int64_t keys() const { return key_heads * key_dim; }
  [[nodiscard]] std::int64_t values() const { return heads * value_dim; }
  [[nodiscard]] bool scans() const { return rule != RecurrentRule::kConvolution; }
  [[nodiscard]] ScanRule scan_rule() const {
    return rule == RecurrentRule::kMamba2      ? ScanRule::kDecay
           : rule == RecurrentRule::kKimiDelta ? ScanRule::kDeltaByColumn
                                               : ScanRule::kDelta;
  }

  /// One part of a matrix, on one of `tensor` ranks.
  struct Columns {
    const char* name;
    std::int64_t columns;
  };
  static std::int64_t width_of(const std::vector<Columns>& parts);
  /// Parts of the projection in, first those that go through the convolution.
  [[nodiscard]] std::vector<Columns> inputs(std::int64_t tensor) const;
  [[nodiscard]] std::vector<Columns> convolved(std::int64_t tensor) const;
  /// Gates whose projection is two narrow matrices.
  [[nodiscard]] std::vector<Columns> narrow_gates(std::int64_t tensor) const;
  /// Vectors trained beside the matrices, with a column for each head or column of a state.
  [[nodiscard]] std::vector<Columns> vectors(std::int64_t tensor) const;
  /// Columns of the norm after the scan, equal on all tensor ranks or split with the heads.
  [[nodiscard]] std::int64_t norm_columns(std::int64_t tensor) const;
  [[nodiscard]] bool convolution_bias() const { return rule == RecurrentRule::kMamba2; }
  /// Parameters of the mixer in a model of this width, the norm before it left out.
  [[nodiscard]] std::int64_t parameters(std::int64_t hidden) const;
};

}  // namespace stepcast
