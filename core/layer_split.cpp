#include "core/layer_split.h"

#include <algorithm>

namespace stepcast {

std::vector<LayerRange> split_layers(std::int64_t layers, std::int64_t virtual_stages) {
  const std::int64_t extra = layers % virtual_stages;
  const std::int64_t first_long = (virtual_stages - extra) / 2;
  std::vector<LayerRange> ranges;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < virtual_stages; ++i) {
    const bool is_long = i >= first_long && i < first_long + extra;
    ranges.push_back({next, layers / virtual_stages + (is_long ? 1 : 0)});
    next += ranges.back().count;
  }
  return ranges;
}

std::int64_t most_layers(std::int64_t layers, std::int64_t pipeline, std::int64_t chunks) {
  const std::vector<LayerRange> ranges = split_layers(layers, pipeline * chunks);
  std::vector<std::int64_t> stages(static_cast<std::size_t>(pipeline));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    stages[i % stages.size()] += ranges[i].count;
  }
  return *std::max_element(stages.begin(), stages.end());
}

}  // namespace stepcast
