#pragma once
#include <cstdint>
#include <vector>

namespace stepcast {

/// Consecutive layers [first, first + count) of one virtual stage.
struct LayerRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// How layers are assigned to the stages of a pipeline, as a job states it: nothing, the weight of
/// its ends, or every number.
struct PipelineSplit {
  /// The embedding and the head count as so many layers: their chunks get as many fewer.
  std::int64_t embedding = 0, head = 0;
  /// Layers of each virtual stage, in the order of layers; empty: by the weights above.
  std::vector<std::int64_t> layers;
  bool operator==(const PipelineSplit&) const = default;
};

/// How so many layers are partitioned over the virtual stages of a pipeline, in order. Weights w of
/// the ends join the layers, (layers + w) is divided evenly, and the ends' chunks give theirs
/// back. Where it does not divide evenly, the outermost chunks are one short. Valid: virtual_stages
/// >= 1. Counts may come out negative: core/job/job_rules.h rejects those.
std::vector<LayerRange> split_layers(std::int64_t layers, std::int64_t virtual_stages,
                                     const PipelineSplit& split = {});

/// Layers of the stage that has most, over all its chunks.
std::int64_t most_layers(std::int64_t layers, std::int64_t pipeline, std::int64_t chunks,
                         const PipelineSplit& split = {});

/// Layers of the virtual stage that has most.
std::int64_t most_layers_of_chunk(std::int64_t layers, std::int64_t virtual_stages,
                                  const PipelineSplit& split = {});

}  // namespace stepcast
