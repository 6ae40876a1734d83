#pragma once
#include <string>
#include <vector>

#include "interop/hugging_face/model_class.h"
#include "interop/hugging_face/reader.h"

namespace stepcast::interop {

/// One layer of a file, in words of the workload's pattern; an empty one is not there.
struct FileLayer {
  std::string mixer = "attention", feed_forward = "mlp";
};

/// Layers of a model by its file: which have a window, a state or a convolution instead of
/// attention, which have experts. Reads the sizes of these mixers into `w`, which has `layers`,
/// `hidden` and what `read_experts` read. Errors: InputError where a workload cannot say a layer.
std::vector<FileLayer> layers_of(ConfigReader& r, Json& w, const ModelClass& c);
/// Writes them as the keys `window`, `full_attention_every` and `moe.first_dense_layers`, or where
/// these cannot say them as a pattern.
void write_layers(Json& w, const std::vector<FileLayer>& layers);

}  // namespace stepcast::interop
