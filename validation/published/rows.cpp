#include "validation/published/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <tuple>

#include "core/device_names.h"
#include "core/error.h"
#include "core/input/csv.h"
#include "core/job/pace.h"
#include "core/lower.h"
#include "simulator/reports/memory_ledger.h"
#include "validation/validation.h"
#include "workloads/build_graph.h"

namespace stepcast::validation {
namespace {

using Settings = std::vector<std::string>;

constexpr std::int64_t kUsualVocabulary = 51200;
constexpr std::int64_t kVocabularyMultiple = 128;  // per tensor rank
constexpr std::int64_t kLargestMachine = 16;       // devices of one host; more are several hosts

constexpr std::array<std::string_view, 7> kNeeded{"hidden", "layers", "heads", "seq",
                                                  "gpus",   "gpu",    "gbs"};
constexpr std::array<std::string_view, 4> kMeasured{"iter_time_s", "tokens_per_s_per_gpu",
                                                    "tflops_per_gpu", "mfu_pct"};

/// Cells of a row by column: its own, else those of a table of shapes.
using Cells = std::map<std::string, std::string, std::less<>>;
using Shapes = std::map<std::string, Cells, std::less<>>;  // by id

class Fields {
 public:
  Fields(const CsvTable& table, const Cells* filled) : table_(table), filled_(filled) {}

  [[nodiscard]] std::string text(std::string_view column) const {
    const std::string own = table_.has(column) ? table_.text(column) : std::string();
    if (!own.empty() || filled_ == nullptr) {
      return own;
    }
    const auto at = filled_->find(column);
    return at == filled_->end() ? std::string() : at->second;
  }
  double number(std::string_view column, std::string& unusable) const {
    const std::string field = text(column);
    return field.empty() ? 0 : positive_or_say(column, field, unusable);
  }

