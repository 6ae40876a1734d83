#include <algorithm>
#include <array>
#include <set>

#include "interop/formats.h"
#include "interop/hugging_face/model_class.h"
#include "interop/window_pattern.h"

// config.json of Hugging Face transformers -> workload, by its keys. The model's type decides only
// what a file leaves to its class (kClasses). Layers that a workload cannot say are rejected
// (kOtherLayers); whatever else is not read, and may change what a step costs, is named.
namespace stepcast::interop {
namespace {

/// Whole numbers, flags and lists that change no shape. Texts, fractions and values that are off,
/// zero or empty need no entry, nor do numbers of tokens ("..._token_id").
const std::set<std::string_view> kHarmless{
    // Names, and how text is generated.
    "architectures", "auto_map", "task_specific_params", "use_cache", "return_dict", "id2label",
    "label2id", "verbose", "output_past", "output_attentions", "output_hidden_states",
    "output_scores", "return_dict_in_generate", "use_return_dict", "torchscript", "use_bfloat16",
    "pruned_heads", "do_sample", "early_stopping", "max_length", "min_length", "temperature",
    "top_k", "top_p", "num_beams", "num_beam_groups", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "bad_words_ids", "suppress_tokens",
    "begin_suppress_tokens", "remove_invalid_values",
    // Lengths (batch_of reads them), positions, norms, dropout.
    "max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len",
    "original_max_position_embeddings", "initial_context_length", "init_config", "rope_theta",
    "rope_scaling", "rope_parameters", "rope_interleave", "rotary_emb_base", "rotary_dim",
    "no_rope_layers", "no_rope_layer_interval", "learned_pos_emb", "embedding_fraction",
    "offset_alibi", "summary_first_dropout", "summary_proj_to_labels", "summary_use_proj",
    "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
    "masked_softmax_fusion", "apply_residual_connection_post_layernorm",
    "attention_softmax_in_fp32", "bias_dropout_fusion", "slow_but_exact", "skip_bias_add",
    "skip_bias_add_qkv", "pretraining_tp", "query_pre_attn_scalar", "clip_qkv", "swiglu_limit",
    "embedding_multiplier", "attn_temperature_tuning", "floor_scale", "qk_head_dim",
    // Biases of single projections: below a thousandth of the work.
    "attention_bias", "mlp_bias", "no_bias", "use_qkv_bias", "qkv_bias", "bias", "use_bias",
    // Routing details; the balance of the experts is moe.routing.
    "output_router_logits", "norm_topk_prob", "seq_aux", "ep_size", "use_routing_bias",
    // Not trained by the published model code.
    "quantization_config", "compression_config", "max_window_layers"};

/// Keys of layers that a workload cannot say.
constexpr std::array<std::pair<std::string_view, const char*>, 18> kOtherLayers{
    {{"hybrid_override_pattern", "state-space layers"},
     {"layers_block_type", "state-space layers"},
     {"mamba_d_state", "state-space layers"},
     {"mamba_d_ssm", "state-space layers"},
     {"ssm_cfg", "state-space layers"},
     {"state_size", "state-space layers"},
     {"linear_attn_config", "linear attention"},
     {"linear_num_key_heads", "linear attention"},
     {"attn_type_list", "linear attention"},
     {"attention_hidden_size", "linear attention"},
     {"lru_width", "recurrent layers"},
     {"compress_ratios", "compressed attention"},
     {"compress_rates", "compressed attention"},
     {"block_configs", "layers of different sizes"},
     {"type_vocab_size", "an encoder"},
     {"global_attn_every_n_layers", "an encoder"},
     {"encoder_layers", "an encoder and a decoder"},
     {"d_kv", "an encoder and a decoder"}}};

constexpr std::int64_t kLargestCount = std::int64_t{1} << 40;

/// Reads one config.json and remembers what it read.
class Reader {
 public:
  explicit Reader(const Value& v) : v_(v) {}

