#include "validation/published/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <tuple>

#include "core/error.h"
#include "core/input/csv.h"
#include "core/lower.h"
#include "validation/validation.h"

namespace stepcast::validation {
namespace {

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
  row.narrow_attention = lower(fields.text("fp8_attention"));
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
                    r.sequence_parallel, r.zero, r.recompute, r.precision, r.narrow_attention,
                    r.table, r.model);
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

}  // namespace stepcast::validation
