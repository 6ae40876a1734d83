#include <algorithm>
#include <array>

#include "interop/frameworks/training_file.h"
#include "interop/yaml.h"

// YAML of MaxText (MaxText/configs/base.yml and what overrides it) -> job without a system.
namespace stepcast::interop {
namespace {

constexpr std::string_view kWithoutEffectMaxText =
    "run_name steps log metrics enable_checkpoint async_check checkpoint dataset tokenizer eval "
    "tfds hf_ grain profiler learning_rate warmup cosine adam gradient_clip opt_type rope "
    "normalization save gcs vocab_parallel data_ init_ dropout max_prefill use_iota scan_layers "
    "enable_goodput packing reuse_example hardware jax_ compile skip_ use_vertex enable_dropout "
    "num_epoch monitor fused_qkv";

bool is_maxtext(std::string_view text) {
  return has_yaml_key(text, {"base_emb_dim", "per_device_batch_size", "ici_fsdp_parallelism",
                             "base_num_decoder_layers"}) &&
         has_yaml_key(text, {"max_target_length", "base_emb_dim", "model_name", "remat_policy"});
}

/// Names of MaxText for models that have another one here.
std::string name_of_model(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNames{
      {{"llama3.1-405b", "llama3-405b"},
       {"deepseek2-16b", "deepseek-v2-lite"},
       {"deepseek2-236b", "deepseek-v2"},
       {"deepseek3-671b", "deepseek-v3"},
       {"kimi-k2-1t", "kimi-k2"},
       {"llama4-17b-16e", "llama4-scout"},
       {"llama4-17b-128e", "llama4-maverick"}}};
  const auto* known =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == name; });
  return known != kNames.end() ? std::string(known->second) : name;
}

