#include <algorithm>
#include <cmath>

#include "core/config/internal/layer_loaders.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

OrderedJson fitted_json(const FittedModels& models) {
  OrderedJson all = OrderedJson::object();
  for (const auto& [name, m] : models) {
    OrderedJson j;
    j["form"] = m.form;
    j["constants"] = OrderedJson::object();
    for (const auto& [constant, value] : m.constants) {
      j["constants"][constant] = plain(value);
    }
    j["range"] = OrderedJson::object();
    for (const auto& [feature, r] : m.range) {
      j["range"][feature] = {plain(r.first), plain(r.second)};
    }
    j["samples"] = m.samples;
    j["error"] = {{"median", plain(m.error.median)},
                  {"mean", plain(m.error.mean)},
                  {"p90", plain(m.error.p90)},
                  {"worst", plain(m.error.worst)},
                  {"bias", plain(m.error.bias)}};
    j["log_sigma"] = plain(m.log_sigma);
    j["source"] = m.source;
    j["points"] = OrderedJson::array();
    for (const auto& p : m.points) {
      OrderedJson point = OrderedJson::array();
      for (const double f : p.features) {
        point.push_back(plain(f));
      }
      point.push_back(plain(p.log_ratio));
      j["points"].push_back(std::move(point));
    }
    all[name] = std::move(j);
  }
  return all;
}

OrderedJson access_json(const EmbeddingTable& t) {
  const Access& law = t.remapped ? *t.remapped->access : *t.access;
  OrderedJson j;
  switch (law.kind()) {
    case AccessKind::kUniform:
      j["uniform"] = true;
      break;
    case AccessKind::kZipf:
      j["zipf"] = plain(law.exponent());
      j["seed"] = law.seed();
      break;
    case AccessKind::kHistogram:
      STEPCAST_CHECK(!t.access_file.empty(), "table {} has a histogram without a file", t.name);
      j["histogram"] = t.access_file;
      break;
    case AccessKind::kIndices:
      STEPCAST_CHECK(!t.access_file.empty(), "table {} has recorded indices without a file",
                     t.name);
      j["indices"] = t.access_file;
      break;
  }
  if (t.session) {
    j["session"] = {{"samples", plain(t.session->samples)}, {"keep", plain(t.session->keep)}};
  }
  if (t.remapped) {
    j["remap"] = {{"buckets", t.rows},
                  {"kind", t.remapped->kind == Access::Remap::kMod ? "mod" : "frequency"}};
  }
  return j;
}

OrderedJson batch_json(const Batch& b, bool transformer) {
  OrderedJson j;
  j["global"] = b.global;
  if (transformer) {
    j["micro"] = b.micro;
    j["sequence"] = b.sequence;
  }
  return j;
}

OrderedJson experts_json(const MixtureOfExperts& m) {
  OrderedJson j;
  j["experts"] = m.experts;
  j["per_token"] = m.per_token;
  j["shared"] = m.shared;
  j["ffn_hidden"] = m.ffn_hidden;
  j["first_dense_layers"] = m.first_dense_layers;
  if (m.groups > 1) {
    j["groups"] = m.groups;
    j["groups_per_token"] = m.groups_per_token;
  }
  if (m.capacity_factor > 0) {
    j["capacity_factor"] = plain(m.capacity_factor);
  }
  if (m.routing) {
    EmbeddingTable popularity;
    popularity.access = m.routing;
    popularity.access_file = m.routing_file;
    j["routing"] = access_json(popularity);
  }
  return j;
}

