#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <utility>

#include "core/clearly_less.h"
#include "core/device_names.h"
#include "core/error.h"
#include "core/graph/program.h"
#include "core/job/efficiency.h"
#include "core/lower.h"
#include "models/cost_model.h"
#include "simulator/reports/framework_memory.h"
#include "simulator/reports/memory_ledger.h"
#include "studies/predict/simulated_step.h"
#include "validation/published/rows.h"
#include "workloads/build_graph.h"

// A row of a table of published runs as a job.
namespace stepcast::validation {
namespace {

using Settings = std::vector<std::string>;

constexpr std::int64_t kUsualVocabulary = 51200;
constexpr std::int64_t kVocabularyMultiple = 128;  // per tensor rank
constexpr std::int64_t kLargestMachine = 16;       // devices of one host; more are several hosts

/// "fsdp8", "fsdp-full(3)" shard everything; "?" says nothing.
std::string zero_of(const PublishedRow& row) {
  if (row.zero.starts_with("fsdp")) {
    return "3";
  }
  const bool stage = row.zero.size() == 1 && row.zero[0] >= '0' && row.zero[0] <= '3';
  return stage ? row.zero : "";
}

/// With a gate where the source says none but has experts, or norms of the Llama kind.
std::string activation_of(const PublishedRow& row) {
  const std::string act = lower(row.act);
  for (const auto& [theirs, ours] : {std::pair{"", "swiglu"},
                                     {"gelu2", "gelu"},
                                     {"gelu", "gelu"},
                                     {"sqrelu2", "squared_relu"},
                                     {"squared_relu", "squared_relu"},
                                     {"swiglu3", "swiglu"},
                                     {"swiglu", "swiglu"},
                                     {"geglu3", "geglu"},
                                     {"geglu", "geglu"}}) {
    if (act == theirs) {
      return ours;
    }
  }
  throw InputError(
      row.place,
      fmt::format("act: found '{}', expected GELU2, SqReLU2, SwiGLU3 or GeGLU3", row.act));
}

bool contains_any(std::string_view text, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(), [text](const std::string& part) {
    return text.find(part) != std::string_view::npos;
  });
}

std::int64_t stated(std::int64_t value, std::int64_t otherwise) {
  return value > 0 ? value : otherwise;
}

/// The zoo's model of that shape.
const TransformerWorkload* same_shape(const PublishedRow& row,
                                      const std::vector<Workload>& shapes) {
  for (const Workload& w : shapes) {
    const TransformerWorkload* t = w.transformer();
    const std::int64_t experts = t != nullptr && t->moe ? t->moe->experts : 0;
    if (t != nullptr && t->layers == row.layers && t->hidden == row.hidden &&
        t->heads == row.heads && experts == row.experts) {
      return t;
    }
  }
  return nullptr;
}

void add_workload(const PublishedRow& row, const std::vector<Workload>& shapes, Settings& to) {
  const std::string activation = activation_of(row);
  const std::int64_t unit = kVocabularyMultiple * stated(row.tensor, 1);
  const std::int64_t vocabulary =
      (stated(row.vocabulary, kUsualVocabulary) + unit - 1) / unit * unit;
  const std::int64_t ffn = stated(row.ffn, 4 * row.hidden);
  const TransformerWorkload* known = same_shape(row, shapes);
  std::string more;
  const auto add = [&more](std::string_view key, std::int64_t value) {
    if (value > 0) {
      more += fmt::format(R"(, "{}": {})", key, value);
    }
  };
  if (row.experts > 0) {
    more = fmt::format(R"(, "moe": {{"experts": {}, "per_token": {}, "ffn_hidden": {})",
                       row.experts, stated(row.per_token, 1), ffn);
    add("shared", row.shared_experts);
    add("first_dense_layers", row.dense_layers);
    if (known != nullptr && known->moe && known->moe->limits_groups()) {
      add("groups", known->moe->groups);
      add("groups_per_token", known->moe->groups_per_token);
    }
    more += "}";
  }
  if (known != nullptr && known->mla && row.kv_heads == 0) {
    const LatentAttention& a = *known->mla;
    more += fmt::format(
        R"(, "mla": {{"q_rank": {}, "kv_rank": {}, "rope_dim": {}, "nope_dim": {}, "v_dim": {}}})",
        a.q_rank, a.kv_rank, a.rope_dim, a.nope_dim, a.v_dim);
  } else {
    add("kv_heads", row.kv_heads);
    add("head_dim", row.head_dim);
  }
  if (known != nullptr && known->window > 0) {
    add("window", known->window);
    add("full_attention_every", known->full_attention_every);
  }
  add("mtp", row.further_tokens);
  to.insert(
      to.begin(),
      fmt::format(
          R"(workload={{"kind": "transformer", "name": "published", "layers": {}, "hidden": {}, "heads": {}, "ffn_hidden": {}, "activation": "{}", "vocabulary": {}, "tied_embeddings": {}{}}})",
          row.layers, row.hidden, row.heads, row.experts > 0 ? stated(row.dense_ffn, ffn) : ffn,
          activation, vocabulary, activation == "gelu", more));
}

/// Layers that leave a remainder on the stages, and none once embedding and head count as a layer
/// each, are assigned that way.
bool ends_count(const PublishedRow& row, std::int64_t chunks) {
  return chunks > 1 && row.layers % chunks != 0 && (row.layers + 2) % chunks == 0;
}

void add_parallel(const PublishedRow& row, bool sequence_parallel, Settings& to) {
  const auto set = [&to](std::string_view key, const auto& value) {
    to.push_back(fmt::format("{}={}", key, value));
  };
  const std::int64_t tensor = stated(row.tensor, 1);
  const std::int64_t pipeline = stated(row.pipeline, 1);
  set("parallel.tensor", tensor);
  set("parallel.pipeline", pipeline);
  for (const auto& [key, ranks] :
       {std::pair{"parallel.context", row.context}, {"parallel.expert", row.expert}}) {
    if (ranks > 1) {
      set(key, ranks);
    }
  }
  if (pipeline > 1) {
    const bool interleaved = row.schedule.starts_with("interleaved");
    const std::int64_t virtual_stages = stated(
        row.virtual_stages, interleaved ? std::max<std::int64_t>(1, row.layers / pipeline) : 1);
    set("parallel.virtual_stages", virtual_stages);
    if (ends_count(row, pipeline * virtual_stages)) {
      set("parallel.pipeline_split", R"({"embedding": 1, "head": 1})");
    }
  }
  if (tensor > 1 && (row.sequence_parallel || sequence_parallel)) {
    set("parallel.sequence_parallel", row.sequence_parallel.value_or(true));
  }
  if (const std::string zero = zero_of(row); !zero.empty()) {
    set("parallel.zero", zero);
  }
  if (row.recompute == "full" || row.recompute == "none") {
    set("parallel.recompute", row.recompute);
  } else if (row.recompute.starts_with("selective")) {
    // "selective(mlp)" names modules; "selective(op)" the framework's own choice of ops.
    const std::size_t open = row.recompute.find('(');
    const std::string inside =
        open == std::string::npos ? ""
                                  : row.recompute.substr(open + 1, row.recompute.size() - open - 2);
    set("parallel.recompute", inside.empty() || inside == "op"
                                  ? std::string("selective")
                                  : fmt::format(R"({{"modules": ["{}"]}})", inside));
  }
  if (row.flash_attention == "0" || row.flash_attention == "1") {
    set("attention", row.flash_attention == "1" ? "flash" : "unfused");
  }
}

/// Features of the software that a table states by row.
void add_software(const PublishedRow& row, const config::PublishedNames& names, Settings& to) {
  if (row.narrow_attention == "fp8") {
    to.emplace_back("formats.attention=fp8");
  }
  if (!row.graphs.empty()) {
    to.push_back(fmt::format("graphs={}", row.graphs == "none" ? "none"
                                          : row.graphs.find("full") != std::string::npos
                                              ? "full"
                                              : "layer"));
  }
  if (stated(row.tensor, 1) > 1 && !row.tensor_overlap.empty()) {
    const bool on = row.tensor_overlap == "1";
    to.push_back(fmt::format("parallel.overlap.tensor_products={}", on));
    if (on) {
      to.emplace_back("parallel.overlap.tensor=true");
    }
  }
  if (row.activations_on_host == "1") {
    to.emplace_back("offload.activations=true");
  }
  for (const config::NamedSettings& note : names.notes) {
    if (contains_any(row.notes, note.aliases)) {
      to.insert(to.end(), note.settings.begin(), note.settings.end());
    }
  }
}

/// Rank 16 of the attention's matrices where the source does not say (NeMo's usual ones).
void add_adapters(const PublishedRow& row, Settings& to) {
  if (row.task != "lora") {
    return;
  }
  constexpr std::int64_t kUsualRank = 16;
  const std::int64_t rank = stated(row.lora_rank, kUsualRank);
  std::vector<std::string> targets;
  for (const auto& [column, target] : {std::pair{"linear_qkv", R"("qkv")"},
                                       {"linear_proj", R"("projection")"},
                                       {"linear_fc1", R"("fc1")"},
                                       {"linear_fc2", R"("fc2")"}}) {
    if (row.lora_targets.find(column) != std::string::npos) {
      targets.emplace_back(target);
    }
  }
  if (targets.empty()) {
    targets = {R"("qkv")", R"("projection")"};
  }
  to.push_back(fmt::format(R"(lora={{"rank": {}, "alpha": {}, "targets": [{}]}})", rank,
                           stated(row.lora_alpha, 2 * rank), fmt::join(targets, ", ")));
}

/// Splitting a replica's batch pays with a pipeline only; without one it saves memory at best.
std::int64_t micro_of(const PublishedRow& row) {
  const std::int64_t split =
      stated(row.tensor, 1) * stated(row.pipeline, 1) * stated(row.context, 1);
  const std::int64_t replicas = std::max<std::int64_t>(1, row.devices / split);
  if (row.accumulated > 0 && row.global % (replicas * row.accumulated) == 0) {
    return stated(row.micro, row.global / (replicas * row.accumulated));
  }
  const bool whole = stated(row.pipeline, 1) == 1 && row.global % replicas == 0;
  return stated(row.micro, whole ? row.global / replicas : 1);
}

}  // namespace

