#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "core/graph/embedding_placement.h"
#include "core/graph/optimizer_state.h"
#include "interop/formats.h"
#include "interop/torchrec/plan.h"
#include "interop/torchrec/rules.h"

// A plan of ours <-> TorchRec's ParameterSharding of every table.
namespace stepcast::interop {
namespace {

constexpr const char* kPooledModule = "sparse_arch.embedding_bag_collection";
constexpr const char* kSequenceModule = "sparse_arch.embedding_collection";

[[noreturn]] void cannot(const PlanTable& table, std::string_view what, std::string_view remedy) {
  throw InputError(fmt::format("--export torchrec: table \"{}\"", table.name),
                   fmt::format("TorchRec has no form for {}; {}", what, remedy));
}

[[noreturn]] void refuse_columns(const EmbeddingTable& t) {
  const std::int64_t unit = kTorchRecColumnMultiple;
  throw InputError(
      fmt::format("--export torchrec: table \"{}\"", t.name),
      fmt::format(
          "has dim {}, and every kernel of TorchRec takes multiples of {} only; pad it to {} "
          "columns (dim {})",
          t.dim, unit, (t.dim + unit - 1) / unit * unit, (t.dim + unit - 1) / unit * unit));
}

/// Columns that FBGEMM's kernels take, of a table or a part of it.
void check_columns(const PlanTable& table, const EmbeddingTable& described) {
  const std::int64_t unit = kTorchRecColumnMultiple;
  if (described.dim % unit != 0) {
    refuse_columns(described);
  }
  for (const PlanShard& s : table.shards) {
    if (const std::int64_t columns = s.columns[1] - s.columns[0]; columns % unit != 0) {
      cannot(table, fmt::format("a part of {} columns", columns),
             fmt::format("cut the table into parts of a multiple of {}", unit));
    }
  }
}

void check_expressible(const Job& job, const PlanTable& table, const EmbeddingTable& described) {
  const std::int64_t rows = described.rows;
  check_columns(table, described);
  if (table.frequency_order) {
    cannot(table, "rows in order of popularity", "plan with row_order \"workload\"");
  }
  for (const PlanShard& s : table.shards) {
    if (s.rows[0] != 0 || s.rows[1] != rows) {
      cannot(table,
             fmt::format("rows [{}, {}) apart from the others (row tiers)", s.rows[0], s.rows[1]),
             "give all rows of the table one placement");
    }
    if (s.tier != "hbm" && (s.tier != kTorchRecHostTier || job.system.host.shares_core)) {
      cannot(table, fmt::format("rows in tier \"{}\" of this system", s.tier),
             fmt::format("keep the table in hbm, or in \"{}\" of a system with GPUs",
                         kTorchRecHostTier));
    }
    if (s.tier != table.shards.front().tier ||
        (s.cache_bytes > 0) != (table.shards.front().cache_bytes > 0)) {
      cannot(table, "parts in different memory", "give all parts of the table one tier");
    }
    if (s.split == Split::kStripe && s.groups.front().size() > 1) {
      cannot(table, "striped rows (row mod n)",
             "split it in blocks: a plan made with --export torchrec has no stripes");
    }
    if (s.groups.size() > 1) {
      cannot(table, fmt::format("{} copies on groups of ranks", s.groups.size()),
             "give it one copy, or data_parallel on every rank");
    }
  }
}

/// Rows on all ranks, on the ranks of one machine, or whole.
std::string sharding_type(const Job& job, const PlanTable& table) {
  const PlanShard& first = table.shards.front();
  const auto& group = first.groups.front();
  const auto size = static_cast<std::int64_t>(group.size());
  const std::int64_t machine = std::min(job.system.host.devices, job.devices);
  if (first.sharding == ShardingKind::kDataParallel) {
    if (size != job.devices) {
      cannot(table, fmt::format("copies on {} of {} ranks", size, job.devices),
             "use every rank or one");
    }
    return "data_parallel";
  }
  if (size == 1) {
    return table.shards.size() > 1 ? "column_wise" : "table_wise";
  }
  if (table.shards.size() == 1 && size == job.devices && first.sharding == ShardingKind::kRowWise) {
    return "row_wise";
  }
  for (const PlanShard& s : table.shards) {
    const auto& g = s.groups.front();
    if (static_cast<std::int64_t>(g.size()) != machine || g.front() % machine != 0 ||
        g.back() != g.front() + machine - 1) {
      cannot(table, fmt::format("rows over {} ranks from rank {}", g.size(), g.front()),
             fmt::format("its table_row_wise takes the {} ranks of one machine", machine));
    }
  }
  return table.shards.size() > 1 ? "grid_shard" : "table_row_wise";
}

/// The kernel of a table, by its type and memory.
std::string compute_kernel(const std::string& type, const PlanTable& table) {
  const PlanShard& first = table.shards.front();
  return type == "data_parallel" ? "dense"
         : first.tier == "hbm"   ? "fused"
         : first.cache_bytes > 0 ? "fused_uvm_caching"
                                 : "fused_uvm";
}

/// Rows that the fullest rank of a shard holds.
std::int64_t rows_of_rank(const PlanShard& s) {
  const auto members = static_cast<std::int64_t>(s.groups.front().size());
  return (s.rows[1] - s.rows[0] + members - 1) / members;
}

/// The cache as a share of the rows it stands in front of.
OrderedJson cache_of(const Job& job, const PlanTable& table, const EmbeddingTable& described) {
  const PlanShard& s = table.shards.front();
  const double row = cached_row_bytes(job.row_format(described), job.embedding_optimizer,
                                      s.columns[1] - s.columns[0]);
  const double slots = std::floor(s.cache_bytes / row);
  OrderedJson cache;
  cache["algorithm"] = s.cache_policy == RowCachePolicy::kLfu ? "LFU" : "LRU";
  cache["load_factor"] = std::min(1.0, slots / static_cast<double>(rows_of_rank(s)));
  return cache;
}

OrderedJson spec_of(const Job& job, const PlanTable& table) {
  const std::int64_t machine = std::min(job.system.host.devices, job.devices);
  OrderedJson shards = OrderedJson::array();
  for (const PlanShard& s : table.shards) {
    const auto& group = s.groups.front();
    const std::int64_t rows = s.rows[1];
    const auto members = static_cast<std::int64_t>(group.size());
    const RowSplit split{.rows = rows, .split = Split::kBlock, .members = members};
    for (std::int64_t i = 0; i < members; ++i) {
      const HeldRows held = split.part(i);
      const std::int32_t rank = group[static_cast<std::size_t>(i)];
      OrderedJson shard;
      shard["shard_sizes"] = {held.rows, s.columns[1] - s.columns[0]};
      shard["shard_offsets"] = {held.first, s.columns[0]};
      shard["placement"] = job.system.host.shares_core
                               ? fmt::format("rank:{}/cpu", rank)
                               : fmt::format("rank:{}/cuda:{}", rank, rank % machine);
      shards.push_back(std::move(shard));
    }
  }
  return shards;
}

const EmbeddingTable& table_of(const DlrmWorkload& w, const std::string& name) {
  const auto it = std::find_if(w.tables.begin(), w.tables.end(),
                               [&](const EmbeddingTable& t) { return t.name == name; });
  STEPCAST_CHECK(it != w.tables.end(), "no table '{}'", name);
  return *it;
}

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
    v.refuse(
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
      spec.refuse(fmt::format(
          "columns [{}, {}) have {} rows from row {} as part {} of {}; expected blocks of "
          "ceil({} / {}) = {} rows, as TorchRec's even row split has",
          columns[0], columns[1], p.rows, p.row, i, members, rows, members, even.block()));
    }
    if (std::find(group.begin(), group.end(), p.rank) != group.end()) {
      spec.refuse(fmt::format("rank {} has two parts of columns [{}, {}); give each part a rank",
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

/// What a kernel in host memory says of a table's parts.
void read_host_memory(const Value& v, const std::string& kernel, const Job& job,
                      const EmbeddingTable& table, PlanTable& t) {
  const auto cache = v.find("cache_params");
  const bool has_params = cache && !cache->json().is_null();
  if (kernel != "fused_uvm_caching") {
    if (has_params) {
      cache->refuse(fmt::format("kernel {} has no cache; remove it", kernel));
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
        given->refuse("is not modelled; leave it out");
      }
    }
    if (const auto reserved = cache->find("reserved_memory");
        reserved && !reserved->json().is_null() && reserved->number(0, 1e6) > 0) {
      reserved->refuse("is not modelled; use 0");
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
      kernel->refuse(
          fmt::format("found \"{}\": only dense, fused, fused_uvm and "
                      "fused_uvm_caching are read from TorchRec plans",
                      kernel_name));
    }
    if (kind == ShardingKind::kDataParallel && kernel_name.starts_with("fused_uvm")) {
      kernel->refuse(
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
      spec->refuse("data_parallel has no sharding_spec; remove it");
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
  for (const Value& shard : spec->items("a list of at least one shard", 1)) {
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

/// A collection has tables of one dim: where there are several, each has a collection.
std::string sequence_module(const DlrmWorkload& w, const EmbeddingTable& of) {
  const bool several =
      std::any_of(w.tables.begin(), w.tables.end(), [&of](const EmbeddingTable& t) {
        return t.mode == PoolingMode::kSequence && t.dim != of.dim;
      });
  return several ? fmt::format("{}_{}", kSequenceModule, of.dim) : kSequenceModule;
}

/// Column-wise tables of a collection have parts of one width. `width`: of those before, or 0.
void expect_one_width(const PlanTable& table, const EmbeddingTable& described,
                      std::int64_t& width) {
  for (const PlanShard& s : table.shards) {
    const std::int64_t columns = s.columns[1] - s.columns[0];
    if (width != 0 && columns != width) {
      cannot(table,
             fmt::format("parts of {} columns in a collection with parts of {}", columns, width),
             fmt::format("cut the tables of {} columns that are not pooled into parts of one width",
                         described.dim));
    }
    width = columns;
  }
}

}  // namespace

void expect_torchrec_tables(const Job& job) {
  for (const EmbeddingTable& t : job.workload.dlrm()->tables) {
    if (t.dim % kTorchRecColumnMultiple != 0) {
      refuse_columns(t);
    }
  }
}

std::string plan_to_torchrec(const Job& job, const EmbeddingPlan& plan) {
  const DlrmWorkload& w = *job.workload.dlrm();
  OrderedJson modules = OrderedJson::object();
  std::map<std::int64_t, std::int64_t> part_widths;  // by dim, of tables that are not pooled
  for (const PlanTable& table : plan.tables) {
    const EmbeddingTable& described = table_of(w, table.name);
    check_expressible(job, table, described);
    const bool sequence = described.mode == PoolingMode::kSequence;
    OrderedJson to;
    const std::string type = sharding_type(job, table);
    const TorchRecSharding* takes = torchrec_sharding(type);
    STEPCAST_CHECK(takes != nullptr, "sharding type {}", type);
    if (sequence && !takes->unpooled) {
      cannot(table, fmt::format("{} of a table that is not pooled", type),
             "its embedding collections take data_parallel, table_wise, column_wise and row_wise "
             "over all ranks");
    }
    to["sharding_type"] = type;
    const bool copies = type == "data_parallel";
    to["compute_kernel"] = compute_kernel(type, table);
    OrderedJson ranks = OrderedJson::array();
    for (const PlanShard& s : table.shards) {
      for (const std::int32_t r : s.groups.front()) {
        ranks.push_back(r);
      }
    }
    to["ranks"] = std::move(ranks);
    to["sharding_spec"] = copies ? OrderedJson() : spec_of(job, table);
    if (to["compute_kernel"] == "fused_uvm_caching") {
      to["cache_params"] = cache_of(job, table, described);
    }
    if (sequence && type == "column_wise") {
      expect_one_width(table, described, part_widths[described.dim]);
    }
    modules[sequence ? sequence_module(w, described) : kPooledModule][table.name] = std::move(to);
  }
  return pretty(modules, 2) + "\n";
}

namespace {

bool is_torchrec_plan(const Json& root) {
  if (!root.is_object() || root.empty()) {
    return false;
  }
  return std::all_of(root.begin(), root.end(), [](const Json& module) {
    return module.is_object() && !module.empty() &&
           std::all_of(module.begin(), module.end(), [](const Json& table) {
             return table.is_object() && table.contains("sharding_type");
           });
  });
}

EmbeddingPlan plan_of_torchrec(const Value& v, const Job& job) {
  const DlrmWorkload& w = *job.workload.dlrm();
  EmbeddingPlan plan;
  plan.workload = "a TorchRec plan";
  plan.devices = job.devices;
  std::vector<std::string> names;
  for (const EmbeddingTable& t : w.tables) {
    names.push_back(t.name);
  }
  for (const auto& [module, tables] : v.members()) {
    for (const auto& [name, table] : tables.members()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        table.refuse(
            fmt::format("the workload has no table \"{}\"; {}", name, suggestion(name, names)));
      }
      if (std::any_of(plan.tables.begin(), plan.tables.end(),
                      [&, &n = name](const PlanTable& t) { return t.name == n; })) {
        table.refuse(fmt::format("table \"{}\" is in two modules; list each table once", name));
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
  ForeignFormat format;
  format.what = "a ShardingPlan of TorchRec";
  format.told_by_keys = is_torchrec_plan;
  format.plan_of = plan_of_torchrec;
  return format;
}

std::string torchrec_loader(const std::string& plan_file) {
  return fmt::format(R"py(#!/usr/bin/env python3
"""Builds a TorchRec ShardingPlan from {file}, which stepcast wrote.

    from {module} import load_plan
    model = DistributedModelParallel(module, plan=load_plan(), sharders=sharders)

Module paths are those of torchrec.models.dlrm; rename them for another model:

    load_plan(rename={{"sparse_arch.embedding_bag_collection": "model.ebc"}})
"""
import json
import os

from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata
from torchrec.distributed.types import (
    CacheParams,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)

PLAN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{file}")


def cache_params(table):
    cache = table.get("cache_params")
    if cache is None:
        return None
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import CacheAlgorithm

    return CacheParams(
        algorithm=CacheAlgorithm[cache["algorithm"]], load_factor=cache["load_factor"]
    )


def parameter_sharding(table):
    shards = table["sharding_spec"]
    spec = None
    if shards is not None:
        spec = EnumerableShardingSpec(
            [
                ShardMetadata(
                    shard_offsets=shard["shard_offsets"],
                    shard_sizes=shard["shard_sizes"],
                    placement=shard["placement"],
                )
                for shard in shards
            ]
        )
    return ParameterSharding(
        sharding_type=table["sharding_type"],
        compute_kernel=table["compute_kernel"],
        ranks=table["ranks"],
        sharding_spec=spec,
        cache_params=cache_params(table),
    )


def load_plan(path=PLAN, rename=None):
    with open(path) as file:
        modules = json.load(file)
    plan = {{}}
    for module, tables in modules.items():
        sharding = EmbeddingModuleShardingPlan()
        for name, table in tables.items():
            sharding[name] = parameter_sharding(table)
        plan[(rename or {{}}).get(module, module)] = sharding
    return ShardingPlan(plan=plan)


if __name__ == "__main__":
    print(load_plan())
)py",
                     fmt::arg("file", plan_file),
                     fmt::arg("module", plan_file.substr(0, plan_file.find('.'))));
}

}  // namespace stepcast::interop
