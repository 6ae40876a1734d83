#pragma once
#include <optional>
#include <string>

#include "core/config/config.h"

namespace stepcast::interop {

/// Facts of a config.json of Hugging Face that no forecast depends on and training does: a launch
/// script has them.
struct ModelFacts {
  std::optional<double> rotary_base, rotary_share, norm_epsilon;
  bool qk_norms = false, qkv_biases = false;
  std::optional<double> llama3_rope_factor;  ///< of rope_scaling as Llama 3 has it
  std::string other_rope_scaling;            ///< its type; "": none
};

/// nullopt where the source is no such file.
std::optional<ModelFacts> model_facts(const config::Source& source);

}  // namespace stepcast::interop