std::vector<Workload> published_shapes(const config::Library& library) {
  std::vector<Workload> shapes;
  for (const config::Entry& entry : config::list_workloads(library)) {
    Workload w = config::load_workload(entry.name, library);
    if (w.transformer() != nullptr) {
      shapes.push_back(std::move(w));
    }
  }
  return shapes;
}

config::FrameworkRecipe recipe_of(const PublishedRow& row, const config::PublishedNames& names) {
  const PlanFamily family = row.experts > 0       ? PlanFamily::kExperts
                            : zero_of(row) == "3" ? PlanFamily::kSharded
                                                  : PlanFamily::kTensorPipeline;
  return names.recipe(row.source, row.framework, row.model, row.gpu, name_of(family));
}

std::string release_of(const PublishedRow& row, const config::PublishedNames& names) {
  const std::string text = fmt::format("{} {} {} {}", row.source, row.table, row.tag, row.document);
  for (const config::NamedSettings& release : names.releases) {
    if (contains_any(text, release.aliases)) {
      return release.name;
    }
  }
  const config::FrameworkRecipe recipe = recipe_of(row, names);
  const std::string framework = recipe.framework != nullptr ? recipe.framework->name : "";
  static const std::regex kMonth(R"((?:^|[^0-9.])([12][0-9][.](?:0[1-9]|1[0-2]))(?![0-9]))");
  static const std::regex kYear(R"((?:^|[^0-9])(20[12][0-9])(?![0-9]))");
  static const std::regex kPaper(R"(arXiv ([12][0-9])[0-9]{2}[.])");
  std::smatch found;
  for (const std::string& said : {text, framework}) {
    if (std::regex_search(said, found, kMonth)) {
      return found[1];
    }
  }
  if (std::regex_search(text, found, kPaper)) {
    return "20" + found[1].str();
  }
  return std::regex_search(text, found, kYear) ? found[1].str() : "";
}

