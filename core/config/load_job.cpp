#include <algorithm>
#include <span>

#include "core/config/internal/loaders.h"
#include "core/config/internal/stacks.h"
#include "core/job/layers.h"
#include "core/job/tier_units.h"

namespace stepcast::config {
namespace {

constexpr std::int64_t kLargestBatch = std::int64_t{1} << 32;

/// Ranks that work on one sample together.
std::int64_t ranks_per_sample(const Job& j) {
  return j.parallel.tensor * j.parallel.context * j.parallel.pipeline;
}

/// The workload or system of a job: the document an override opened, a name or path, or an inline
/// object.
template <class Make>
auto resolve(const Value& job, const char* key, FileKind kind,
             const std::optional<Document>& opened, const Library& library, Make&& make) {
  if (opened) {
    return make(Value::root_of(*opened));
  }
  const Value v = job.at(key, fmt::format("a {} name, path or object", key));
  if (!v.is_string()) {
    return make(v);
  }
  const Document d = open_named(v.text(""), kind, v.folder(), v.where(), library);
  return make(Value::root_of(d));
}

/// The batch is not given; the other keys are read before this is said, so that it hides no mistake
/// of theirs.
[[noreturn]] void miss_batch(const Value& job, const Job& j) {
  throw InputError(
      job.where("batch"),
      fmt::format("missing, and workload {} has no default_batch; expected {}", j.workload.name,
                  is_transformer(j)
                      ? "{\"global\": .., \"micro\": .., \"sequence\": ..}, or --set "
                        "batch.global=N --set batch.micro=M --set batch.sequence=S"
                      : "{\"global\": N}, or --set batch.global=N: the samples of a step on all "
                        "devices together"));
}

void read_batch(const Value& job, Job& j) {
  const auto v = job.find("batch");
  const bool transformer = is_transformer(j);
  const std::optional<Batch>& usual = j.workload.default_batch;
  j.batch = usual.value_or(Batch{});
  if (v) {
    v->keys({"global", "micro", "sequence"});
    const auto read = [&](const char* key, std::int64_t& into, std::int64_t high) {
      if (const auto n = v->find(key)) {
        into = n->integer(1, high);
      } else if (into == 0) {
        (void)v->at(key, "an integer, as the workload has no default_batch");
      }
    };
    read("global", j.batch.global, kLargestBatch);
    if (transformer) {
      read("micro", j.batch.micro, kLargestBatch);
      read("sequence", j.batch.sequence, 1 << 26);
    } else if (const auto s = v->find("sequence")) {
      s->refuse(fmt::format("found {}: a dlrm has no sequences; remove it", shown(s->json())));
    }
  }
  if (!transformer) {
    // One micro-batch: each replica trains on its share of the samples.
    const std::int64_t replicas = std::max<std::int64_t>(1, j.devices / ranks_per_sample(j));
    if (j.batch.global % replicas != 0) {
      const std::int64_t down = j.batch.global / replicas * replicas;
      throw InputError(
          job.where("batch.global"),
          fmt::format("{} is not divisible by devices = {}; use {}", j.batch.global, replicas,
                      down > 0 ? fmt::format("{} or {}", down, down + replicas)
                               : fmt::format("{}", replicas)));
    }
    j.batch.micro = j.batch.global / replicas;
    j.batch.sequence = 0;
    const auto micro = v ? v->find("micro") : std::nullopt;
    if (micro && micro->integer(1, kLargestBatch) != j.batch.micro) {
      micro->refuse(fmt::format(
          "found {}: a dlrm trains on global / devices = {} samples per rank at once; remove it",
          shown(micro->json()), j.batch.micro));
    }
  }
}

Format role_format(const Value& v, const std::vector<Format>& allowed) {
  std::vector<std::pair<std::string, Format>> names;
  for (const Format f : allowed) {
    names.emplace_back(name_of(f), f);
  }
  return v.choice(names);
}

void read_formats(const Value& job, Job& j) {
  const auto has = [&](Format f) { return j.system.device.peak.count(f) != 0; };
  j.formats.compute = has(Format::kBf16)   ? Format::kBf16
                      : has(Format::kFp16) ? Format::kFp16
                                           : Format::kFp32;
  if (const auto v = job.find("formats")) {
    v->keys({"compute", "gradient", "embedding", "all_to_all_forward", "all_to_all_backward",
             "expert_dispatch", "moments", "master", "frozen"});
    const std::vector<Format> wide{Format::kFp32, Format::kBf16, Format::kFp16};
    std::vector<Format> compute = wide;
    compute.insert(compute.end(),
                   {Format::kTf32, Format::kFp8, Format::kMxfp8, Format::kMxint8, Format::kMxfp6,
                    Format::kMxfp4, Format::kNvfp4, Format::kMx9, Format::kMx6, Format::kMx4});
    std::vector<Format> stored = wide;
    stored.insert(stored.end(), {Format::kFp8, Format::kInt8Row, Format::kInt4Row});
    const auto read = [&](const char* key, Format& into, const std::vector<Format>& allowed) {
      if (const auto f = v->find(key)) {
        into = role_format(*f, allowed);
      }
    };
    read("compute", j.formats.compute, compute);
    read("gradient", j.formats.gradient, wide);
    read("embedding", j.formats.embedding, stored);
    read("all_to_all_forward", j.formats.all_to_all_forward, stored);
    read("all_to_all_backward", j.formats.all_to_all_backward, stored);
    for (const auto& [key, into] :
         {std::pair{"moments", &j.formats.moments}, {"master", &j.formats.master}}) {
      const auto kept = v->find(key);
      if (kept && has_tables(j)) {
        kept->refuse(
            "found a format of a transformer's optimizer, but the workload has tables; "
            "leave it out");
      }
      if (kept) {
        *into = role_format(
            *kept, {Format::kFp32, Format::kBf16, Format::kFp16, Format::kFp8, Format::kInt8});
      }
    }
    if (const auto frozen = v->find("frozen")) {
      j.formats.frozen =
          role_format(*frozen, {Format::kBf16, Format::kFp16, Format::kFp8, Format::kMxfp8,
                                Format::kNvfp4, Format::kInt8, Format::kNf4});
    }
    if (const auto dispatch = v->find("expert_dispatch")) {
      if (!is_transformer(j)) {
        dispatch->refuse("found a format of experts' tokens, but a dlrm has none; leave it out");
      }
      j.formats.expert_dispatch =
          role_format(*dispatch, {Format::kBf16, Format::kFp16, Format::kFp8, Format::kMxfp8});
    }
  }
  const Format compute = j.formats.compute;
  if ((compute == Format::kFp8 || compute == Format::kBf16) && !has(compute)) {
    std::vector<std::string> native;
    for (const Format f : {Format::kBf16, Format::kFp16, Format::kTf32, Format::kFp32}) {
      if (has(f)) {
        native.emplace_back(name_of(f));
      }
    }
    throw InputError(job.where("formats.compute"),
                     fmt::format("found \"{0}\", but device {1} has no {0} peak; use {2}, or add "
                                 "system.device.peak.{0}",
                                 name_of(compute), j.system.device.name, list_of(native)));
  }
  if (!j.system.device.peak_of(j.formats.compute)) {
    throw InputError(
        job.where("formats.compute"),
        fmt::format("device {} has no peak for {} or a wider format; use another or add the peak",
                    j.system.device.name, name_of(j.formats.compute)));
  }
}

/// Ours or another tool's. `where`: the place that names the file.
EmbeddingPlan plan_of_file(const std::filesystem::path& file, const std::string& where,
                           const Job& j, const Library& library) {
  const OpenedSource opened =
      open_source({file.string(), read_whole_file(file, where, kLargestJson), file.parent_path()},
                  Expected::kPlan, library);
  const Value root = Value::root_of(opened.document);
  return opened.format != nullptr ? opened.format->plan_of(root, j) : plan_from(root);
}

void read_plan(const Value& v, Job& j, const Library& library) {
  if (v.is_string()) {
    const std::string text = v.text("");
    if (text == "auto" || text == "search" || text == "tiered" || sharding_named(text)) {
      j.embedding_choice = text;
      return;
    }
    if (text.find('/') == std::string::npos && text.find(".json") == std::string::npos) {
      std::vector<std::string> names{"auto", "search", "tiered"};
      for (const auto& [name, kind] : sharding_names()) {
        names.push_back(name);
      }
      v.refuse(fmt::format("found \"{}\"; {}, or the path of a plan file", text,
                           suggestion(text, names)));
    }
    const std::filesystem::path file = (v.folder() / text).lexically_normal();
    j.embedding_plan = plan_of_file(file, v.where(), j, library);
    j.embedding_choice = file.string();
    check_plan(*j.embedding_plan, *j.workload.dlrm(), j.system, j.devices, file.string() + ": ");
  } else {
    j.embedding_plan = plan_from(v);
    j.embedding_choice = "inline";
    check_plan(*j.embedding_plan, *j.workload.dlrm(), j.system, j.devices, v.where() + ".");
  }
}

/// The job's own, or the one its plan was made for.
void read_sync_interval(const Value& embedding, Job& j) {
  const std::int64_t planned = j.embedding_plan ? j.embedding_plan->sync_interval : 0;
  j.sync_interval = std::max<std::int64_t>(1, planned);
  if (const auto v = embedding.find("sync_interval")) {
    j.sync_interval = v->integer(1, kLongestInterval);
    if (planned > 0 && planned != j.sync_interval) {
      v->refuse(
          fmt::format("found {}, but the plan was made for {} steps between synchronisations; "
                      "leave the key out, or plan again",
                      j.sync_interval, planned));
    }
    if (j.sync_interval > 1 && !has_tables(j)) {
      v->refuse(
          fmt::format("found {}: there are no embedding tables whose replicas could wait; "
                      "remove it",
                      j.sync_interval));
    }
  }
}

/// What plans that are searched may do with single tables.
void read_constraints(const Value& v, Job& j) {
  std::vector<std::string> tables;
  if (has_tables(j)) {
    for (const EmbeddingTable& t : j.workload.dlrm()->tables) {
      tables.push_back(t.name);
    }
  }
  for (const auto& [table, of_table] : v.members()) {
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) {
      of_table.refuse(
          fmt::format("the workload has no table \"{}\"; {}", table, suggestion(table, tables)));
    }
    of_table.keys({"sharding", "memory", "cache", "narrowest_columns"});
    TableConstraint& c = j.plan_constraints.emplace_back();
    c.table = table;
    if (const auto kinds = of_table.find("sharding")) {
      for (const Value& kind : kinds->items("a list of shardings that the table may have", 1)) {
        c.shardings.push_back(kind.choice(sharding_names()));
      }
    }
    if (const auto memory = of_table.find("memory")) {
      for (const Value& tier : memory->items("a list of tiers that the table may be in", 1)) {
        c.tiers.push_back(tier.text("the name of a tier of system.tiers"));
        if (!tier_named(j.system, c.tiers.back()) && c.tiers.back() != "hbm") {
          tier.refuse(fmt::format("system {} has no tier \"{}\"; name one of system.tiers",
                                  j.system.name, c.tiers.back()));
        }
      }
    }
    if (const auto cache = of_table.find("cache")) {
      c.cached = cache->boolean();
    }
    if (const auto narrowest = of_table.find("narrowest_columns")) {
      c.narrowest = narrowest->integer(1, 1 << 20);
    }
  }
}

void read_embedding(const Value& job, Job& j, const Library& library) {
  const auto v = job.find("embedding");
  if (!v) {
    return;
  }
  v->keys({"plan", "dedup", "sync_interval", "transform", "tower_compression", "constraints"});
  if (const auto plan = v->find("plan")) {
    if (!has_tables(j) && !plan->is("auto")) {
      plan->refuse(fmt::format("found {}: {} has no embedding tables to place; remove it",
                               shown(plan->json()),
                               is_transformer(j) ? "a transformer" : "the workload"));
    }
    read_plan(*plan, j, library);
    j.embedding_chosen = true;
  }
  j.embedding_dedup = j.embedding_plan && j.embedding_plan->dedup;  // unless the job says otherwise
  if (const auto d = v->find("dedup")) {
    j.embedding_dedup = d->choice<bool>({{"off", false}, {"ikjt", true}});
    if (j.embedding_dedup && is_transformer(j)) {
      d->refuse("found \"ikjt\": a transformer has no embedding tables; use off");
    }
  }
  read_sync_interval(*v, j);
  if (const auto constraints = v->find("constraints")) {
    read_constraints(*constraints, j);
  }
  if (const auto t = v->find("transform")) {
    j.sptt = t->choice<bool>({{"none", false}, {"sptt", true}});
    const std::int64_t node = j.system.host.devices;
    if (j.sptt && (!has_tables(j) || j.devices % node != 0 || j.devices == node)) {
      t->refuse(
          fmt::format("found \"sptt\": towers are machines of {} devices with tables; use "
                      "tables and several whole machines, or none",
                      node));
    }
  }
  if (const auto c = v->find("tower_compression")) {
    const std::int64_t times = c->integer(1, 1 << 16);
    j.tower_compression = static_cast<double>(times);
    if (times > 1 && !j.sptt) {
      c->refuse(
          fmt::format("found {}: only towers compress; use \"transform\": \"sptt\", or 1", times));
    }
  }
}

void read_optimizer(const Value& job, Job& j) {
  const bool transformer = is_transformer(j);
  j.dense_optimizer = has_tables(j) ? OptimizerKind::kSgd : OptimizerKind::kAdam;
  j.embedding_optimizer = !has_tables(j) ? OptimizerKind::kAdam : OptimizerKind::kRowwiseAdagrad;
  const auto v = job.find("optimizer");
  if (!v) {
    return;
  }
  const auto dense = [&](const Value& o) {
    if (o.is("rowwise_adagrad")) {
      o.fail(
          "sgd, adam or adagrad: rowwise_adagrad keeps one number per embedding row and needs a "
          "table; for tables alone write {\"dense\": \"sgd\", \"embedding\": \"rowwise_adagrad\"}");
    }
    return o.choice(optimizer_names());
  };
  if (!v->is_object()) {
    j.dense_optimizer = dense(*v);
    j.embedding_optimizer = j.dense_optimizer;
    return;
  }
  v->keys({"dense", "embedding"});
  if (const auto o = v->find("dense")) {
    j.dense_optimizer = dense(*o);
  }
  if (const auto o = v->find("embedding")) {
    j.embedding_optimizer = o->choice(optimizer_names());
  } else if (transformer) {
    j.embedding_optimizer = j.dense_optimizer;
  }
  if (transformer && j.embedding_optimizer != j.dense_optimizer) {
    throw InputError(v->where("embedding"),
                     "a transformer has one optimizer for all its parameters; write \"optimizer\": "
                     "\"adam\" or \"sgd\"");
  }
}

void read_rest(const Value& job, Job& j) {
  if (const auto a = job.find("attention")) {
    j.flash_attention = a->choice<bool>({{"flash", true}, {"unfused", false}});
    if (!j.flash_attention && !is_transformer(j) && layers_in(j) == nullptr) {
      a->refuse("found \"unfused\": a dlrm has no attention; remove it");
    }
  }
  if (const auto e = job.find("epilogues")) {
    j.fused_epilogues = e->choice<bool>({{"separate", false}, {"fused", true}});
  }
  if (const auto f = job.find("flows")) {
    j.flows = flows_from(*f, j);
  }
  if (const auto p = job.find("phase")) {
    j.phase = p->choice(phase_names());
    if (j.phase != JobPhase::kTrain && !is_transformer(j)) {
      p->refuse("found inference, but only transformers have it; use train");
    }
    if (j.phase == JobPhase::kDecode && j.batch.sequence != 1) {
      throw InputError(
          job.where("batch.sequence"),
          fmt::format("found {}: decoding makes one new token per sequence; use 1, and "
                      "\"cached\" for those there are",
                      j.batch.sequence));
    }
  }
  if (const auto c = job.find("cached")) {
    j.cached = c->integer(0, 1 << 26);
    if (j.cached > 0 && j.phase == JobPhase::kTrain) {
      c->refuse(fmt::format("found {}: training has no cached tokens; use phase prefill or decode",
                            j.cached));
    }
  }
  if (const auto c = job.find("calibration")) {
    using Kind = Calibration::Kind;
    if (c->is_object()) {
      c->keys({"scale"});
      j.calibration = {Kind::kScale, c->at("scale", "a factor on times").number(1e-3, 1e3)};
    } else {
      j.calibration.kind = c->choice<Kind>({{"auto", Kind::kAuto}, {"none", Kind::kNone}});
    }
  }
}

/// The host's time per op is the program's as much as the machine's: a job may bring its own, which
/// stays whatever the system.
void read_host(const Value& job, Job& j) {
  if (const auto host = job.find("host")) {
    host->keys({"issue"});
    FittedModel& model = j.system.device.fitted["host"];
    model.form = "host.constant";
    model.constants["issue"] = host->at("issue", "a time such as \"12 us\"").amount<Seconds>(true).base();
    model.source = "the job's host.issue";
  }
}

}  // namespace