void add_transformer(OrderedJson& j, const TransformerWorkload& w) {
  j["layers"] = w.layers;
  j["hidden"] = w.hidden;
  j["heads"] = w.heads;
  if (!w.mla) {
    j["kv_heads"] = w.kv_heads;
    j["head_dim"] = w.head_dim;
  }
  j["ffn_hidden"] = w.ffn_hidden;
  j["activation"] = name_in(activation_names(), w.activation);
  j["vocabulary"] = w.vocabulary;
  j["tied_embeddings"] = w.tied_embeddings;
  if (w.window > 0) {
    j["window"] = w.window;
  }
  if (w.full_attention_every > 0) {
    j["full_attention_every"] = w.full_attention_every;
  }
  if (w.dropout) {
    j["dropout"] = true;
  }
  if (w.parallel_block) {
    j["parallel_block"] = true;
  }
  if (w.mla) {
    j["mla"] = {{"q_rank", w.mla->q_rank},
                {"kv_rank", w.mla->kv_rank},
                {"rope_dim", w.mla->rope_dim},
                {"nope_dim", w.mla->nope_dim},
                {"v_dim", w.mla->v_dim}};
  }
  if (w.moe) {
    j["moe"] = experts_json(*w.moe);
  }
  if (!w.approximated.empty()) {
    j["approximated"] = w.approximated;
  }
}

OrderedJson constraints_json(const std::vector<TableConstraint>& constraints) {
  OrderedJson j = OrderedJson::object();
  for (const TableConstraint& c : constraints) {
    OrderedJson of_table = OrderedJson::object();
    for (const ShardingKind kind : c.shardings) {
      of_table["sharding"].push_back(name_of(kind));
    }
    if (!c.tiers.empty()) {
      of_table["memory"] = c.tiers;
    }
    if (c.cached) {
      of_table["cache"] = *c.cached;
    }
    if (c.narrowest > 0) {
      of_table["narrowest_columns"] = c.narrowest;
    }
    j[c.table] = std::move(of_table);
  }
  return j;
}

void add_tables(OrderedJson& j, const DlrmWorkload& w) {
  j["tables"] = OrderedJson::array();
  for (const EmbeddingTable& t : w.tables) {
    OrderedJson table;
    table["name"] = t.name;
    table["rows"] = t.remapped ? t.remapped->rows : t.rows;
    table["dim"] = t.dim;
    if (t.features.empty()) {
      table["pooling"] = plain(t.pooling);
    } else if (t.features.front().name.empty()) {  // so many alike
      table["pooling"] = plain(t.features.front().pooling);
      table["features"] = t.features.size();
    } else {
      table["features"] = OrderedJson::array();
      for (const TableFeature& f : t.features) {
        table["features"].push_back({{"name", f.name}, {"pooling", plain(f.pooling)}});
      }
    }
    table["mode"] = name_in(pooling_names(), t.mode);
    if (t.format) {
      table["format"] = name_of(*t.format);
    }
    if (t.weighted) {
      table["weighted"] = true;
    }
    table["access"] = access_json(t);
    j["tables"].push_back(std::move(table));
  }
}

void add_dlrm(OrderedJson& j, const DlrmWorkload& w) {
  j["dense_features"] = w.dense_features;
  j["bottom_mlp"] = w.bottom_mlp;
  j["interaction"]["kind"] = name_in(interaction_names(), w.interaction.kind);
  if (w.interaction.kind == InteractionKind::kDcnV2) {
    j["interaction"]["layers"] = w.interaction.layers;
    j["interaction"]["rank"] = w.interaction.rank;
  }
  j["top_mlp"] = w.top_mlp;
  add_tables(j, w);
}

void add_layer_model(OrderedJson& j, const LayerModel& model) {
  if (const auto* m = model.as<WukongModel>()) {
    j["layers"] = m->layers;
    j["fmb"] = m->fmb;
    j["lcb"] = m->lcb;
    j["rank"] = m->rank;
    j["mlp"] = m->mlp;
  } else if (const auto* d = model.as<DhenModel>()) {
    j["layers"] = d->layers;
    j["features"] = d->features;
    j["modules"] = OrderedJson::array();
    for (const DhenModel::Module module : d->modules) {
      j["modules"].push_back(name_in(dhen_module_names(), module));
      if (module == DhenModel::Module::kAttention) {
        j["heads"] = d->heads;
      } else if (module == DhenModel::Module::kCross) {
        j["rank"] = d->rank;
      }
    }
  } else if (const auto* t = model.as<DitModel>()) {
    j["layers"] = t->layers;
    j["hidden"] = t->hidden;
    j["heads"] = t->heads;
    j["ffn_hidden"] = t->ffn_hidden;
    j["latent"] = t->latent;
    j["channels"] = t->channels;
    j["patch"] = t->patch;
    j["classes"] = t->classes;
    j["frequencies"] = t->frequencies;
    j["learned_variance"] = t->learned_variance;
  } else if (const auto* r = model.as<RecurrentCtcModel>()) {
    j["frames"] = r->frames;
    j["frequencies"] = r->frequencies;
    j["convolutions"] = OrderedJson::array();
    for (const auto& c : r->convolutions) {
      j["convolutions"].push_back(
          {{"channels", c.channels}, {"kernel", c.kernel}, {"stride", c.stride}});
    }
    j["layers"] = r->layers;
    j["hidden"] = r->hidden;
    j["bidirectional"] = r->bidirectional;
    j["symbols"] = r->symbols;
    j["labels"] = r->labels;
  } else {
    const auto listed = OrderedJson::parse(model.as<ListedModel>()->text);
    for (const auto& [key, value] : listed.items()) {
      j[key] = value;
    }
  }
}

