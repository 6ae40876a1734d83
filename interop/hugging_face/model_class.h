#pragma once
#include <cstdint>
#include <string_view>

#include "interop/formats.h"

namespace stepcast::interop {

/// Facts that a file leaves to the class of its model type. Others are read as Llama.
struct ModelClass {
  std::string_view type;  ///< of the model, or how it begins
  bool gated = true;      ///< two projections are multiplied
  std::string_view activation = "silu";
  bool tied = false;
  bool parallel = false;        ///< attention and feed-forward block side by side
  bool gpt = false;             ///< width of GPT-2's kin
  bool qk_norms = false;        ///< norms of queries and keys without a flag
  bool outer_norms = false;     ///< norms after attention and feed-forward blocks
  std::int64_t full_every = 1;  ///< with a window: layers that see all keys
  std::int64_t shared_experts = 0;
  bool output_gate = false;  ///< attention's output is multiplied by a gate
  const char* left_out = nullptr;
};
/// The class whose type is the longest beginning of `type`; nullptr: none.
const ModelClass* class_of(std::string_view type);

/// The key `details` of a workload: what a config.json of Hugging Face says that launch scripts
/// have and no forecast depends on.
Json details_of(const Json& model, std::string_view type, const ModelClass& of);

}  // namespace stepcast::interop
