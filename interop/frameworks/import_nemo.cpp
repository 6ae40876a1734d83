#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "interop/frameworks/training_file.h"
#include "interop/megatron/arguments.h"
#include "interop/megatron/import_parts.h"
#include "interop/megatron/option_table.h"
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

/// "[0]*3+[1]*58" of a list of zeros and ones; empty for others.
std::string layer_sum(const Json& list) {
  std::string sum;
  for (std::size_t i = 0, run = 0; i < list.size(); ++i) {
    if (list[i] != 0 && list[i] != 1) {
      return "";
    }
    ++run;
    if (i + 1 == list.size() || list[i + 1] != list[i]) {
      sum += fmt::format("{}[{}]*{}", sum.empty() ? "" : "+", list[i].dump(), run);
      run = 0;
    }
  }
  return sum;
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
    if (const std::string sum = layer_sum(value); !sum.empty()) {
      return fmt::format(" \"{}\"", sum);
    }
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
     {"override_vocab_size", "vocab-size"},
     {"virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank"},
     {"microbatch_group_size_per_vp_stage", "microbatch-group-size-per-virtual-pipeline-stage"},
     {"num_layers_in_first_pipeline_stage", "decoder-first-pipeline-num-layers"},
     {"num_layers_in_last_pipeline_stage", "decoder-last-pipeline-num-layers"},
     {"num_moe_experts", "num-experts"},
     {"bucket_size", "ddp-bucket-size"},
     {"fp8", "fp8-format"},
     {"fp4", "fp4-format"},
     {"activations_checkpoint_granularity", "recompute-granularity"},
     {"activations_checkpoint_method", "recompute-method"},
     {"activations_checkpoint_num_layers", "recompute-num-layers"},
     {"overlap_grad_sync", "overlap-grad-reduce"},
     {"overlap_param_sync", "overlap-param-gather"},
     {"ub_tp_comm_overlap", "tp-comm-overlap"},
     {"num_nodes", "nnodes"},
     {"devices", "nproc-per-node"}});
/// Fields with the name of their option; those of the table of options are read too.
constexpr std::string_view kSame =
    " num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups kv_channels "
    "seq_length vocab_size make_vocab_size_divisible_by tensor_model_parallel_size "
    "pipeline_model_parallel_size context_parallel_size expert_model_parallel_size "
    "expert_tensor_parallel_size pipeline_model_parallel_layout "
    "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split sequence_parallel "
    "micro_batch_size global_batch_size moe_router_topk moe_ffn_hidden_size moe_latent_size "
    "moe_shared_expert_intermediate_size moe_layer_freq moe_token_dispatcher_type "
    "moe_flex_dispatcher_backend moe_permute_fusion moe_enable_deepep moe_shared_expert_overlap "
    "overlap_moe_expert_parallel_comm recompute_granularity recompute_method recompute_num_layers "
    "recompute_modules use_distributed_optimizer overlap_grad_reduce overlap_param_gather "
    "use_megatron_fsdp use_custom_fsdp use_torch_fsdp2 tp_comm_overlap fp8_recipe "
    "fp8_dot_product_attention multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim "
    "qk_pos_emb_head_dim v_head_dim cross_entropy_loss_fusion cross_entropy_fusion_impl "
    "enable_cuda_graph external_cuda_graph cuda_graph_impl cuda_graph_scope cp_comm_type "
    "mtp_num_layers window_size attention_backend hybrid_override_pattern hybrid_layer_pattern "
    "is_hybrid_model mamba_num_heads mamba_head_dim mamba_num_groups mamba_state_dim swiglu "
    "squared_relu attention_output_gate optimizer_cpu_offload bf16 fp16 ";

using Leaves = std::map<std::string, Value>;

/// All values by the last word of their path, the first of a name; of an object of a class its
/// name. A number goes before a reference to one.
void collect(const Value& v, Leaves& leaves) {
  for (const auto& [key, value] : v.members()) {
    if (value.is_object()) {
      if (const auto target = value.find("_target_"); target && target->is_string()) {
        leaves.emplace(key, *target);
      }
      collect(value, leaves);
    } else if (!value.json().is_null()) {
      const auto [at, fresh] = leaves.emplace(key, value);
      if (!fresh && at->second.is_string() && !value.is_string()) {
        leaves.erase(at);
        leaves.emplace(key, value);
      }
    }
  }
}

/// Arguments of Megatron-LM that say what a configuration of NeMo or Megatron-Bridge does.
class NemoArguments {
 public:
  explicit NemoArguments(const Value& root) { collect(root, leaves_); }

