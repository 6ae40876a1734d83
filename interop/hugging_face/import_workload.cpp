#include <algorithm>
#include <array>
#include <cmath>

#include "interop/frameworks/training_file.h"
#include "interop/hugging_face/reader.h"

// config.json of Hugging Face transformers -> workload, by its keys. The model's type decides only
// what a file leaves to its class (kClasses). Layers that a workload cannot say are rejected
// (kOtherLayers); whatever else is not read, and may change what a step costs, is named.
namespace stepcast::interop {
namespace {

/// Keys of layers that a workload cannot say.
constexpr std::array<std::pair<std::string_view, const char*>, 15> kOtherLayers{
    {{"mamba_dt_rank", "state-space layers of the first Mamba"},
     {"mamba_d_ssm", "attention and state-space layers side by side"},
     {"num_mem_blocks", "blocks that several layers share"},
     {"attention_hidden_size", "blocks that several layers share"},
     {"ssm_cfg", "state-space layers of the first Mamba"},
     {"state_size", "state-space layers of the first Mamba"},
     {"attn_type_list", "lightning attention"},
     {"lru_width", "recurrent layers"},
     {"compress_ratios", "compressed attention"},
     {"compress_rates", "compressed attention"},
     {"block_configs", "layers of different sizes"},
     {"type_vocab_size", "an encoder"},
     {"global_attn_every_n_layers", "an encoder"},
     {"encoder_layers", "an encoder and a decoder"},
     {"d_kv", "an encoder and a decoder"}}};

std::string activation_of(ConfigReader& r, const ModelClass& c) {
  const auto v =
      r.find({"hidden_activation", "hidden_act", "mlp_hidden_act", "activation_function"});
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

/// DeepSeek-V4: keys of several tokens, and several residual streams.
void read_compressed(ConfigReader& r, Json& w) {
  const std::int64_t dim = r.integer({"head_dim"});
  const auto share = r.find("partial_rotary_factor");
  const std::int64_t turned =
      share ? std::llround(static_cast<double>(dim) * share->number(0, 1)) : dim / 8;
  w["head_dim"] = dim;
  w["kv_heads"] = r.integer_or({"num_key_value_heads"}, 1);
  w["compressed"] = {{"q_rank", r.integer({"q_lora_rank"})},
                     {"rope_dim", r.integer_or({"qk_rope_head_dim", "rope_head_dim"}, turned)},
                     {"groups", r.integer({"o_groups"})},
                     {"output_rank", r.integer({"o_lora_rank"})},
                     {"ratio", r.integer_or({"compress_rate_csa"}, 4)},
                     {"heavy_ratio", r.integer_or({"compress_rate_hca"}, 128)}};
  if (const auto rates = r.find("compress_rates")) {
    for (const auto& [type, key] : {std::pair{"compressed_sparse_attention", "ratio"},
                                    {"heavily_compressed_attention", "heavy_ratio"}}) {
      if (const auto rate = rates->find(type)) {
        w["compressed"][key] = rate->integer(1, kLargestCount);
      }
    }
  }
  w["residual_streams"] = r.integer_or({"hc_mult"}, 4);
  const auto kinds = r.find("mlp_layer_types");
  const std::int64_t tables =
      kinds ? std::count(kinds->json().begin(), kinds->json().end(), Json("hash_moe"))
            : r.integer_or({"num_hash_layers", "n_hash_layers"}, 0);
  if (tables > 0) {
    r.approximate(
        fmt::format("{} layers whose experts a table of tokens chooses (as a router)", tables));
  }
}

void read_heads(ConfigReader& r, Json& w) {
  if (r.find("o_groups")) {
    read_compressed(r, w);
    return;
  }
  if (r.find("kv_lora_rank")) {
    w["mla"] = {{"q_rank", r.integer_or({"q_lora_rank"}, 0)},
                {"kv_rank", r.integer({"kv_lora_rank"})},
                {"rope_dim", r.integer({"qk_rope_head_dim"})},
                {"nope_dim", r.integer({"qk_nope_head_dim"})},
                {"v_dim", r.integer({"v_head_dim"})}};
    r.find({"num_key_value_heads", "head_dim"});
    if (r.find("index_topk") && w["mla"]["q_rank"] > 0) {
      w["sparse"] = indexer_of(r);
    }
    return;
  }
  if (const auto kv = r.find({"num_key_value_heads", "num_kv_heads"})) {
    w["kv_heads"] = kv->integer(1, 1 << 16);
  }
  if (const auto dim = r.find("head_dim")) {
    w["head_dim"] = dim->integer(1, 1 << 16);
  }
}

void read_experts(ConfigReader& r, Json& w, const ModelClass& c, std::int64_t experts) {
  Json& moe = w["moe"] = Json::object();
  moe["experts"] = experts;
  moe["per_token"] = r.integer({"num_experts_per_tok", "num_experts_per_token", "moe_topk",
                                "moe_top_k", "moe_k", "experts_per_token", "top_k_experts"});
  const auto own = r.find({"moe_intermediate_size", "expert_intermediate_size"});
  const std::int64_t width =
      own ? own->integer(1, kLargestCount) : w["ffn_hidden"].get<std::int64_t>();
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
  if (const std::int64_t latent = r.integer_or({"moe_latent_size"}, 0); latent > 0) {
    moe["latent"] = latent;
  }
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
void read_objects(ConfigReader& r, Json& w) {
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

/// LFM2 makes a width of three matrices out of that of two: two thirds, a multiple of a unit.
std::int64_t lfm_width(ConfigReader& r, std::int64_t given) {
  const auto factor = r.find("block_ffn_dim_multiplier");
  const double width =
      std::floor(static_cast<double>(2 * given / 3) * (factor ? factor->number(0, 1e3) : 1));
  const std::int64_t unit = std::max<std::int64_t>(1, r.integer_or({"block_multiple_of"}, 256));
  return (static_cast<std::int64_t>(width) + unit - 1) / unit * unit;
}

/// The width of the feed-forward block; of GPT-2's kin four times the hidden size.
std::int64_t width_of(ConfigReader& r, const ModelClass& c, std::int64_t hidden) {
  const auto block = r.find("block_ff_dim");
  if (r.flag_or("block_auto_adjust_ff_dim", block.has_value())) {
    return lfm_width(r,
                     block ? block->integer(1, kLargestCount) : r.integer({"intermediate_size"}));
  }
  const bool experts = r.integer_or({"num_local_experts", "num_experts"}, 0) > 0;
  const auto only = r.find("shared_intermediate_size");  // Granite without experts
  const auto width = only && !experts ? only
                                      : r.find({"intermediate_size", "block_ff_dim", "n_inner",
                                                "ffn_dim", "moe_intermediate_size"});
  const std::int64_t ratio = r.integer_or({"expansion_ratio"}, 4);
  if (width) {
    return width->integer(1, kLargestCount);
  }
  return c.gpt || r.value().json().contains("ffn_config") ? ratio * hidden
                                                          : r.integer({"intermediate_size"});
}

/// Additions of the class to a Llama's layers.
void note_additions(ConfigReader& r, const ModelClass& c) {
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
  if (r.integer_or({"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"}, 0) >
      0) {
    r.approximate(r.find("o_groups") ? "multi-token prediction (left out)"
                                     : "multi-token prediction (left out; workload.mtp trains it)");
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

void reject_other_layers(ConfigReader& r) {
  for (const auto& [key, what] : kOtherLayers) {
    const auto v = r.find(key);
    const bool plain =
        v && v->json().is_array() &&  // MiniMax-M2: 1 is plain attention
        std::all_of(v->json().begin(), v->json().end(), [](const Json& kind) { return kind == 1; });
    const bool read = key.starts_with("compress_") && r.find("o_groups");
    if (v && v->json() != 0 && !plain && !read) {
      v->reject(fmt::format("found {}: stepcast does not model {}", shown(v->json()), what));
    }
  }
  if (r.flag_or("is_encoder_decoder", false) || r.flag_or("add_cross_attention", false)) {
    r.value().reject("is an encoder and a decoder: stepcast models decoders alone");
  }
}

/// Files of Gemma leave out what is as in its class.
void read_gemma_defaults(ConfigReader& r, Json& w, std::string_view type) {
  w["head_dim"] = r.integer_or({"head_dim"}, 256);
  if (type.starts_with("gemma3")) {
    w["heads"] = r.integer_or({"num_attention_heads"}, 8);
    w["kv_heads"] = r.integer_or({"num_key_value_heads"}, 4);
    w["vocabulary"] = r.integer_or({"vocab_size"}, 262208);
  }
}

/// `type`: of the model, where an inner object has none.
Json workload_of(ConfigReader& r, std::string type) {
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
  if (w["layers"] > kMostFileLayers) {
    r.value().reject(fmt::format("has {} layers; at most {} are read",
                                 w["layers"].get<std::int64_t>(), kMostFileLayers));
  }
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
  write_layers(w, layers_of(r, w, c));
  r.name_unread();
  if (!r.approximated().empty()) {
    w["approximated"] = r.approximated();
  }
  w["details"] = details_of(r.value().json(), type, c);
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
  ConfigReader reader(text ? *text : root);
  if (text) {
    reader.approximate("what is not text (left out)");
  }
  Json workload = workload_of(reader, type);
  if (const auto tied = root.find("tie_word_embeddings");
      text && tied && !text->json().contains("tie_word_embeddings")) {
    workload["tied_embeddings"] = tied->boolean();
  }
  d.root = std::move(workload);
  return d;
}

}  // namespace

Json hugging_face_workload(const Value& config, std::string type) {
  ConfigReader reader(config);
  return workload_of(reader, std::move(type));
}

ForeignFormat hugging_face_config() {
  return {.what = "config.json of a Hugging Face model",
          .inferred_by_keys = is_hugging_face,
          .workload_of = workload_of_hugging_face};
}

}  // namespace stepcast::interop
