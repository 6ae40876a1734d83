#pragma once
#include <cstdint>
#include <vector>

#include "planner/parallel/layer_cost_probe.h"

namespace stepcast::planner {

/// The layers of every virtual stage of a split model; index = chunk * stages + stage.
struct PipelineLayout {
  std::int32_t stages = 1, chunks = 1;
  std::vector<std::int32_t> layers;
  std::vector<std::int32_t> dense;  ///< of these, layers without experts in a model that has some
  std::vector<ChunkRole> role;
  std::vector<std::int32_t> fullest;  ///< stages one of which holds most: the others hold no more
  PipelineSplit split;                ///< that assigned them
  /// Layers of the stage that has most.
  [[nodiscard]] std::int32_t most_layers() const;
  /// True if the first chunk or the last has no layers.
  [[nodiscard]] bool empty_ends() const { return layers.front() == 0 || layers.back() == 0; }
};
/// Splits layers as the graph builder does.
PipelineLayout layout_of(const TransformerWorkload& model, std::int32_t stages, std::int32_t chunks,
                         const PipelineSplit& split = {});

}  // namespace stepcast::planner
