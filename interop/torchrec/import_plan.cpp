#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "core/graph/embedding_placement.h"
#include "core/graph/optimizer_state.h"
#include "interop/formats.h"
#include "interop/torchrec/internal/parts.h"
#include "interop/torchrec/rules.h"

// TorchRec's ParameterSharding of every table -> a plan of ours.
namespace stepcast::interop {
namespace {

using torchrec::rows_of_rank;
using torchrec::table_of;

/// "rank:3/cuda:3" -> 3.
std::int32_t rank_of(const Value& v, std::int64_t devices) {
  const std::string text = v.text("a placement such as \"rank:3/cuda:3\"");
  std::int32_t rank = -1;
  const bool named = text.starts_with("rank:");
  const char* end = text.data() + text.size();
  const char* stop = named ? std::from_chars(text.data() + 5, end, rank).ptr : text.data();
  if (!named || rank < 0 || (stop != end && *stop != '/')) {
    v.fail("a placement such as \"rank:3/cuda:3\"");
  }
  if (rank >= devices) {
    v.reject(
        fmt::format("found \"{}\", but the job has {} devices: ranks end at {}; set devices "
                    "to those of the plan",
                    text, devices, devices - 1));
  }
  return rank;
}

std::array<std::int64_t, 2> pair_of(const Value& v, std::string_view expected) {
  const auto both = v.items(expected, 2);
  if (both.size() != 2) {
    v.fail(expected);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  return {both[0].integer(0, kMost), both[1].integer(0, kMost)};
}

struct Piece {
  std::int64_t row = 0, rows = 0;
  std::int32_t rank = 0;
};

/// One column range of a table: whole on a rank, or in blocks over several.
PlanShard shard_of(const Value& spec, const std::array<std::int64_t, 2>& columns,
                   std::vector<Piece> pieces, std::int64_t rows, ShardingKind kind) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.row < b.row; });
  const auto members = static_cast<std::int64_t>(pieces.size());
  const RowSplit even{.rows = rows, .split = Split::kBlock, .members = members};
  PlanShard s;
  s.rows = {0, rows};
  s.columns = columns;
  s.sharding = kind;
  s.split = Split::kBlock;
  auto& group = s.groups.emplace_back();
  for (std::int64_t i = 0; i < members; ++i) {
    const Piece& p = pieces[static_cast<std::size_t>(i)];
    const HeldRows held = even.part(i);
    if (p.rows != held.rows || (p.rows > 0 && p.row != held.first)) {
      spec.reject(fmt::format(
          "columns [{}, {}) have {} rows from row {} as part {} of {}; expected blocks of "
          "ceil({} / {}) = {} rows, as TorchRec's even row split has",
          columns[0], columns[1], p.rows, p.row, i, members, rows, members, even.block()));
    }
    if (std::find(group.begin(), group.end(), p.rank) != group.end()) {
      spec.reject(fmt::format("rank {} has two parts of columns [{}, {}); give each part a rank",
                              p.rank, columns[0], columns[1]));
    }
    group.push_back(p.rank);
  }
  return s;
}

const std::vector<std::pair<std::string, ShardingKind>>& types() {
  static const std::vector<std::pair<std::string, ShardingKind>> all{
      {"data_parallel", ShardingKind::kDataParallel},
      {"table_wise", ShardingKind::kTableWise},
      {"column_wise", ShardingKind::kColumnWise},
      {"table_column_wise", ShardingKind::kColumnWise},
      {"row_wise", ShardingKind::kRowWise},
      {"table_row_wise", ShardingKind::kTableRowWise},
      {"grid_shard", ShardingKind::kTableRowWise}};
  return all;
}

