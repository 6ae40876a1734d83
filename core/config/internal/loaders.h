#pragma once
#include <functional>
#include <span>

#include "core/config/foreign.h"

namespace stepcast::config {

// Structs from values, and back. One source file per struct family.

Device device_from(const Value& v);
/// `device` replaces what the key "device" names, when an override reached inside it.
System system_from(const Value& v, const Library& library, const Document* device = nullptr);
/// Gives a device what forecasts of memory err by (`root`/models/stacks/memory_margin.json), unless
/// its constants of memory say it themselves.
void attach_memory_margin(Device& device, const Library& library);
/// Most steps between two synchronisations of replicated rows.
constexpr std::int64_t kLongestInterval = 1'000'000;
EmbeddingPlan plan_from(const Value& v);
/// The list "flows" of a job; `job` must have its workload and system by now.
std::vector<Flow> flows_from(const Value& v, const Job& job);

/// Checks a plan against the tables and ranks it is used for: same tables, shards that tile rows x
/// columns exactly once, tiers that the system has. `where` goes before the path inside the plan:
/// "plan.json: " or "job.json: embedding.plan.".
void check_plan(const EmbeddingPlan& plan, const LayeredWorkload& workload, const System& system,
                std::int64_t devices, const std::string& where);

/// Checks that need only the job (divisibility, degrees, heads over ranks). `v` is the job's root,
/// for places.
/// Whether the job loads with another value of one of its own keys, "parallel.tensor": what errors
/// name as values to use.
using Accepts = std::function<bool(const std::string& key, std::int64_t value)>;
void check_job(const Job& job, const Value& v, const Accepts& accepts);

/// Newton-Schulz iterations of an optimizer step, at most.
constexpr std::int64_t kMostIterations = 100;
constexpr std::int64_t kLargestBatch = std::int64_t{1} << 32;

enum class FileKind { kWorkload, kDevice, kSystem };
/// Folder of the built-in files of a kind.
std::filesystem::path built_in_folder(FileKind kind, const Library& library);
/// Names of the files there, in order.
std::vector<std::string> built_in_names(FileKind kind, const Library& library);
/// Whether it is a path, with a '/' or ending in ".json" (of tables ".csv" too), and no built-in
/// name.
bool names_file(const std::string& text, FileKind kind);
/// Opens what a name or path, relative to `folder`, denotes.
Document open_named(const std::string& text, FileKind kind, const std::filesystem::path& folder,
                    const std::string& where, const Library& library);

/// The job's files, opened as far as overrides reach into them.
struct JobDocuments {
  Document job;
  std::optional<Document> workload, system, device;
};
JobDocuments apply_overrides(Document job, const std::vector<std::string>& overrides,
                             const Library& library);

/// A job of ours, or what a foreign file says of one.
Document job_document(const Source& source, const std::vector<std::string>& overrides,
                      const Library& library);

// Kind of a job's workload, for parts of the job that depend on it.
inline bool is_transformer(const Job& job) { return job.workload.transformer() != nullptr; }
/// The list of layers it is given as, if it is.
inline const LayerModel* layers_in(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  return w != nullptr ? w->layers.get() : nullptr;
}
inline bool has_tables(const Job& job) {
  return !is_transformer(job) && !job.workload.layered()->tables.empty();
}

/// `parallel` of a job whose workload is read, but for the degree of data parallelism; that follows
/// from the devices.
void read_parallel(const Value& job, Job& j);
RecomputeModules recompute_modules_from(const Value& list);
/// `formats`, for a job whose system is read.
void read_formats(const Value& job, Job& j);
/// `embedding`: bytes of a cached row in a plan follow from formats and optimizer.
void read_embedding(const Value& job, Job& j, const Library& library);
void read_data_degree(const Value& job, const std::optional<Value>& parallel, Job& j,
                      const Accepts& accepts);

/// The job of a document. `plan_open`: a transformer's parallel plan is to be chosen, so its
/// degrees are read one by one but not checked against each other, nor against devices and batch.
Job read_job(const JobDocuments& documents, const Library& library, bool plan_open);

// Writers build ordered JSON.
OrderedJson workload_json(const Workload& w);
OrderedJson device_json(const Device& d);
OrderedJson system_json(const System& s, bool every = false);
OrderedJson plan_json(const EmbeddingPlan& p);
OrderedJson flows_json(const std::vector<Flow>& flows);
/// `every`: with keys that have their usual values.
OrderedJson parallel_json(const Job& job, bool every);
OrderedJson formats_json(const Job& job);
OrderedJson embedding_json(const Job& job);
OrderedJson batch_json(const Batch& batch, bool transformer);
std::vector<std::string> recompute_module_names();
/// A number without a needless ".0".
OrderedJson plain(double v);
/// 64 bits in hex that name a list of ids.
std::string hash_of_ids(std::span<const std::int64_t> ids);

// Names of enumerations as files spell them.
const std::vector<std::pair<std::string, Activation>>& activation_names();
const std::vector<std::pair<std::string, PoolingMode>>& pooling_names();
/// Formats in which rows of a table may be stored.
const std::vector<std::pair<std::string, Format>>& row_format_names();
const std::vector<std::pair<std::string, InteractionKind>>& interaction_names();
const std::vector<std::pair<std::string, ShardingKind>>& sharding_names();
const std::vector<std::pair<std::string, Split>>& split_names();
const std::vector<std::pair<std::string, RowCachePolicy>>& cache_policy_names();
const std::vector<std::pair<std::string, OptimizerKind>>& optimizer_names();
const std::vector<std::pair<std::string, MuonShards>>& muon_shards_names();
/// 1f1b over several chunks of layers a stage, as many as there can be where none are given.
inline constexpr const char* kInterleaved = "interleaved";
const std::vector<std::pair<std::string, ScheduleKind>>& schedule_names();
const std::vector<std::pair<std::string, Axis>>& axis_names();
const std::vector<std::pair<std::string, DlrmPipeline>>& dlrm_pipeline_names();
const std::vector<std::pair<std::string, ContextAlgorithm>>& context_algorithm_names();
const std::vector<std::pair<std::string, ExpertDispatch>>& expert_dispatch_names();
const std::vector<std::pair<std::string, ExpertDispatcher>>& expert_dispatcher_names();
const std::vector<std::pair<std::string, Graphs>>& graphs_names();
const std::vector<std::pair<std::string, JobPhase>>& phase_names();

template <class T>
std::string name_in(const std::vector<std::pair<std::string, T>>& names, T value) {
  for (const auto& [name, v] : names) {
    if (v == value) {
      return name;
    }
  }
  STEPCAST_FAIL("an enumeration value has no name");
}

}  // namespace stepcast::config