const std::vector<std::pair<std::string, OptimizerKind>>& optimizer_names() {
  static const std::vector<std::pair<std::string, OptimizerKind>> names = [] {
    std::vector<std::pair<std::string, OptimizerKind>> all;
    for (const OptimizerKind k : {OptimizerKind::kSgd, OptimizerKind::kAdam,
                                  OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdagrad}) {
      all.emplace_back(name_of(k), k);
    }
    return all;
  }();
  return names;
}
const std::vector<std::pair<std::string, ScheduleKind>>& schedule_names() {
  static const std::vector<std::pair<std::string, ScheduleKind>> names = [] {
    std::vector<std::pair<std::string, ScheduleKind>> all;
    for (const ScheduleTraits& s : kSchedules) {
      all.emplace_back(s.name, s.kind);
    }
    return all;
  }();
  return names;
}

const std::vector<std::pair<std::string, Axis>>& axis_names() {
  static const std::vector<std::pair<std::string, Axis>> names{{"tensor", Axis::kTensor},
                                                               {"context", Axis::kContext},
                                                               {"pipeline", Axis::kPipeline},
                                                               {"data", Axis::kData}};
  return names;
}

const std::vector<std::pair<std::string, ExpertDispatch>>& expert_dispatch_names() {
  static const std::vector<std::pair<std::string, ExpertDispatch>> names{
      {"all_to_all", ExpertDispatch::kCopies}, {"per_machine", ExpertDispatch::kPerMachine}};
  return names;
}