  std::optional<Value> find(std::string_view key) {
    seen_.insert(std::string(key));
    const auto it = v_.json().find(std::string(key));
    return it == v_.json().end() || it->is_null() ? std::nullopt : v_.find(key);
  }
  /// The first of several spellings.
  std::optional<Value> find(std::initializer_list<const char*> keys) {
    std::optional<Value> found;
    for (const char* key : keys) {
      const auto v = find(key);
      found = found ? found : v;
    }
    return found;
  }
  std::int64_t integer(std::initializer_list<const char*> keys) {
    const auto found = find(keys);
    return found ? found->integer(1, kLargestCount)
                 : v_.at(*keys.begin(), "a number of a model of text").integer(1, 1);
  }
  std::int64_t integer_or(std::initializer_list<const char*> keys, std::int64_t otherwise) {
    const auto v = find(keys);
    return v ? v->integer(0, kLargestCount) : otherwise;
  }
  bool flag_or(const char* key, bool otherwise) {
    const auto v = find(key);
    return v ? v->boolean() : otherwise;
  }
  /// Notes a feature of the model that a workload cannot say.
  void approximate(const std::string& what) { approximated_.push_back(what); }
  [[nodiscard]] const std::vector<std::string>& approximated() const { return approximated_; }
  /// Notes the keys that nothing has read.
  void name_unread() {
    std::string names;
    for (const auto& [key, value] : v_.members()) {
      const Json& j = value.json();
      const bool shapeless = j.is_null() || j.is_string() || j.is_number_float() || j == false ||
                             j == 0 || ((j.is_array() || j.is_object()) && j.empty());
      const bool token = key.ends_with("_token_id") || key.ends_with("_token_index") ||
                         key.ends_with("_token_ids");
      if (!shapeless && !token && seen_.count(key) == 0 && kHarmless.count(key) == 0) {
        names += fmt::format("{}{}", names.empty() ? "" : ", ", key.substr(0, 80));
      }
    }
    if (!names.empty()) {
      approximate(fmt::format("keys that are not read: {}", names));
    }
  }
  [[nodiscard]] const Value& value() const { return v_; }

