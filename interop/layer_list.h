#pragma once
#include <string>
#include <vector>

#include "interop/formats.h"

namespace stepcast::interop {

constexpr std::int64_t kMostFileLayers = 10'000;  ///< of a model that is read

/// One layer of a file, in words of the workload's pattern; an empty one is not there.
struct FileLayer {
  std::string mixer = "attention", feed_forward = "mlp";
};

/// The layer that a letter or a word of NVIDIA's hybrids means: M or mamba, * or attention, - or
/// mlp, E or moe, each a block of one kind. Nothing for another.
std::optional<FileLayer> hybrid_block(const std::string& block);

/// Writes layers as the keys `window`, `full_attention_every` and `moe.first_dense_layers` of a
/// workload that has `window` and `moe` where layers do, or where these keys cannot say them as its
/// pattern.
void write_layers(Json& w, const std::vector<FileLayer>& layers);

}  // namespace stepcast::interop