  std::string text() {
    for (const auto& [name, value] : leaves_) {
      take(name, value);
    }
    add_model();
    add_formats();
    return text_;
  }
  /// Phrases for what the file says and no argument does.
  [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  void take(const std::string& name, const Value& value) {
    const bool hybrid =
        leaves_.contains("hybrid_override_pattern") || leaves_.contains("hybrid_layer_pattern");
    if (name.starts_with("mamba_") && !hybrid) {
      return;  // defaults of a model without such layers
    }
    const auto* field = std::find_if(kFields.begin(), kFields.end(),
                                     [&](const Field& f) { return f.name == name; });
    std::string option = field != kFields.end() ? std::string(field->option) : name;
    std::replace(option.begin(), option.end(), '_', '-');
    const bool known = field != kFields.end() || kSame.find(" " + name + " ") != std::string::npos;
    const bool own = name == "gated_linear_unit";  // add_model
    if (!known && !own && !megatron_option(option, "")) {
      const Json& j = value.json();
      if (j == true || (j.is_number_integer() && j > 1)) {
        unread_.push_back(name);
      }
      return;
    }
    if (value.is_string() && value.text("").find("${") != std::string::npos) {
      if (known) {
        left_out_.push_back(fmt::format("{} (a reference that only the framework resolves)", name));
      }
      return;
    }
    const bool chunks = option == "num-virtual-stages-per-pipeline-rank" &&
                        leaves_.contains("pipeline_model_parallel_layout");
    if (known && !chunks) {  // a layout says them
      add(option, value.json());
    } else if (const auto other = megatron_option(option, "");
               other && other->effect != OptionEffect::kNone && value.json() == true) {
      add(option, value.json());
    }
  }

  void add(const std::string& option, const Json& value) {
    if (const auto words = written(value)) {
      text_ += fmt::format("--{}{} ", option, *words);
    }
  }

  void add_model() {
    const std::string activation = word("activation"), function = word("activation_func");
    if (is("gated_linear_unit", true) || activation.ends_with("swiglu")) {
      text_ += "--swiglu ";
    } else if (activation.find("squared") != std::string::npos ||
               function.find("squared") != std::string::npos) {
      text_ += "--squared-relu ";
    }
    if (is("share_embeddings_and_output_weights", false)) {  // their own default: tied
      text_ += "--untie-embeddings-and-output-weights ";
    }
    for (const char* dropout : {"hidden_dropout", "attention_dropout"}) {
      const auto at = leaves_.find(dropout);
      text_ +=
          fmt::format("--{} {} ", dropout, at == leaves_.end() ? "0" : at->second.json().dump());
    }
    for (const char* key : {"linear_attention_freq", "experimental_attention_variant"}) {
      if (const auto at = leaves_.find(key); at != leaves_.end() && !at->second.json().empty()) {
        at->second.reject(
            "says layers of linear or sparse attention, which are not read from these "
            "files; give a config.json of the model with --set workload=FILE");
      }
    }
    if (leaves_.contains("peft_scheme") || !word("peft").empty()) {
      left_out_.emplace_back("adapters (all weights are trained: name them with --set lora=...)");
    }
  }

  void add_formats() {
    if (is("grad_reduce_in_fp32", false) ||
        word("grad_sync_dtype").find("16") != std::string::npos) {
      text_ += "--grad-reduce-in-bf16 ";
    }
    if (word("name").find("distributed_fused_adam") != std::string::npos) {
      text_ += "--use-distributed-optimizer ";
    }
    if (const std::string optimizer = word("optimizer"); optimizer.ends_with("muon")) {
      text_ += fmt::format("--optimizer {} ", optimizer);
    }
    if (const std::string mode = word("muon_tp_mode"); !mode.empty()) {
      text_ += fmt::format("--muon-tp-mode {} ", mode);
    }
    const bool whole = is("use_megatron_fsdp", true) || is("use_custom_fsdp", true);
    if (const std::string sharding = word("data_parallel_sharding_strategy");
        whole && !sharding.empty()) {
      text_ += fmt::format("--data-parallel-sharding-strategy {} ", sharding);
    }
    for (const auto& [field, option] :
         {std::pair{"exp_avg_dtype", "exp-avg-dtype"}, {"exp_avg_sq_dtype", "exp-avg-sq-dtype"}}) {
      const std::string format = word(field);
      text_ += format.ends_with("bfloat16") ? fmt::format("--{} bf16 ", option) : "";
    }
    const std::string precision = word("precision") + word("mixed_precision");
    const bool half =
        precision.find("16") != std::string::npos && precision.find("bf16") == std::string::npos;
    if (!leaves_.contains("bf16") && !leaves_.contains("fp16")) {
      text_ += half ? "--fp16 " : "--bf16 ";
    }
    if (!unread_.empty()) {
      left_out_.push_back(fmt::format("keys that are not read: {}", fmt::join(unread_, ", ")));
    }
  }

  [[nodiscard]] std::string word(const char* name) const {
    const auto at = leaves_.find(name);
    return at != leaves_.end() && at->second.is_string() ? at->second.text("a word") : "";
  }
  [[nodiscard]] bool is(const char* name, bool wanted) const {
    const auto at = leaves_.find(name);
    return at != leaves_.end() && at->second.json() == wanted;
  }

  Leaves leaves_;
  std::string text_;
  std::vector<std::string> unread_, left_out_;
};

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
    NemoArguments arguments(root);
    d.root = arguments.text();
    d = job_of_megatron(std::move(d), overrides);
    d.root["framework"] = "nemo";
    Json& parallel = d.root["parallel"];  // which says what the framework's newest release would
    parallel.emplace("dispatcher", "plain");
    parallel.emplace("fused_permutation", false);
    if (!arguments.left_out().empty()) {
      d.root["approximated"] = arguments.left_out();
    }
    return d;
  }
  std::string text;  // on one line, for its lines are not the file's
  for (const auto& [key, value] : (given ? *given : root).members()) {
    if (const auto words = written(value.json())) {
      text += fmt::format("{}{}{} ", key.starts_with("--") ? "" : "--", key, *words);
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
