#include <algorithm>
#include <numeric>
#include <span>

#include "core/config/aliases.h"
#include "core/config/catalogue.h"
#include "core/config/internal/frameworks.h"
#include "core/config/internal/job_tables.h"
#include "core/config/internal/loaders.h"
#include "core/job/layers.h"

namespace stepcast::config {
namespace {

constexpr std::int64_t kLongestSequence = 1 << 26;
constexpr std::int64_t kMostCached = 1 << 26;

/// Ranks that work on one sample together.
std::int64_t ranks_per_sample(const Job& j) {
  return j.parallel.tensor * j.parallel.context * j.parallel.pipeline;
}

/// The workload or system of a job: the document an override opened, a name or path, or an inline
/// object. `built_in`: of a name nothing but the library decides.
template <class Make>
auto resolve(const Value& job, const char* key, FileKind kind,
             const std::optional<Document>& opened, const Library& library, bool built_in,
             Make&& make) {
  if (opened) {
    return make(Value::root_of(*opened));
  }
  const Value v = job.at(key, fmt::format("a {} name, path or object", key));
  if (!v.is_string()) {
    return make(v);
  }
  const auto read = [&] {
    const Document d = open_named(v.text(""), kind, v.folder(), v.where(), library);
    return make(Value::root_of(d));
  };
  const std::string name = v.text("");
  return built_in && !names_file(name, kind)
             ? read_once<std::decay_t<decltype(read())>>(library, name, read)
             : read();
}

/// The batch is not given; the other keys are read before this is said, so that it hides no mistake
/// of theirs.
[[noreturn]] void miss_batch(const Value& job, const Job& j) {
  throw InputError(
      job.where("batch"),
      fmt::format(
          "missing, and workload {} has no default_batch; expected {}", j.workload.name,
          is_transformer(j)
              ? "{\"global\": .., \"sequence\": ..}, or --set batch.global=N --set "
                "batch.sequence=S: sequences of a step on all devices together, and the "
                "tokens of one"
              : "{\"global\": N}, or -b N (--set batch.global=N): the samples of a step on all "
                "devices together"));
}

/// The largest multiple that is not more, at least one.
std::int64_t rounded_down(std::int64_t n, std::int64_t unit) {
  return std::max<std::int64_t>(1, n / unit) * unit;
}

/// A default batch that the replicas' micro-batches do not divide gives way to the next below.
void fit_default_batch(const Value& job, Job& j) {
  const auto batch = job.find("batch");
  if (!is_transformer(j) || (batch && batch->find("global"))) {
    return;
  }
  const Parallel& p = j.parallel;
  const bool said = batch && batch->find("micro");
  if (!said && j.batch.global % p.data == 0) {
    j.batch.micro = std::gcd(j.batch.micro, j.batch.global / p.data);
  }
  j.batch.global = rounded_down(j.batch.global,
                                p.data * j.batch.micro * (p.virtual_stages > 1 ? p.pipeline : 1));
}

void read_batch(const Value& job, Job& j) {
  const auto v = job.find("batch");
  const bool transformer = is_transformer(j);
  const std::optional<Batch>& usual = j.workload.default_batch;
  j.batch = usual.value_or(Batch{});
  if (v) {
    expect_keys(*v, batch_table());
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
      read("sequence", j.batch.sequence, kLongestSequence);
    } else if (const auto s = v->find("sequence")) {
      s->reject(fmt::format("found {}: a dlrm has no sequences; remove it", shown(s->json())));
    }
  }
  if (!transformer) {
    // One micro-batch: each replica trains on its share of the samples.
    const std::int64_t replicas = std::max<std::int64_t>(1, j.devices / ranks_per_sample(j));
    if (!v || !v->find("global")) {
      j.batch.global = rounded_down(j.batch.global, replicas);
    }
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
      micro->reject(fmt::format(
          "found {}: a dlrm trains on global / devices = {} samples per rank at once; remove it",
          shown(micro->json()), j.batch.micro));
    }
  }
}

/// Fills in what a decoding job leaves out of its batch: one token for each sequence, all sequences
/// of a replica at once.
void take_decode_batch(const Value& job, Job& j) {
  const auto batch = job.find("batch");
  const auto says = [&](const char* key) { return batch && batch->find(key); };
  if (!says("sequence")) {
    j.batch.sequence = 1;
  }
  if (!says("micro") && j.batch.global % j.parallel.data == 0) {
    j.batch.micro = j.batch.global / j.parallel.data;
  }
}

