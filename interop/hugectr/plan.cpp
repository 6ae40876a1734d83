#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "interop/formats.h"
#include "interop/hugectr/plan.h"

// A plan of ours <-> shard_matrix and shard_strategy of HugeCTR's embedding collection.
namespace stepcast::interop {
namespace {

[[noreturn]] void cannot(const PlanTable& table, std::string_view what, std::string_view remedy) {
  throw InputError(fmt::format("--export hugectr: table \"{}\"", table.name),
                   fmt::format("HugeCTR has no form for {}; {}", what, remedy));
}

void check_expressible(const PlanTable& table, std::int64_t rows, std::int64_t devices) {
  const PlanShard& s = table.shards.front();
  if (s.rows[0] != 0 || s.rows[1] != rows) {
    cannot(table,
           fmt::format("rows [{}, {}) apart from the others (row tiers)", s.rows[0], s.rows[1]),
           "give all rows of the table one placement");
  }
  if (table.shards.size() > 1) {
    cannot(table, "columns on named ranks",
           "keep its columns together: a plan made with --export hugectr has no column parts");
  }
  if (table.frequency_order) {
    cannot(table, "rows in order of popularity", "plan with row_order \"workload\"");
  }
  if (s.tier != "hbm" || s.cache_bytes > 0) {
    cannot(table, fmt::format("rows in tier \"{}\"", s.tier), "keep the table in hbm");
  }
  const auto& group = s.groups.front();
  if (s.groups.size() > 1) {
    cannot(table, fmt::format("{} copies on groups of ranks", s.groups.size()),
           "give it one copy, or data_parallel on every rank");
  }
  const bool copies = s.sharding == ShardingKind::kDataParallel;
  if (copies && static_cast<std::int64_t>(group.size()) != devices) {
    cannot(table, fmt::format("copies on {} of {} ranks", group.size(), devices),
           "use every rank or one");
  }
  if (!copies && group.size() > 1 && s.split != Split::kStripe) {
    cannot(table, "rows in blocks: it takes row mod n",
           "stripe it: a plan made with --export hugectr has no blocks");
  }
  if (!copies && !std::is_sorted(group.begin(), group.end())) {
    cannot(table, "a group whose ranks are not ascending", "list its ranks in ascending order");
  }
}

std::vector<std::string> names_of(const LayeredWorkload& w) {
  std::vector<std::string> names;
  for (const EmbeddingTable& t : w.tables) {
    names.push_back(t.name);
  }
  return names;
}

std::string table_name(const Value& v, const std::vector<std::string>& names) {
  const std::string name = v.text("the name of a table");
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    v.reject(fmt::format("the workload has no table \"{}\"; {}", name, suggestion(name, names)));
  }
  return name;
}

/// Table -> whether it is data-parallel.
std::map<std::string, bool> strategy_from(const Value& v, const std::vector<std::string>& names) {
  std::map<std::string, bool> copies;
  for (const Value& entry : v.items("a list such as [[\"mp\", [\"t0\"]], [\"dp\", [\"t1\"]]]", 1)) {
    const auto both = entry.items("[\"mp\" or \"dp\", tables]", 2);
    const bool dp = both.front().choice<bool>({{"mp", false}, {"dp", true}});
    for (const Value& t : both[1].items("a list of table names")) {
      if (!t.is_string()) {
        t.reject(
            fmt::format("found {}: column parts are not read from HugeCTR plans; name the "
                        "table alone",
                        shown(t.json())));
      }
      if (!copies.emplace(table_name(t, names), dp).second) {
        t.reject(fmt::format("table {} has a strategy already; list it once", shown(t.json())));
      }
    }
  }
  return copies;
}

}  // namespace

std::string plan_to_hugectr(const Job& job, const EmbeddingPlan& plan) {
  const LayeredWorkload& w = *job.workload.layered();
  std::vector<OrderedJson> matrix(static_cast<std::size_t>(plan.devices), OrderedJson::array());
  OrderedJson split = OrderedJson::array();
  OrderedJson copied = OrderedJson::array();
  for (const EmbeddingTable& described : w.tables) {
    const auto it = std::find_if(plan.tables.begin(), plan.tables.end(),
                                 [&](const PlanTable& t) { return t.name == described.name; });
    STEPCAST_CHECK(it != plan.tables.end(), "no table '{}'", described.name);
    check_expressible(*it, described.rows, plan.devices);
    const PlanShard& s = it->shards.front();
    (s.sharding == ShardingKind::kDataParallel ? copied : split).push_back(it->name);
    for (const std::int32_t rank : s.groups.front()) {
      matrix[static_cast<std::size_t>(rank)].push_back(it->name);
    }
  }
  for (std::size_t r = 0; r < matrix.size(); ++r) {
    if (matrix[r].empty()) {
      throw InputError("--export hugectr",
                       fmt::format("rank {} holds no table, and HugeCTR takes no empty list; use "
                                   "fewer devices, or data_parallel for a small table",
                                   r));
    }
  }
  const std::int64_t machine = std::min(job.system.host.devices, job.devices);
  OrderedJson vvgpu = OrderedJson::array();
  for (std::int64_t first = 0; first < job.devices; first += machine) {
    std::vector<std::int64_t> gpus(
        static_cast<std::size_t>(std::min(machine, job.devices - first)));
    std::iota(gpus.begin(), gpus.end(), 0);
    vvgpu.push_back(gpus);
  }
  OrderedJson j;
  j["vvgpu"] = std::move(vvgpu);
  j["shard_matrix"] = matrix;
  j["shard_strategy"] = OrderedJson::array();
  if (!split.empty()) {
    j["shard_strategy"].push_back({"mp", std::move(split)});
  }
  if (!copied.empty()) {
    j["shard_strategy"].push_back({"dp", std::move(copied)});
  }
  return pretty(j, 2) + "\n";
}

