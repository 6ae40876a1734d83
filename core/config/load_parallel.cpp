// How a job is split over devices: its `parallel`.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "core/config/internal/job_tables.h"
#include "core/config/internal/keys.h"
#include "core/config/internal/loaders.h"
#include "core/job/layers.h"

namespace stepcast::config {
namespace {

// The forms that are neither a number nor a word.

const KeyTable kZeroKeys{
    usual_fact("stage", integer_form(0, 3), "as without the object", 3),
    open_fact("level", text_form("\"node\" or the name of a fabric level"),
              "shards lie inside one such unit and are replicated across (HSDP)"),
    usual_fact("reshard", boolean_form(), "stage 3: weights are freed after the forward pass",
               true)};
const KeyTable kRecomputeKeys{
    open_fact("layers", integer_form(0, 10'000), "the first of every stage"),
    open_fact("modules", list_form(choice_form(recompute_module_names()), 1),
              "parts of a layer, as Megatron-LM names them")};
const KeyTable kSplitKeys{
    usual_fact("embedding", integer_form(0, 10'000), "as how many layers it counts", 0),
    usual_fact("head", integer_form(0, 10'000), "as how many layers it counts", 0)};

/// The groups of a listed model are its degrees.
void read_groups(const std::optional<Value>& parallel, const ListedModel& model, Parallel& p) {
  const std::array<std::pair<const char*, std::int64_t*>, 3> degrees{
      {{"tensor", &p.tensor}, {"context", &p.context}, {"pipeline", &p.pipeline}}};
  for (std::size_t i = 0; i < degrees.size(); ++i) {
    const auto [key, degree] = degrees.at(i);
    *degree = i < model.list.groups.size() ? model.list.groups[i].size : 1;
    const auto given = parallel ? parallel->find(key) : std::nullopt;
    if (given && given->integer(1, kMostDevices) != *degree) {
      given->reject(
          fmt::format("found {}: the groups of a listed model say how many ranks share a "
                      "sample, here {}; change workload.groups",
                      shown(given->json()), *degree));
    }
  }
}

Recompute recompute_from(const Value& v) {
  Recompute r;
  if (v.is_object()) {
    expect_keys(v, kRecomputeKeys);
    if (const auto modules = v.find("modules")) {
      r.kind = RecomputeKind::kSelective;
      r.modules = recompute_modules_from(*modules);
      if (v.find("layers")) {
        modules->reject(
            "cannot be combined with layers, which are recomputed whole; use one of the two");
      }
      return r;
    }
    r.kind = RecomputeKind::kFirstLayers;
    r.layers = v.at("layers", "how many layers of each stage").integer(0, 10'000);
    return r;
  }
  r.kind = v.choice<RecomputeKind>({{"none", RecomputeKind::kNone},
                                    {"selective", RecomputeKind::kSelective},
                                    {"full", RecomputeKind::kFull}});
  return r;
}

/// {"embedding": 1, "head": 1}, or the layers of every virtual stage.
PipelineSplit pipeline_split_from(const Value& v) {
  constexpr std::int64_t kMostLayersOfStage = 10'000;
  PipelineSplit split;
  if (v.is_object()) {
    expect_keys(v, kSplitKeys);
    for (const auto& [key, weight] :
         {std::pair{"embedding", &split.embedding}, {"head", &split.head}}) {
      if (const auto given = v.find(key)) {
        *weight = given->integer(0, kMostLayersOfStage);
      }
    }
    return split;
  }
  for (const Value& layers :
       v.items("the layers of every virtual stage like [3, 4, 4, 3], or {\"embedding\": 1, "
               "\"head\": 1}",
               1)) {
    split.layers.push_back(layers.integer(0, kMostLayersOfStage));
  }
  return split;
}

void read_zero(const Value& v, bool dlrm, Parallel& p) {
  std::int64_t zero = 3;
  if (v.is_object()) {
    expect_keys(v, kZeroKeys);
    if (const auto stage = v.find("stage")) {
      zero = stage->integer(0, 3);
    }
    if (const auto level = v.find("level")) {
      p.zero_level = level->text("\"node\" or the name of a fabric level");
    }
    if (const auto reshard = v.find("reshard")) {
      p.zero_reshard = reshard->boolean();
      if (!p.zero_reshard && zero < 3) {
        reshard->reject(
            fmt::format("found false: stage {} keeps the weights anyway; use stage 3 or leave "
                        "\"reshard\" out",
                        zero));
      }
    }
  } else {
    zero = v.integer(0, 3);
  }
  if (zero > 0 && dlrm) {
    v.reject(fmt::format("found {}: the dense layers of a dlrm are replicated; use 0", zero));
  }
  p.zero = static_cast<int>(zero);
}

/// "tensor-context-expert-data-pipeline", innermost first. Experts have no axis of their own.
MeshOrder order_from(const Value& v) {
  const auto reject = [&v] {
    v.reject(
        fmt::format("found {}, expected tensor and then context, pipeline and data in any "
                    "order, like \"tensor-context-pipeline-data\"; expert may come before "
                    "data",
                    shown(v.json())));
  };
  const std::string text = v.text("names of axes, innermost first") + "-";
  MeshOrder order{};
  std::size_t found = 0;
  bool expert = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('-', begin);
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    if (name == "expert" && !expert && text.compare(begin, 5, "data-") == 0) {
      expert = true;
      continue;
    }
    const auto axis = std::find_if(axis_names().begin(), axis_names().end(),
                                   [&name](const auto& a) { return a.first == name; });
    if (axis == axis_names().end() || found == order.size()) {
      reject();
    }
    order[found++] = axis->second;
  }
  MeshOrder each = order;
  std::sort(each.begin(), each.end());
  if (found != order.size() || each != kUsualOrder || order.front() != Axis::kTensor) {
    reject();
  }
  return order;
}

// Degrees.

const Scope kSplitByTensor{"transformers, dit, graph", [](const Job& job) {
                             const LayerModel* layers = layers_in(job);
                             return is_transformer(job) ||
                                    (layers != nullptr && (layers->as<DitModel>() != nullptr ||
                                                           layers->as<ListedModel>() != nullptr));
                           }};
const Scope kSplit{"transformers, graph", [](const Job& job) {
                     const LayerModel* layers = layers_in(job);
                     return is_transformer(job) ||
                            (layers != nullptr && layers->as<ListedModel>() != nullptr);
                   }};

Key<Parallel> degree_key(std::string_view name, std::int64_t Parallel::*member, const Scope& scope,
                         std::string_view help) {
  Key<Parallel> key = integer_key(name, member, 1, kMostDevices, help).usual(1).of(scope);
  key.read = [member, &scope](const Value& v, Parallel& p, const Reading& reading) {
    const std::int64_t n = v.integer(1, kMostDevices);
    if (n > 1 && !scope.holds(*reading.job)) {
      v.reject(fmt::format(
          "found {}: a dlrm is only data-parallel, its tables are split by embedding.plan; use 1",
          n));
    }
    p.*member = n;
  };
  return key;
}

/// A degree, or "auto", held as 0: what follows from the others.
Key<Parallel> resolved_key(std::string_view name, std::int64_t Parallel::*member,
                           std::string_view help) {
  Key<Parallel> key = degree_key(name, member, kTransformers, help).terse_usual("auto");
  key.facts.form = any_form({choice_form({"auto"}), key.facts.form});
  key.read = [number = key.read](const Value& v, Parallel& p, const Reading& reading) {
    if (!v.is("auto")) {
      number(v, p, reading);
    }
  };
  key.write = [member](const Parallel& p, const Writing&) {
    return p.*member > 0 ? OrderedJson(p.*member) : OrderedJson("auto");
  };
  return key;
}

/// Axes of the ranks: their numbers follow from them.
std::string order_text(const MeshOrder& order) {
  std::string text;
  for (const Axis axis : order) {
    text += (text.empty() ? "" : "-") + name_in(axis_names(), axis);
  }
  return text;
}

OrderedJson recompute_json(const Recompute& r) {
  switch (r.kind) {
    case RecomputeKind::kNone:
      return "none";
    case RecomputeKind::kSelective:
      if (r.modules != RecomputeModules{}) {
        return {{"modules", names_of(r.modules)}};
      }
      return "selective";
    case RecomputeKind::kFull:
      return "full";
    case RecomputeKind::kFirstLayers:
      return {{"layers", r.layers}};
  }
  STEPCAST_FAIL("unknown recompute");
}

OrderedJson zero_json(const Parallel& p) {
  const bool kept = p.zero == 3 && !p.zero_reshard;  // else nothing is to say
  if (p.zero_level.empty() && !kept) {
    return p.zero;
  }
  OrderedJson j;
  j["stage"] = p.zero;
  if (!p.zero_level.empty()) {
    j["level"] = p.zero_level;
  }
  if (kept) {
    j["reshard"] = false;
  }
  return j;
}

OrderedJson pipeline_split_json(const PipelineSplit& split) {
  if (!split.layers.empty()) {
    return split.layers;
  }
  return {{"embedding", split.embedding}, {"head", split.head}};
}

Keys<Parallel> degrees() {
  using P = Parallel;
  return {
      degree_key("tensor", &P::tensor, kSplitByTensor, "ranks that share a layer's matrices")
          .searched(),
      degree_key("context", &P::context, kSplit, "ranks that share a sequence").searched(),
      degree_key("pipeline", &P::pipeline, kSplit, "ranks that share the layers").searched(),
      degree_key("expert", &P::expert, kTransformers,
                 "ranks with different experts; divides context data tensor")
          .searched(),
      resolved_key("expert_tensor", &P::expert_tensor, "ranks that share one expert's matrices"),
      degree_key("expert_chunks", &P::expert_chunks, kTransformers,
                 "with overlap.expert: parts in which tokens travel to the experts and back")
          .terse_usual(1),
      choice_key("expert_dispatch", &P::expert_dispatch, expert_dispatch_names(),
                 "how tokens reach the ranks of their experts")
          .terse_usual("all_to_all")
          .changed_only(
              kTransformers,
              "found a way for tokens to reach experts, but a dlrm has none; use all_to_all"),
      dispatcher_key(),
      fused_permutation_key(),
      fused_experts_key(),
      known_key<P>("data", any_form({choice_form({"auto"}), integer_form(1, kMostDevices)}),
                   "replicas", [](const P& p, const Writing&) { return OrderedJson(p.data); })
          .otherwise("devices / (tensor context pipeline)")
          .searched(),
      degree_key("virtual_stages", &P::virtual_stages, kTransformers,
                 "chunks of layers of a stage; more than 1 is interleaved")
          .searched(),
      resolved_key("chunk_microbatches", &P::chunk_microbatches,
                   "micro-batches that a chunk runs before the next chunk's turn")};
}

Key<Parallel> dlrm_pipeline_key() {
  Key<Parallel> key = choice_key("dlrm_pipeline", &Parallel::dlrm_pipeline, dlrm_pipeline_names(),
                                 "how far lookups of the next batch run ahead")
                          .usual("none")
                          .of(kWithTables);
  key.read = [read = key.read](const Value& v, Parallel& p, const Reading& reading) {
    read(v, p, reading);
    if (p.dlrm_pipeline != DlrmPipeline::kNone && !has_tables(*reading.job)) {
      v.reject(fmt::format("found a pipeline of embedding stages, but the workload {}; use none",
                           is_transformer(*reading.job) ? "is a transformer" : "has no tables"));
    }
  };
  return key;
}

/// The table of `parallel`.
const Keys<Parallel>& parallel_keys() {
  static const Keys<Parallel> keys = [] {
    using P = Parallel;
    Keys<P> all = degrees();
    const auto add = [&all](Key<P> key) { all.push_back(std::move(key)); };
    add(choice_key("schedule", &P::schedule, schedule_names(), "the order of a stage's passes")
            .usual("1f1b")
            .searched());
    add(boolean_key("sequence_parallel", &P::sequence_parallel,
                    "norms and residuals are split over the tensor ranks")
            .usual(false)
            .changed_only(kTransformers, "found true: a dlrm has no sequences to split; use false")
            .searched());
    add(custom_key<P>(
            "zero", any_form({integer_form(0, 3), object_form(kZeroKeys)}),
            "ZeRO: 1 shards optimizer states, 2 gradients too, 3 weights too",
            [](const Value& v, P& p, const Reading& reading) {
              read_zero(v, !is_transformer(*reading.job), p);
            },
            [](const P& p, const Writing&) { return zero_json(p); })
            .usual(0)
            .of(kTransformers)
            .searched());
    add(custom_key<P>(
            "recompute",
            any_form({choice_form({"none", "selective", "full"}), object_form(kRecomputeKeys)}),
            "what the backward pass computes again instead of keeping it",
            [](const Value& v, P& p, const Reading&) { p.recompute = recompute_from(v); },
            [](const P& p, const Writing&) { return recompute_json(p.recompute); })
            .usual("none")
            .changed_only(kTransformers, "found {}: a dlrm keeps its activations; use \"none\"")
            .searched());
    Key<P> bucket = amount_key("bucket", &P::bucket, "gradients exchanged together");
    bucket.facts.form = amount_form("25 MB");
    add(std::move(bucket).usual(quantity_text(P{}.bucket)));
    add(bucket_elements_key());
    Key<P> overlap = custom_key<P>(
        "overlap", object_form(facts_of(overlap_keys())), "which exchanges overlap with compute",
        [](const Value& v, P& p, const Reading& reading) { p.overlap = overlap_from(v, reading); },
        [](const P& p, const Writing& w) { return write_keys(overlap_keys(), p.overlap, w); });
    add(std::move(overlap).otherwise("of the stack; none without one"));
    add(choice_key("context_algorithm", &P::context_algorithm, context_algorithm_names(),
                   "how ranks that share a sequence attend to all of it; auto: the fastest")
            .usual("auto")
            .searched());
    add(dlrm_pipeline_key());
    add(custom_key<P>(
            "order", text_form("axes of the ranks, innermost first"),
            "how ranks are numbered: axes, innermost first",
            [](const Value& v, P& p, const Reading&) { p.order = order_from(v); },
            [](const P& p, const Writing&) { return OrderedJson(order_text(p.order)); })
            .terse_usual(order_text(kUsualOrder))
            .searched()
            .written_after("context_algorithm"));
    add(custom_key<P>(
            "pipeline_split",
            any_form({object_form(kSplitKeys), list_form(integer_form(0, 10'000), 1)}),
            "how layers are assigned to stages: weights of embedding and LM head, or the layers of "
            "every chunk",
            [](const Value& v, P& p, const Reading&) { p.pipeline_split = pipeline_split_from(v); },
            [](const P& p, const Writing&) { return pipeline_split_json(p.pipeline_split); })
            .terse_usual(pipeline_split_json({}))
            .changed_only(kTransformers,
                          "found layers of stages, but a dlrm has no pipeline; leave it out")
            .searched()
            .written_after("virtual_stages"));
    return all;
  }();
  return keys;
}

/// "devices = 48 or 64": the values of a key next below and above n * unit with which the job
/// loads, of multiples of unit that `divides` takes; "" of none.
std::string values_near(const std::string& key, std::int64_t n, std::int64_t unit,
                        const std::function<bool(std::int64_t)>& divides, const Accepts& accepts) {
  constexpr std::int64_t kFarthest = 64;
  constexpr int kMostTried = 8;
  std::string text;
  for (const std::int64_t way : {-1, 1}) {
    int tried = 0;
    for (std::int64_t k = way < 0 ? n : n + 1;
         k > 0 && std::abs(k - n) <= kFarthest && tried < kMostTried; k += way) {
      if (divides(k) && ++tried > 0 && accepts(key, k * unit)) {
        text += fmt::format("{}{}", text.empty() ? key + " = " : " or ", k * unit);
        break;
      }
    }
  }
  return text;
}

/// Values with which a job loads whose degrees do not divide its devices: "; use parallel.tensor =
/// 2 or 4, or devices = 48 or 64".
std::string dividing_values(const Job& j, const Accepts& accepts) {
  const Parallel& p = j.parallel;
  const std::int64_t split = p.tensor * p.context * p.pipeline;
  std::vector<std::string> all;
  for (const auto& [name, n] : {std::pair{"parallel.tensor", p.tensor},
                                {"parallel.context", p.context},
                                {"parallel.pipeline", p.pipeline}}) {
    if (j.devices % n != 0) {
      all.push_back(values_near(
          name, n, 1, [&, n = n](std::int64_t k) { return j.devices % (split / n * k) == 0; },
          accepts));
    }
  }
  all.push_back(values_near(
      "devices", j.devices / split, split, [](std::int64_t) { return true; }, accepts));
  std::erase(all, "");
  return all.empty() ? std::string() : fmt::format("; use {}", fmt::join(all, ", or "));
}

/// Chunks of a stage where the job does not say them: as many as its schedule has; of an
/// interleaved one as many as the layers, and ends that count as some, can be divided into.
std::int64_t usual_chunks(const Value& schedule, const Job& job) {
  const Parallel& p = job.parallel;
  const TransformerWorkload* w = job.workload.transformer();
  if (p.pipeline == 1 || w == nullptr || !schedule.is(kInterleaved)) {
    return p.pipeline == 1 ? 1 : traits_of(p.schedule).least_chunks;
  }
  const PipelineSplit& split = p.pipeline_split;
  const std::int64_t most = split.layers.empty() ? w->layers + split.embedding + split.head
                                                 : static_cast<std::int64_t>(split.layers.size());
  if (most % p.pipeline != 0 || most == p.pipeline) {
    schedule.reject(fmt::format(
        "found interleaved, but {} layers on {} stages are not several equal chunks on each; give "
        "parallel.virtual_stages, another pipeline, or use 1f1b",
        most, p.pipeline));
  }
  return most / p.pipeline;
}

}  // namespace

void read_data_degree(const Value& job, const std::optional<Value>& parallel, Job& j,
                      const Accepts& accepts) {
  const std::int64_t split = j.parallel.tensor * j.parallel.context * j.parallel.pipeline;
  if (j.devices % split != 0) {
    throw InputError(
        job.where("devices"),
        fmt::format("{} is not a multiple of tensor * context * pipeline = {} * {} * {} = {}{}",
                    j.devices, j.parallel.tensor, j.parallel.context, j.parallel.pipeline, split,
                    dividing_values(j, accepts)));
  }
  j.parallel.data = j.devices / split;
  const auto data = parallel ? parallel->find("data") : std::nullopt;
  if (data && !data->is("auto")) {
    if (data->is_string()) {
      data->fail("\"auto\" or an integer");
    }
    const std::int64_t n = data->integer(1, kMostDevices);
    if (n != j.parallel.data) {
      data->reject(fmt::format(
          "found {}, expected devices / (tensor * context * pipeline) = {} / {} = {}; "
          "use \"auto\"{}",
          n, j.devices, split, j.parallel.data,
          accepts("devices", n * split) ? fmt::format(" or set devices={}", n * split) : ""));
    }
  }
}

OrderedJson parallel_json(const Job& job, bool every) {
  return write_keys(parallel_keys(), job.parallel, {&job, every});
}
const KeyTable& parallel_table() {
  static const KeyTable table = facts_of(parallel_keys());
  return table;
}

void read_parallel(const Value& job, Job& j) {
  const auto v = job.find("parallel");
  if (v) {
    read_keys(*v, parallel_keys(), j.parallel, {.job = &j});
    const auto schedule = v->find("schedule");
    if (schedule && !v->find("virtual_stages")) {
      j.parallel.virtual_stages = usual_chunks(*schedule, j);
    } else if (schedule && schedule->is(kInterleaved) && j.parallel.virtual_stages == 1) {
      schedule->reject("found interleaved with virtual_stages = 1; use 2 or more, or 1f1b");
    }
  }
  if (const LayerModel* layers = layers_in(j)) {
    if (const auto* model = layers->as<ListedModel>()) {
      read_groups(v, *model, j.parallel);
    }
  }
}

}  // namespace stepcast::config
