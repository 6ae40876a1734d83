#pragma once
#include <string_view>

#include "interop/formats.h"
#include "interop/hugging_face/model_class.h"

namespace stepcast::interop {

/// The key `details` of a workload: what a config.json of Hugging Face says that launch scripts
/// have and no forecast depends on.
Json details_of(const Json& model, std::string_view type, const ModelClass& of);

}  // namespace stepcast::interop
