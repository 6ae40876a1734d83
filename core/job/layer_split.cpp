#include "core/job/layer_split.h"

#include <algorithm>

namespace stepcast {

std::vector<LayerRange> split_layers(std::int64_t layers, std::int64_t virtual_stages,
                                     const PipelineSplit& split) {
  std::vector<LayerRange> ranges(static_cast<std::size_t>(virtual_stages));
  if (split.layers.empty()) {
    const std::int64_t all = layers + split.embedding + split.head;
    const std::int64_t extra = all % virtual_stages;
    const std::int64_t first_long = (virtual_stages - extra) / 2;
    for (std::int64_t i = 0; i < virtual_stages; ++i) {
      const bool is_long = i >= first_long && i < first_long + extra;
      ranges[static_cast<std::size_t>(i)].count = all / virtual_stages + (is_long ? 1 : 0);
    }
    ranges.front().count -= split.embedding;
    ranges.back().count -= split.head;
  } else {
    const std::size_t given = std::min(ranges.size(), split.layers.size());
    for (std::size_t i = 0; i < given; ++i) {
      ranges[i].count = split.layers[i];
    }
  }
  std::int64_t next = 0;
  for (LayerRange& range : ranges) {
    range.first = next;
    next += range.count;
  }
  return ranges;
}

std::int64_t most_layers(std::int64_t layers, std::int64_t pipeline, std::int64_t chunks,
                         const PipelineSplit& split) {
  const std::vector<LayerRange> ranges = split_layers(layers, pipeline * chunks, split);
  std::vector<std::int64_t> stages(static_cast<std::size_t>(pipeline));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    stages[i % stages.size()] += ranges[i].count;
  }
  return *std::max_element(stages.begin(), stages.end());
}

std::int64_t most_layers_of_chunk(std::int64_t layers, std::int64_t virtual_stages,
                                  const PipelineSplit& split) {
  if (split.layers.empty() && virtual_stages > 2) {  // one in the middle has most
    return (layers + split.embedding + split.head + virtual_stages - 1) / virtual_stages;
  }
  const std::vector<LayerRange> ranges = split_layers(layers, virtual_stages, split);
  return std::max_element(
             ranges.begin(), ranges.end(),
             [](const LayerRange& a, const LayerRange& b) { return a.count < b.count; })
      ->count;
}

}  // namespace stepcast