 private:
  const CsvTable& table_;
  const Cells* filled_;
};

PublishedRow read_row(const CsvTable& table, const Shapes& shapes) {
  PublishedRow row;
  row.place = table.place();
  row.id = table.has("id") ? table.text("id") : "";
  const auto shape = shapes.find(row.id);
  const Fields fields(table, shape == shapes.end() ? nullptr : &shape->second);
  if (row.id.empty()) {
    row.id = row.place;
  }
  row.source = fields.text("source");
  row.table = fields.text("table");
  row.document = fields.text("retrieved_from");
  row.framework = fields.text("framework");
  row.model = fields.text("model");
  row.task = lower(fields.text("task"));
  row.hybrid = fields.text("hybrid");
  row.lora_targets = fields.text("lora_targets");
  row.duplicate_of = fields.text("duplicate_of");
  row.act = fields.text("act");
  row.gpu = fields.text("gpu");
  row.zero = lower(fields.text("zero_stage"));
  row.schedule = lower(fields.text("schedule"));
  row.recompute = fields.text("recompute");
  row.precision = fields.text("precision");
  row.flash_attention = fields.text("flash_attn");
  row.hours_of = fields.text("hours_of");
  row.plan_by_rule = fields.text("recalled_fields").find("plan by rule") != std::string::npos;
  const auto number = [&](std::string_view column) { return fields.number(column, row.unusable); };
  // "0" says none, as an empty cell does.
  const auto count = [&](std::string_view column) {
    return fields.text(column) == "0" ? 0 : static_cast<std::int64_t>(number(column));
  };
  row.hidden = count("hidden");
  row.layers = count("layers");
  row.heads = count("heads");
  row.kv_heads = count("kv_heads");
  row.head_dim = count("head_dim");
  row.ffn = count("ffn");
  row.experts = count("n_experts");
  row.per_token = count("topk");
  row.dense_layers = count("dense_layers");
  row.dense_ffn = count("dense_ffn");
  row.shared_experts = count("shared_experts");
  row.sequence = count("seq");
  row.vocabulary = count("vocab");
  row.devices = count("gpus");
  row.devices_per_node = count("gpus_per_node");
  row.devices_per_host = count("gpus_per_host");
  row.inter_bandwidth = number("inter_gbps_GBps_per_gpu");
  row.global = count("gbs");
  row.micro = count("mbs");
  row.tensor = count("tp");
  row.pipeline = count("pp");
  row.virtual_stages = count("vpp");
  row.context = count("cp");
  row.expert = count("ep");
  row.lora_rank = count("lora_rank");
  row.lora_alpha = count("lora_alpha");
  if (const std::string sp = fields.text("sp"); sp == "0" || sp == "1") {
    row.sequence_parallel = sp == "1";
  }
  row.seconds = number("iter_time_s");
  row.derived = fields.text("iter_time_derived") == "1";
  row.tokens_per_second = number("tokens_per_s_per_gpu");
  row.mfu = number("mfu_pct") / 100;
  row.tflops = number("tflops_per_gpu");
  row.memory_gib = number("mem_GiB");
  const auto needed = [&row](std::string_view column, std::int64_t value) {
    if (value <= 0 && row.unusable.empty()) {
      row.unusable = fmt::format("{}: the source does not state it", column);
    }
  };
  needed("hidden", row.hidden);
  needed("layers", row.layers);
  needed("heads", row.heads);
  needed("seq", row.sequence);
  needed("gpus", row.devices);
  needed("gbs", row.global);
  return row;
}

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
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kNames{
      {{"gelu2", "gelu"},
       {"gelu", "gelu"},
       {"sqrelu2", "squared_relu"},
       {"squared_relu", "squared_relu"},
       {"swiglu3", "swiglu"},
       {"swiglu", "swiglu"},
       {"geglu3", "geglu"},
       {"geglu", "geglu"}}};
  const std::string act = lower(row.act);
  for (const auto& [theirs, ours] : kNames) {
    if (act == theirs) {
      return std::string(ours);
    }
  }
  if (act.empty()) {
    return "swiglu";
  }
  throw InputError(row.place, fmt::format("act: found '{}', expected GELU2, SqReLU2, SwiGLU3 or "
                                          "GeGLU3",
                                          row.act));
}

std::int64_t stated(std::int64_t value, std::int64_t otherwise) {
  return value > 0 ? value : otherwise;
}

std::string latent_text(const LatentAttention& a) {
  return fmt::format(
      R"(, "mla": {{"q_rank": {}, "kv_rank": {}, "rope_dim": {}, "nope_dim": {}, "v_dim": {}}})",
      a.q_rank, a.kv_rank, a.rope_dim, a.nope_dim, a.v_dim);
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
  const bool latent = known != nullptr && known->mla && row.kv_heads == 0;
  std::string more;
  if (row.experts > 0) {
    more = fmt::format(R"(, "moe": {{"experts": {}, "per_token": {}, "ffn_hidden": {})",
                       row.experts, stated(row.per_token, 1), ffn);
    if (row.shared_experts > 0) {
      more += fmt::format(R"(, "shared": {})", row.shared_experts);
    }
    if (row.dense_layers > 0) {
      more += fmt::format(R"(, "first_dense_layers": {})", row.dense_layers);
    }
    if (known != nullptr && known->moe && known->moe->limits_groups()) {
      more += fmt::format(R"(, "groups": {}, "groups_per_token": {})", known->moe->groups,
                          known->moe->groups_per_token);
    }
    more += "}";
  }
  if (latent) {
    more += latent_text(*known->mla);
  } else {
    if (row.kv_heads > 0) {
      more += fmt::format(R"(, "kv_heads": {})", row.kv_heads);
    }
    if (row.head_dim > 0) {
      more += fmt::format(R"(, "head_dim": {})", row.head_dim);
    }
  }
  if (known != nullptr && known->window > 0) {
    more += fmt::format(R"(, "window": {})", known->window);
    if (known->full_attention_every > 0) {
      more += fmt::format(R"(, "full_attention_every": {})", known->full_attention_every);
    }
  }
  to.insert(
      to.begin(),
      fmt::format(
          R"(workload={{"kind": "transformer", "name": "published", "layers": {}, "hidden": {}, "heads": {}, "ffn_hidden": {}, "activation": "{}", "vocabulary": {}, "tied_embeddings": {}{}}})",
          row.layers, row.hidden, row.heads, row.experts > 0 ? stated(row.dense_ffn, ffn) : ffn,
          activation, vocabulary, activation == "gelu", more));
}

/// Layers that leave a remainder on the stages, and none once embedding and head count as a layer
/// each, are dealt out that way.
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
  if (row.context > 1) {
    set("parallel.context", row.context);
  }
  if (row.expert > 1) {
    set("parallel.expert", row.expert);
  }
  const bool interleaved = row.schedule.starts_with("interleaved");
  const std::int64_t unstated = interleaved ? std::max<std::int64_t>(1, row.layers / pipeline) : 1;
  if (pipeline > 1) {
    const std::int64_t virtual_stages = stated(row.virtual_stages, unstated);
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
    set("parallel.recompute", "selective");
  }
  if (row.flash_attention == "0" || row.flash_attention == "1") {
    set("attention", row.flash_attention == "1" ? "flash" : "unfused");
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
  const bool whole = stated(row.pipeline, 1) == 1 && row.global % replicas == 0;
  return stated(row.micro, whole ? row.global / replicas : 1);
}

/// The file's rows; of a folder's table that is of no transformer runs, why not.
void read_file(const std::filesystem::path& file, bool of_folder, const Shapes& shapes,
               PublishedTables& to) {
  CsvTable table(file, "data/llm/published.csv");
  std::vector<std::string_view> missing;
  std::copy_if(kNeeded.begin(), kNeeded.end(), std::back_inserter(missing),
               [&](std::string_view c) { return !table.has(c); });
  const bool measured = std::any_of(kMeasured.begin(), kMeasured.end(),
                                    [&](std::string_view c) { return table.has(c); });
  if (of_folder && (!missing.empty() || !measured)) {
    std::size_t rows = 0;
    while (table.next()) {
      ++rows;
    }
    to.left_out.push_back(
        measured ? fmt::format("{}: {} rows, no runs of transformers (no column {})",
                               file.filename().string(), rows, fmt::join(missing, ", "))
                 : fmt::format("{}: {} rows of shapes, taken where rows of that id lack them",
                               file.filename().string(), rows));
    return;
  }
  if (!missing.empty() || !measured) {
    throw InputError(file.string(),
                     missing.empty() ? fmt::format("has no column '{}'; expected a time or a rate",
                                                   kMeasured.front())
                                     : fmt::format("has no column '{}'; expected {}",
                                                   missing.front(), fmt::join(kNeeded, ", ")));
  }
  while (table.next()) {
    to.rows.push_back(read_row(table, shapes));
  }
}

/// Tables with an id and shapes, but nothing measured.
void read_shapes(const std::filesystem::path& file, Shapes& to) {
  CsvTable table(file, "data/llm/published_dims_patch.csv");
  const bool measured = std::any_of(kMeasured.begin(), kMeasured.end(),
                                    [&](std::string_view c) { return table.has(c); });
  if (!table.has("id") || measured) {
    return;
  }
  while (table.next()) {
    Cells& cells = to[table.text("id")];
    for (const std::string& column : table.columns()) {
      if (column != "id" && column != "source" && column != "notes") {
        cells[column] = table.text(column);
      }
    }
  }
}

}  // namespace