std::vector<std::pair<std::string, OptimizerKind>> optimizers_but(OptimizerKind left_out) {
  std::vector<std::pair<std::string, OptimizerKind>> names = optimizer_names();
  std::erase_if(names, [left_out](const auto& o) { return o.second == left_out; });
  return names;
}

KeyTable optimizer_table() {
  return {usual_fact("dense", choice_form(optimizers_but(OptimizerKind::kRowwiseAdagrad)),
                     "of all but tables; muon: of transformers", "sgd"),
          usual_fact("embedding", choice_form(optimizers_but(OptimizerKind::kMuon)),
                     "of tables; rowwise_adagrad keeps one state of each row of a shard, so tables "
                     "cut by columns learn a little otherwise",
                     "rowwise_adagrad"),
          usual_fact("iterations", integer_form(1, kMostIterations), "muon: of Newton-Schulz",
                     Muon{}.iterations),
          usual_fact("shards", choice_form(muon_shards_names()),
                     "muon: matrices cut by tensor ranks", "duplicated")};
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
    if (o.is("muon") && !transformer) {
      o.fail("sgd, adam or adagrad: muon is for matrices of a transformer's layers");
    }
    return o.is("adamw") ? OptimizerKind::kAdam : o.choice(optimizer_names());  // decay is free
  };
  if (!v->is_object()) {
    j.dense_optimizer = dense(*v);
    j.embedding_optimizer = j.dense_optimizer;
    return;
  }
  expect_keys(*v, optimizer_table());
  if (const auto o = v->find("dense")) {
    j.dense_optimizer = dense(*o);
  }
  for (const char* key : {"iterations", "shards"}) {
    if (const auto o = v->find(key); o && !j.orthogonalises()) {
      o->reject("is of muon; set dense to muon, or leave it out");
    }
  }
  if (const auto o = v->find("iterations")) {
    j.muon.iterations = o->integer(1, kMostIterations);
  }
  if (const auto o = v->find("shards")) {
    j.muon.shards = o->choice(muon_shards_names());
  }
  if (const auto o = v->find("embedding")) {
    j.embedding_optimizer = o->choice(optimizers_but(OptimizerKind::kMuon));
  } else if (transformer) {
    j.embedding_optimizer = j.dense_optimizer;
  }
  if (transformer && j.embedding_optimizer != j.dense_optimizer) {
    throw InputError(v->where("embedding"),
                     "a transformer has one optimizer for all its parameters; write \"optimizer\": "
                     "\"adam\" or \"sgd\"");
  }
}

KeyTable host_table() {
  return {needed_fact("issue", amount_form("12 us"), "the host's time for each op",
                      "a time such as \"12 us\"")};
}

/// The host's time per op is the program's as much as the machine's: a job may bring its own, which
/// stays whatever the system.
void read_host(const Value& job, Job& j) {
  if (const auto host = job.find("host")) {
    expect_keys(*host, host_table());
    FittedModels& fitted =
        j.system.fitted.contains("host") ? j.system.fitted : j.system.device.fitted;
    FittedModel& model = fitted["host"];
    model.form = "host.constant";
    model.constants["issue"] =
        host->at("issue", "a time such as \"12 us\"").amount<Seconds>(true).base();
    model.source = "the job's host.issue";
  }
}

// Keys that depend on the workload alone, read by the table.

void read_phase(const Value& v, Job& j, const Reading&) {
  if (!is_transformer(j)) {
    // A forward pass that keeps nothing; nothing is updated, so no states are held.
    j.phase = v.choice<JobPhase>({{"train", JobPhase::kTrain}, {"inference", JobPhase::kPrefill}});
    if (j.phase != JobPhase::kTrain) {
      j.dense_optimizer = j.embedding_optimizer = OptimizerKind::kSgd;
    }
    return;
  }
  j.phase = v.choice(phase_names());
  auto& model = std::get<TransformerWorkload>(j.workload.model);
  if (j.phase != JobPhase::kTrain && model.sparse && !model.compressed) {
    model.sparse.reset();
    model.approximated.push_back("sparse attention (every query sees all keys: slower)");
  }
  if (j.phase != JobPhase::kTrain && model.chunked) {
    model.chunked = false;
    model.approximated.push_back(
        "attention in chunks (every query sees the last tokens, as many as a chunk has: slower)");
  }
}

void read_cached(const Value& v, Job& j, const Reading&) {
  j.cached = v.integer(0, kMostCached);
  if (j.cached > 0 && j.phase == JobPhase::kTrain) {
    v.reject(fmt::format("found {}: training has no cached tokens; use phase prefill or decode",
                         j.cached));
  }
}

