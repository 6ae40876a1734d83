#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/config/published_names.h"
#include "core/job.h"

namespace stepcast::studies {

/// One line of a table of published training runs (columns of data/llm/published.csv). 0 and empty:
/// the source does not state it.
struct PublishedRow {
  std::string place;  ///< file:line
  std::string id, source, table, document, framework, model;
  std::string act, gpu, zero, schedule, recompute, precision, flash_attention;
  std::string hours_of;       ///< "run" or "steps" where the table has that column
  bool plan_by_rule = false;  ///< its recalled_fields say that the source states no plan
  std::int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, ffn = 0, experts = 0, per_token = 0;
  std::int64_t sequence = 0, vocabulary = 0;
  std::int64_t devices = 0, devices_per_node = 0;
  double inter_bandwidth = 0;  ///< GB/s per device and direction between machines
  std::int64_t global = 0, micro = 0;
  std::int64_t tensor = 0, pipeline = 0, virtual_stages = 0, context = 0, expert = 0;
  bool sequence_parallel = false;
  double seconds = 0;  ///< per step, as printed; 0: only rates are published
  bool derived = false;
  double tokens_per_second = 0;  ///< per device
  double mfu = 0;                ///< as a fraction
  double memory_gib = 0;         ///< per device, where measured
  std::string unusable;          ///< why the line does not count, with what was expected
  [[nodiscard]] bool same_configuration(const PublishedRow& other) const;
};

/// Reads any table with those columns. Numbers that make no sense mark their line unusable. Errors:
/// InputError for a missing file or column, or a table without rows.
std::vector<PublishedRow> read_published(const std::filesystem::path& file);

/// The overrides that make a row a job. What a source leaves unstated is the same for
/// every row: kv_heads = heads; ffn 4 hidden; gelu tied with GPT style, else untied; vocabulary
/// 51200, padded to a multiple of 128 tensor ranks as Megatron-LM does; with a pipeline
/// micro-batches of 1, without one the replica's whole batch; one machine 8 devices; an interleaved
/// schedule without a stated count has one layer per virtual stage; no recomputation; flash
/// attention; the network of the system file. Settings of the GPU's alias come first, then those of
/// the stack, the precision and the row. Errors: InputError naming the row's place and column.
std::vector<std::string> settings_of(const PublishedRow& row, const config::PublishedNames& names);
/// The job, through the normal configuration. Errors: InputError, also what that refuses.
Job job_of(const PublishedRow& row, const config::PublishedNames& names,
           const config::Library& library);

/// Measured seconds of a step: as printed; of a derived time the published tokens/s where there are
/// any; where only the utilisation is published, model FLOPs / (devices * peak * mfu).
/// nullopt when nothing was measured.
std::optional<double> measured_seconds(const PublishedRow& row, const Job& job, double model_flops);

}  // namespace stepcast::studies
