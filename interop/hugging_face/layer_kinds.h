#pragma once
#include <vector>

#include "interop/hugging_face/model_class.h"
#include "interop/hugging_face/reader.h"
#include "interop/layer_list.h"

namespace stepcast::interop {

/// Layers of a model by its file: which have a window, a state or a convolution instead of
/// attention, which have experts. Reads the sizes of these mixers into `w`, which has `layers`,
/// `hidden` and what `read_experts` read. Errors: InputError where a workload cannot say a layer.
std::vector<FileLayer> layers_of(ConfigReader& r, Json& w, const ModelClass& c);
/// `workload.sparse` of a file.
Json indexer_of(ConfigReader& r);

}  // namespace stepcast::interop
