#include <algorithm>
#include <filesystem>

#include "interop/frameworks/import_deepspeed.h"
#include "interop/yaml.h"

// YAML of trainers on Hugging Face transformers: axolotl, TRL and LLaMA-Factory -> job without a
// system.
namespace stepcast::interop {
namespace {

/// Keys without effect on a step, by how they begin.
const std::vector<std::string_view> kWithoutEffectTrainers{"datasets",
                                                           "dataset",
                                                           "test_datasets",
                                                           "val_set",
                                                           "eval",
                                                           "do_",
                                                           "save",
                                                           "log",
                                                           "wandb",
                                                           "mlflow",
                                                           "hub_",
                                                           "push_to_hub",
                                                           "num_train",
                                                           "num_epochs",
                                                           "max_steps",
                                                           "warmup",
                                                           "seed",
                                                           "output",
                                                           "overwrite",
                                                           "preprocessing",
                                                           "dataloader",
                                                           "remove_unused",
                                                           "train_on_inputs",
                                                           "group_by_length",
                                                           "special_tokens",
                                                           "tokens",
                                                           "load_best",
                                                           "early_stopping",
                                                           "weight_decay",
                                                           "max_grad_norm",
                                                           "strict",
                                                           "trust_remote",
                                                           "tf32",
                                                           "ddp_timeout",
                                                           "plot_loss",
                                                           "max_samples",
                                                           "per_device_eval",
                                                           "eos",
                                                           "chat_template",
                                                           "report_to",
                                                           "resume",
                                                           "debug",
                                                           "xformers",
                                                           "plugins",
                                                           "use_liger",
                                                           "cutoff",
                                                           "gradient_checkpointing_kwargs",
                                                           "pad_to_sequence_len",
                                                           "sample_packing_",
                                                           "fsdp_config.",
                                                           "shuffle",
                                                           "streaming",
                                                           "adam_",
                                                           "lr_"};

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
  const std::string adapter = f.word({"adapter", "finetuning_type"});
  const bool narrow = f.flag({"load_in_4bit"}) || f.integer_or({"quantization_bit"}, 0) == 4;
  const bool eight = f.flag({"load_in_8bit"}) || f.integer_or({"quantization_bit"}, 0) == 8;
  const bool some = adapter.ends_with("lora") || f.flag({"use_peft"});
  std::vector<std::string> modules =
      f.words({"lora_target_modules", "lora_target", "target_modules"});
  if (modules.size() == 1) {  // LLaMA-Factory's list is a text
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

/// The file of DeepSpeed that this one names, beside it.
void read_named_deepspeed(TrainingFile& f, Json& job) {
  const auto v = f.find({"deepspeed", "deepspeed_config", "deepspeed_config_file"});
  if (!v) {
    return;
  }
  job["framework"] = "deepspeed";
  const std::string file = v->text("a file of DeepSpeed");
  const std::filesystem::path path = v->folder() / file;
  if (!std::filesystem::exists(path)) {
    const std::size_t stage = file.find("zero");
    const char digit =
        stage != std::string::npos && stage + 4 < file.size() ? file[stage + 4] : '0';
    if (digit < '1' || digit > '3') {
      v->reject(fmt::format("names {}, which is not there, nor does its name tell a stage of ZeRO",
                            file.substr(0, 80)));
    }
    job["parallel"]["zero"] = digit - '0';
    f.approximate(fmt::format("file {} (not there; taken as ZeRO {})", file.substr(0, 80), digit));
    return;
  }
  Document d = config::parse_document(config::file_source(path));
  TrainingFile inner(d);
  read_deepspeed(inner, job);
  f.approximate_as(inner);
}

void read_sharding(TrainingFile& f, Json& job) {
  const bool full = f.find({"fsdp", "fsdp_config", "fsdp_version"}).has_value() ||
                    f.integer_or({"dp_shard_size"}, 1) > 1;
  const std::string strategy =
      f.word({"fsdp_config.sharding_strategy", "fsdp_config.fsdp_sharding_strategy"}, "FULL_SHARD");
  if (full) {
    job["parallel"]["zero"] = strategy == "SHARD_GRAD_OP" ? 2 : strategy == "NO_SHARD" ? 0 : 3;
  }
  if (f.flag({"fsdp_config.offload_params", "fsdp_config.fsdp_offload_params"})) {
    job["offload"] = {{"optimizer", true}, {"parameters", true}};
  }
  f.find({"fsdp_config"});
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
  const std::int64_t tensor = f.integer_or({"tensor_parallel_size"}, 1);
  const std::int64_t context =
      f.integer_or({"context_parallel_size", "sequence_parallel_degree"}, 1);
  job["parallel"] = {{"tensor", tensor}, {"context", context}};
  read_sharding(f, job);
  read_named_deepspeed(f, job);
  const std::int64_t unit = product({tensor, context});
  const std::int64_t devices =
      devices_of(f, overrides, f.integer({"num_processes", "nproc_per_node", "world_size"}), unit);
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
  job["formats"]["compute"] = half ? "fp16" : "bf16";
  f.word({"bf16", "torch_dtype", "dtype", "bfloat16"});
  if (f.flag({"fp8"})) {
    job["formats"]["compute"] = "fp8";
  }
  job["parallel"]["recompute"] =
      f.flag({"gradient_checkpointing"}, f.word({"gradient_checkpointing"}) == "unsloth") ? "full"
                                                                                          : "none";
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
  f.finish(job, kWithoutEffectTrainers);
  d.root = std::move(job);
  return d;
}

}  // namespace

ForeignFormat trainer_file() {
  return {.what = "a configuration of axolotl, TRL or LLaMA-Factory",
          .inferred_by_text = is_trainer,
          .job_of = job_of_trainer};
}

}  // namespace stepcast::interop