std::optional<PublishedDevice> device_of(const PublishedRow& row,
                                         const config::PublishedNames& names) {
  if (const auto* alias = names.gpu(row.gpu)) {
    return PublishedDevice{alias->name, alias->settings};
  }
  const auto device = device_named(row.gpu);
  if (!device) {
    return std::nullopt;
  }
  PublishedDevice found{std::string(device->device), {}};
  if (!device->system.empty()) {
    found.settings.push_back(fmt::format("system={}", device->system));
    return found;
  }
  // A form of a chip whose machine the zoo has in another form.
  const auto usual = device_named(device->device.substr(0, device->device.find('-')));
  if (usual && !usual->system.empty()) {
    found.settings = {fmt::format("system={}", usual->system),
                      fmt::format("system.device={}", device->device)};
  }
  return found;
}

std::string not_modelled(const PublishedRow& row) {
  if (!row.hybrid.empty()) {
    return fmt::format("hybrid layers ({}) are not modelled", row.hybrid);
  }
  if (row.latent_experts > 0) {
    return "experts of compressed tokens are not modelled";
  }
  if (row.notes.find("do not gate") != std::string::npos) {
    return "its table asks not to hold anything to it";
  }
  // Supervised fine-tuning trains all weights, as pretraining does.
  if (!row.task.empty() && row.task != "pretrain" && row.task != "sft" && row.task != "lora") {
    return fmt::format("task {} is not modelled", row.task);
  }
  return {};
}

