#include "validation/published/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <variant>

#include "core/error.h"
#include "core/input/csv.h"
#include "core/lower.h"
#include "validation/suite.h"

namespace stepcast::validation {
namespace {

using R = PublishedRow;

/// A column and the member it is read into.
struct Column {
  std::string_view name;
  std::variant<std::string R::*, std::int64_t R::*, double R::*> to;
  bool needed = false, lowered = false;
};
// clang-format off
const Column kColumns[] = {
    {"source", &R::source}, {"table", &R::table}, {"retrieved_from", &R::document},
    {"framework", &R::framework}, {"model", &R::model}, {"task", &R::task, false, true},
    {"hybrid", &R::hybrid}, {"lora_targets", &R::lora_targets}, {"duplicate_of", &R::duplicate_of},
    {"act", &R::act}, {"zero_stage", &R::zero, false, true},
    {"schedule", &R::schedule, false, true}, {"recompute", &R::recompute},
    {"precision", &R::precision}, {"flash_attn", &R::flash_attention},
    {"fp8_attention", &R::narrow_attention, false, true}, {"hours_of", &R::hours_of},
    {"cuda_graph", &R::graphs, false, true}, {"tp_comm_overlap", &R::tensor_overlap},
    {"cpu_offload", &R::activations_on_host}, {"notes", &R::notes}, {"tag", &R::tag},
    {"moe_latent", &R::latent_experts}, {"mtp_layers", &R::further_tokens},
    {"grad_accum", &R::accumulated}, {"iter_time_mean_s", &R::mean_seconds},
    {"hidden", &R::hidden, true}, {"layers", &R::layers, true}, {"heads", &R::heads, true},
    {"kv_heads", &R::kv_heads}, {"head_dim", &R::head_dim}, {"ffn", &R::ffn},
    {"n_experts", &R::experts}, {"topk", &R::per_token}, {"dense_layers", &R::dense_layers},
    {"dense_ffn", &R::dense_ffn}, {"shared_experts", &R::shared_experts},
    {"seq", &R::sequence, true}, {"vocab", &R::vocabulary}, {"gpus", &R::devices, true},
    {"gpu", &R::gpu, true}, {"gpus_per_node", &R::devices_per_node},
    {"gpus_per_host", &R::devices_per_host}, {"inter_gbps_GBps_per_gpu", &R::inter_bandwidth},
    {"gbs", &R::global, true}, {"mbs", &R::micro}, {"tp", &R::tensor}, {"pp", &R::pipeline},
    {"vpp", &R::virtual_stages}, {"cp", &R::context}, {"ep", &R::expert},
    {"lora_rank", &R::lora_rank}, {"lora_alpha", &R::lora_alpha}, {"iter_time_s", &R::seconds},
    {"tokens_per_s_per_gpu", &R::tokens_per_second}, {"mfu_pct", &R::mfu},
    {"tflops_per_gpu", &R::tflops}, {"mem_GiB", &R::memory_gib}};
// clang-format on
constexpr std::array<std::string_view, 4> kMeasured{"iter_time_s", "tokens_per_s_per_gpu",
                                                    "tflops_per_gpu", "mfu_pct"};

/// The needed columns that the table lacks; without a table all of them.
std::vector<std::string_view> needed_columns(const CsvTable* missing_in) {
  std::vector<std::string_view> names;
  for (const Column& c : kColumns) {
    if (c.needed && (missing_in == nullptr || !missing_in->has(c.name))) {
      names.push_back(c.name);
    }
  }
  return names;
}

bool has_measurements(const CsvTable& table) {
  return std::any_of(kMeasured.begin(), kMeasured.end(),
                     [&](std::string_view c) { return table.has(c); });
}

/// Cells of a row by column: its own, else those of a table of shapes.
using Cells = std::map<std::string, std::string, std::less<>>;
using Shapes = std::map<std::string, Cells, std::less<>>;  // by id

PublishedRow read_row(const CsvTable& table, const Shapes& shapes) {
  PublishedRow row;
  row.place = table.place();
  row.id = table.has("id") ? table.text("id") : "";
  const auto shape = shapes.find(row.id);
  const auto text = [&](std::string_view column) {
    const std::string own = table.has(column) ? table.text(column) : std::string();
    if (!own.empty() || shape == shapes.end()) {
      return own;
    }
    const auto at = shape->second.find(column);
    return at == shape->second.end() ? std::string() : at->second;
  };
  const auto number = [&](const Column& c, const std::string& field) {
    return field.empty() ? 0 : positive_or_say(c.name, field, row.unusable);
  };
  if (row.id.empty()) {
    row.id = row.place;
  }
  for (const Column& c : kColumns) {
    const std::string field = text(c.name);
    if (const auto* as_text = std::get_if<std::string R::*>(&c.to)) {
      row.*(*as_text) = c.lowered ? lower(field) : field;
    } else if (const auto* measure = std::get_if<double R::*>(&c.to)) {
      row.*(*measure) = number(c, field);
    } else if (field != "0") {  // says none, as an empty cell does
      row.*std::get<std::int64_t R::*>(c.to) = static_cast<std::int64_t>(number(c, field));
    }
  }
  row.mfu /= 100;
  row.seconds = row.seconds > 0 ? row.seconds : row.mean_seconds;
  row.derived = text("iter_time_derived") == "1";
  if (const std::string sp = text("sp"); sp == "0" || sp == "1") {
    row.sequence_parallel = sp == "1";
  }
  for (const Column& c : kColumns) {
    const auto* count = std::get_if<std::int64_t R::*>(&c.to);
    if (c.needed && count != nullptr && row.*(*count) <= 0 && row.unusable.empty()) {
      row.unusable = fmt::format("{}: the source does not state it", c.name);
    }
  }
  return row;
}

/// The file's rows; of a folder's table that is of no transformer runs, why not.
void read_file(const std::filesystem::path& file, bool of_folder, const Shapes& shapes,
               PublishedTables& to) {
  CsvTable table(file, "data/llm/published.csv");
  const std::vector<std::string_view> missing = needed_columns(&table);
  const bool measured = has_measurements(table);
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
    throw InputError(
        file.string(),
        missing.empty()
            ? fmt::format("has no column '{}'; expected a time or a rate", kMeasured.front())
            : fmt::format("has no column '{}'; expected {}", missing.front(),
                          fmt::join(needed_columns(nullptr), ", ")));
  }
  while (table.next()) {
    to.rows.push_back(read_row(table, shapes));
  }
}

/// Tables with an id and shapes, but nothing measured.
void read_shapes(const std::filesystem::path& file, Shapes& to) {
  CsvTable table(file, "data/llm/published_dims_patch.csv");
  if (!table.has("id") || has_measurements(table)) {
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
