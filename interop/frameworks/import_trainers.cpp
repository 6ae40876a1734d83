#include <algorithm>
#include <filesystem>

#include "core/lower.h"
#include "interop/frameworks/training_file.h"
#include "interop/yaml.h"

// YAML of trainers on Hugging Face transformers: axolotl, TRL and LLaMA-Factory -> job without a
// system.
namespace stepcast::interop {
namespace {

/// Keys without effect on a step, by how they begin.
constexpr std::string_view kWithoutEffectTrainers =
    "datasets dataset test_datasets val_set eval do_ save log wandb mlflow hub_ push_to_hub "
    "num_train num_epochs max_steps warmup seed output overwrite preprocessing dataloader "
    "remove_unused train_on_inputs group_by_length special_tokens tokens load_best early_stopping "
    "weight_decay max_grad_norm strict trust_remote tf32 ddp_timeout plot_loss max_samples "
    "per_device_eval eos chat_template report_to resume debug xformers plugins use_liger cutoff "
    "gradient_checkpointing_kwargs pad_to_sequence_len sample_packing_ shuffle streaming adam_ lr_ "
    "fsdp_config.fsdp_version fsdp_config.version fsdp_config.fsdp_auto_wrap_policy "
    "fsdp_config.auto_wrap_policy fsdp_config.fsdp_transformer_layer_cls_to_wrap "
    "fsdp_config.transformer_layer_cls_to_wrap fsdp_config.fsdp_min_num_params "
    "fsdp_config.min_num_params fsdp_config.fsdp_state_dict_type fsdp_config.state_dict_type "
    "fsdp_config.final_state_dict_type fsdp_config.fsdp_cpu_ram_efficient_loading "
    "fsdp_config.cpu_ram_efficient_loading fsdp_config.fsdp_sync_module_states "
    "fsdp_config.sync_module_states fsdp_config.fsdp_use_orig_params fsdp_config.use_orig_params "
    "fsdp_config.fsdp_backward_prefetch fsdp_config.backward_prefetch "
    "fsdp_config.fsdp_forward_prefetch fsdp_config.forward_prefetch fsdp_config.limit_all_gathers";

bool is_trainer(std::string_view text) {
  return has_yaml_key(text, {"base_model", "model_name_or_path"});
}

/// Adapters of our matrices for those of Hugging Face's; all where none is named.
Json targets_of(const std::vector<std::string>& modules) {
  Json targets = Json::array();
  const auto add = [&](const char* ours, std::initializer_list<std::string_view> theirs) {
    const bool all = modules.empty() || modules.front() == "all" || modules.front() == "all-linear";
    if (all || std::any_of(modules.begin(), modules.end(), [&](std::string_view m) {
          return std::find(theirs.begin(), theirs.end(), m) != theirs.end();
        })) {
      targets.push_back(ours);
    }
  };
  add("qkv", {"q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value"});
  add("projection", {"o_proj", "out_proj"});
  add("fc1", {"gate_proj", "up_proj", "gate_up_proj"});
  add("fc2", {"down_proj"});
  return targets;
}

void read_adapters(TrainingFile& f, Json& job) {
  // LLaMA-Factory's own default is lora.
  const std::string adapter =
      f.word({"adapter", "finetuning_type"}, f.find({"stage"}) ? "lora" : "");
  const bool narrow = f.flag({"load_in_4bit"}) || f.integer_or({"quantization_bit"}, 0) == 4;
  const bool eight = f.flag({"load_in_8bit"}) || f.integer_or({"quantization_bit"}, 0) == 8;
  const bool some = adapter.ends_with("lora") || f.flag({"use_peft"});
  std::vector<std::string> modules =
      f.words({"lora_target_modules", "lora_target", "target_modules"});
  if (modules.size() == 1 && modules[0].find_first_of("([*|") != std::string::npos) {
    f.approximate("adapters of matrices that a pattern names (as of all)");
    modules = {"all"};
  } else if (modules.size() == 1) {  // LLaMA-Factory's list is a text
    std::replace(modules[0].begin(), modules[0].end(), ',', ' ');
    const std::string text = modules[0];
    modules.clear();
    for (std::size_t at = text.find_first_not_of(' '); at != std::string::npos;) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      modules.push_back(text.substr(at, end - at));
      at = text.find_first_not_of(' ', end);
    }
  }
  const bool all = f.flag({"lora_target_linear"});
  const std::int64_t rank = f.integer_or({"lora_r", "lora_rank", "peft_lora_r"}, 8);
  const std::int64_t alpha = f.integer_or({"lora_alpha", "peft_lora_alpha"}, 16);
  const auto dropout = f.find({"lora_dropout"});
  if (!some) {
    if (adapter == "freeze") {
      f.approximate("layers that are frozen (all are trained)");
    }
    return;
  }
  Json& lora = job["lora"];
  lora["rank"] = rank;
  lora["alpha"] = alpha;
  if (dropout) {
    lora["dropout"] = dropout->number(0, 1);
  }
  const Json targets = targets_of(all ? std::vector<std::string>{} : modules);
  if (targets.empty()) {
    f.find({"lora_target_modules", "lora_target"})
        ->reject("names no matrix of a layer (q_proj, o_proj, gate_proj, down_proj, ...)");
  }
  if (!modules.empty() || all) {
    lora["targets"] = targets;
  }
  if (narrow || eight || adapter == "qlora") {
    job["formats"]["frozen"] = eight ? "int8" : "nf4";
  }
}

/// Stage of ZeRO that the name of a file tells: "zero3.json", "ds_z3_config.json", "stage2"; 0:
/// none.
int stage_named(const std::string& file) {
  for (const std::string_view before : {"zero", "stage", "_z", "-z"}) {
    const std::size_t at = file.rfind(before);
    const char digit = at != std::string::npos && at + before.size() < file.size()
                           ? file[at + before.size()]
                           : '0';
    if (digit >= '1' && digit <= '3') {
      return digit - '0';
    }
  }
  return 0;
}

/// The file of DeepSpeed that this one names, next to it or, as trainers start elsewhere, below a
/// folder above.
void read_named_deepspeed(TrainingFile& f, Json& job) {
  const auto v = f.find({"deepspeed", "deepspeed_config", "deepspeed_config_file"});
  if (!v) {
    return;
  }
  job["framework"] = "deepspeed";
  const std::string file = v->text("a file of DeepSpeed");
  std::filesystem::path folder = std::filesystem::absolute(v->folder());
  while (!std::filesystem::exists(folder / file) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  if (std::filesystem::exists(folder / file)) {
    const Document d = config::parse_document(config::file_source(folder / file));
    TrainingFile inner(d);
    read_deepspeed(inner, job);
    f.approximate_as(inner);
    return;
  }
  const int stage = stage_named(file);
  if (stage == 0) {
    v->reject(fmt::format("names {}, which is not there, nor does its name tell a stage of ZeRO",
                          file.substr(0, 80)));
  }
  const bool away = file.find("offload") != std::string::npos;
  job["parallel"]["zero"] = stage;
  if (away) {
    job["offload"] = {{"optimizer", true}, {"parameters", stage == 3}};
  }
  f.approximate(fmt::format("file {} (not there; taken as ZeRO {}{})", file.substr(0, 80), stage,
                            away ? " with offloading" : ""));
}

/// FSDP as its words say: "full_shard auto_wrap", a list of these, or the number of the strategy.
void read_sharding(TrainingFile& f, Json& job) {
  std::string words =
      lower(f.word({"fsdp_config.sharding_strategy", "fsdp_config.fsdp_sharding_strategy"}));
  for (const std::string& word : f.words({"fsdp"})) {
    words += " " + lower(word);
  }
  const auto config = f.find({"fsdp_config"});
  const std::int64_t shards = f.integer_or({"dp_shard_size"}, 1);
  const bool some = words.find_first_not_of(' ') != std::string::npos ||
                    (config && config->is_object() && !config->json().empty()) || shards > 1;
  const auto says = [&](std::string_view name, std::string_view number) {
    return words.find(name) != std::string::npos || words == number;
  };
  if (some && !says("no_shard", "3")) {
    Json zero = {{"stage", says("shard_grad_op", "2") ? 2 : 3}};
    if (zero["stage"] == 3 &&
        !f.flag({"fsdp_config.reshard_after_forward", "fsdp_config.fsdp_reshard_after_forward"},
                true)) {
      zero["reshard"] = false;
    }
    if (says("hybrid", "4") || f.integer_or({"dp_replicate_size"}, 1) > 1) {
      zero["level"] = "node";
    }
    job["parallel"]["zero"] = std::move(zero);
  }
  if (f.flag({"fsdp_config.offload_params", "fsdp_config.fsdp_offload_params"}) ||
      words.find("offload") != std::string::npos) {
    job["offload"] = {{"optimizer", true}, {"parameters", true}};
  }
}

void read_optimizer(TrainingFile& f, Json& job) {
  const std::string name = f.word({"optimizer", "optim"}, "adamw_torch");
  if (name.find("8bit") != std::string::npos) {
    job["formats"]["moments"] = "int8";
  } else if (name.find("adam") == std::string::npos) {
    f.approximate(fmt::format("optimizer {} (as Adam)", name.substr(0, 40)));
  }
  if (name.starts_with("paged")) {
    f.approximate("optimizer states that are paged out to the host (held on the device)");
  }
}

Document job_of_trainer(Document d, const std::vector<std::string>& overrides) {
  d.root = parse_yaml(d.root.get<std::string>(), d.label);
  TrainingFile f(d);
  Json job = {{"stepcast", 1}, {"framework", "transformers"}};
  name_model(f, {"base_model", "model_name_or_path"}, overrides, job);
  for (const char* key : {"rl", "stage"}) {
    const std::string of = f.word({key});
    if (!of.empty() && of != "sft" && of != "pt") {
      f.find({key})->reject(
          fmt::format("found {}: trains with preferences or rewards, which takes a "
                      "second model (reference or generation) that stepcast does not model",
                      of.substr(0, 40)));
    }
  }
  const std::int64_t tensor = f.integer_or({"tensor_parallel_size"}, 1);
  const std::int64_t context =
      f.integer_or({"context_parallel_size", "sequence_parallel_degree"}, 1);
  job["parallel"] = {{"tensor", tensor}, {"context", context}};
  read_sharding(f, job);
  read_named_deepspeed(f, job);
  const std::int64_t unit = product({tensor, context});
  std::optional<std::int64_t> said = f.integer({"num_processes", "nproc_per_node", "world_size"});
  const auto shards = f.integer({"dp_shard_size"}), copies = f.integer({"dp_replicate_size"});
  if (!said && (shards || copies)) {
    said = product({shards.value_or(1), copies.value_or(1), unit});
  }
  const std::int64_t devices = devices_of(f, overrides, said, unit);

  job["devices"] = devices;
  const std::int64_t micro =
      f.integer_or({"micro_batch_size", "per_device_train_batch_size", "train_batch_size"}, 8);
  const std::int64_t steps = f.integer_or({"gradient_accumulation_steps"}, 1);
  job["batch"] = {{"micro", micro},
                  {"global", product({micro, steps, std::max<std::int64_t>(1, devices / unit)})}};
  const auto length = f.integer({"sequence_len", "max_length", "max_seq_length", "cutoff_len",
                                 "block_size", "model_max_length"});
  job["batch"]["sequence"] = length.value_or(1024);
  if (!length) {
    f.approximate("the length of sequences (taken as 1,024 tokens)");
  }
  if (!f.flag({"sample_packing", "packing"})) {
    f.approximate("sequences of different lengths (as full: name sequence_lengths)");
  }
  const bool half = f.flag({"fp16"});
  const bool wide = !half && !f.flag({"bf16", "bfloat16"}, true);
  job["formats"]["compute"] = half ? "fp16" : wide ? "fp32" : "bf16";
  f.word({"bf16", "torch_dtype", "dtype", "bfloat16"});
  if (f.flag({"fp8"})) {
    job["formats"]["compute"] = "fp8";
  }
  const bool factory = f.find({"finetuning_type", "stage", "cutoff_len"}).has_value();
  const bool again =
      factory ? !f.flag({"disable_gradient_checkpointing"})
              : f.flag({"gradient_checkpointing"}, f.word({"gradient_checkpointing"}) == "unsloth");
  const bool sharded_again =
      f.flag({"fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing"});
  job["parallel"]["recompute"] = again || sharded_again ? "full" : "none";
  read_adapters(f, job);
  read_optimizer(f, job);
  const std::string attention = f.word({"attn_implementation", "flash_attn"}, "flash");
  if (attention == "eager" || attention == "disabled" || f.flag({"eager_attention"})) {
    job["attention"] = "unfused";
  }
  f.flag({"flash_attention", "sdp_attention", "flex_attention"});
  if (f.flag({"liger_fused_linear_cross_entropy", "enable_liger_kernel", "use_liger_kernel",
              "cut_cross_entropy"})) {
    job["loss"] = "fused";
  }
  f.note_unread(kWithoutEffectTrainers);
  return f.finished(std::move(d), std::move(job));
}

}  // namespace

ForeignFormat trainer_file() {
  return {.what = "a configuration of axolotl, TRL or LLaMA-Factory",
          .inferred_by_text = is_trainer,
          .job_of = job_of_trainer};
}

}  // namespace stepcast::interop
