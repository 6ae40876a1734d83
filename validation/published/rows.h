#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/config/published_names.h"
#include "core/job/job.h"

namespace stepcast::validation {

/// One line of a table of published training runs (columns of data/llm). 0 and empty: the source
/// does not state it.
struct PublishedRow {
  std::string place;  ///< file:line
  std::string id, source, table, document, framework, model;
  std::string task;                            ///< "pretrain", "sft", "lora"
  std::string hybrid;                          ///< kinds of blocks, "mamba2:23;moe:23;attention:6"
  std::int64_t lora_rank = 0, lora_alpha = 0;  ///< of task lora
  std::string lora_targets;                    ///< "linear_qkv;linear_proj"
  std::string duplicate_of;
  std::string act, gpu, zero, schedule, recompute, precision, flash_attention;
  std::string narrow_attention;     ///< "fp8": what attention is computed in; "bf16"
  std::string graphs;               ///< "full iteration", "MCORE_CUDA_GRAPH", "none"
  std::string tensor_overlap;       ///< "1": transfers of tensor ranks overlap with products; "0"
  std::string activations_on_host;  ///< "1": saved activations are kept on the host
  std::string notes, tag;           ///< free text; the release of the publication
  std::string hours_of;             ///< "run" or "steps" where the table has that column
  std::int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, ffn = 0, experts = 0, per_token = 0;
  std::int64_t head_dim = 0;
  std::int64_t dense_layers = 0, dense_ffn = 0, shared_experts = 0;  ///< with experts
  std::int64_t latent_experts = 0;  ///< width that tokens are compressed to on their way to experts
  std::int64_t further_tokens = 0;  ///< modules that predict a token more (MTP)
  std::int64_t sequence = 0, vocabulary = 0;
  std::int64_t devices = 0, devices_per_node = 0, devices_per_host = 0;
  double inter_bandwidth = 0;  ///< GB/s per device and direction between machines
  std::int64_t global = 0, micro = 0, accumulated = 0;  ///< accumulated: micro-batches of a step
  std::int64_t tensor = 0, pipeline = 0, virtual_stages = 0, context = 0, expert = 0;
  std::optional<bool> sequence_parallel;
  double seconds = 0;       ///< per step, as printed; 0: only rates are published
  double mean_seconds = 0;  ///< over intervals that may end before their last step has
  bool derived = false;
  double tokens_per_second = 0;  ///< per device
  double mfu = 0;                ///< as a fraction
  double tflops = 0;             ///< per device, by the source's own count
  double memory_gib = 0;         ///< per device, where measured
  std::string unusable;          ///< why the line does not count, with what was expected
  [[nodiscard]] bool same_configuration(const PublishedRow& other) const;
};

/// Rows of one or several tables, and which files of a folder hold none.
struct PublishedTables {
  std::vector<PublishedRow> rows;
  std::vector<std::string> left_out;  ///< "mlperf_image.csv: 53 rows without hidden, ...: no ..."
};

/// Reads any table with the columns hidden, layers, heads, seq, gpus, gpu and gbs, and a time or a
/// rate; the other columns of data/llm where it has them. Numbers that make no sense mark their
/// line unusable. In a folder all its .csv files: one that only describes shapes of rows (an id, no
/// measurement) fills their empty cells, one that describes no transformer is left out and said.
/// Errors: InputError for a missing file or column, or a table without rows.
PublishedTables read_published_tables(const std::filesystem::path& path);
std::vector<PublishedRow> read_published(const std::filesystem::path& path);

/// Transformers of the zoo: what columns cannot say of a published model (latent attention,
/// windows, groups of experts) is that of the one with the same layers, hidden, heads and experts.
std::vector<Workload> published_shapes(const config::Library& library);

/// The overrides that make a row a job. What a source leaves unstated is the same for every row:
/// docs/accuracy/published-runs.md has the rules. `sequence_parallel`: what to take where neither
/// the row nor its framework says. Errors: InputError naming the row's place and column.
struct PublishedRules {
  const config::PublishedNames& names;
  const std::vector<Workload>& shapes;
  bool sequence_parallel = false;
};
std::vector<std::string> settings_of(const PublishedRow& row, const PublishedRules& rules);
/// The job, through the normal configuration. Where neither row nor framework says whether norms
/// are split over the tensor ranks, they are where the job does not fit without. Where the row says
/// nothing of recomputation and the job does not fit with none: full, activations in the host's
/// memory, or both, what is fastest. Errors: InputError, also what that rejects.
Job job_of(const PublishedRow& row, const config::PublishedNames& names,
           const config::Library& library, const std::vector<Workload>& shapes = {});
/// The software of a row, by its publication, its framework or its plan.
config::FrameworkRecipe recipe_of(const PublishedRow& row, const config::PublishedNames& names);
/// When the software of a row was made, by an alias of workloads/published/names.json, a release
/// that its publication names, or the release of its framework: "26.02" for year and month, "2021"
/// for a year; empty where nothing says it.
std::string release_of(const PublishedRow& row, const config::PublishedNames& names);
/// The zoo's device of a row and its machine; of a device without a machine in the zoo the latter
/// is empty. nullopt: not known.
struct PublishedDevice {
  std::string device;
  std::vector<std::string> settings;
};
std::optional<PublishedDevice> device_of(const PublishedRow& row,
                                         const config::PublishedNames& names);
/// Why a row's kind of training or model is not predicted, or its table asks not to hold anything
/// to it: "task dpo is not modelled"; empty: it is.
std::string not_modelled(const PublishedRow& row);

/// Measured seconds of a step: as printed, of one synchronised step before the mean of many; of a
/// derived time the published tokens/s where there are any; where only a rate of FLOPs is
/// published, model FLOPs / (devices * rate), or model FLOPs / (devices * peak * mfu). nullopt when
/// nothing was measured.
std::optional<double> measured_seconds(const PublishedRow& row, double model_flops, double peak);

}  // namespace stepcast::validation
