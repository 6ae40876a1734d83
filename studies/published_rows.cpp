#include "studies/published_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include "core/error.h"
#include "studies/csv_table.h"

namespace stepcast::studies {
namespace {

using Settings = std::vector<std::string>;

constexpr std::int64_t kUsualVocabulary = 51200;
constexpr std::int64_t kVocabularyMultiple = 128;  // per tensor rank

PublishedRow read_row(const CsvTable& table) {
  PublishedRow row;
  row.place = table.place();
  row.id = table.text("id");
  row.source = table.text("source");
  row.table = table.text("table");
  row.document = table.text("retrieved_from");
  row.framework = table.text("framework");
  row.model = table.text("model");
  row.act = table.text("act");
  row.gpu = table.text("gpu");
  row.zero = table.text("zero_stage");
  row.schedule = table.text("schedule");
  row.recompute = table.text("recompute");
  row.precision = table.text("precision");
  row.flash_attention = table.text("flash_attn");
  row.hours_of = table.has("hours_of") ? table.text("hours_of") : "";
  row.plan_by_rule = table.has("recalled_fields") &&
                     table.text("recalled_fields").find("plan by rule") != std::string::npos;
  const auto number = [&](std::string_view column) {
    return table.positive_or(column, 0, row.unusable);
  };
  const auto count = [&](std::string_view column) {
    return static_cast<std::int64_t>(number(column));
  };
  row.hidden = count("hidden");
  row.layers = count("layers");
  row.heads = count("heads");
  row.kv_heads = count("kv_heads");
  row.ffn = count("ffn");
  row.experts = count("n_experts");
  row.per_token = count("topk");
  row.sequence = count("seq");
  row.vocabulary = count("vocab");
  row.devices = count("gpus");
  row.devices_per_node = count("gpus_per_node");
  row.inter_bandwidth = number("inter_gbps_GBps_per_gpu");
  row.global = count("gbs");
  row.micro = count("mbs");
  row.tensor = count("tp");
  row.pipeline = count("pp");
  row.virtual_stages = count("vpp");
  row.context = count("cp");
  row.expert = count("ep");
  row.sequence_parallel = table.text("sp") == "1";
  row.seconds = number("iter_time_s");
  row.derived = table.text("iter_time_derived") == "1";
  row.tokens_per_second = number("tokens_per_s_per_gpu");
  row.mfu = number("mfu_pct") / 100;
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

std::string activation_of(const PublishedRow& row) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNames{
      {{"GELU2", "gelu"}, {"SqReLU2", "squared_relu"}, {"SwiGLU3", "swiglu"}}};
  for (const auto& [theirs, ours] : kNames) {
    if (row.act == theirs) {
      return std::string(ours);
    }
  }
  throw InputError(row.place,
                   fmt::format("act: found '{}', expected GELU2, SqReLU2 or SwiGLU3", row.act));
}

std::int64_t stated(std::int64_t value, std::int64_t otherwise) {
  return value > 0 ? value : otherwise;
}

void add_workload(const PublishedRow& row, Settings& to) {
  const std::string activation = activation_of(row);
  const std::int64_t unit = kVocabularyMultiple * stated(row.tensor, 1);
  const std::int64_t vocabulary =
      (stated(row.vocabulary, kUsualVocabulary) + unit - 1) / unit * unit;
  const std::int64_t ffn = stated(row.ffn, 4 * row.hidden);
  std::string moe;
  if (row.experts > 0) {
    moe = fmt::format(R"(, "moe": {{"experts": {}, "per_token": {}, "ffn_hidden": {}}})",
                      row.experts, stated(row.per_token, 1), ffn);
  }
  const std::string kv =
      row.kv_heads > 0 ? fmt::format(R"("kv_heads": {}, )", row.kv_heads) : std::string();
  to.insert(
      to.begin(),
      fmt::format(
          R"(workload={{"kind": "transformer", "name": "published", "layers": {}, "hidden": {}, "heads": {}, {}"ffn_hidden": {}, "activation": "{}", "vocabulary": {}, "tied_embeddings": {}{}}})",
          row.layers, row.hidden, row.heads, kv, ffn, activation, vocabulary, activation == "gelu",
          moe));
}

void add_parallel(const PublishedRow& row, Settings& to) {
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
    set("parallel.virtual_stages", stated(row.virtual_stages, unstated));
  }
  if (row.sequence_parallel && tensor > 1) {
    set("parallel.sequence_parallel", true);
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

/// Splitting a replica's batch pays with a pipeline only; without one it saves memory at best.
std::int64_t micro_of(const PublishedRow& row) {
  const std::int64_t split =
      stated(row.tensor, 1) * stated(row.pipeline, 1) * stated(row.context, 1);
  const std::int64_t replicas = std::max<std::int64_t>(1, row.devices / split);
  const bool whole = stated(row.pipeline, 1) == 1 && row.global % replicas == 0;
  return stated(row.micro, whole ? row.global / replicas : 1);
}

template <typename Named>
const Named& known(const Named* named, const PublishedRow& row, std::string_view column,
                   const std::string& value) {
  if (named == nullptr) {
    throw InputError(row.place, fmt::format("{}: '{}' is not among the aliases of "
                                            "workloads/published/names.json; add it there",
                                            column, value));
  }
  return *named;
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

std::vector<PublishedRow> read_published(const std::filesystem::path& file) {
  CsvTable table(std::filesystem::is_directory(file) ? file / "published.csv" : file,
                 "data/llm/published.csv");
  std::vector<PublishedRow> rows;
  while (table.next()) {
    rows.push_back(read_row(table));
  }
  if (rows.empty()) {
    throw InputError(file.string(), "has no rows; expected those of data/llm/published.csv");
  }
  return rows;
}

std::vector<std::string> settings_of(const PublishedRow& row, const config::PublishedNames& names) {
  if (!row.unusable.empty()) {
    throw InputError(row.place, row.unusable);
  }
  const auto& gpu = known(names.gpu(row.gpu), row, "gpu", row.gpu);
  const auto& stack =
      known(names.stack(row.source, row.framework, row.model), row, "source", row.source);
  Settings settings = gpu.settings;
  add_workload(row, settings);
  settings.push_back(fmt::format("devices={}", row.devices));
  settings.push_back(fmt::format(R"(batch={{"global": {}, "micro": {}, "sequence": {}}})",
                                 row.global, micro_of(row), row.sequence));
  if (row.devices_per_node > 0) {
    settings.push_back(fmt::format("system.host.devices={}", row.devices_per_node));
    settings.push_back(fmt::format("system.fabric[0].size={}", row.devices_per_node));
  }
  if (row.inter_bandwidth > 0) {
    settings.push_back(
        fmt::format("system.fabric[1].bandwidth=\"{:.6g} GB/s\"", row.inter_bandwidth));
  }
  settings.insert(settings.end(), stack.settings.begin(), stack.settings.end());
  if (!row.precision.empty()) {
    const auto& precision = known(names.precision(row.precision), row, "precision", row.precision);
    settings.insert(settings.end(), precision.settings.begin(), precision.settings.end());
  }
  add_parallel(row, settings);
  if (row.pipeline > 1) {
    settings.insert(settings.end(), stack.pipelined.begin(), stack.pipelined.end());
  }
  return settings;
}

Job job_of(const PublishedRow& row, const config::PublishedNames& names,
           const config::Library& library) {
  return config::load_job(config::text_source("{}", row.place), settings_of(row, names), library);
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
  const auto peak = job.system.device.peak_of(job.formats.compute);
  if (row.mfu > 0 && peak) {
    return model_flops / (static_cast<double>(row.devices) * peak->base() * row.mfu);
  }
  return std::nullopt;
}

}  // namespace stepcast::studies
