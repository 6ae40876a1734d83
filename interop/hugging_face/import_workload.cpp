#include <algorithm>
#include <array>
#include <set>

#include "interop/formats.h"
#include "interop/window_pattern.h"

// config.json of Hugging Face transformers -> workload. Keys are read by family; those in kHarmless
// do not change what a step costs here; any other is rejected.
namespace stepcast::interop {
namespace {

const std::set<std::string_view> kHarmless{
    // Names, versions, tokens.
    "model_type", "architectures", "_name_or_path", "name_or_path", "transformers_version",
    "torch_dtype", "dtype", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id",
    "unk_token_id", "sep_token_id", "bos_token", "eos_token", "tokenizer_name", "tokenizer_class",
    "task_specific_params", "use_cache", "return_dict", "id2label", "label2id", "verbose",
    // How text is generated, and what a call returns.
    "output_past", "output_attentions", "output_hidden_states", "output_scores",
    "return_dict_in_generate", "use_return_dict", "torchscript", "use_bfloat16", "pruned_heads",
    "finetuning_task", "problem_type", "prefix", "do_sample", "early_stopping", "max_length",
    "min_length", "temperature", "top_k", "top_p", "typical_p", "num_beams", "num_beam_groups",
    "diversity_penalty", "length_penalty", "repetition_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "bad_words_ids", "suppress_tokens",
    "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id", "decoder_start_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty",
    // Numbers that change no shape.
    "initializer_range", "init_config", "init_device", "rms_norm_eps", "norm_eps", "layer_norm_eps",
    "layer_norm_epsilon", "layernorm_epsilon", "layer_norm_type", "norm_type", "rope_theta",
    "rope_scaling", "rope_parameters", "rotary_emb_base", "rotary_pct", "partial_rotary_factor",
    "max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len",
    "attention_dropout", "hidden_dropout", "hidden_dropout_prob", "classifier_dropout",
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "emb_pdrop", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
    "masked_softmax_fusion", "apply_residual_connection_post_layernorm",
    "attention_softmax_in_fp32", "bias_dropout_fusion", "slow_but_exact", "skip_bias_add",
    "skip_bias_add_qkv", "offset_alibi", "pretraining_tp", "logit_scale", "learned_pos_emb",
    "embedding_fraction",
    // Biases of single projections: below a thousandth of the work.
    "attention_bias", "mlp_bias", "no_bias", "use_qkv_bias", "qkv_bias",
    // Routing details; the balance of the experts is moe.routing.
    "router_aux_loss_coef", "output_router_logits", "router_jitter_noise", "norm_topk_prob",
    "routed_scaling_factor", "aux_loss_alpha", "seq_aux", "scoring_func", "ep_size",
    // Factors on tensors that are there anyway.
    "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
    "query_pre_attn_scalar", "swiglu_limit", "original_max_position_embeddings",
    "initial_context_length", "sliding_window_size", "rope_local_base_freq", "clip_qkv",
    "residual_dropout", "embedding_dropout", "bias", "use_bias", "attn_implementation",
    "_attn_implementation", "cache_implementation", "norm_epsilon", "experts_per_token",
    "use_cache_quantization",
    // Not trained by the published model code.
    "quantization_config", "max_window_layers"};

enum class Family {
  kLlama,
  kPlain,  ///< a feed-forward block without a gate, else Llama's
  kGemma,
  kCohere,
  kMixtral,
  kQwenMoe,
  kDeepSeek,
  kDbrx,
  kGpt2,
  kNeox,
  kBloom,
  kMpt
};

const std::vector<std::pair<std::string, Family>>& families() {
  static const std::vector<std::pair<std::string, Family>> all{{"llama", Family::kLlama},
                                                               {"mistral", Family::kLlama},
                                                               {"qwen2", Family::kLlama},
                                                               {"qwen3", Family::kLlama},
                                                               {"phi3", Family::kLlama},
                                                               {"olmo2", Family::kLlama},
                                                               {"granite", Family::kLlama},
                                                               {"glm4", Family::kLlama},
                                                               {"internlm2", Family::kLlama},
                                                               {"exaone", Family::kLlama},
                                                               {"gemma", Family::kGemma},
                                                               {"gemma2", Family::kGemma},
                                                               {"gemma3", Family::kGemma},
                                                               {"gemma3_text", Family::kGemma},
                                                               {"cohere", Family::kCohere},
                                                               {"nemotron", Family::kPlain},
                                                               {"starcoder2", Family::kPlain},
                                                               {"mixtral", Family::kMixtral},
                                                               {"gpt_oss", Family::kMixtral},
                                                               {"qwen2_moe", Family::kQwenMoe},
                                                               {"qwen3_moe", Family::kQwenMoe},
                                                               {"deepseek_v2", Family::kDeepSeek},
                                                               {"deepseek_v3", Family::kDeepSeek},
                                                               {"deepseek_v32", Family::kDeepSeek},
                                                               {"qwen2_vl", Family::kLlama},
                                                               {"qwen2_5_vl", Family::kLlama},
                                                               {"kimi_k2", Family::kDeepSeek},
                                                               {"glm4_moe", Family::kDeepSeek},
                                                               {"dbrx", Family::kDbrx},
                                                               {"gpt2", Family::kGpt2},
                                                               {"gpt_neox", Family::kNeox},
                                                               {"bloom", Family::kBloom},
                                                               {"mpt", Family::kMpt}};
  return all;
}

/// Features that keep models of other kinds from being read, by the beginning of their type.
constexpr std::array<std::pair<std::string_view, const char*>, 16> kNotModelled{
    {{"bert", "an encoder"},
     {"roberta", "an encoder"},
     {"modernbert", "an encoder"},
     {"t5", "an encoder and a decoder"},
     {"bart", "an encoder and a decoder"},
     {"whisper", "an encoder and a decoder"},
     {"mamba", "state-space layers"},
     {"jamba", "state-space layers"},
     {"bamba", "state-space layers"},
     {"falcon_h1", "state-space layers"},
     {"nemotron_h", "state-space layers"},
     {"granitemoehybrid", "state-space layers"},
     {"rwkv", "linear attention"},
     {"qwen3_next", "linear attention"},
     {"kimi_linear", "linear attention"},
     {"llama4", "attention in chunks"}}};

/// Reads one config.json and remembers what it read.
class Reader {
 public:
  explicit Reader(const Value& v) : v_(v) {}

