#include "planner/parallel/pipeline_layout.h"

#include <algorithm>
#include <set>

#include "core/job/layer_split.h"

namespace stepcast::planner {

std::int32_t PipelineLayout::most_layers() const {
  std::vector<std::int32_t> of_stage(static_cast<std::size_t>(stages));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    of_stage[i % of_stage.size()] += layers[i];
  }
  return *std::max_element(of_stage.begin(), of_stage.end());
}

PipelineLayout layout_of(const TransformerWorkload& model, std::int32_t stages, std::int32_t chunks,
                         const PipelineSplit& split) {
  PipelineLayout layout;
  layout.stages = stages;
  layout.chunks = chunks;
  layout.split = split;
  const std::vector<LayerRange> ranges =
      split_layers(model.layers, std::int64_t{stages} * chunks, split);
  const std::size_t all = ranges.size();
  const std::int64_t dense = model.moe ? model.moe->first_dense_layers : 0;
  for (std::size_t i = 0; i < all; ++i) {
    const LayerRange& range = ranges[i];
    layout.layers.push_back(static_cast<std::int32_t>(range.count));
    layout.dense.push_back(
        static_cast<std::int32_t>(std::clamp<std::int64_t>(dense - range.first, 0, range.count)));
    const bool empty = range.count == 0;
    layout.role.push_back(all == 1       ? ChunkRole::kWhole
                          : i == 0       ? (empty ? ChunkRole::kEmbedding : ChunkRole::kFirst)
                          : i + 1 == all ? (empty ? ChunkRole::kHead : ChunkRole::kLast)
                                         : ChunkRole::kMiddle);
  }
  // Among equal stages the first holds most: it has the most in flight.
  std::set<std::vector<std::int32_t>> seen;
  for (std::int32_t s = 0; s < layout.stages; ++s) {
    std::vector<std::int32_t> kind;
    for (std::int32_t c = 0; c < layout.chunks; ++c) {
      const auto at = static_cast<std::size_t>(c * layout.stages + s);
      kind.push_back(layout.layers[at]);
      kind.push_back(layout.dense[at]);
      kind.push_back(static_cast<std::int32_t>(layout.role[at]));
    }
    if (seen.insert(kind).second) {
      layout.fullest.push_back(s);
    }
  }
  return layout;
}

}  // namespace stepcast::planner