using CalibrationKind = Calibration::Kind;

void read_calibration(const Value& v, Job& j, const Reading&) {
  if (v.is_object()) {
    v.keys({"scale"});
    j.calibration = {CalibrationKind::kScale, v.at("scale", "a factor on times").number(1e-3, 1e3)};
  } else {
    j.calibration.kind = v.choice<CalibrationKind>(
        {{"auto", CalibrationKind::kAuto}, {"none", CalibrationKind::kNone}});
  }
}

OrderedJson calibration_json(const Job& job, const Writing&) {
  switch (job.calibration.kind) {
    case CalibrationKind::kAuto:
      return "auto";
    case CalibrationKind::kNone:
      return "none";
    case CalibrationKind::kScale:
      return {{"scale", plain(job.calibration.scale)}};
  }
  STEPCAST_FAIL("unknown calibration");
}

OrderedJson optimizer_json(const Job& job, const Writing&) {
  const std::string dense = name_in(optimizer_names(), job.dense_optimizer);
  if (job.orthogonalises() &&
      (job.muon.iterations != Muon{}.iterations || job.muon.shards != Muon{}.shards)) {
    return {{"dense", dense},
            {"iterations", job.muon.iterations},
            {"shards", name_in(muon_shards_names(), job.muon.shards)}};
  }
  if (is_transformer(job)) {
    return dense;
  }
  return {{"dense", dense}, {"embedding", name_in(optimizer_names(), job.embedding_optimizer)}};
}

const Keys<Batch>& batch_keys() {
  static const Keys<Batch> keys{
      integer_key("global", &Batch::global, 1, kLargestBatch,
                  "samples, sequences for transformers, of an optimizer step")
          .otherwise("the workload's default_batch"),
      integer_key("micro", &Batch::micro, 1, kLargestBatch,
                  "sequences of a micro-batch of a replica")
          .otherwise("the workload's default_batch; decoding: all of a replica")
          .of(kTransformers)
          .searched(),
      integer_key("sequence", &Batch::sequence, 1, kLongestSequence, "tokens of a sequence")
          .otherwise("the workload's default_batch; decoding: 1")
          .of(kTransformers)};
  return keys;
}

/// Objects, and what decides of them: read_job reads these keys in the order of their dependence.
Keys<Job> objects_of_jobs() {
  const auto optimizer = any_form({choice_form(optimizer_names()), object_form(optimizer_table())});
  using W = const Writing&;
  return {
      known_key<Job>("stepcast", integer_form(1, 1), "the version of the format",
                     [](const Job&, W) { return OrderedJson(1); })
          .usual(1),
      known_key<Job>("workload", any_form({text_form("a name or a path"), named_form("workload")}),
                     "what is trained",
                     [](const Job& job, W) { return workload_json(job.workload); })
          .otherwise("required"),
      known_key<Job>("system", any_form({text_form("a name or a path"), named_form("system")}),
                     "on what", [](const Job& job, W) { return system_json(job.system); })
          .otherwise(kDefaultSystem),
      known_key<Job>("devices", integer_form(1, kMostDevices), "accelerators, or ranks on CPUs",
                     [](const Job& job, W) { return OrderedJson(job.devices); })
          .otherwise("one machine"),
      known_key<Job>("batch", object_form(batch_table()), "samples of a step",
                     [](const Job& job, W) { return batch_json(job.batch, is_transformer(job)); })
          .otherwise("the workload's default_batch"),
      known_key<Job>("parallel", object_form(parallel_table()), "how the step is split",
                     [](const Job& job, W w) { return parallel_json(job, w.every); })
          .otherwise("all degrees 1"),
      known_key<Job>("framework", text_form("NAME or NAME@RELEASE of `stepcast list stacks`"),
                     "the training framework; without a release the newest")
          .otherwise("of the plan's family"),
      known_key<Job>("stack", text_form("as framework"), "another name of framework")
          .otherwise("of the plan's family"),
      known_key<Job>("formats", object_form(formats_table()), "number formats",
                     [](const Job& job, W) { return formats_json(job); })
          .otherwise("those of its keys"),
      known_key<Job>("embedding", object_form(embedding_table()), "how tables are placed",
                     [](const Job& job, W) { return embedding_json(job); })
          .otherwise("those of its keys"),
      known_key<Job>("optimizer", optimizer, "what updates the weights", optimizer_json)
          .otherwise("adam; with tables sgd, and rowwise_adagrad of tables")};
}