  std::optional<Value> find(const std::string& key) {
    seen_.insert(key);
    const auto it = v_.json().find(key);
    return it == v_.json().end() || it->is_null() ? std::nullopt : v_.find(key);
  }
  /// The first of several spellings.
  std::int64_t integer(std::initializer_list<const char*> keys) {
    std::optional<Value> found;
    for (const char* key : keys) {
      const auto v = find(key);
      found = found ? found : v;
    }
    return found ? found->integer(1, std::int64_t{1} << 40)
                 : v_.at(*keys.begin(), "a number of this family of models").integer(1, 1);
  }
  std::int64_t integer_or(const char* key, std::int64_t otherwise) {
    const auto v = find(key);
    return v ? v->integer(0, std::int64_t{1} << 40) : otherwise;
  }
  bool flag_or(const char* key, bool otherwise) {
    const auto v = find(key);
    return v ? v->boolean() : otherwise;
  }
  /// Notes a feature of the model that a workload cannot say.
  void approximate(const std::string& what) { approximated_.push_back(what); }
  [[nodiscard]] const std::vector<std::string>& approximated() const { return approximated_; }
  /// A key that must have a certain value, since others cost something else.
  void expect(const char* key, const Json& wanted, const char* why) {
    if (const auto v = find(key); v && v->json() != wanted) {
      v->reject(
          fmt::format("found {}, expected {}: {}; describe the model as a workload of our own",
                      shown(v->json()), wanted.dump(), why));
    }
  }
  /// All of them at once.
  void reject_unread() const {
    std::string names, found;
    for (const auto& [key, value] : v_.members()) {
      const bool off = value.json() == false;  // whatever it is, this model does not have it
      if (seen_.count(key) == 0 && kHarmless.count(key) == 0 && !off) {
        names += fmt::format("{}{}", names.empty() ? "" : ", ", key.substr(0, 80));
        found += fmt::format("{}{}", found.empty() ? "" : ", ", shown(value.json()));
      }
    }
    if (!names.empty()) {
      throw InputError(
          v_.where(names),
          fmt::format(
              "found {}: not read, and may change what a step costs; remove what does not, "
              "then `stepcast convert` the file to a workload of our own and set there what "
              "does",
              found));
    }
  }
  [[nodiscard]] const Value& value() const { return v_; }