OrderedJson recompute_json(const Recompute& r) {
  switch (r.kind) {
    case RecomputeKind::kNone:
      return "none";
    case RecomputeKind::kSelective:
      if (r.modules != RecomputeModules{}) {
        return {{"modules", recompute_modules_json(r.modules)}};
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

OrderedJson parallel_json(const Parallel& p, bool transformer) {
  OrderedJson j;
  j["tensor"] = p.tensor;
  j["context"] = p.context;
  j["pipeline"] = p.pipeline;
  j["expert"] = p.expert;
  if (p.expert_tensor > 0) {
    j["expert_tensor"] = p.expert_tensor;
  }
  if (p.expert_chunks > 1) {
    j["expert_chunks"] = p.expert_chunks;
  }
  if (p.expert_dispatch != ExpertDispatch::kCopies) {
    j["expert_dispatch"] = name_in(expert_dispatch_names(), p.expert_dispatch);
  }
  j["data"] = p.data;
  j["virtual_stages"] = p.virtual_stages;
  if (p.pipeline_split != PipelineSplit{}) {
    j["pipeline_split"] = pipeline_split_json(p.pipeline_split);
  }
  j["schedule"] = name_in(schedule_names(), p.schedule);
  j["sequence_parallel"] = p.sequence_parallel;
  j["zero"] = zero_json(p);
  j["recompute"] = recompute_json(p.recompute);
  j["bucket"] = quantity_text(p.bucket);
  if (transformer) {
    j["overlap"] = {
        {"data", p.overlap.data}, {"tensor", p.overlap.tensor}, {"pipeline", p.overlap.pipeline}};
    if (p.overlap.parameters) {
      j["overlap"]["parameters"] = true;
    }
    if (p.overlap.tensor_products) {
      j["overlap"]["tensor_products"] = true;
    }
    if (p.overlap.expert) {
      j["overlap"]["expert"] = true;
    }
  } else {
    j["overlap"] = {{"input_all_to_all", p.overlap.input_all_to_all},
                    {"output_all_to_all", p.overlap.output_all_to_all},
                    {"dense_all_reduce", p.overlap.dense_all_reduce}};
  }
  j["context_algorithm"] = name_in(context_algorithm_names(), p.context_algorithm);
  if (p.order != kUsualOrder) {
    std::string order;
    for (const Axis axis : p.order) {
      order += (order.empty() ? "" : "-") + std::string(name_in(axis_names(), axis));
    }
    j["order"] = order;
  }
  j["dlrm_pipeline"] = name_in(dlrm_pipeline_names(), p.dlrm_pipeline);
  return j;
}

OrderedJson optimizer_json(const Job& job) {
  const std::string dense = name_in(optimizer_names(), job.dense_optimizer);
  if (job.workload.transformer() != nullptr) {
    return dense;
  }
  return {{"dense", dense}, {"embedding", name_in(optimizer_names(), job.embedding_optimizer)}};
}

OrderedJson calibration_json(const Calibration& c) {
  switch (c.kind) {
    case Calibration::Kind::kAuto:
      return "auto";
    case Calibration::Kind::kNone:
      return "none";
    case Calibration::Kind::kScale:
      return {{"scale", plain(c.scale)}};
  }
  STEPCAST_FAIL("unknown calibration");
}

/// Bytes by rank and tier (CONTRACT section 5); whole numbers.
OrderedJson ledger_json(const std::vector<LedgerLine>& ledger) {
  OrderedJson lines = OrderedJson::array();
  for (const LedgerLine& l : ledger) {
    OrderedJson j;
    j["rank"] = l.rank;
    j["tier"] = l.tier;
    const auto bytes = [&j](const char* name, double value) { j[name] = plain(std::ceil(value)); };
    bytes("weights", l.weights);
    bytes("optimizer", l.optimizer);
    bytes("gradients", l.gradients);
    bytes("cache", l.cache);
    bytes("remap", l.remap);
    bytes("buffers", l.buffers);
    bytes("dense", l.dense);
    bytes("total", l.total());
    bytes("capacity", l.capacity);
    lines.push_back(std::move(j));
  }
  return lines;
}

/// FNV-1a, 64 bits: names a plan by what it places where, and lists of ids.
std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace

std::string hash_of_ids(std::span<const std::int64_t> ids) {
  std::string bytes;
  for (const std::int64_t id : ids) {
    for (unsigned byte = 0; byte < 8; ++byte) {
      bytes += static_cast<char>(static_cast<std::uint64_t>(id) >> (8 * byte) & 0xff);
    }
  }
  return fmt::format("{:016x}", fnv1a(bytes));
}

namespace {

/// Which rows are hot: in the shortest form that says so for good.
OrderedJson order_json(const PlanTable& t) {
  constexpr std::size_t kMostListed = 1 << 16;
  const RowOrder& order = *t.order;
  if (order.seed()) {
    return {{"seed", *order.seed()}};
  }
  if (order.ids().size() > kMostListed && !t.order_file.empty()) {
    return {{"indices", t.order_file}, {"hash", hash_of_ids(order.ids())}};
  }
  return {{"ids", order.ids()}};
}

OrderedJson plan_tables_json(const EmbeddingPlan& p) {
  OrderedJson tables = OrderedJson::array();
  for (const PlanTable& t : p.tables) {
    OrderedJson table;
    table["name"] = t.name;
    table["row_order"] = t.frequency_order ? "frequency" : "workload";
    if (t.order != nullptr) {
      table["hot"] = order_json(t);
    }
    table["shards"] = OrderedJson::array();
    for (const PlanShard& s : t.shards) {
      OrderedJson shard;
      shard["rows"] = s.rows;
      shard["columns"] = s.columns;
      shard["sharding"] = name_in(sharding_names(), s.sharding);
      shard["tier"] = s.tier;
      shard["groups"] = s.groups;
      shard["split"] = name_in(split_names(), s.split);
      if (s.cache_bytes > 0) {
        shard["cache"] = {{"bytes", plain(s.cache_bytes)},
                          {"policy", name_in(cache_policy_names(), s.cache_policy)}};
      }
      table["shards"].push_back(std::move(shard));
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

/// On one line, with a blank after each comma and colon.
std::string line(const OrderedJson& value) {
  if (!value.is_structured()) {
    return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  std::string out = value.is_object() ? "{" : "[";
  for (const auto& [key, item] : value.items()) {
    out += out.size() > 1 ? ", " : "";
    out += value.is_object() ? line(OrderedJson(key)) + ": " + line(item) : line(item);
  }
  return out + (value.is_object() ? "}" : "]");
}

/// Lists of numbers and short values below the top stay on one line.
bool fits_one_line(const OrderedJson& value, std::size_t depth) {
  constexpr std::size_t kLine = 150;
  const auto leaf = [](const OrderedJson& v) { return !v.is_structured() || v.empty(); };
  if (leaf(value) || (value.is_array() && std::all_of(value.begin(), value.end(), leaf))) {
    return true;
  }
  return depth > 0 && value.size() <= 16 && line(value).size() <= kLine;
}

void print(std::string& out, const OrderedJson& value, int indent, std::size_t depth) {
  if (fits_one_line(value, depth)) {
    out += line(value);
    return;
  }
  const std::string pad((depth + 1) * static_cast<std::size_t>(indent), ' ');
  out += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    out += (first ? "\n" : ",\n") + pad;
    first = false;
    if (value.is_object()) {
      out += line(OrderedJson(key)) + ": ";
    }
    print(out, item, indent, depth + 1);
  }
  out += "\n" + std::string(depth * static_cast<std::size_t>(indent), ' ') +
         (value.is_object() ? "}" : "]");
}

}  // namespace

OrderedJson plain(double v) {
  STEPCAST_CHECK(std::isfinite(v), "{} has no JSON form", v);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (v == std::floor(v) && std::abs(v) < kExact && !(v == 0 && std::signbit(v))) {
    return static_cast<std::int64_t>(v);
  }
  return v;
}

std::string pretty(const OrderedJson& value, int indent) {
  if (indent < 0) {
    return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  std::string out;
  print(out, value, indent, 0);
  return out + "\n";
}

OrderedJson workload_json(const Workload& w) {
  OrderedJson j;
  const bool transformer = w.transformer() != nullptr;
  const LayerModel* layers = transformer ? nullptr : w.dlrm()->layers.get();
  j["kind"] = transformer ? "transformer" : layers != nullptr ? layers->kind() : "dlrm";
  j["name"] = w.name;
  if (transformer) {
    add_transformer(j, *w.transformer());
  } else if (layers != nullptr) {
    add_layer_model(j, *layers);
    if (!w.dlrm()->top_mlp.empty()) {
      j["dense_features"] = w.dlrm()->dense_features;
      j["bottom_mlp"] = w.dlrm()->bottom_mlp;
      j["top_mlp"] = w.dlrm()->top_mlp;
    }
    if (!w.dlrm()->tables.empty()) {
      add_tables(j, *w.dlrm());
    }
  } else {
    add_dlrm(j, *w.dlrm());
  }
  if (w.default_batch) {
    j["default_batch"] = batch_json(*w.default_batch, transformer);
  }
  return j;
}

OrderedJson device_json(const Device& d) {
  OrderedJson j;
  j["name"] = d.name;
  j["memory"] = quantity_text(d.memory);
  j["bandwidth"] = quantity_text(d.bandwidth);
  j["l2"] = quantity_text(d.l2);
  j["multiprocessors"] = d.multiprocessors;
  j["launch"] = quantity_text(d.launch);
  j["watts"] = plain(d.watts);
  j["peak"] = OrderedJson::object();
  for (const auto& [format, rate] : d.peak) {
    j["peak"][std::string(name_of(format))] = quantity_text(rate);
  }
  j["source"] = d.source;
  j["fitted"] = fitted_json(d.fitted);
  return j;
}

OrderedJson system_json(const System& s) {
  OrderedJson j;
  j["name"] = s.name;
  j["device"] = device_json(s.device);
  j["fabric"] = OrderedJson::array();
  for (const FabricLevel& l : s.fabric) {
    OrderedJson level;
    level["name"] = l.name;
    level["size"] = l.size;
    if (l.used > 0) {
      level["used"] = l.used;
    }
    level["bandwidth"] = quantity_text(l.bandwidth);
    level["latency"] = quantity_text(l.latency);
    level["oversubscription"] = plain(l.oversubscription);
    level["in_switch_reduction"] = l.in_switch_reduction;
    j["fabric"].push_back(std::move(level));
  }
  j["tiers"] = OrderedJson::array();
  for (const Tier& t : s.tiers) {
    OrderedJson tier;
    tier["name"] = t.name;
    if (t.name != "hbm") {
      tier["capacity"] = quantity_text(t.capacity);
      tier["bandwidth"] = quantity_text(t.bandwidth);
      tier["shared_by"] = t.shared_by;
    }
    j["tiers"].push_back(std::move(tier));
  }
  j["host"] = {{"devices", s.host.devices},
               {"cores", s.host.cores},
               {"shares_core", s.host.shares_core},
               {"collectives_hold_core", s.host.collectives_hold_core}};
  j["fitted"] = fitted_json(s.fitted);
  return j;
}

OrderedJson plan_json(const EmbeddingPlan& p) {
  OrderedJson j;
  j["stepcast"] = 1;
  j["kind"] = "embedding";
  j["workload"] = p.workload;
  j["system"] = p.system;
  j["devices"] = p.devices;
  if (p.sync_interval > 0) {
    j["sync_interval"] = p.sync_interval;
  }
  if (p.dedup) {
    j["dedup"] = "ikjt";
  }
  for (const PlanSetting& s : p.made_for) {
    const OrderedJson value = OrderedJson::parse(s.value, nullptr, false);
    j["made_for"][s.key] = value.is_discarded() ? OrderedJson(s.value) : value;
  }
  if (p.predicted_step > 0) {
    j["predicted_step_s"] = p.predicted_step;
    j["lower_bound_s"] = p.lower_bound;
    j["gap"] = p.gap;
  }
  const OrderedJson tables = plan_tables_json(p);
  j["content_hash"] = fmt::format("{:016x}", fnv1a(tables.dump()));
  j["tables"] = tables;
  if (!p.ledger.empty()) {
    j["ledger"] = ledger_json(p.ledger);
  }
  return j;
}

std::string workload_to_json(const Workload& w, int indent) {
  return pretty(workload_json(w), indent);
}
std::string device_to_json(const Device& d, int indent) { return pretty(device_json(d), indent); }
std::string system_to_json(const System& s, int indent, DeviceAs device) {
  OrderedJson j = system_json(s);
  if (device == DeviceAs::kName) {
    j["device"] = s.device.name;
  }
  return pretty(j, indent);
}
std::string plan_to_json(const EmbeddingPlan& p, int indent) {
  return pretty(plan_json(p), indent);
}

std::string job_to_json(const Job& job, int indent) {
  const bool transformer = job.workload.transformer() != nullptr;
  OrderedJson j;
  j["stepcast"] = 1;
  j["workload"] = workload_json(job.workload);
  j["system"] = system_json(job.system);
  j["devices"] = job.devices;
  j["batch"] = batch_json(job.batch, transformer);
  j["parallel"] = parallel_json(job.parallel, transformer);
  j["formats"] = {{"compute", name_of(job.formats.compute)},
                  {"gradient", name_of(job.formats.gradient)},
                  {"embedding", name_of(job.formats.embedding)},
                  {"all_to_all_forward", name_of(job.formats.all_to_all_forward)},
                  {"all_to_all_backward", name_of(job.formats.all_to_all_backward)}};
  if (job.formats.expert_dispatch) {
    j["formats"]["expert_dispatch"] = name_of(*job.formats.expert_dispatch);
  }
  for (const auto& [key, format] :
       {std::pair{"moments", job.formats.moments}, {"master", job.formats.master}}) {
    if (format != Format::kFp32) {
      j["formats"][key] = name_of(format);
    }
  }
  if (job.formats.frozen) {
    j["formats"]["frozen"] = name_of(*job.formats.frozen);
  }
  j["embedding"] = OrderedJson::object();
  if (job.embedding_plan) {
    j["embedding"]["plan"] = plan_json(*job.embedding_plan);
  } else {
    j["embedding"]["plan"] = job.embedding_choice;
  }
  j["embedding"]["dedup"] = job.embedding_dedup ? "ikjt" : "off";
  if (job.sync_interval > 1) {
    j["embedding"]["sync_interval"] = job.sync_interval;
  }
  if (!job.plan_constraints.empty()) {
    j["embedding"]["constraints"] = constraints_json(job.plan_constraints);
  }
  j["embedding"]["transform"] = job.sptt ? "sptt" : "none";
  if (job.tower_compression > 1) {
    j["embedding"]["tower_compression"] = plain(job.tower_compression);
  }
  j["optimizer"] = optimizer_json(job);
  j["attention"] = job.flash_attention ? "flash" : "unfused";
  if (job.fused_epilogues) {
    j["epilogues"] = "fused";
  }
  add_training(j, job);
  j["flows"] = flows_json(job.flows);
  if (job.phase != JobPhase::kTrain) {
    j["phase"] = name_in(phase_names(), job.phase);
    j["cached"] = job.cached;
  }
  j["calibration"] = calibration_json(job.calibration);
  return pretty(j, indent);
}

}  // namespace stepcast::config
