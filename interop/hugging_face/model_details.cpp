#include "interop/hugging_face/model_class.h"

#include <initializer_list>

namespace stepcast::interop {
namespace {

/// The first of several spellings that is a number; null where none is.
Json number(const Json& of, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (of.is_object() && of.contains(key) && of.at(key).is_number()) {
      return of.at(key);
    }
  }
  return {};
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

void add_rotary(const Json& model, Json& details) {
  const Json now = member(model, "rope_parameters");  // of Transformers 5; before it rope_scaling
  const Json scaling = now.is_object() ? now : member(model, "rope_scaling");
  const Json base = number(model, {"rope_theta", "rotary_emb_base"});
  details["rotary_base"] = base.is_null() ? number(now, {"rope_theta"}) : base;
  details["rotary_share"] = number(model, {"partial_rotary_factor", "rotary_pct"});
  const Json type = member(scaling, scaling.contains("rope_type") ? "rope_type" : "type");
  if (type.is_string() && type != "default") {
    details["rope_scaling"] = type;
    details["rope_factor"] = number(scaling, {"factor"});
  }
}

}  // namespace

Json details_of(const Json& model, std::string_view type, const ModelClass& of) {
  Json details;
  add_rotary(model, details);
  details["norm_epsilon"] = number(model, {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                                           "norm_epsilon", "norm_eps", "layernorm_epsilon"});
  // Latent attention has norms of its narrow vectors, which Megatron-LM calls the same.
  details["qk_norms"] =
      flag(model, {"use_qk_norm"}, of.qk_norms) || number(model, {"kv_lora_rank"}).is_number();
  details["qkv_biases"] = flag(model, {"attention_bias", "qkv_bias", "use_qkv_bias"},
                               type.starts_with("qwen2"));
  Json known = Json::object();
  for (const auto& [key, value] : details.items()) {
    if (!value.is_null() && value != Json(false)) {
      known[key] = value;
    }
  }
  return known;
}

}  // namespace stepcast::interop
