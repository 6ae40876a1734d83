#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/parallel/layer_cost_probe.h"

namespace stepcast::planner {

/// The layers of every virtual stage of a split model; index = chunk * stages + stage.
struct PipelineLayout {
  std::int32_t stages = 1, chunks = 1;
  std::vector<std::int32_t> layers;
  std::vector<LayerCounts> kinds;  ///< of these, by block_kinds()
  std::vector<ChunkRole> role;
  /// The stage whose crossing to the next an activation comes over (LayerCostProbe::hop), and the
  /// gradient that it gets back; -1: none, or the chunk before or after is the stage's own.
  std::vector<std::int32_t> arrives_over, returns_over;
  std::vector<std::int32_t> fullest;  ///< stages one of which holds most: the others hold no more
  PipelineSplit split;                ///< that assigned them
  /// The first `n` layers of a virtual stage.
  [[nodiscard]] LayerCounts first(std::size_t at, std::int32_t n) const {
    const auto begin = static_cast<std::size_t>(begins[at]);
    return before[begin + static_cast<std::size_t>(n)] - before[begin];
  }
  std::vector<std::int64_t> begins;  ///< first layer of each virtual stage
  std::vector<LayerCounts> before;   ///< layers of the model before each, and of all
  /// Layers of the stage that has most.
  [[nodiscard]] std::int32_t most_layers() const;
  /// True if the first chunk or the last has no layers.
  [[nodiscard]] bool empty_ends() const {
    return std::any_of(role.begin(), role.end(), [](ChunkRole r) {
      return r == ChunkRole::kEmbedding || r == ChunkRole::kHead;
    });
  }
};
/// The kinds of a model's layers: the first is that of most of those with experts, or of all where
/// none has some. Errors: InputError where there are more than kMostBlockKinds.
std::vector<BlockKind> block_kinds(const TransformerWorkload& model);
/// All layers of the model, by block_kinds().
LayerCounts counts_of(const TransformerWorkload& model);

/// Splits layers as the graph builder does.
PipelineLayout layout_of(const TransformerWorkload& model, std::int32_t stages, std::int32_t chunks,
                         const PipelineSplit& split = {},
                         ChunkPlacement placement = ChunkPlacement::kRound);

}  // namespace stepcast::planner
