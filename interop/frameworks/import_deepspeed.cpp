#include "interop/frameworks/training_file.h"

// JSON of DeepSpeed (deepspeed/runtime/config.py), alone or with a trainer's file -> what it says
// of a job.
namespace stepcast::interop {
namespace {

/// Sections and keys without effect on a step.
constexpr std::string_view kWithoutEffectDeepSpeed =
    "stepcast steps_per_print wall_clock_breakdown gradient_clipping scheduler tensorboard wandb "
    "csv_monitor comet flops_profiler comms_logger checkpoint dump_state optimizer.params bf16. "
    "fp16. monitor_config zero_allow_untested zero_force_ds prescale_gradients aio "
    "memory_breakdown autotuning train_batch_size comms_config zero_optimization.allgather_ "
    "zero_optimization.contiguous_gradients zero_optimization.reduce_scatter "
    "zero_optimization.stage3_ zero_optimization.sub_group_size zero_optimization.round_robin "
    "zero_optimization.load_from zero_optimization.elastic zero_optimization.ignore_unused "
    "zero_optimization.offload_optimizer. zero_optimization.offload_param.";

bool is_deepspeed(const Json& root) {
  const auto has = [&root](const char* key) { return root.contains(key); };
  return root.is_object() && !has("workload") &&
         (has("zero_optimization") || has("train_micro_batch_size_per_gpu") ||
          (has("train_batch_size") && (has("fp16") || has("bf16") || has("optimizer"))));
}

Document job_of_deepspeed(Document d, const std::vector<std::string>& overrides) {
  TrainingFile f(d);
  Json job = {{"stepcast", 1}, {"framework", "deepspeed"}};
  name_model(f, {"model"}, overrides, job);
  const std::int64_t tensor = f.integer_or({"tensor_parallel.autotp_size"}, 1);
  const std::int64_t context = f.integer_or({"sequence_parallel_size"}, 1);
  const std::int64_t unit = product({tensor, context});
  const auto micro = f.integer({"train_micro_batch_size_per_gpu"});
  const auto steps = f.integer({"gradient_accumulation_steps"});
  const auto global = f.integer({"train_batch_size"});
  // Two of micro-batch, accumulation and batch tell the third, or all of them the replicas.
  const std::int64_t each = product({micro.value_or(1), steps.value_or(1)});
  std::optional<std::int64_t> devices;
  if (micro && steps && global && *global % each == 0) {
    devices = product({*global / each, unit});
  }
  const std::int64_t count = devices_of(f, overrides, devices, unit);
  const std::int64_t replicas = std::max<std::int64_t>(1, count / unit);
  job["devices"] = count;
  job["batch"]["global"] = global.value_or(product({each, replicas}));
  job["batch"]["micro"] =
      micro.value_or(std::max<std::int64_t>(1, global.value_or(0) / steps.value_or(1) / replicas));
  job["parallel"] = {{"tensor", tensor}, {"context", context}};
  read_deepspeed(f, job);
  return f.finished(std::move(d), std::move(job));
}

}  // namespace

void read_deepspeed(TrainingFile& f, Json& job) {
  Json& p = job["parallel"];
  const auto stage = f.integer_or({"zero_optimization.stage"}, 0, 0);
  p["zero"] = stage;
  p["overlap"] = {{"data", f.flag({"zero_optimization.overlap_comm"}, stage == 3)}};
  if (const auto elements = f.integer({"zero_optimization.reduce_bucket_size"})) {
    p["bucket_elements"] = *elements;
  }
  if (f.integer_or({"zero_optimization.zero_hpz_partition_size"}, 1) > 1 && stage == 3) {
    p["zero"] = {{"stage", 3}, {"level", "node"}};
  }
  const auto away = [&f](std::string_view path) {
    const std::string device = f.word({path}, "none");
    if (device == "nvme") {
      f.approximate("states on NVMe (as in the host's memory: faster)");
    }
    return device != "none";
  };
  if (away("zero_optimization.offload_optimizer.device")) {
    job["offload"]["optimizer"] = true;
  }
  if (away("zero_optimization.offload_param.device") && stage == 3) {
    job["offload"]["parameters"] = true;
  }
  const bool bf16 = f.flag({"bf16.enabled", "bfloat16.enabled"});
  const bool fp16 = f.flag({"fp16.enabled"});
  if (bf16 || fp16) {
    job["formats"]["compute"] = bf16 ? "bf16" : "fp16";
    const std::string travels = f.word({"communication_data_type"}, bf16 ? "bf16" : "fp16");
    job["formats"]["gradient"] = travels.starts_with("f") && travels.ends_with("32") ? "fp32"
                                 : bf16                                              ? "bf16"
                                                                                     : "fp16";
  }
  const std::string optimizer = f.word({"optimizer.type"}, "Adam");
  if (optimizer == "SGD") {
    job["optimizer"] = "sgd";
  } else if (optimizer == "Muon") {
    job["optimizer"] = "muon";
    if (stage >= 2 && job["parallel"].value("pipeline", 1) == 1) {
      f.approximate("Muon on shards of gradients (as ZeRO 1: more memory)");
      job["parallel"]["zero"] = 1;
    }
  } else if (optimizer.find("Adam") == std::string::npos ||
             optimizer.find("One") != std::string::npos) {  // OneBitAdam, ZeroOneAdam
    f.approximate(fmt::format("optimizer {} (as Adam)", optimizer.substr(0, 40)));
  }
  f.note_unread(kWithoutEffectDeepSpeed);
}

ForeignFormat deepspeed_file() {
  return {.what = "a configuration of DeepSpeed",
          .inferred_by_keys = is_deepspeed,
          .job_of = job_of_deepspeed};
}

}  // namespace stepcast::interop