bool PublishedRow::same_configuration(const PublishedRow& o) const {
  const auto key = [](const PublishedRow& r) {
    return std::tie(r.source, r.document, r.framework, r.gpu, r.hidden, r.layers, r.heads,
                    r.kv_heads, r.ffn, r.sequence, r.vocabulary, r.devices, r.global, r.micro,
                    r.tensor, r.pipeline, r.virtual_stages, r.context, r.expert,
                    r.sequence_parallel, r.zero, r.recompute, r.precision, r.table, r.model);
  };
  return key(*this) == key(o);
}

PublishedTables read_published_tables(const std::filesystem::path& path) {
  PublishedTables tables;
  std::vector<std::filesystem::path> files{path};
  const bool folder = std::filesystem::is_directory(path);
  Shapes shapes;
  if (folder) {
    files.clear();
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".csv") {
        files.push_back(entry.path());
      }
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      read_shapes(file, shapes);
    }
  }
  for (const auto& file : files) {
    read_file(file, folder, shapes, tables);
  }
  if (tables.rows.empty()) {
    throw InputError(path.string(), "has no rows; expected those of data/llm/published.csv");
  }
  return tables;
}

std::vector<PublishedRow> read_published(const std::filesystem::path& path) {
  return read_published_tables(path).rows;
}

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

config::StackRecipe recipe_of(const PublishedRow& row, const config::PublishedNames& names) {
  const PlanFamily family = row.experts > 0       ? PlanFamily::kExperts
                            : zero_of(row) == "3" ? PlanFamily::kSharded
                                                  : PlanFamily::kTensorPipeline;
  return names.recipe(row.source, row.framework, row.model, row.gpu, name_of(family));
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
  const config::StackRecipe recipe = recipe_of(row, rules.names);
  Settings settings = device->settings;
  if (recipe.stack != nullptr) {
    settings.push_back("stack=" + recipe.stack->name);
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
      throw InputError(row.place, fmt::format("precision: '{}' begins with no alias of "
                                              "workloads/published/names.json; add it there",
                                              row.precision));
    }
    add(precision->settings);
  }
  add_parallel(row, rules.sequence_parallel, settings);
  if (pipeline > 1) {
    add(recipe.settings.pipelined);
  }
  return settings;
}

Job job_of(const PublishedRow& row, const config::PublishedNames& names,
           const config::Library& library, const std::vector<Workload>& shapes) {
  const auto made = [&](bool sequence_parallel) {
    return config::load_job(config::text_source("{}", row.place),
                            settings_of(row, {names, shapes, sequence_parallel}), library);
  };
  Job job = made(false);
  if (row.sequence_parallel || job.parallel.tensor == 1 || job.parallel.sequence_parallel) {
    return job;
  }
  const Bytes needed =
      simulator::fullest_ledger(workloads::build_graph(job), job.system.device).total();
  return needed > job.system.device.memory ? made(true) : job;
}

std::optional<double> measured_seconds(const PublishedRow& row, const Job& job,
                                       double model_flops) {
  if (row.tokens_per_second > 0 && (row.derived || row.seconds <= 0)) {
    return static_cast<double>(row.global * row.sequence) /
           (row.tokens_per_second * static_cast<double>(row.devices));
  }
  if (row.seconds > 0) {
    return row.seconds;
  }
  if (row.tflops > 0 && row.mfu <= 0) {
    return model_flops / (static_cast<double>(row.devices) * row.tflops * 1e12);
  }
  const auto peak = job.system.device.peak_of(job.formats.compute);
  if (row.mfu > 0 && peak) {
    return model_flops / (static_cast<double>(row.devices) * peak->base() * row.mfu);
  }
  return std::nullopt;
}

}  // namespace stepcast::validation
