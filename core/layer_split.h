#pragma once
#include <cstdint>
#include <vector>

namespace stepcast {

/// Consecutive layers [first, first + count) of one virtual stage.
struct LayerRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// How so many layers are dealt out to the virtual stages of a pipeline, by chunk * pipeline +
/// stage. Where they do not divide evenly, the outermost (which hold the embedding and the head)
/// are one layer short. Valid: 1 <= virtual_stages <= layers.
std::vector<LayerRange> split_layers(std::int64_t layers, std::int64_t virtual_stages);

/// Layers of the stage that has most, over all its chunks.
std::int64_t most_layers(std::int64_t layers, std::int64_t pipeline, std::int64_t chunks);

}  // namespace stepcast