/// Phrases in addition to those of the workload, which keeps them all.
void read_approximated(const Value& v, Job& j, const Reading&) {
  if (auto* model = std::get_if<TransformerWorkload>(&j.workload.model)) {
    for (const Value& what : v.items("a list of phrases")) {
      model->approximated.push_back(what.text("what the file says and the job does not"));
    }
  }
}

/// The table of a job.
const Keys<Job>& job_keys() {
  static const Keys<Job> keys = [] {
    Keys<Job> all = objects_of_jobs();
    const auto add = [&all](Key<Job> key) { all.push_back(std::move(key)); };
    add(fused_attention_key());
    add(graphs_key().written_after("attention"));
    add(choice_key<Job, bool>("epilogues", &Job::fused_epilogues,
                              {{"separate", false}, {"fused", true}},
                              "fused: products with their bias and activation are one op")
            .terse_usual("separate"));
    add(custom_key<Job>(
        "flows", list_form(object_form(flow_table())), "background transfers during the step",
        [](const Value& v, Job& j, const Reading&) { j.flows = flows_from(v, j); },
        [](const Job& job, const Writing&) { return flows_json(job.flows); }));
    add(custom_key<Job>(
            "calibration",
            any_form({choice_form({"auto", "none"}),
                      object_form({needed_fact("scale", number_form(1e-3, 1e3),
                                               "multiplies all times", "a factor on times")})}),
            "auto: what the system carries; none: hardware facts only", read_calibration,
            calibration_json)
            .usual("auto")
            .written_after("cached"));
    add(custom_key<Job>("phase", choice_form({"train", "prefill", "decode", "inference"}),
                        "what a step does; inference: of models other than transformers",
                        read_phase,
                        [](const Job& job, const Writing&) {
                          return OrderedJson(job.phase != JobPhase::kTrain && !is_transformer(job)
                                                 ? "inference"
                                                 : name_in(phase_names(), job.phase));
                        })
            .terse_usual("train"));
    add(custom_key<Job>(
            "cached", integer_form(0, kMostCached),
            "of prefill and decode: tokens of a sequence that are there already", read_cached,
            [](const Job& job, const Writing&) {
              return job.phase == JobPhase::kTrain ? OrderedJson() : OrderedJson(job.cached);
            })
            .usual(0)
            .of(kTransformers));
    add(known_key<Job>("devices_per_machine", integer_form(1, kMostDevices),
                       "what the job was written for; refused on other machines")
            .otherwise("that of the system"));
    add(known_key<Job>("host", object_form(host_table()), "the host's share of a step")
            .otherwise("as was fitted"));
    add(custom_key<Job>(
            "approximated", list_form(text_form("a phrase")),
            "what another tool's file says and the job made of it does not; predictions repeat it",
            read_approximated, [](const Job&, const Writing&) { return OrderedJson(); })
            .of(kTransformers));
    add(loss_key().written_after("epilogues"));
    add(lora_key().written_after("loss"));
    add(sequence_lengths_key().written_after("lora"));
    add(offload_key().written_after("sequence_lengths"));
    return all;
  }();
  return keys;
}

}  // namespace

OrderedJson batch_json(const Batch& batch, bool transformer) {
  OrderedJson j;
  for (const Key<Batch>& key : batch_keys()) {
    if (transformer || key.facts.scope == nullptr) {
      j[std::string(key.facts.name)] = key.write(batch, {});
    }
  }
  return j;
}
const KeyTable& batch_table() {
  static const KeyTable table = facts_of(batch_keys());
  return table;
}

OrderedJson job_json(const Job& job, bool every) {
  return write_keys(job_keys(), job, {&job, every});
}
const KeyTable& job_table() {
  static const KeyTable table = facts_of(job_keys());
  return table;
}

std::string job_to_json(const Job& job, int indent) { return pretty(job_json(job), indent); }

