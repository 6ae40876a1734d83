#include "interop/hugging_face/model_class.h"

#include <array>

namespace stepcast::interop {
namespace {

// clang-format off
constexpr std::array kClasses{
    ModelClass{.type = "arcee", .gated = false, .activation = "relu2"},
    ModelClass{.type = "bloom", .gated = false, .activation = "gelu", .tied = true, .gpt = true},
    ModelClass{.type = "cohere", .tied = true, .parallel = true, .full_every = 4},
    ModelClass{.type = "dbrx"}, ModelClass{.type = "deepseek"}, ModelClass{.type = "ernie4_5"},
    ModelClass{.type = "exaone"}, ModelClass{.type = "exaone4", .qk_norms = true, .outer_norms = true},
    ModelClass{.type = "gemma", .activation = "gelu", .tied = true},
    ModelClass{.type = "gemma2", .activation = "gelu", .tied = true, .outer_norms = true, .full_every = 2},
    ModelClass{.type = "gemma3", .activation = "gelu", .tied = true, .qk_norms = true, .outer_norms = true, .full_every = 6},
    ModelClass{.type = "gemma4", .activation = "gelu", .tied = true, .qk_norms = true, .outer_norms = true, .full_every = 6},
    ModelClass{.type = "glm"}, ModelClass{.type = "glm4", .outer_norms = true}, ModelClass{.type = "glm4_moe"},
    ModelClass{.type = "gpt2", .gated = false, .activation = "gelu", .tied = true, .gpt = true},
    ModelClass{.type = "gpt_neox", .gated = false, .activation = "gelu", .parallel = true, .gpt = true},
    ModelClass{.type = "gpt_oss", .full_every = 2, .left_out = "sinks of attention and biases of experts"},
    ModelClass{.type = "granite"}, ModelClass{.type = "hunyuan", .qk_norms = true}, ModelClass{.type = "internlm"},
    ModelClass{.type = "kimi"}, ModelClass{.type = "granitemoehybrid", .tied = true}, ModelClass{.type = "llama"},
    ModelClass{.type = "llama4", .qk_norms = true, .full_every = 4, .shared_experts = 1},
    ModelClass{.type = "mimo"}, ModelClass{.type = "minimax"}, ModelClass{.type = "ministral"},
    ModelClass{.type = "mistral"}, ModelClass{.type = "mixtral"},
    ModelClass{.type = "mpt", .gated = false, .activation = "gelu", .tied = true, .gpt = true},
    ModelClass{.type = "nemotron", .gated = false, .activation = "relu2"},
    ModelClass{.type = "olmo"}, ModelClass{.type = "olmo2", .qk_norms = true, .outer_norms = true},
    ModelClass{.type = "olmo3", .qk_norms = true, .outer_norms = true, .full_every = 4},
    ModelClass{.type = "olmoe", .qk_norms = true}, ModelClass{.type = "phi3"}, ModelClass{.type = "phi4"},
    ModelClass{.type = "bamba"}, ModelClass{.type = "lfm2", .tied = true, .qk_norms = true},
    ModelClass{.type = "qwen2"}, ModelClass{.type = "qwen3", .qk_norms = true},
    ModelClass{.type = "qwen3_next", .qk_norms = true, .output_gate = true},
    ModelClass{.type = "qwen3_5", .qk_norms = true, .output_gate = true}, ModelClass{.type = "seed_oss"},
    ModelClass{.type = "smollm3"}, ModelClass{.type = "step3"},
    ModelClass{.type = "starcoder2", .gated = false, .activation = "gelu", .tied = true, .left_out = "rotary positions (as learned ones)"}};
// clang-format on

}  // namespace

const ModelClass* class_of(std::string_view type) {
  const ModelClass* best = nullptr;
  for (const ModelClass& c : kClasses) {
    if (type.starts_with(c.type) && (best == nullptr || c.type.size() > best->type.size())) {
      best = &c;
    }
  }
  return best;
}

}  // namespace stepcast::interop
