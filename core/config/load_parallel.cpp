// How a job is split over devices: its `parallel`.
#include <algorithm>

#include "core/config/internal/loaders.h"
#include "core/job/layers.h"

namespace stepcast::config {
namespace {

/// The groups of a listed model are its degrees.
void read_groups(const std::optional<Value>& parallel, const ListedModel& model, Parallel& p) {
  const std::array<std::pair<const char*, std::int64_t*>, 3> degrees{
      {{"tensor", &p.tensor}, {"context", &p.context}, {"pipeline", &p.pipeline}}};
  for (std::size_t i = 0; i < degrees.size(); ++i) {
    const auto [key, degree] = degrees.at(i);
    *degree = i < model.list.groups.size() ? model.list.groups[i].size : 1;
    const auto given = parallel ? parallel->find(key) : std::nullopt;
    if (given && given->integer(1, kMostDevices) != *degree) {
      given->refuse(
          fmt::format("found {}: the groups of a listed model say how many ranks share a "
                      "sample, here {}; change workload.groups",
                      shown(given->json()), *degree));
    }
  }
}

std::int64_t degree(const Value& v, const char* key, bool dlrm) {
  const auto d = v.find(key);
  if (!d) {
    return 1;
  }
  const std::int64_t n = d->integer(1, kMostDevices);
  if (n > 1 && dlrm) {
    d->refuse(fmt::format(
        "found {}: a dlrm is only data-parallel, its tables are split by embedding.plan; use 1",
        n));
  }
  return n;
}

Recompute recompute_from(const Value& v) {
  Recompute r;
  if (v.is_object()) {
    v.keys({"layers", "modules"});
    if (const auto modules = v.find("modules")) {
      r.kind = RecomputeKind::kSelective;
      r.modules = recompute_modules_from(*modules);
      if (v.find("layers")) {
        modules->refuse("found beside layers, which are recomputed whole; use one of the two");
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
  constexpr std::int64_t kMost = 10'000;
  PipelineSplit split;
  if (v.is_object()) {
    v.keys({"embedding", "head"});
    for (const auto& [key, weight] :
         {std::pair{"embedding", &split.embedding}, {"head", &split.head}}) {
      if (const auto given = v.find(key)) {
        *weight = given->integer(0, kMost);
      }
    }
    return split;
  }
  for (const Value& layers :
       v.items("the layers of every virtual stage like [3, 4, 4, 3], or {\"embedding\": 1, "
               "\"head\": 1}",
               1)) {
    split.layers.push_back(layers.integer(0, kMost));
  }
  return split;
}

Overlap overlap_from(const Value& v, bool dlrm) {
  v.keys({"data", "tensor", "tensor_products", "pipeline", "parameters", "expert",
          "input_all_to_all", "output_all_to_all", "dense_all_reduce"});
  const auto flag = [&](const char* key, bool for_dlrm) {
    const auto f = v.find(key);
    const bool on = f && f->boolean();
    if (on && for_dlrm != dlrm) {
      f->refuse(fmt::format(
          "found true: {} belongs to {} jobs; use {}", key, for_dlrm ? "dlrm" : "transformer",
          dlrm ? "input_all_to_all, output_all_to_all or dense_all_reduce"
               : "data, tensor, tensor_products, pipeline, parameters or expert"));
    }
    return on;
  };
  if (flag("parameters", false) && !flag("data", false)) {
    v.at("parameters", "")
        .refuse(
            "found true without data: both are gathers and sums over replicas; use data true too");
  }
  if (flag("tensor_products", false) && !flag("tensor", false)) {
    v.at("tensor_products", "")
        .refuse(
            "found true without tensor, which gives these transfers a stream; use tensor true "
            "too");
  }
  return {flag("data", false),
          flag("tensor", false),
          flag("pipeline", false),
          flag("input_all_to_all", true),
          flag("output_all_to_all", true),
          flag("dense_all_reduce", true),
          flag("parameters", false),
          flag("expert", false),
          flag("tensor_products", false)};
}

void read_zero(const Value& v, bool dlrm, Parallel& p) {
  std::int64_t zero = 3;
  if (v.is_object()) {
    v.keys({"stage", "level", "reshard"});
    if (const auto stage = v.find("stage")) {
      zero = stage->integer(0, 3);
    }
    if (const auto level = v.find("level")) {
      p.zero_level = level->text("\"node\" or the name of a fabric level");
    }
    if (const auto reshard = v.find("reshard")) {
      p.zero_reshard = reshard->boolean();
      if (!p.zero_reshard && zero < 3) {
        reshard->refuse(
            fmt::format("found false: stage {} keeps the weights anyway; use stage 3 or leave "
                        "\"reshard\" out",
                        zero));
      }
    }
  } else {
    zero = v.integer(0, 3);
  }
  if (zero > 0 && dlrm) {
    v.refuse(fmt::format("found {}: the dense layers of a dlrm are replicated; use 0", zero));
  }
  p.zero = static_cast<int>(zero);
}

/// "tensor-context-expert-data-pipeline", innermost first. Experts have no axis of their own.
MeshOrder order_from(const Value& v) {
  const auto refuse = [&v] {
    v.refuse(
        fmt::format("found {}, expected tensor and then context, pipeline and data in any "
                    "order, like \"tensor-context-pipeline-data\"; expert may stand before "
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
      refuse();
    }
    order[found++] = axis->second;
  }
  MeshOrder each = order;
  std::sort(each.begin(), each.end());
  if (found != order.size() || each != kUsualOrder || order.front() != Axis::kTensor) {
    refuse();
  }
  return order;
}

/// Degrees that divide the devices, beside one that does not: "parallel.tensor = 2 or 4, or devices =
/// "; "" where no degree alone is at fault.
std::string divisors_near(const Job& j) {
  const Parallel& p = j.parallel;
  for (const auto& [name, n] :
       {std::pair{"tensor", p.tensor}, {"context", p.context}, {"pipeline", p.pipeline}}) {
    if (j.devices % n == 0 || n > j.devices) {
      continue;
    }
    std::int64_t less = n;
    std::int64_t more = n;
    while (j.devices % less != 0) {
      --less;
    }
    while (j.devices % more != 0) {
      ++more;
    }
    return fmt::format("parallel.{} = {} or {}, or devices = ", name, less, more);
  }
  return {};
}

}  // namespace

void read_data_degree(const Value& job, const std::optional<Value>& parallel, Job& j) {
  const std::int64_t split = j.parallel.tensor * j.parallel.context * j.parallel.pipeline;
  if (j.devices % split != 0) {
    throw InputError(
        job.where("devices"),
        fmt::format(
            "{} is not a multiple of tensor * context * pipeline = {} * {} * {} = {}; use {}{}",
            j.devices, j.parallel.tensor, j.parallel.context, j.parallel.pipeline, split,
            divisors_near(j), j.devices < split ? fmt::format("{}", split)
                              : fmt::format("{} or {}", j.devices / split * split,
                                            (j.devices / split + 1) * split)));
  }
  j.parallel.data = j.devices / split;
  const auto data = parallel ? parallel->find("data") : std::nullopt;
  if (data && !data->is("auto")) {
    if (data->is_string()) {
      data->fail("\"auto\" or an integer");
    }
    const std::int64_t n = data->integer(1, kMostDevices);
    if (n != j.parallel.data) {
      data->refuse(
          fmt::format("found {}, expected devices / (tensor * context * pipeline) = {} / {} = {}; "
                      "use \"auto\" or set devices={}",
                      n, j.devices, split, j.parallel.data, n * split));
    }
  }
}

const std::vector<std::string_view>& parallel_keys() {
  static const std::vector<std::string_view> keys{
      "tensor",         "context",       "pipeline",          "expert",
      "expert_tensor",  "expert_chunks", "expert_dispatch",   "data",
      "virtual_stages", "schedule",      "sequence_parallel", "zero",
      "recompute",      "bucket",        "overlap",           "context_algorithm",
      "dlrm_pipeline",  "order",         "pipeline_split"};
  return keys;
}

void read_parallel(const Value& job, Job& j) {
  const auto v = job.find("parallel");
  const bool dlrm = !is_transformer(j);
  if (v) {
    v->keys(parallel_keys());
    Parallel& p = j.parallel;
    const LayerModel* layers = layers_in(j);
    const bool listed = layers != nullptr && layers->as<ListedModel>() != nullptr;
    const bool splits = layers != nullptr && layers->as<DitModel>() != nullptr;
    if (!listed) {
      p.tensor = degree(*v, "tensor", dlrm && !splits);
      p.context = degree(*v, "context", dlrm);
      p.pipeline = degree(*v, "pipeline", dlrm);
    }
    p.expert = degree(*v, "expert", dlrm);
    p.virtual_stages = degree(*v, "virtual_stages", dlrm);
    if (const auto e = v->find("expert_tensor"); e && !e->is("auto")) {
      p.expert_tensor = degree(*v, "expert_tensor", dlrm);
    }
    if (const auto s = v->find("pipeline_split")) {
      p.pipeline_split = pipeline_split_from(*s);
      if (p.pipeline_split != PipelineSplit{} && dlrm) {
        s->refuse("found layers of stages, but a dlrm has no pipeline; leave it out");
      }
    }
    if (const auto s = v->find("schedule")) {
      p.schedule = s->choice(schedule_names());
    }
    if (const auto s = v->find("sequence_parallel")) {
      p.sequence_parallel = s->boolean();
      if (p.sequence_parallel && dlrm) {
        s->refuse("found true: a dlrm has no sequences to split; use false");
      }
    }
    if (const auto z = v->find("zero")) {
      read_zero(*z, dlrm, p);
    }
    if (const auto r = v->find("recompute")) {
      p.recompute = recompute_from(*r);
      if (p.recompute.kind != RecomputeKind::kNone && dlrm) {
        r->refuse(
            fmt::format("found {}: a dlrm keeps its activations; use \"none\"", shown(r->json())));
      }
    }
    if (const auto b = v->find("bucket")) {
      p.bucket = b->amount<Bytes>();
    }
    if (const auto o = v->find("overlap")) {
      p.overlap = overlap_from(*o, dlrm);
    }
    p.expert_chunks = degree(*v, "expert_chunks", dlrm);
    if (const auto d = v->find("expert_dispatch")) {
      p.expert_dispatch = d->choice(expert_dispatch_names());
      if (p.expert_dispatch != ExpertDispatch::kCopies && dlrm) {
        d->refuse("found a way for tokens to reach experts, but a dlrm has none; use all_to_all");
      }
    }
    if (const auto o = v->find("order")) {
      p.order = order_from(*o);
    }
    if (const auto a = v->find("context_algorithm"); a && !a->is("auto")) {
      p.context_algorithm = a->choice(context_algorithm_names());
    }
    if (const auto d = v->find("dlrm_pipeline")) {
      p.dlrm_pipeline = d->choice(dlrm_pipeline_names());
      if (p.dlrm_pipeline != DlrmPipeline::kNone && !dlrm) {
        d->refuse(
            "found a pipeline of embedding stages, but the workload is a transformer; use none");
      }
      if (p.dlrm_pipeline != DlrmPipeline::kNone && !has_tables(j)) {
        d->refuse("found a pipeline of embedding stages, but the workload has no tables; use none");
      }
    }
  }
  if (const LayerModel* layers = layers_in(j)) {
    if (const auto* model = layers->as<ListedModel>()) {
      read_groups(v, *model, j.parallel);
    }
  }
}

}  // namespace stepcast::config