std::vector<std::string> settings_of(const PublishedRow& row, const PublishedRules& rules) {
  if (!row.unusable.empty()) {
    throw InputError(row.place, row.unusable);
  }
  const auto device = device_of(row, rules.names);
  if (!device || device->settings.empty()) {
    throw InputError(row.place,
                     device ? fmt::format("gpu: the zoo has no machine of {}", device->device)
                            : fmt::format("gpu: '{}' is no device of the zoo (`stepcast list "
                                          "devices`)",
                                          row.gpu));
  }
  const config::FrameworkRecipe recipe = recipe_of(row, rules.names);
  Settings settings = device->settings;
  if (recipe.framework != nullptr) {
    settings.push_back("stack=" + recipe.framework->name);
  }
  add_workload(row, rules.shapes, settings);
  settings.push_back(fmt::format("devices={}", row.devices));
  settings.push_back(fmt::format(R"(batch={{"global": {}, "micro": {}, "sequence": {}}})",
                                 row.global, micro_of(row), row.sequence));
  if (row.devices_per_node > 0) {
    // A machine is no larger than its fast network; of one that joins several the zoo's count.
    const std::int64_t host =
        row.devices_per_host > 0 ? row.devices_per_host : row.devices_per_node;
    if (row.devices_per_host > 0 || row.devices_per_node <= kLargestMachine) {
      settings.push_back(fmt::format("system.host.devices={}", host));
    }
    settings.push_back(fmt::format("system.fabric[0].size={}", row.devices_per_node));
  }
  if (row.inter_bandwidth > 0) {
    settings.push_back(
        fmt::format("system.fabric[1].bandwidth=\"{:.6g} GB/s\"", row.inter_bandwidth));
  }
  const std::int64_t tensor = stated(row.tensor, 1);
  const std::int64_t pipeline = stated(row.pipeline, 1);
  const auto add = [&settings](const std::vector<std::string>& more) {
    settings.insert(settings.end(), more.begin(), more.end());
  };
  add_adapters(row, settings);
  // Those of the publication go before what `stack` says.
  add(recipe.settings.always);
  if (tensor > 1) {
    add(recipe.settings.tensor);
  }
  if (row.expert > 1) {
    add(recipe.settings.experts);
  }
  if (!row.precision.empty()) {
    const auto* precision = rules.names.precision(row.precision);
    if (precision == nullptr) {
      throw InputError(row.place, fmt::format("precision: '{}' has no alias of "
                                              "workloads/published/names.json; add it there",
                                              row.precision));
    }
    add(precision->settings);
  }
  add_parallel(row, rules.sequence_parallel, settings);
  add_software(row, rules.names, settings);
  if (pipeline > 1) {
    add(recipe.settings.pipelined);
  }
  return settings;
}

