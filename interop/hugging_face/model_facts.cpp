#include "interop/hugging_face/model_facts.h"

#include <initializer_list>

#include "core/config/document.h"
#include "core/error.h"
#include "interop/hugging_face/model_class.h"

namespace stepcast::interop {
namespace {

using config::Json;

/// The first of several spellings that is a number.
std::optional<double> number(const Json& of, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (of.is_object() && of.contains(key) && of.at(key).is_number()) {
      return of.at(key).get<double>();
    }
  }
  return std::nullopt;
}

bool flag(const Json& of, std::initializer_list<const char*> keys, bool otherwise) {
  for (const char* key : keys) {
    if (of.contains(key) && of.at(key).is_boolean()) {
      return of.at(key).get<bool>();
    }
  }
  return otherwise;
}

Json member(const Json& of, const char* key) {
  return of.is_object() && of.contains(key) ? of.at(key) : Json();
}

void add_rotary(const Json& model, ModelFacts& facts) {
  const Json now = member(model, "rope_parameters");  // of Transformers 5; before it rope_scaling
  const Json scaling = now.is_object() ? now : member(model, "rope_scaling");
  facts.rotary_base = number(model, {"rope_theta", "rotary_emb_base"});
  facts.rotary_base = facts.rotary_base ? facts.rotary_base : number(now, {"rope_theta"});
  facts.rotary_share = number(model, {"partial_rotary_factor", "rotary_pct"});
  const Json type = member(scaling, scaling.contains("rope_type") ? "rope_type" : "type");
  if (!type.is_string() || type == "default") {
    return;
  }
  if (type == "llama3") {
    facts.llama3_rope_factor = number(scaling, {"factor"});
  } else {
    facts.other_rope_scaling = type.get<std::string>();
  }
}

}  // namespace

std::optional<ModelFacts> model_facts(const config::Source& source) {
  Json root;
  try {
    root = config::parse_document(source).root;
  } catch (const InputError&) {  // of another kind
    return std::nullopt;
  }
  const Json type = member(root, "model_type");
  if (!type.is_string() || root.contains("kind")) {
    return std::nullopt;
  }
  const Json text = member(root, "text_config");
  const Json& model = text.is_object() ? text : root;
  const ModelClass* of = class_of(type.get<std::string>());
  ModelFacts facts;
  add_rotary(model, facts);
  facts.norm_epsilon = number(model, {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                                      "norm_epsilon", "norm_eps", "layernorm_epsilon"});
  // Latent attention has norms of its narrow vectors, which Megatron-LM calls the same.
  facts.qk_norms = flag(model, {"use_qk_norm"}, of != nullptr && of->qk_norms) ||
                   number(model, {"kv_lora_rank"}).has_value();
  facts.qkv_biases = flag(model, {"attention_bias", "qkv_bias", "use_qkv_bias"},
                          type.get<std::string>().starts_with("qwen2"));
  return facts;
}

}  // namespace stepcast::interop