/// Reads what a kernel in host memory says of a table's parts.
void read_host_memory(const Value& v, const std::string& kernel, const Job& job,
                      const EmbeddingTable& table, PlanTable& t) {
  const auto cache = v.find("cache_params");
  const bool has_params = cache && !cache->json().is_null();
  if (kernel != "fused_uvm_caching") {
    if (has_params) {
      cache->reject(fmt::format("kernel {} has no cache; remove it", kernel));
    }
  }
  double load_factor = kTorchRecLoadFactor;
  RowCachePolicy policy = RowCachePolicy::kLru;
  if (has_params) {
    cache->keys({"algorithm", "load_factor", "reserved_memory", "precision", "prefetch_pipeline",
                 "stats", "multipass_prefetch_config"});
    for (const char* key :
         {"precision", "prefetch_pipeline", "stats", "multipass_prefetch_config"}) {
      if (const auto given = cache->find(key);
          given && !given->json().is_null() && given->json() != false) {
        given->reject("is not modelled; leave it out");
      }
    }
    if (const auto reserved = cache->find("reserved_memory");
        reserved && !reserved->json().is_null() && reserved->number(0, 1e6) > 0) {
      reserved->reject("is not modelled; use 0");
    }
    if (const auto given = cache->find("load_factor"); given && !given->json().is_null()) {
      load_factor = given->number(0, 1);
    }
    if (const auto given = cache->find("algorithm"); given && !given->json().is_null()) {
      policy = given->choice<RowCachePolicy>({{"LRU", RowCachePolicy::kLru},
                                              {"LFU", RowCachePolicy::kLfu},
                                              {"CacheAlgorithm.LRU", RowCachePolicy::kLru},
                                              {"CacheAlgorithm.LFU", RowCachePolicy::kLfu}});
    }
  }
  for (PlanShard& s : t.shards) {
    if (kernel == "fused" || kernel == "dense") {
      continue;
    }
    s.tier = kTorchRecHostTier;
    if (kernel == "fused_uvm_caching") {
      const double row = cached_row_bytes(job.row_format(table), job.embedding_optimizer,
                                          s.columns[1] - s.columns[0]);
      s.cache_bytes = row * std::round(load_factor * static_cast<double>(rows_of_rank(s)));
      s.cache_policy = policy;
    }
  }
}

PlanTable table_from(const std::string& name, const Value& v, const EmbeddingTable& table,
                     const Job& job) {
  const std::int64_t devices = job.devices;
  v.keys({"sharding_type", "compute_kernel", "ranks", "sharding_spec", "cache_params",
          "enforce_hbm", "stochastic_rounding", "bounds_check_mode", "output_dtype",
          "key_value_params"});
  const ShardingKind kind = v.at("sharding_type", "a sharding type of TorchRec").choice(types());
  std::string kernel_name = "fused";
  if (const auto kernel = v.find("compute_kernel"); kernel && !kernel->json().is_null()) {
    kernel_name = kernel->text("a compute kernel of TorchRec");
    if (kernel_name != "dense" && kernel_name != "fused" && kernel_name != "fused_uvm" &&
        kernel_name != "fused_uvm_caching") {
      kernel->reject(
          fmt::format("found \"{}\": only dense, fused, fused_uvm and "
                      "fused_uvm_caching are read from TorchRec plans",
                      kernel_name));
    }
    if (kind == ShardingKind::kDataParallel && kernel_name.starts_with("fused_uvm")) {
      kernel->reject(
          fmt::format("found \"{}\": copies of data_parallel are in device memory; "
                      "use dense",
                      kernel_name));
    }
  }
  PlanTable t;
  t.name = name;
  const auto spec = v.find("sharding_spec");
  if (kind == ShardingKind::kDataParallel) {
    if (spec && !spec->json().is_null()) {
      spec->reject("data_parallel has no sharding_spec; remove it");
    }
    PlanShard s;
    s.rows = {0, table.rows};
    s.columns = {0, table.dim};
    s.sharding = kind;
    s.split = Split::kReplicate;
    s.groups.emplace_back(static_cast<std::size_t>(devices));
    std::iota(s.groups.front().begin(), s.groups.front().end(), 0);
    t.shards.push_back(std::move(s));
    return t;
  }
  if (!spec || spec->json().is_null()) {
    throw InputError(v.where("sharding_spec"),
                     fmt::format("is missing, expected the shards of table \"{}\"", name));
  }
  std::map<std::array<std::int64_t, 2>, std::vector<Piece>> by_columns;
  // The list itself, or the object that dataclasses.asdict makes of an EnumerableShardingSpec.
  const auto listed = spec->is_object() ? spec->find("shards") : spec;
  for (const Value& shard : (listed ? *listed : *spec)
                                .items("a list of at least one shard, or {\"shards\": [...]}", 1)) {
    shard.keys({"shard_sizes", "shard_offsets", "placement"});
    const auto sizes = pair_of(shard.at("shard_sizes", "[rows, columns]"), "[rows, columns]");
    const auto offsets = pair_of(shard.at("shard_offsets", "[first row, first column]"),
                                 "[first row, first column]");
    const std::int32_t rank = rank_of(shard.at("placement", "\"rank:r/cuda:d\""), devices);
    by_columns[{offsets[1], offsets[1] + sizes[1]}].push_back({offsets[0], sizes[0], rank});
  }
  for (auto& [columns, pieces] : by_columns) {
    const ShardingKind of_part =
        pieces.size() > 1       ? kind
        : by_columns.size() > 1 ? ShardingKind::kColumnWise
        : devices == 1          ? ShardingKind::kTableWise
        : kind == ShardingKind::kTableRowWise || kind == ShardingKind::kRowWise
            ? kind
            : ShardingKind::kTableWise;
    t.shards.push_back(shard_of(*spec, columns, std::move(pieces), table.rows, of_part));
  }
  read_host_memory(v, kernel_name, job, table, t);
  return t;
}