 private:
  const Value& v_;
  std::set<std::string> seen_;
  std::vector<std::string> approximated_;
};

std::string activation_of(Reader& r, const ModelClass& c) {
  const auto v = r.find({"hidden_activation", "hidden_act", "activation_function"});
  const std::string text = v ? v->text("the name of an activation") : std::string(c.activation);
  const bool gelu = text.starts_with("gelu");
  if (c.gated && (text == "silu" || text == "swish" || text == "swiglu" || gelu)) {
    return gelu ? "geglu" : "swiglu";
  }
  if (!c.gated && (gelu || text == "relu2")) {
    return gelu ? "gelu" : "squared_relu";
  }
  v->reject(fmt::format("found \"{}\"; models of this type are read with {}", text.substr(0, 40),
                        c.gated ? "silu or gelu" : "gelu or relu2"));
}

/// Layers that see all keys, as `layer_types` or the like says; nothing where the file has no list.
std::optional<std::vector<bool>> full_layers(Reader& r) {
  std::vector<bool> full;
  if (const auto pattern = r.find("hybrid_layer_pattern")) {  // MiMo: 1 has a window
    for (const Value& windowed : pattern->items("0 or 1 for each layer")) {
      full.push_back(windowed.integer(0, 1) == 0);
    }
    return full;
  }
  const auto types = r.find("layer_types");
  if (!types) {
    return std::nullopt;
  }
  bool sparse = false;
  for (const Value& type : types->items("a list of kinds of attention")) {
    const std::string kind = type.text("full_attention or sliding_attention");
    const bool narrow = kind == "sliding_attention" || kind == "chunked_attention";
    sparse = sparse || kind.find("sparse") != std::string::npos;
    if (!narrow && !sparse && kind != "full_attention") {
      type.reject(fmt::format(
          "found \"{}\", expected full_attention, sliding_attention or chunked_attention: stepcast "
          "does not model layers of other kinds",
          kind.substr(0, 40)));
    }
    full.push_back(!narrow);
  }
  if (sparse) {
    r.approximate("sparse attention (every query sees all keys: slower)");
  }
  return full;
}

/// A window of all layers, of all but every n-th, or of none.
void read_window(Reader& r, Json& w, const ModelClass& c) {
  const bool windowed = r.flag_or("use_sliding_window", true);
  const std::int64_t pattern =
      r.integer_or({"sliding_window_pattern", "no_rope_layer_interval"}, c.full_every);
  const auto chunk = r.find("attention_chunk_size");  // Llama 4
  const auto narrow = r.find({"sliding_window", "sliding_window_size"});
  const auto window = narrow ? narrow : chunk;
  std::optional<std::int64_t> every = pattern > 1 ? pattern : 0;
  if (const auto full = full_layers(r)) {
    every = full_attention_every(*full);
  }
  if (!window || !windowed || every == 1) {
    return;
  }
  const std::int64_t width = window->integer(1, 1 << 26);
  if (!every) {
    r.approximate(fmt::format("windows of {} on some layers (all see all keys: slower)", width));
    return;
  }
  if (!narrow) {
    r.approximate("attention in chunks (as windows: slower in longer sequences)");
  }
  w["window"] = width;
  if (*every > 0) {
    w["full_attention_every"] = *every;
  }
}

void read_heads(Reader& r, Json& w) {
  if (r.find("kv_lora_rank")) {
    w["mla"] = {{"q_rank", r.integer_or({"q_lora_rank"}, 0)},
                {"kv_rank", r.integer({"kv_lora_rank"})},
                {"rope_dim", r.integer({"qk_rope_head_dim"})},
                {"nope_dim", r.integer({"qk_nope_head_dim"})},
                {"v_dim", r.integer({"v_head_dim"})}};
    r.find({"num_key_value_heads", "head_dim"});
    return;
  }
  if (const auto kv = r.find({"num_key_value_heads", "num_kv_heads"})) {
    w["kv_heads"] = kv->integer(1, 1 << 16);
  }
  if (const auto dim = r.find("head_dim")) {
    w["head_dim"] = dim->integer(1, 1 << 16);
  }
}

/// Layers without experts where a file says which have them.
std::int64_t dense_layers(Reader& r, std::int64_t layers) {
  std::vector<bool> dense(static_cast<std::size_t>(layers), false);
  const auto at = [&](std::int64_t i) { return dense.at(static_cast<std::size_t>(i)); };
  const auto set = [&](const auto& is_dense) {
    for (std::int64_t i = 0; i < layers; ++i) {
      dense[static_cast<std::size_t>(i)] = at(i) || is_dense(i);
    }
  };
  const std::int64_t first =
      r.integer_or({"first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"}, 0);
  set([&](std::int64_t i) { return i < first; });
  const auto frequency = r.find(
      {"moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"});
  if (frequency && frequency->json().is_array()) {
    const std::vector<Value> has = frequency->items("0 or 1 for each layer");
    set([&](std::int64_t i) {
      return static_cast<std::size_t>(i) < has.size() &&
             has[static_cast<std::size_t>(i)].integer(0, 1) == 0;
    });
  } else if (frequency) {
    const std::int64_t every = frequency->integer(1, kLargestCount);
    set([&](std::int64_t i) { return (i + 1) % every != 0; });
  }
  if (const auto list = r.find("mlp_only_layers")) {
    for (const Value& layer : list->items("layers without experts")) {
      dense.at(static_cast<std::size_t>(layer.integer(0, layers - 1))) = true;
    }
  }
  if (const auto types = r.find("mlp_layer_types")) {
    const std::vector<Value> kinds = types->items("\"dense\" or \"sparse\" for each layer");
    set([&](std::int64_t i) {
      return static_cast<std::size_t>(i) < kinds.size() &&
             kinds[static_cast<std::size_t>(i)].is("dense");
    });
  }
  const std::int64_t n = std::count(dense.begin(), dense.end(), true);
  if (!std::all_of(dense.begin(), dense.begin() + n, [](bool d) { return d; })) {
    r.approximate("layers without experts among those with them (they come first here)");
  }
  return n;
}

void read_experts(Reader& r, Json& w, const ModelClass& c, std::int64_t experts) {
  Json& moe = w["moe"] = Json::object();
  moe["experts"] = experts;
  moe["per_token"] = r.integer({"num_experts_per_tok", "num_experts_per_token", "moe_topk",
                                "moe_top_k", "moe_k", "experts_per_token", "top_k_experts"});
  const std::int64_t width = r.integer_or({"moe_intermediate_size", "expert_intermediate_size"},
                                          w["ffn_hidden"].get<std::int64_t>());
  moe["ffn_hidden"] = width;
  std::int64_t shared = r.integer_or(
      {"n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"},
      c.shared_experts);
  if (const auto columns = r.find({"shared_expert_intermediate_size", "shared_intermediate_size",
                                   "moe_shared_expert_intermediate_size"})) {
    const std::int64_t all = columns->integer(0, kLargestCount) * std::max<std::int64_t>(shared, 1);
    shared = (all + width / 2) / width;
    if (shared * width != all) {
      r.approximate(fmt::format("shared experts of {} columns (as {} of {})", all, shared, width));
    }
  }
  moe["shared"] = shared;
  moe["first_dense_layers"] = dense_layers(r, w["layers"].get<std::int64_t>());
  const std::int64_t groups = r.integer_or({"n_group"}, 1);
  const std::int64_t limit = r.integer_or({"topk_group"}, groups);
  const auto method = r.find("topk_method");
  if (limit < groups && !(method && method->is("greedy"))) {
    moe["groups"] = groups;
    moe["groups_per_token"] = limit;
  }
  // Llama 4: the other layers are wider.
  w["ffn_hidden"] = r.integer_or({"intermediate_size_mlp"}, w["ffn_hidden"].get<std::int64_t>());
}

/// DBRX and MPT keep attention, and DBRX experts, in objects of their own.
void read_objects(Reader& r, Json& w) {
  if (const auto attention = r.find("attn_config")) {
    if (const auto kv = attention->find("kv_n_heads"); kv && !kv->json().is_null()) {
      w["kv_heads"] = kv->integer(1, 1 << 16);
    }
  }
  if (const auto ffn = r.find("ffn_config"); ffn && ffn->find("moe_num_experts")) {
    w["ffn_hidden"] = ffn->at("ffn_hidden_size", "the width of an expert").integer(1, 1 << 24);
    w["moe"] = {{"experts", ffn->at("moe_num_experts", "experts").integer(1, 1 << 16)},
                {"per_token", ffn->at("moe_top_k", "experts of a token").integer(1, 1 << 16)},
                {"ffn_hidden", w["ffn_hidden"]}};
  }
}

/// The width of the feed-forward block; of GPT-2's kin four times the hidden size.
std::int64_t width_of(Reader& r, const ModelClass& c, std::int64_t hidden) {
  const auto width = r.find({"intermediate_size", "n_inner", "ffn_dim"});
  const std::int64_t ratio = r.integer_or({"expansion_ratio"}, 4);
  if (width) {
    return width->integer(1, kLargestCount);
  }
  return c.gpt || r.value().json().contains("ffn_config") ? ratio * hidden
                                                          : r.integer({"intermediate_size"});
}

/// Additions of the class to a Llama's layers.
void note_additions(Reader& r, const ModelClass& c) {
  if (c.outer_norms) {
    r.approximate("norms after attention and feed-forward blocks (left out)");
  }
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (r.find(key)) {
      r.approximate(fmt::format("{} (left out)", key));
    }
  }
  if (r.flag_or("use_qk_norm", c.qk_norms)) {
    r.approximate("norms of queries and keys (left out)");
  }
  if (c.left_out != nullptr) {
    r.approximate(fmt::format("{} (left out)", c.left_out));
  }
  if (r.find({"index_topk", "index_head_dim", "index_n_heads"}) &&
      !r.value().json().contains("layer_types")) {
    r.approximate("sparse attention (every query sees all keys: slower)");
  }
  if (r.integer_or({"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"}, 0) >
      0) {
    r.approximate("multi-token prediction (a layer and an output layer more for each depth)");
  }
  if (r.find("vision_config")) {
    r.approximate("what is not text (left out)");
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

void reject_other_layers(Reader& r) {
  for (const auto& [key, what] : kOtherLayers) {
    const auto v = r.find(key);
    const bool plain =
        v && v->json().is_array() &&  // MiniMax-M2: 1 is plain attention
        std::all_of(v->json().begin(), v->json().end(), [](const Json& kind) { return kind == 1; });
    if (v && v->json() != 0 && !plain) {
      v->reject(fmt::format("found {}: stepcast does not model {}", shown(v->json()), what));
    }
  }
  if (r.flag_or("is_encoder_decoder", false) || r.flag_or("add_cross_attention", false)) {
    r.value().reject("is an encoder and a decoder: stepcast models decoders alone");
  }
}

/// Files of Gemma leave out what is as in its class.
void read_gemma_defaults(Reader& r, Json& w, std::string_view type) {
  w["head_dim"] = r.integer_or({"head_dim"}, 256);
  if (type.starts_with("gemma3")) {
    w["heads"] = r.integer_or({"num_attention_heads"}, 8);
    w["kv_heads"] = r.integer_or({"num_key_value_heads"}, 4);
    w["vocabulary"] = r.integer_or({"vocab_size"}, 262208);
  }
}

/// `type`: of the model, where an inner object has none.
Json workload_of(Reader& r, std::string type) {
  reject_other_layers(r);
  if (const auto own = r.find("model_type")) {
    type = own->text("the type of the model");
  }
  const ModelClass* known = class_of(type);
  const ModelClass c = known != nullptr ? *known : ModelClass{};
  if (known == nullptr) {
    r.approximate(fmt::format("type \"{}\" (not known; read as llama)", type.substr(0, 40)));
  }
  Json w = Json::object();
  w["kind"] = "transformer";
  const auto path = r.find("_name_or_path");
  const std::string given = path && path->is_string() ? path->text("") : "";
  w["name"] = given.empty() ? type : given;
  w["layers"] = r.integer({"num_hidden_layers", "num_layers", "n_layer", "n_layers"});
  w["hidden"] = r.integer({"hidden_size", "n_embd", "n_embed", "d_model"});
  if (type.starts_with("gemma")) {
    read_gemma_defaults(r, w, type);
  }
  if (!w.contains("vocabulary")) {
    w["vocabulary"] = r.integer({"vocab_size"});
  }
  if (!w.contains("heads")) {
    w["heads"] = r.integer({"num_attention_heads", "n_head", "n_heads"});
  }
  read_heads(r, w);
  w["ffn_hidden"] = width_of(r, c, w["hidden"].get<std::int64_t>());
  w["activation"] = activation_of(r, c);
  read_objects(r, w);
  read_window(r, w, c);
  note_additions(r, c);
  w["tied_embeddings"] = r.flag_or("tie_word_embeddings", c.tied);
  if (r.flag_or("use_parallel_residual", c.parallel)) {
    w["parallel_block"] = true;
  }
  const std::int64_t experts =
      r.integer_or({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}, 0);
  if (experts > 1) {
    read_experts(r, w, c, experts);
  }
  r.name_unread();
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
  const std::string type =
      root.at("model_type", "the type of the model").text("the type of the model");
  // A model of text and pictures keeps its decoder in an object of its own.
  std::optional<Value> text;
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    text = !text && root.json().contains(key) ? root.find(key) : text;
  }
  Reader reader(text ? *text : root);
  if (text) {
    reader.approximate("what is not text (left out)");
  }
  Json workload = workload_of(reader, type);
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