const std::vector<std::pair<std::string, ContextAlgorithm>>& context_algorithm_names() {
  static const std::vector<std::pair<std::string, ContextAlgorithm>> names{
      {"auto", ContextAlgorithm::kAuto},      {"all_gather", ContextAlgorithm::kAllGather},
      {"pass_kv", ContextAlgorithm::kPassKv}, {"ring", ContextAlgorithm::kPassKv},
      {"pass_q", ContextAlgorithm::kPassQ},   {"all_to_all", ContextAlgorithm::kAllToAll}};
  return names;
}

const std::vector<std::pair<std::string, JobPhase>>& phase_names() {
  static const std::vector<std::pair<std::string, JobPhase>> names{
      {"train", JobPhase::kTrain}, {"prefill", JobPhase::kPrefill}, {"decode", JobPhase::kDecode}};
  return names;
}

const std::vector<std::pair<std::string, DlrmPipeline>>& dlrm_pipeline_names() {
  static const std::vector<std::pair<std::string, DlrmPipeline>> names{
      {"none", DlrmPipeline::kNone},
      {"sparse_dist", DlrmPipeline::kSparseDist},
      {"prefetch", DlrmPipeline::kPrefetch},
      {"fused", DlrmPipeline::kFused}};
  return names;
}

/// A plan of a transformer carries the job it is the plan of.
bool is_parallel_plan(const Json& root) {
  return root.is_object() && root.value("kind", Json()) == "parallel" && root.contains("job");
}