bool lists_tables(const Json& module) {
  return module.is_object() && !module.empty() &&
         std::all_of(module.begin(), module.end(), [](const Json& table) {
           return table.is_object() && table.contains("sharding_type");
         });
}

/// dataclasses.asdict of a ShardingPlan has its modules under "plan".
bool as_dataclass(const Json& root) {
  return root.size() == 1 && root.contains("plan") && root["plan"].is_object() &&
         !lists_tables(root["plan"]);
}

bool is_torchrec_plan(const Json& file) {
  if (!file.is_object() || file.empty()) {
    return false;
  }
  const Json& modules = as_dataclass(file) ? file["plan"] : file;
  return !modules.empty() && std::all_of(modules.begin(), modules.end(), lists_tables);
}

EmbeddingPlan plan_of_torchrec(const Value& v, const Job& job) {
  const LayeredWorkload& w = *job.workload.layered();
  EmbeddingPlan plan;
  plan.workload = "a TorchRec plan";
  plan.devices = job.devices;
  std::vector<std::string> names;
  for (const EmbeddingTable& t : w.tables) {
    names.push_back(t.name);
  }
  const Value modules = as_dataclass(v.json()) ? v.at("plan", "") : v;
  for (const auto& [module, tables] : modules.members()) {
    for (const auto& [name, table] : tables.members()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        table.reject(
            fmt::format("the workload has no table \"{}\"; {}", name, suggestion(name, names)));
      }
      if (std::any_of(plan.tables.begin(), plan.tables.end(),
                      [&, &n = name](const PlanTable& t) { return t.name == n; })) {
        table.reject(fmt::format("table \"{}\" is in two modules; list each table once", name));
      }
      plan.tables.push_back(table_from(name, table, table_of(w, name), job));
    }
  }
  const auto place = [&names](const PlanTable& t) {
    return std::find(names.begin(), names.end(), t.name) - names.begin();
  };
  std::sort(plan.tables.begin(), plan.tables.end(),
            [&](const PlanTable& a, const PlanTable& b) { return place(a) < place(b); });
  return plan;
}

}  // namespace

ForeignFormat torchrec_sharding_plan() {
  return {.what = "a ShardingPlan of TorchRec",
          .inferred_by_keys = is_torchrec_plan,
          .plan_of = plan_of_torchrec};
}

}  // namespace stepcast::interop
