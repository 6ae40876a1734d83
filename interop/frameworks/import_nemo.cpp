#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "interop/frameworks/training_file.h"
#include "interop/megatron/arguments.h"
#include "interop/megatron/import_parts.h"
#include "interop/yaml.h"

// YAML around Megatron: lists of its arguments as recipes of it keep them, and what NeMo and
// Megatron-Bridge write -> its arguments -> job without a system.
namespace stepcast::interop {
namespace {

bool is_megatron_yaml(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] != '{' && text[first] != '<' &&
         has_yaml_key(text, {"num_layers", "num-layers", "--num-layers", "--num_layers"});
}

/// A value as a launch script has it; nullopt where the option is not given.
std::optional<std::string> written(const Json& value) {
  if (value.is_null() || value == false) {
    return std::nullopt;
  }
  if (value == true) {
    return "";
  }
  if (value.is_array()) {
    std::vector<std::string> words;
    for (const Json& item : value) {
      words.push_back(item.is_string() ? item.get<std::string>() : item.dump());
    }
    return fmt::format(" {}", fmt::join(words, " "));
  }
  return value.is_string() ? fmt::format(" \"{}\"", value.get<std::string>()) : " " + value.dump();
}

/// A field of the frameworks' configurations, wherever it stands, and its option.
struct Field {
  std::string_view name, option;
};
constexpr auto kFields = std::to_array<Field>(
    {{"encoder_seq_length", "seq-length"},
     {"sequence_length", "seq-length"},
     {"virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank"},
     {"microbatch_group_size_per_vp_stage", "microbatch-group-size-per-virtual-pipeline-stage"},
     {"num_layers_in_first_pipeline_stage", "decoder-first-pipeline-num-layers"},
     {"num_layers_in_last_pipeline_stage", "decoder-last-pipeline-num-layers"},
     {"num_moe_experts", "num-experts"},
     {"bucket_size", "ddp-bucket-size"},
     {"fp8", "fp8-format"},
     {"fp4", "fp4-format"},
     {"num_nodes", "nnodes"},
     {"devices", "nproc-per-node"}});
/// Fields with the name of their option.
constexpr auto kSame = std::to_array<std::string_view>({"num_layers",
                                                        "hidden_size",
                                                        "ffn_hidden_size",
                                                        "num_attention_heads",
                                                        "num_query_groups",
                                                        "kv_channels",
                                                        "seq_length",
                                                        "vocab_size",
                                                        "make_vocab_size_divisible_by",
                                                        "tensor_model_parallel_size",
                                                        "pipeline_model_parallel_size",
                                                        "context_parallel_size",
                                                        "expert_model_parallel_size",
                                                        "expert_tensor_parallel_size",
                                                        "pipeline_model_parallel_layout",
                                                        "account_for_embedding_in_pipeline_split",
                                                        "account_for_loss_in_pipeline_split",
                                                        "sequence_parallel",
                                                        "micro_batch_size",
                                                        "global_batch_size",
                                                        "moe_router_topk",
                                                        "moe_ffn_hidden_size",
                                                        "moe_latent_size",
                                                        "moe_shared_expert_intermediate_size",
                                                        "moe_layer_freq",
                                                        "moe_token_dispatcher_type",
                                                        "moe_flex_dispatcher_backend",
                                                        "moe_permute_fusion",
                                                        "moe_enable_deepep",
                                                        "moe_shared_expert_overlap",
                                                        "overlap_moe_expert_parallel_comm",
                                                        "recompute_granularity",
                                                        "recompute_method",
                                                        "recompute_num_layers",
                                                        "recompute_modules",
                                                        "use_distributed_optimizer",
                                                        "overlap_grad_reduce",
                                                        "overlap_param_gather",
                                                        "use_megatron_fsdp",
                                                        "use_custom_fsdp",
                                                        "use_torch_fsdp2",
                                                        "data_parallel_sharding_strategy",
                                                        "tp_comm_overlap",
                                                        "fp8_recipe",
                                                        "fp8_dot_product_attention",
                                                        "multi_latent_attention",
                                                        "q_lora_rank",
                                                        "kv_lora_rank",
                                                        "qk_head_dim",
                                                        "qk_pos_emb_head_dim",
                                                        "v_head_dim",
                                                        "cross_entropy_loss_fusion",
                                                        "cross_entropy_fusion_impl",
                                                        "enable_cuda_graph",
                                                        "external_cuda_graph",
                                                        "cuda_graph_impl",
                                                        "cuda_graph_scope",
                                                        "cp_comm_type",
                                                        "mtp_num_layers",
                                                        "window_size",
                                                        "attention_backend"});

using Leaves = std::map<std::string, Value>;

/// All values by the last word of their path, the first of a name.
void collect(const Value& v, Leaves& leaves) {
  for (const auto& [key, value] : v.members()) {
    if (value.is_object()) {
      collect(value, leaves);
    } else if (!value.json().is_null()) {
      leaves.emplace(key, value);
    }
  }
}

/// Arguments of Megatron-LM that say what a configuration of NeMo or Megatron-Bridge does.
std::string arguments_of_nemo(const Value& root) {
  Leaves leaves;
  collect(root, leaves);
  std::string text;
  const auto add = [&](std::string option, const Json& value) {
    std::replace(option.begin(), option.end(), '_', '-');
    if (const auto words = written(value)) {
      text += fmt::format("--{}{}\n", option, *words);
    }
  };
  for (const auto& [name, value] : leaves) {
    if (value.is_string() && value.text("").find("${") != std::string::npos &&
        (name.ends_with("_size") || name.starts_with("num_"))) {
      value.reject(
          fmt::format("found {}, which only the framework resolves; give the resolved file",
                      shown(value.json())));
    }
    const auto* field = std::find_if(kFields.begin(), kFields.end(),
                                     [&](const Field& f) { return f.name == name; });
    if (field != kFields.end()) {
      add(std::string(field->option), value.json());
    } else if (std::find(kSame.begin(), kSame.end(), name) != kSame.end()) {
      add(name, value.json());
    }
  }
  const auto word = [&](const char* name) {
    const auto at = leaves.find(name);
    return at != leaves.end() && at->second.is_string() ? at->second.text("a word") : std::string();
  };
  const auto is = [&](const char* name, bool wanted) {
    const auto at = leaves.find(name);
    return at != leaves.end() && at->second.json() == wanted;
  };
  const std::string activation = word("activation"), function = word("activation_func");
  if (is("gated_linear_unit", true) || activation.ends_with("swiglu")) {
    text += "--swiglu\n";
  } else if (activation.find("squared") != std::string::npos ||
             function.find("squared") != std::string::npos) {
    text += "--squared-relu\n";
  }
  if (!is("share_embeddings_and_output_weights", true)) {
    text += "--untie-embeddings-and-output-weights\n";
  }
  if (is("grad_reduce_in_fp32", false)) {
    text += "--grad-reduce-in-bf16\n";
  }
  const std::string precision = word("precision") + word("mixed_precision");
  if (precision.find("16") == std::string::npos || precision.find("bf16") != std::string::npos) {
    text += "--bf16\n";
  } else {
    text += "--fp16\n";
  }
  for (const char* dropout : {"hidden_dropout", "attention_dropout"}) {
    const auto at = leaves.find(dropout);
    text += fmt::format("--{} {}\n", dropout, at == leaves.end() ? "0" : at->second.json().dump());
  }
  return text;
}

Document job_of_megatron_yaml(Document d, const std::vector<std::string>& overrides) {
  Document yaml = d;
  yaml.root = parse_yaml(d.root.get<std::string>(), d.label);
  const Value root = Value::root_of(yaml);
  std::optional<Value> given;
  for (const char* key : {"ARGS", "MODEL_ARGS"}) {
    given = !given && root.json().contains(key) ? root.find(key) : given;
  }
  const bool flat = root.json().contains("num_layers") || root.json().contains("num-layers");
  if (!given && !flat) {
    d.root = arguments_of_nemo(root);
    d = job_of_megatron(std::move(d), overrides);
    d.root["framework"] = "nemo";
    Json& parallel = d.root["parallel"];  // which says what the framework's newest release would
    parallel.emplace("dispatcher", "plain");
    parallel.emplace("fused_permutation", false);
    return d;
  }
  std::string text;
  for (const auto& [key, value] : (given ? *given : root).members()) {
    if (const auto words = written(value.json())) {
      text += fmt::format("{}{}{}\n", key.starts_with("--") ? "" : "--", key, *words);
    }
  }
  d.root = std::move(text);
  return job_of_megatron(std::move(d), overrides);
}

}  // namespace

ForeignFormat megatron_yaml() {
  return {.what = "a configuration of Megatron-LM, NeMo or Megatron-Bridge",
          .inferred_by_text = is_megatron_yaml,
          .job_of = job_of_megatron_yaml};
}

}  // namespace stepcast::interop