/// A job of ours, of a parallel plan, or what a foreign file says of one; `overrides` are applied
/// later.
Document job_document(const Source& source, const std::vector<std::string>& overrides,
                      const Library& library) {
  OpenedSource opened = open_source(source, Expected::kModel, library);
  Document d = std::move(opened.document);
  if (opened.format != nullptr) {
    if (opened.format->job_of != nullptr) {
      return opened.format->job_of(std::move(d), overrides);
    }
    d = opened.format->workload_of(std::move(d));
    Json job = Json::object();
    job["workload"] = std::move(d.root);
    d.root = std::move(job);
  } else if (is_parallel_plan(d.root)) {
    Json job = std::move(d.root["job"]);
    d.root = std::move(job);
    d.label += ": job";
  }
  return d;
}

/// Where a fast domain joins several machines and the devices do not fill a number of them, a job
/// takes the same share of each: the largest of whole machines, at least half, that divides the
/// devices (64 of 72 for powers of two).
void take_aligned_shares(Job& j) {
  std::int64_t below = 1;
  for (FabricLevel& level : std::span(j.system.fabric).first(j.system.fabric.empty()
                                                                 ? 0
                                                                 : j.system.fabric.size() - 1)) {
    const std::int64_t all = below * level.size;
    const bool joins_machines = level.used == 0 && all > j.system.host.devices;
    if (joins_machines && j.devices > all && j.devices % all != 0) {
      for (std::int64_t units = level.size; 2 * units >= level.size; --units) {
        const std::int64_t inside = below * units;
        if (j.devices % inside == 0 && inside % j.system.host.devices == 0) {
          level.used = units;
          break;
        }
      }
    }
    below *= level.taken();
  }
}