namespace {

bool is_hugectr_plan(const Json& root) {
  return root.is_object() && root.contains("shard_matrix") && root.contains("shard_strategy");
}

EmbeddingPlan plan_of_hugectr(const Value& v, const Job& job) {
  const LayeredWorkload& w = *job.workload.layered();
  const std::int64_t devices = job.devices;
  v.keys({"vvgpu", "shard_matrix", "shard_strategy"});
  const std::vector<std::string> names = names_of(w);
  const auto copies = strategy_from(v.at("shard_strategy", "how tables are split"), names);
  const Value matrix = v.at("shard_matrix", "the tables of each GPU");
  const auto gpus = matrix.items("a list of tables for each GPU", 1);
  if (static_cast<std::int64_t>(gpus.size()) != devices) {
    matrix.reject(fmt::format("found {} GPUs, but the job has {} devices; set devices={}",
                              gpus.size(), devices, gpus.size()));
  }
  std::map<std::string, std::vector<std::int32_t>> ranks;
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    for (const Value& t : gpus[r].items("a list of table names")) {
      const std::string name = table_name(t, names);
      if (copies.count(name) == 0) {
        t.reject(fmt::format("table \"{}\" is not in shard_strategy; add it under mp or dp", name));
      }
      auto& of = ranks[name];
      if (!of.empty() && of.back() == static_cast<std::int32_t>(r)) {
        t.reject(fmt::format("table \"{}\" is twice on this GPU; list it once", name));
      }
      of.push_back(static_cast<std::int32_t>(r));
    }
  }
  EmbeddingPlan plan;
  plan.workload = "a HugeCTR plan";
  plan.devices = devices;
  for (const EmbeddingTable& table : w.tables) {
    const auto it = ranks.find(table.name);
    if (it == ranks.end()) {
      continue;  // check_plan names what is missing
    }
    PlanShard s;
    s.rows = {0, table.rows};
    s.columns = {0, table.dim};
    s.groups = {it->second};
    const auto size = static_cast<std::int64_t>(it->second.size());
    if (copies.at(table.name)) {
      if (size != devices) {
        matrix.reject(fmt::format("table \"{}\" is data-parallel on {} of {} GPUs; put it on all",
                                  table.name, size, devices));
      }
      s.sharding = devices == 1 ? ShardingKind::kTableWise : ShardingKind::kDataParallel;
      s.split = devices == 1 ? Split::kBlock : Split::kReplicate;
    } else {
      s.sharding = size == 1         ? ShardingKind::kTableWise
                   : size == devices ? ShardingKind::kRowWise
                                     : ShardingKind::kTableRowWise;
      s.split = size == 1 ? Split::kBlock : Split::kStripe;
    }
    plan.tables.push_back({table.name, false, {std::move(s)}});
  }
  return plan;
}

}  // namespace

ForeignFormat hugectr_sharding_plan() {
  return {.what = "shard_matrix and shard_strategy of HugeCTR",
          .inferred_by_keys = is_hugectr_plan,
          .plan_of = plan_of_hugectr};
}

std::string hugectr_loader(const std::string& plan_file) {
  return fmt::format(R"py(#!/usr/bin/env python3
"""Hands {file}, which stepcast wrote, to a HugeCTR embedding collection.

    from {module} import load_plan, shard
    ebc_config = hugectr.EmbeddingCollectionConfig()
    ...                      # ebc_config.embedding_lookup(...), tables named as in the plan
    shard(ebc_config)
"""
import json
import os

PLAN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{file}")


def load_plan(path=PLAN):
    with open(path) as file:
        plan = json.load(file)
    strategy = [(kind, tables) for kind, tables in plan["shard_strategy"]]
    return plan["shard_matrix"], strategy


def shard(ebc_config, path=PLAN):
    matrix, strategy = load_plan(path)
    ebc_config.shard(shard_matrix=matrix, shard_strategy=strategy)
    return ebc_config


if __name__ == "__main__":
    print(load_plan())
)py",
                     fmt::arg("file", plan_file),
                     fmt::arg("module", plan_file.substr(0, plan_file.find('.'))));
}

}  // namespace stepcast::interop
