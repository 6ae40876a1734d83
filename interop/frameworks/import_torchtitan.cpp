#include <toml++/toml.h>

#include <algorithm>
#include <array>

#include "interop/frameworks/torchtitan_flavors.h"
#include "interop/frameworks/training_file.h"

// TOML of torchtitan (torchtitan/config/job_config.py; also with the names of 2024) -> job without
// a system.
namespace stepcast::interop {
namespace {

using Overrides = std::vector<std::string>;

/// Sections and keys without effect on a step.
constexpr std::string_view kWithoutEffectTitan =
    "job profiling metrics lr_scheduler checkpoint comm fault_tolerance experimental.custom_ "
    "validation memory_estimation debug optimizer.implementation training.steps training.gc_ "
    "training.seed training.debug_moe training.warmup_steps model.print_after_conversion "
    "parallelism.disable_loss_parallel";

bool is_torchtitan(std::string_view text) {
  const bool tables = text.find("[training]") != std::string_view::npos;
  return tables && (text.find("[parallelism]") != std::string_view::npos ||
                    text.find("[activation_checkpoint]") != std::string_view::npos ||
                    text.find("flavor") != std::string_view::npos);
}

Json json_of(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    Json all = Json::object();
    for (const auto& [key, value] : *table) {
      all[std::string(key.str())] = json_of(value);
    }
    return all;
  }
  if (const auto* list = node.as_array()) {
    Json all = Json::array();
    for (const auto& value : *list) {
      all.push_back(json_of(value));
    }
    return all;
  }
  return node.is_boolean()          ? Json(*node.value<bool>())
         : node.is_integer()        ? Json(*node.value<std::int64_t>())
         : node.is_floating_point() ? Json(*node.value<double>())
         : node.is_string()         ? Json(*node.value<std::string>())
                                    : Json();  // a date
}

/// Errors: InputError with the line.
Json parse_toml(const Document& d) {
  try {
    return json_of(toml::parse(d.root.get_ref<const std::string&>()));
  } catch (const toml::parse_error& e) {
    throw InputError(fmt::format("{}:{}", d.label, e.source().begin.line),
                     std::string(e.description()));
  }
}

void read_model(TrainingFile& f, const Overrides& overrides, Json& job) {
  const std::string model = f.word({"model.name"}), flavor = f.word({"model.flavor"});
  if (!override_of(overrides, "workload").empty()) {
    return;
  }
  const auto* known =
      std::find_if(kTitanFlavors.begin(), kTitanFlavors.end(),
                   [&](const TitanFlavor& t) { return t.model == model && t.flavor == flavor; });
  if (known == kTitanFlavors.end()) {
    throw InputError(f.root().where("model.flavor"),
                     fmt::format("found {} \"{}\", which is none of the flavors that are known; "
                                 "name the model with --set workload=NAME or config.json",
                                 model.substr(0, 40), flavor.substr(0, 40)));
  }
  job["workload"] = known->workload;
}

/// Layers of each chunk, of lists of modules; empty where nothing says.
Json chunks_of(TrainingFile& f) {
  Json counts = Json::array();
  if (const auto lists = f.find({"parallelism.module_fqns_per_model_part"})) {
    for (const Value& modules : lists->items("a list of lists of modules")) {
      std::int64_t layers = 0;
      for (const Value& m : modules.items("names of modules")) {
        layers += m.text("a name").starts_with("layers.") ? 1 : 0;
      }
      counts.push_back(layers);
    }
  }
  return counts;
}

/// Schedules that stand for others, and what is said of it.
void read_pipeline(TrainingFile& f, std::int64_t stages, Json& job) {
  struct Schedule {
    std::string_view name, ours;
    std::int64_t chunks;
    const char* note;
  };
  static constexpr std::array kSchedules{
      Schedule{"1F1B", "1f1b", 1, nullptr},
      Schedule{"GPipe", "gpipe", 1, nullptr},
      Schedule{"Interleaved1F1B", "1f1b", 2, nullptr},
      Schedule{"LoopedBFS", "1f1b", 2, "schedule LoopedBFS (as Interleaved1F1B: less memory)"},
      Schedule{"InterleavedZeroBubble", "1f1b", 2,
               "schedule InterleavedZeroBubble (as Interleaved1F1B: slower)"},
      Schedule{"ZBVZeroBubble", "zb-v", 2, nullptr},
      Schedule{"DualPipeV", "dualpipe-v", 2, nullptr}};
  const std::string name =
      f.word({"parallelism.pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule"},
             "1F1B");
  const Json counts = chunks_of(f);
  const auto layers = f.integer({"parallelism.pipeline_parallel_layers_per_stage"});
  f.find({"parallelism.pipeline_parallel_split_points",
          "experimental.pipeline_parallel_split_points"});
  const std::int64_t micro = f.integer_or({"parallelism.pipeline_parallel_microbatch_size"}, 1);
  f.integer({"experimental.pipeline_parallel_microbatches"});
  if (stages == 1) {
    return;
  }
  const auto* s = std::find_if(kSchedules.begin(), kSchedules.end(),
                               [&](const Schedule& known) { return known.name == name; });
  if (s == kSchedules.end()) {
    f.find({"parallelism.pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule"})
        ->reject(fmt::format("found \"{}\", expected 1F1B, Interleaved1F1B, GPipe, ZBVZeroBubble, "
                             "DualPipeV",
                             name.substr(0, 40)));
  }
  if (s->note != nullptr) {
    f.approximate(s->note);
  }
  const auto chunks = static_cast<std::int64_t>(counts.size());
  if (!counts.empty()) {
    job["parallel"]["pipeline_split"] = counts;
  } else if (layers) {
    f.approximate(fmt::format("{} layers of each stage (as equal stages)", *layers));
  }
  job["parallel"]["schedule"] = s->ours;
  if (s->ours == "1f1b") {
    job["parallel"]["virtual_stages"] = chunks > 0 ? chunks / stages : s->chunks;
  }
  job["batch"]["micro"] = micro;
}

void read_recompute(TrainingFile& f, Json& p) {
  const std::string mode = f.word({"activation_checkpoint.mode"}, "selective");
  const std::string option = f.word({"activation_checkpoint.selective_ac_option"}, "op");
  if (mode == "none") {
    p["recompute"] = "none";
  } else if (mode == "full") {
    p["recompute"] = "full";
  } else {
    p["recompute"] = "selective";
    if (mode == "memory_budget") {
      f.approximate("recomputation to a memory budget (as selective)");
    } else if (option != "op") {
      f.approximate(fmt::format("recomputation of one layer in {} (as selective)", option));
    }
  }
}

void read_formats(TrainingFile& f, Json& job) {
  Json& formats = job["formats"] = Json::object();
  formats["compute"] =
      f.word({"training.mixed_precision_param"}, "bfloat16") == "float32" ? "fp32" : "bf16";
  formats["gradient"] =
      f.word({"training.mixed_precision_reduce"}, "float32") == "bfloat16" ? "bf16" : "fp32";
  if (f.word({"training.dtype"}) == "bfloat16") {
    formats["moments"] = "bf16";
    formats["master"] = "none";
    formats["gradient"] = "bf16";
  }
  bool fp8 = f.flag({"float8.enable_float8_linear", "training.enable_float8_linear"});
  for (const std::string& converter : f.words({"model.converters"})) {
    fp8 = fp8 || converter.find("float8") != std::string::npos;
    if (converter.find("mx") != std::string::npos) {
      formats["compute"] = "mxfp8";
    }
  }
  if (fp8) {
    formats["compute"] = "fp8";
  }
  if (f.word({"quantize.linear.float8.recipe_name", "float8.recipe_name"}).starts_with("rowwise")) {
    f.approximate("fp8 with a scale for each row as fp8 with one for each tensor (slower)");
  }
  const bool compiled = f.flag({"compile.enable", "training.compile"});
  const std::vector<std::string> parts = f.words({"compile.components"});
  const bool loss = parts.empty() || std::find(parts.begin(), parts.end(), "loss") != parts.end();
  if (compiled && loss) {
    job["loss"] = "compiled";
  } else if (!compiled) {
    f.approximate(
        "a model that is not compiled (norms and activations by unfused kernels: slower)");
  }
}

Document job_of_torchtitan(Document d, const Overrides& overrides) {
  d.root = parse_toml(d);
  TrainingFile f(d);
  Json job = {{"stepcast", 1}, {"framework", "torchtitan"}};
  read_model(f, overrides, job);
  Json p = Json::object();
  const std::int64_t tensor =
      f.integer_or({"parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"}, 1);
  const std::int64_t stages = f.integer_or(
      {"parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"}, 1);
  const std::int64_t context = f.integer_or(
      {"parallelism.context_parallel_degree", "experimental.context_parallel_degree"}, 1);
  const std::int64_t copies = f.integer_or(
      {"parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree"}, 1);
  const std::int64_t shards = f.integer_or(
      {"parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"}, -1, -1);
  const std::int64_t experts = f.integer_or(
      {"parallelism.expert_parallel_degree", "experimental.expert_parallel_degree"}, 1);
  const std::int64_t unit = product({tensor, stages, context, copies});
  const std::int64_t devices =
      devices_of(f, overrides, shards > 0 ? std::optional(product({unit, shards})) : std::nullopt,
                 std::max(unit, product({stages, experts})));
  job["devices"] = devices;
  p["tensor"] = tensor;
  p["pipeline"] = stages;
  p["context"] = context;
  p["expert"] = experts;
  if (const auto columns = f.integer({"parallelism.expert_tensor_parallel_degree"}); columns) {
    p["expert_tensor"] = *columns;
  }
  p["sequence_parallel"] = tensor > 1;
  const bool resharded =
      f.word({"parallelism.fsdp_reshard_after_forward"}, "default") == "always" ||
      (f.word({"parallelism.fsdp_reshard_after_forward"}, "default") == "default" && stages == 1);
  const std::int64_t data = std::max<std::int64_t>(1, devices / product({tensor, stages, context}));
  if (shards == 1 && context == 1) {  // context ranks share shards
    p["zero"] = 0;
  } else {
    p["zero"] = {{"stage", 3}, {"reshard", resharded}};
    if (copies > 1) {
      p["zero"]["level"] = "node";
      if (product({data / copies, tensor, context}) != 8) {
        f.approximate(fmt::format("shards over {} replicas (as inside a machine)", data / copies));
      }
    }
  }
  p["overlap"] = {{"data", true},
                  {"tensor", true},
                  {"tensor_products", f.flag({"parallelism.enable_async_tensor_parallel",
                                              "experimental.enable_async_tensor_parallel"})}};
  if (context > 1) {
    p["context_algorithm"] = f.word({"parallelism.context_parallel_rotate_method",
                                     "experimental.context_parallel_rotate_method"},
                                    "allgather") == "alltoall"
                                 ? "ring"
                                 : "all_gather";
  }
  read_recompute(f, p);
  const std::int64_t local = f.integer_or({"training.local_batch_size", "training.batch_size"}, 8);
  job["batch"] = {{"micro", local}, {"sequence", f.integer_or({"training.seq_len"}, 2048)}};
  const std::int64_t global = f.integer_or({"training.global_batch_size"}, -1, -1);
  job["batch"]["global"] = global > 0 ? global : product({local, data});
  job["parallel"] = std::move(p);
  read_pipeline(f, stages, job);
  read_formats(f, job);
  if (f.flag({"training.enable_cpu_offload"})) {
    job["offload"] = {{"optimizer", true}, {"parameters", true}};
  }
  if (const std::string name = f.word({"optimizer.name"}, "AdamW"); !name.starts_with("Adam")) {
    f.approximate(fmt::format("optimizer {} (as Adam)", name.substr(0, 40)));
  }
  f.note_unread(kWithoutEffectTitan);
  return f.finished(std::move(d), std::move(job));
}

}  // namespace

ForeignFormat torchtitan_file() {
  return {.what = "a configuration of torchtitan",
          .inferred_by_text = is_torchtitan,
          .job_of = job_of_torchtitan};
}

}  // namespace stepcast::interop