Job read_job(const JobDocuments& documents, const Library& library, bool plan_open) {
  const Value v = Value::root_of(documents.job);
  for (const std::string_view key : parallel_keys()) {
    if (const auto misplaced = v.find(key)) {
      misplaced->refuse(fmt::format("is a key of parallel: parallel.{}", key));
    }
  }
  for (const auto& [key, value] : v.members()) {
    const std::string_view meant = meant_by_shorthand(key);
    if (std::find(parallel_keys().begin(), parallel_keys().end(), meant) != parallel_keys().end()) {
      value.refuse(fmt::format("is a key of parallel: parallel.{}", meant));
    }
  }
  // A stack is read before; it stands here for the list of what there is.
  v.keys({"stepcast", "workload", "system", "devices", "batch", "parallel", "stack", "formats",
          "embedding", "optimizer", "attention", "epilogues", "flows", "calibration", "phase",
          "cached", "devices_per_machine", "host", "loss", "lora", "sequence_lengths"});
  if (const auto version = v.find("stepcast")) {
    (void)version->integer(1, 1);
  }
  Job j;
  j.workload = resolve(v, "workload", FileKind::kWorkload, documents.workload, library,
                       [](const Value& w) { return workload_from(w); });
  j.system =
      resolve(v, "system", FileKind::kSystem, documents.system, library, [&](const Value& s) {
        return system_from(s, library, documents.device ? &*documents.device : nullptr);
      });
  read_host(v, j);
  const std::int64_t most =
      j.system.fabric.empty() ? 1 : j.system.devices_in_level(j.system.fabric.size() - 1);
  j.devices = std::min(j.system.host.devices, most);
  if (const auto d = v.find("devices")) {
    j.devices = d->integer(1, kMostDevices);
    if (j.devices > most) {
      d->refuse(
          fmt::format("found {}, but system {} joins at most {} devices (the product of its fabric "
                      "sizes); use fewer or enlarge system.fabric",
                      j.devices, j.system.name, most));
    }
  }
  take_aligned_shares(j);
  if (const auto machine = v.find("devices_per_machine");
      machine && machine->integer(1, kMostDevices) != j.system.host.devices) {
    machine->refuse(
        fmt::format("found {}, but a machine of system {} has {} devices; set "
                    "system.host.devices={}, or use another system",
                    machine->integer(1, kMostDevices), j.system.name, j.system.host.devices,
                    machine->integer(1, kMostDevices)));
  }
  read_parallel(v, j);
  plan_open = plan_open && is_transformer(j);
  if (!plan_open) {
    read_data_degree(v, v.find("parallel"), j);
  }
  const bool batch_known = v.find("batch") || j.workload.default_batch;
  if (batch_known) {
    read_batch(v, j);
  } else {
    j.batch = {.global = j.devices, .micro = 1, .sequence = 1};
  }
  read_formats(v, j);
  read_optimizer(v, j);
  read_embedding(v, j, library);  // bytes of a cached row follow from formats and optimizer
  read_rest(v, j);
  read_training(v, j);
  if (!batch_known) {
    miss_batch(v, j);
  }
  if (!plan_open) {
    check_job(j, v);
  }
  return j;
}

EmbeddingPlan load_plan(const std::filesystem::path& file, const Job& job,
                        const Library& library) {
  return plan_of_file(file.lexically_normal(), "--from", job, library);
}

Job load_job(const Source& source, const std::vector<std::string>& overrides,
             const Library& library) {
  Document document = job_document(source, overrides, library);
  const auto named = stack_named_by(document, overrides);
  return read_job_on_stack(apply_overrides(std::move(document), overrides, library), named, library,
                           false);
}

}  // namespace stepcast::config