 private:
  const Value& v_;
  std::set<std::string> seen_;
  std::vector<std::string> approximated_;
};

/// `gated`: the family multiplies two projections.
std::string activation_of(Reader& r, const char* key, bool gated, const char* otherwise) {
  const auto v = r.find(key);
  const std::string text = v ? v->text("the name of an activation") : otherwise;
  const bool gelu = text.starts_with("gelu");
  if (gated && (text == "silu" || text == "swish" || gelu)) {
    return gelu ? "geglu" : "swiglu";
  }
  if (!gated && (gelu || text == "relu2")) {
    return gelu ? "gelu" : "squared_relu";
  }
  v->reject(fmt::format("found \"{}\"; this family is read with {}", text.substr(0, 40),
                        gated ? "silu or gelu" : "gelu or relu2"));
}

/// A window of all layers, of all but every n-th, or of none.
void read_window(Reader& r, Json& w, bool alternates) {
  const bool windowed = r.flag_or("use_sliding_window", true);
  const std::int64_t pattern = r.integer_or("sliding_window_pattern", alternates ? 2 : 1);
  const auto window = r.find("sliding_window");
  std::optional<std::int64_t> every = pattern > 1 ? pattern : 0;
  if (const auto types = r.find("layer_types")) {
    std::vector<bool> full;
    for (const Value& type : types->items("a list of kinds of attention")) {
      const std::string kind = type.text("full_attention or sliding_attention");
      if (kind != "full_attention" && kind != "sliding_attention") {
        type.reject(
            fmt::format("found \"{}\", expected full_attention or sliding_attention: layers "
                        "of other kinds are not modelled",
                        kind.substr(0, 40)));
      }
      full.push_back(kind == "full_attention");
    }
    every = full_attention_every(full);
  }
  if (!window || !windowed || every == 1) {
    return;
  }
  const std::int64_t width = window->integer(1, 1 << 26);
  if (!every) {
    r.approximate(fmt::format("windows of {} on some layers (all see all keys: slower)", width));
    return;
  }
  w["window"] = width;
  if (*every > 0) {
    w["full_attention_every"] = *every;
  }
}

void read_llama(Reader& r, Json& w, Family family) {
  const bool gated = family != Family::kPlain;
  w["layers"] = r.integer({"num_hidden_layers", "num_layers"});
  w["hidden"] = r.integer({"hidden_size"});
  if (!w.contains("heads")) {
    w["heads"] = r.integer({"num_attention_heads"});
  }
  if (const auto kv = r.find("num_key_value_heads")) {
    w["kv_heads"] = kv->integer(1, 1 << 16);
  }
  if (const auto dim = r.find("head_dim")) {
    w["head_dim"] = dim->integer(1, 1 << 16);
  }
  w["ffn_hidden"] = r.integer({"intermediate_size"});
  const char* name = r.find("hidden_activation")     ? "hidden_activation"
                     : r.find("activation_function") ? "activation_function"
                                                     : "hidden_act";
  r.find("hidden_act");  // an older spelling of hidden_activation
  w["activation"] = activation_of(r, name, gated,
                                  !gated                     ? "relu2"
                                  : family == Family::kGemma ? "gelu"
                                                             : "silu");
  read_window(r, w, family == Family::kGemma);
}

/// Notes what a family adds to a Llama's layers.
void note_additions(Reader& r, const std::string& type) {
  if (type.starts_with("gemma2") || type.starts_with("gemma3") || type == "glm4") {
    r.approximate("norms after attention and feed-forward blocks (left out)");
  }
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (r.find(key)) {
      r.approximate(fmt::format("{} (left out)", key));
    }
  }
  // Their code always has them (Qwen3, Gemma 3 and OLMo 2 reports); others say so by a flag.
  const bool always = type.starts_with("qwen3") || type.starts_with("gemma3") || type == "olmo2";
  if (r.flag_or("use_qk_norm", always)) {
    r.approximate("norms of queries and keys (left out)");
  }
  if (type == "gpt_oss") {
    r.approximate("sinks of attention and biases of experts (left out)");
  }
  if (type == "starcoder2") {
    r.approximate("rotary positions as learned ones");
  }
}

void read_experts(Reader& r, Json& w, Family family) {
  Json& moe = w["moe"] = Json::object();
  if (family == Family::kMixtral) {
    moe["experts"] = r.integer({"num_local_experts", "num_experts"});
    moe["ffn_hidden"] = w["ffn_hidden"];
  } else {
    moe["experts"] = r.integer({"num_experts", "n_routed_experts"});
    moe["ffn_hidden"] = r.integer({"moe_intermediate_size"});
  }
  moe["per_token"] = r.integer({"num_experts_per_tok"});
  if (family == Family::kQwenMoe) {
    r.expect("decoder_sparse_step", 1, "every layer has experts");
    r.expect("mlp_only_layers", Json::array(), "every layer has experts");
    if (const auto shared = r.find("shared_expert_intermediate_size")) {
      const std::int64_t each = moe["ffn_hidden"].get<std::int64_t>();
      const std::int64_t width = shared->integer(0, 1 << 20);
      if (width % each != 0) {
        shared->reject(fmt::format(
            "found {}: shared experts are counted in experts of {} columns; use a multiple", width,
            each));
      }
      moe["shared"] = width / each;
    }
  } else if (family == Family::kDeepSeek) {
    r.expect("moe_layer_freq", 1, "every layer after the dense ones has experts");
    moe["shared"] = r.integer_or("n_shared_experts", 0);
    moe["first_dense_layers"] = r.integer_or("first_k_dense_replace", 0);
    const std::int64_t groups = r.integer_or("n_group", 1);
    const std::int64_t limit = r.integer_or("topk_group", groups);
    const auto method = r.find("topk_method");
    if (limit < groups && !(method && method->is("greedy"))) {
      moe["groups"] = groups;
      moe["groups_per_token"] = limit;
    }
  }
}

void read_latent_attention(Reader& r, Json& w) {
  w.erase("kv_heads");
  w.erase("head_dim");
  w["mla"] = {{"q_rank", r.integer_or("q_lora_rank", 0)},
              {"kv_rank", r.integer({"kv_lora_rank"})},
              {"rope_dim", r.integer({"qk_rope_head_dim"})},
              {"nope_dim", r.integer({"qk_nope_head_dim"})},
              {"v_dim", r.integer({"v_head_dim"})}};
}

/// DBRX keeps attention and experts in objects of their own.
void read_dbrx(Reader& r, Json& w) {
  w["layers"] = r.integer({"n_layers"});
  w["hidden"] = r.integer({"d_model"});
  w["heads"] = r.integer({"n_heads"});
  if (const auto attention = r.find("attn_config")) {
    attention->keys({"model_type", "attn_pdrop", "clip_qkv", "kv_n_heads", "rope_theta"});
    if (const auto kv = attention->find("kv_n_heads")) {
      w["kv_heads"] = kv->integer(1, 1 << 16);
    }
  }
  const Value ffn = r.value().at("ffn_config", "the experts");
  r.find("ffn_config");
  ffn.keys({"model_type", "ffn_act_fn", "ffn_hidden_size", "moe_jitter_eps", "moe_loss_weight",
            "moe_normalize_expert_weights", "moe_num_experts", "moe_top_k",
            "uniform_expert_assignment"});
  w["ffn_hidden"] = ffn.at("ffn_hidden_size", "the width of an expert").integer(1, 1 << 24);
  w["activation"] = "swiglu";
  w["moe"] = {{"experts", ffn.at("moe_num_experts", "experts").integer(1, 1 << 16)},
              {"per_token", ffn.at("moe_top_k", "experts of a token").integer(1, 1 << 16)},
              {"ffn_hidden", w["ffn_hidden"]}};
}

/// Files of Gemma leave out what is as in its class.
void read_gemma_defaults(Reader& r, Json& w, const std::string& type) {
  w["head_dim"] = r.integer_or("head_dim", 256);
  if (type.starts_with("gemma3")) {
    w["heads"] = r.integer_or("num_attention_heads", 8);
    w["kv_heads"] = r.integer_or("num_key_value_heads", 4);
    w["vocabulary"] = r.integer_or("vocab_size", 262208);
  }
}

void read_gpt(Reader& r, Json& w) {
  w["layers"] = r.integer({"num_hidden_layers", "n_layer", "n_layers"});
  w["hidden"] = r.integer({"hidden_size", "n_embd", "n_embed", "d_model"});
  w["heads"] = r.integer({"num_attention_heads", "n_head", "n_heads"});
  std::int64_t width = 4 * w["hidden"].get<std::int64_t>();
  for (const char* key : {"intermediate_size", "n_inner"}) {
    width = r.integer_or(key, width);
  }
  if (const auto ratio = r.find("expansion_ratio")) {
    width = ratio->integer(1, 64) * w["hidden"].get<std::int64_t>();
  }
  w["ffn_hidden"] = width;
  const char* name =
      r.value().json().contains("activation_function") ? "activation_function" : "hidden_act";
  w["activation"] = activation_of(r, name, false, "gelu");
}

/// MPT keeps its attention in an object of its own.
void read_mpt_attention(Reader& r, Json& w) {
  const auto attention = r.find("attn_config");
  if (!attention) {
    return;
  }
  attention->keys({"alibi", "alibi_bias_max", "attn_impl", "attn_pdrop", "attn_type",
                   "attn_uses_sequence_id", "clip_qkv", "model_type", "prefix_lm", "qk_ln",
                   "softmax_scale", "kv_n_heads"});
  if (const auto kv = attention->find("kv_n_heads"); kv && !kv->json().is_null()) {
    w["kv_heads"] = kv->integer(1, 1 << 16);
  }
}

/// The batch where a job says none: 4 Mi tokens, in sequences as long as the model's, at most 8192.
Json batch_of(const Json& config) {
  constexpr std::int64_t kLongest = 8192;
  constexpr std::int64_t kTokens = std::int64_t{1} << 22;
  std::int64_t sequence = kLongest;
  for (const char* key :
       {"max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len"}) {
    const auto length = config.find(key);
    if (length != config.end() && length->is_number_integer() && *length > 0) {
      sequence = std::min(sequence, length->get<std::int64_t>());
    }
  }
  return {{"global", kTokens / sequence}, {"micro", 1}, {"sequence", sequence}};
}

Json workload_of(Reader& r) {
  const Value type = r.value().at("model_type", "the family of the model");
  const std::string named = type.text("the family of the model");
  for (const auto& [beginning, what] : kNotModelled) {
    if (named.starts_with(beginning)) {
      type.reject(
          fmt::format("found \"{}\": stepcast does not model {}", named.substr(0, 40), what));
    }
  }
  const Family family = type.choice(families());
  Json w = Json::object();
  w["kind"] = "transformer";
  const auto path = r.find("_name_or_path");
  const std::string given = path && path->is_string() ? path->text("") : "";
  w["name"] = given.empty() ? type.text("") : given;
  const std::string kind = type.text("");
  if (family == Family::kGemma) {
    read_gemma_defaults(r, w, kind);
  }
  if (!w.contains("vocabulary")) {
    w["vocabulary"] = r.integer({"vocab_size"});
  }
  const bool gpt = family == Family::kGpt2 || family == Family::kNeox || family == Family::kBloom ||
                   family == Family::kMpt;
  if (gpt) {
    read_gpt(r, w);
  } else if (family == Family::kDbrx) {
    read_dbrx(r, w);
  } else {
    read_llama(r, w, family);
    note_additions(r, kind);
  }
  const bool tied_by_default = (gpt && family != Family::kNeox) || family == Family::kGemma ||
                               family == Family::kCohere || kind == "starcoder2";
  w["tied_embeddings"] = r.flag_or("tie_word_embeddings", tied_by_default);
  if (family == Family::kNeox) {
    w["parallel_block"] = r.flag_or("use_parallel_residual", true);
  } else if (family == Family::kMpt) {
    read_mpt_attention(r, w);
  } else if (family == Family::kDeepSeek && kind != "glm4_moe") {
    read_latent_attention(r, w);
  } else if (family == Family::kCohere) {
    w["parallel_block"] = true;
  }
  if (family == Family::kGpt2) {
    r.expect("add_cross_attention", false, "a decoder alone");
  }
  if (family == Family::kMixtral || family == Family::kQwenMoe || family == Family::kDeepSeek) {
    read_experts(r, w, family);
  }
  if (r.find("vision_config")) {
    r.approximate("what is not text (left out)");
  }
  if (kind == "deepseek_v32") {
    r.approximate("sparse attention (every query sees all keys: slower)");
    for (const char* key : {"index_head_dim", "index_n_heads", "index_topk"}) {
      r.find(key);
    }
  }
  if (r.integer_or("num_nextn_predict_layers", 0) > 0) {
    r.approximate("multi-token prediction (a layer and an output layer more for each depth)");
  }
  r.reject_unread();
  if (!r.approximated().empty()) {
    w["approximated"] = r.approximated();
  }
  w["default_batch"] = batch_of(r.value().json());
  w["source"] = "config.json of a Hugging Face model";
  return w;
}

/// True for the root of a Hugging Face config.json.
bool is_hugging_face(const Json& root) {
  return root.is_object() && root.contains("model_type") && !root.contains("kind") &&
         !root.contains("workload") && !root.contains("arch_embedding_size");
}

Document workload_of_hugging_face(Document d) {
  const Value root = Value::root_of(d);
  // A model of text and pictures keeps its decoder in an object of its own.
  const auto text = root.json().contains("text_config") ? root.find("text_config") : std::nullopt;
  Reader reader(text ? *text : root);
  if (text) {
    reader.approximate("what is not text (left out)");
  }
  Json workload = workload_of(reader);
  d.root = std::move(workload);
  return d;
}

}  // namespace

ForeignFormat hugging_face_config() {
  return {.what = "config.json of a Hugging Face model",
          .inferred_by_keys = is_hugging_face,
          .workload_of = workload_of_hugging_face};
}

}  // namespace stepcast::interop
