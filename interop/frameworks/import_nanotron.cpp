#include <algorithm>

#include "interop/frameworks/training_file.h"
#include "interop/yaml.h"

// YAML of nanotron (nanotron/config) -> job without a system. Its model is a Llama's config.json.
namespace stepcast::interop {
namespace {

constexpr std::string_view kWithoutEffectNanotron =
    "checkpoints data_stages general logging lighteval profiler tokenizer s3_upload "
    "metrics_logging optimizer.clip_grad optimizer.learning_rate_scheduler "
    "optimizer.optimizer_factory tokens. model.make_vocab_size_divisible_by model.init_method "
    "model.model_config parallelism.tp_recompute_allgather";

bool is_nanotron(std::string_view text) {
  return has_yaml_key(text, {"model_config"}) && has_yaml_key(text, {"parallelism"});
}

Document job_of_nanotron(Document d, const std::vector<std::string>& overrides) {
  d.root = parse_yaml(d.root.get<std::string>(), d.label);
  TrainingFile f(d);
  Json job = {{"stepcast", 1}, {"framework", "nanotron"}};
  const std::int64_t tensor = f.integer_or({"parallelism.tp"}, 1);
  if (override_of(overrides, "workload").empty()) {
    const auto model = f.find({"model.model_config"});
    if (!model) {
      throw InputError(f.root().where("model.model_config"), "missing; expected the model's sizes");
    }
    if (const auto experts = model->find("moe_config"); experts && !experts->json().is_null()) {
      experts->reject(
          "holds experts, which are not read from files of nanotron; give a "
          "config.json of the model with --set workload=FILE");
    }
    job["workload"] = hugging_face_workload(*model, "llama");
    const std::int64_t unit =
        product({f.integer_or({"model.make_vocab_size_divisible_by"}, 1), tensor});
    const auto entries = job["workload"]["vocabulary"].get<std::int64_t>();
    job["workload"]["vocabulary"] = (entries + unit - 1) / unit * unit;  // as it pads them
    job["workload"]["source"] = "configuration of nanotron";
  }
  const std::int64_t stages = f.integer_or({"parallelism.pp"}, 1);
  const std::int64_t context = f.integer_or({"parallelism.context_parallel_size"}, 1);
  const std::int64_t data = f.required({"parallelism.dp"}, "the data ranks");
  job["devices"] = devices_of(f, overrides, product({tensor, stages, context, data}), 1);
  Json& p = job["parallel"];
  p = {{"tensor", tensor},
       {"pipeline", stages},
       {"context", context},
       {"expert", f.integer_or({"parallelism.expert_parallel_size"}, 1)},
       {"zero", f.integer_or({"optimizer.zero_stage"}, 0, 0)},
       {"sequence_parallel",
        tensor > 1 && f.word({"parallelism.tp_mode"}, "REDUCE_SCATTER") == "REDUCE_SCATTER"},
       {"schedule", f.word({"parallelism.pp_engine"}, "1f1b") == "afab" ? "gpipe" : "1f1b"},
       {"recompute", f.flag({"parallelism.recompute_layer"}) ? "full" : "none"}};
  if (f.flag({"parallelism.tp_linear_async_communication"}) && tensor > 1) {
    p["overlap"] = {{"data", true}, {"tensor", true}, {"tensor_products", true}};
  }
  const std::int64_t micro = f.integer_or({"tokens.micro_batch_size"}, 1);
  const std::int64_t steps = f.integer_or({"tokens.batch_accumulation_per_replica"}, 1);
  job["batch"] = {{"micro", micro},
                  {"global", product({micro, steps, data})},
                  {"sequence", f.integer_or({"tokens.sequence_length"}, 2048)}};
  job["formats"]["compute"] = f.word({"model.dtype"}, "bfloat16") == "float16"   ? "fp16"
                              : f.word({"model.dtype"}, "bfloat16") == "float32" ? "fp32"
                                                                                 : "bf16";
  job["formats"]["gradient"] =
      f.flag({"optimizer.accumulate_grad_in_fp32"}, true) ? "fp32" : job["formats"]["compute"];
  f.note_unread(kWithoutEffectNanotron);
  return f.finished(std::move(d), std::move(job));
}

}  // namespace

ForeignFormat nanotron_file() {
  return {.what = "a configuration of nanotron",
          .inferred_by_text = is_nanotron,
          .job_of = job_of_nanotron};
}

}  // namespace stepcast::interop