/// Takes equal shares of fast domains that join several machines. Unless devices fill whole
/// domains, a job takes the same share of each: the largest of whole machines, at least half, that
/// divides the devices (64 of 72 for powers of two).
void take_aligned_shares(Job& j) {
  std::int64_t below = 1;
  for (FabricLevel& level :
       std::span(j.system.fabric).first(j.system.fabric.empty() ? 0 : j.system.fabric.size() - 1)) {
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

/// Keys that belong into `parallel`, or stand for one of its keys, at the top of a job.
void reject_keys_of_parallel(const Value& v) {
  const KeyTable of_parallel = parallel_table();
  const auto reject_misplaced = [&of_parallel](const Value& value, std::string_view name) {
    for (const KeyFacts& key : of_parallel) {
      if (key.name == name) {
        value.reject(fmt::format("is a key of parallel: parallel.{}", name));
      }
    }
  };
  for (const KeyFacts& key : of_parallel) {
    if (const auto misplaced = v.find(key.name)) {
      reject_misplaced(*misplaced, key.name);
    }
  }
  for (const auto& [key, value] : v.members()) {
    reject_misplaced(value, meant_by_shorthand(key));
  }
}

namespace {

/// `remedies`: errors name values with which the job loads.
Job read_job(const JobDocuments& documents, const Library& library, bool plan_open, bool remedies) {
  const Accepts accepts = [&](const std::string& key, std::int64_t value) {
    if (!remedies) {
      return false;
    }
    JobDocuments other = documents;
    std::string pointer = "/" + key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    other.job.root[Json::json_pointer(pointer)] = value;
    try {
      (void)read_job(other, library, plan_open, false);
      return true;
    } catch (const InputError&) {
      return false;
    }
  };
  const Value v = Value::root_of(documents.job);
  reject_keys_of_parallel(v);
  expect_keys(v, job_table());
  if (const auto version = v.find("stepcast")) {
    (void)version->integer(1, 1);
  }
  Job j;
  j.workload = resolve(v, "workload", FileKind::kWorkload, documents.workload, library, true,
                       [](const Value& w) { return workload_from(w); });
  j.system =
      resolve(v, "system", FileKind::kSystem, documents.system, library, !documents.device,
              [&](const Value& s) {
                return system_from(s, library, documents.device ? &*documents.device : nullptr);
              });
  attach_memory_margin(j.system.device, library);
  read_host(v, j);
  const std::int64_t most =
      j.system.fabric.empty() ? 1 : j.system.devices_in_level(j.system.fabric.size() - 1);
  j.devices = std::min(j.system.host.devices, most);
  if (const auto d = v.find("devices")) {
    j.devices = d->integer(1, kMostDevices);
    if (j.devices > most) {
      const std::size_t levels = j.system.fabric.size();
      const std::int64_t unit = levels > 1 ? j.system.devices_in_level(levels - 2) : 1;
      d->reject(fmt::format("found {}, but system {} joins at most {} devices; use fewer{}",
                            j.devices, j.system.name, most,
                            levels == 0 ? std::string()
                                        : fmt::format(", or set system.fabric[{}].size={}",
                                                      levels - 1, (j.devices + unit - 1) / unit)));
    }
  }
  take_aligned_shares(j);
  if (const auto machine = v.find("devices_per_machine");
      machine && machine->integer(1, kMostDevices) != j.system.host.devices) {
    machine->reject(
        fmt::format("found {}, but a machine of system {} has {} devices; set "
                    "system.host.devices={}, or use another system",
                    machine->integer(1, kMostDevices), j.system.name, j.system.host.devices,
                    machine->integer(1, kMostDevices)));
  }
  read_parallel(v, j);
  plan_open = plan_open && is_transformer(j);
  if (!plan_open) {
    read_data_degree(v, v.find("parallel"), j, accepts);
  }
  const bool batch_known = v.find("batch") || j.workload.default_batch;
  if (batch_known) {
    read_batch(v, j);
  } else {
    j.batch = {.global = j.devices, .micro = 1, .sequence = 1};
  }
  read_formats(v, j);
  read_optimizer(v, j);
  read_embedding(v, j, library);
  read_keys(v, job_keys(), j, {&j, &library});
  take_graphs(j);
  if (j.phase == JobPhase::kDecode) {
    take_decode_batch(v, j);
  }
  if (j.phase == JobPhase::kDecode && j.batch.sequence != 1) {
    throw InputError(v.where("batch.sequence"),
                     fmt::format("found {}: decoding makes one new token per sequence; use 1, and "
                                 "\"cached\" for those there are",
                                 j.batch.sequence));
  }
  if (!batch_known) {
    miss_batch(v, j);
  }
  if (!plan_open) {
    fit_default_batch(v, j);
    check_job(j, v, accepts);
  }
  return j;
}

}  // namespace

Job read_job(const JobDocuments& documents, const Library& library, bool plan_open) {
  return read_job(documents, library, plan_open, true);
}

Job load_job(const Source& source, const std::vector<std::string>& given, const Library& library) {
  const std::vector<std::string> overrides = spelled_out(given);
  Document document = job_document(source, overrides, library);
  const auto named = framework_named_by(document, overrides);
  return read_job_on_framework(apply_overrides(std::move(document), overrides, library), named,
                               library, false);
}

}  // namespace stepcast::config