namespace {

/// Whether a job fits, and where it does, the seconds of its step.
std::pair<simulator::Fit, Seconds> tried(const Job& job, bool simulates) {
  const ExecutionGraph graph = workloads::build_graph(job);
  const simulator::Fit fit = simulator::fit_of(
      simulator::fullest_ledger(graph, job.system.device).total(), job.system.device);
  if (fit == simulator::Fit::kNo || !simulates) {
    return {fit, {}};
  }
  const models::CostModel model(job.system, job.calibration);
  return {fit, to_seconds(studies::simulate_step(graph, model).result.makespan)};
}

}  // namespace

Job job_of(const PublishedRow& row, const config::PublishedNames& names,
           const config::Library& library, const std::vector<Workload>& shapes) {
  const auto made = [&](bool sequence_parallel, const Settings& more = {}) {
    Settings settings = settings_of(row, {names, shapes, sequence_parallel});
    settings.insert(settings.end(), more.begin(), more.end());
    return config::load_job(config::text_source("{}", row.place), settings, library);
  };
  Job job = made(false);
  simulator::Fit fit = tried(job, false).first;
  const bool split = !row.sequence_parallel && job.parallel.tensor > 1 &&
                     !job.parallel.sequence_parallel && fit != simulator::Fit::kYes;
  if (split) {
    job = made(true);
    fit = tried(job, false).first;
  }
  const bool keeps_all =
      row.recompute.empty() && job.parallel.recompute.kind == RecomputeKind::kNone;
  if (fit != simulator::Fit::kNo || !keeps_all) {
    return job;
  }
  std::optional<std::pair<Seconds, Job>> fastest;
  for (const Settings& more :
       {Settings{"parallel.recompute=full"}, Settings{"offload.activations=true"},
        Settings{"parallel.recompute=full", "offload.activations=true"}}) {
    try {
      Job other = made(split, more);
      const auto [fits, seconds] = tried(other, true);
      if (fits != simulator::Fit::kNo && (!fastest || clearly_less(seconds, fastest->first))) {
        fastest = {seconds, std::move(other)};
      }
    } catch (const InputError&) {
      continue;  // its system or schedule has no such thing
    }
  }
  return fastest ? fastest->second : job;
}

std::optional<double> measured_seconds(const PublishedRow& row, double model_flops, double peak) {
  const auto devices = static_cast<double>(row.devices);
  if (row.tokens_per_second > 0 && (row.derived || row.seconds <= 0)) {
    return static_cast<double>(row.global * row.sequence) / (row.tokens_per_second * devices);
  }
  if (row.seconds > 0) {
    return row.seconds;
  }
  if (row.tflops > 0 && row.mfu <= 0) {
    return model_flops / (devices * row.tflops * 1e12);
  }
  return row.mfu > 0 && peak > 0 ? std::optional(model_flops / (devices * peak * row.mfu))
                                 : std::nullopt;
}

}  // namespace stepcast::validation