Json workload_of(TrainingFile& f) {
  const std::int64_t hidden = f.required({"base_emb_dim"}, "the hidden width");
  const std::int64_t heads = f.required({"base_num_query_heads"}, "the attention heads");
  const std::vector<std::string> activations = f.words({"mlp_activations"});
  const bool gated = activations.size() == 2;
  const bool silu = activations.empty() || activations.front() == "silu";
  Json w = {{"kind", "transformer"},
            {"name", "maxtext"},
            {"layers", f.required({"base_num_decoder_layers"}, "the number of layers")},
            {"hidden", hidden},
            {"heads", heads},
            {"kv_heads", f.integer_or({"base_num_kv_heads"}, heads)},
            {"head_dim", f.integer_or({"head_dim"}, 128)},
            {"ffn_hidden", f.required({"base_mlp_dim"}, "the width of the feed-forward block")},
            {"activation", gated ? (silu ? "swiglu" : "geglu") : "gelu"},
            {"vocabulary", f.integer_or({"vocab_size"}, 32'000)},
            {"tied_embeddings", f.flag({"logits_via_embedding"})},
            {"source", "configuration of MaxText"}};
  if (const std::int64_t experts = f.integer_or({"num_experts"}, 1); experts > 1) {
    w["moe"] = {{"experts", experts},
                {"per_token", f.integer_or({"num_experts_per_tok"}, 1)},
                {"ffn_hidden", f.integer_or({"base_moe_mlp_dim"}, w["ffn_hidden"])},
                {"shared", f.integer_or({"shared_experts"}, 0, 0)},
                {"first_dense_layers", f.integer_or({"first_num_dense_layers"}, 0, 0)}};
  }
  if (f.word({"attention_type"}) == "mla") {
    w["mla"] = {{"q_rank", f.integer_or({"q_lora_rank"}, 0, 0)},
                {"kv_rank", f.integer_or({"kv_lora_rank"}, 512)},
                {"rope_dim", f.integer_or({"qk_rope_head_dim"}, 64)},
                {"nope_dim", f.integer_or({"qk_nope_head_dim"}, 128)},
                {"v_dim", f.integer_or({"v_head_dim"}, 128)}};
    w.erase("kv_heads");
    w.erase("head_dim");
  }
  if (const std::int64_t further = f.integer_or({"mtp_num_layers"}, 0, 0); further > 0) {
    w["mtp"] = further;
  }
  return w;
}

/// Devices along an axis of the mesh, inside and across slices; nullopt where one is -1.
std::optional<std::int64_t> axis(TrainingFile& f, const std::string& name, bool& whole) {
  const std::string ici = "ici_" + name + "_parallelism", dcn = "dcn_" + name + "_parallelism";
  const std::int64_t inside = f.integer_or({ici}, 1, -1), across = f.integer_or({dcn}, 1, -1);
  whole = whole && inside > 0 && across > 0;
  return inside > 0 && across > 0 ? std::optional(product({inside, across})) : std::nullopt;
}

Document job_of_maxtext(Document d, const std::vector<std::string>& overrides) {
  d.root = parse_yaml(d.root.get<std::string>(), d.label);
  TrainingFile f(d);
  Json job = {{"stepcast", 1}, {"framework", "maxtext"}};
  if (const std::string model = f.word({"model_name"}, "default");
      override_of(overrides, "workload").empty()) {
    job["workload"] = model == "default" ? workload_of(f) : Json(name_of_model(model));
  }
  bool whole = true;
  const auto ranks = [&](const char* name) { return axis(f, name, whole).value_or(1); };
  const std::int64_t tensor =
      product({ranks("tensor"), ranks("tensor_sequence"), ranks("tensor_transpose")});
  const std::int64_t stages = ranks("pipeline");
  const std::int64_t context = ranks("context");
  const std::int64_t experts = ranks("expert");
  const std::int64_t copies = ranks("data");
  const bool shards = f.integer_or({"ici_fsdp_parallelism"}, -1, -1) != 1;
  const std::int64_t sharded = product({ranks("fsdp"), ranks("fsdp_transpose"), ranks("sequence")});
  const bool said = whole && f.find({"ici_fsdp_parallelism"});
  const std::int64_t unit = product({tensor, stages, context});
  const std::int64_t devices = devices_of(
      f, overrides, said ? std::optional(product({unit, experts, copies, sharded})) : std::nullopt,
      product({unit, experts}));
  job["devices"] = devices;
  job["parallel"] = {{"tensor", tensor},
                     {"pipeline", stages},
                     {"context", context},
                     {"expert", experts},
                     {"zero", shards || sharded > 1 ? 3 : 0}};
  if (copies > 1 && sharded > 1) {
    f.approximate("shards inside a slice, copied across (as shards over all)");
  }
  const std::string kept = f.word({"remat_policy"}, "full");
  job["parallel"]["recompute"] = kept == "full" || kept == "custom" ? "full"
                                 : kept == "minimal" || kept.starts_with("minimal_with_context")
                                     ? "selective"
                                     : "full";
  if (kept != "full" && kept != "minimal") {
    f.approximate(fmt::format("remat_policy {} (as {})", kept.substr(0, 40),
                              job["parallel"]["recompute"].get<std::string>()));
  }
  const auto each = f.find({"per_device_batch_size"});
  const double per_device = each ? each->number(0, 1e6) : 12;
  const std::int64_t steps = f.integer_or({"gradient_accumulation_steps"}, 1);
  const auto global = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(per_device * static_cast<double>(devices)));
  const std::int64_t replicas = std::max<std::int64_t>(1, devices / unit);
  job["batch"] = {{"global", product({global, steps})},
                  {"micro", std::max<std::int64_t>(1, global / replicas)},
                  {"sequence", f.integer_or({"max_target_length"}, 2048)}};
  if (stages > 1) {
    const std::int64_t micro = f.integer_or({"num_pipeline_microbatches"}, stages, -1);
    job["batch"]["micro"] =
        std::max<std::int64_t>(1, global / replicas / std::max<std::int64_t>(1, micro));
  }
  const std::string narrow = f.word({"quantization"});
  job["formats"]["compute"] = narrow.find("fp8") != std::string::npos      ? "fp8"
                              : f.word({"dtype"}, "bfloat16") == "float32" ? "fp32"
                                                                           : "bf16";
  if (narrow == "int8") {
    f.approximate("products of int8 (as bf16: slower)");
  }
  f.word({"weight_dtype", "attention"});
  f.note_unread(kWithoutEffectMaxText);
  return f.finished(std::move(d), std::move(job));
}

}  // namespace

ForeignFormat maxtext_file() {
  return {.what = "a configuration of MaxText",
          .inferred_by_text = is_maxtext,
          .job_of = job_of_maxtext};
}

}  // namespace stepcast::interop
