#include <algorithm>
#include <limits>
#include <map>
#include <unordered_set>

#include "core/access/row_order.h"
#include "core/config/access_files.h"
#include "core/config/internal/loaders.h"
#include "core/job/plan_settings.h"
#include "core/job/tier_units.h"

namespace stepcast::config {
namespace {

using Ends = std::array<std::int64_t, 2>;

Ends ends_from(const Value& v) {
  const auto ends = v.items("[first, end): two integers, the second one larger", 2);
  if (ends.size() != 2) {
    v.fail("[first, end): two integers, the second one larger");
  }
  const std::int64_t first = ends[0].integer(0, std::int64_t{1} << 40);
  const std::int64_t end = ends[1].integer(0, std::int64_t{1} << 40);
  if (end <= first) {
    v.fail("[first, end) with first below end");
  }
  return {first, end};
}

std::vector<std::vector<std::int32_t>> groups_from(const Value& v, std::int64_t devices) {
  std::vector<std::vector<std::int32_t>> groups;
  std::vector<bool> seen(static_cast<std::size_t>(devices), false);
  for (const Value& g : v.items("a list of groups of ranks, such as [[0, 1]]", 1)) {
    std::vector<std::int32_t> group;
    for (const Value& r : g.items("a list of at least one rank", 1)) {
      const std::int64_t rank = r.integer(0, devices - 1);
      if (seen[static_cast<std::size_t>(rank)]) {
        r.reject(fmt::format(
            "rank {} appears twice in the groups of this shard; a rank holds one copy at most",
            rank));
      }
      seen[static_cast<std::size_t>(rank)] = true;
      group.push_back(static_cast<std::int32_t>(rank));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

constexpr std::string_view kCacheBytes = "an amount such as \"20 GB\", or a number of bytes";

/// Checks what a kind of sharding asks of its groups: whole shards on single ranks, copies, or rows
/// spread over a group.
void check_kind(const PlanShard& s, const Value& v) {
  const auto single = [](const auto& group) { return group.size() == 1; };
  const bool spread =
      s.sharding == ShardingKind::kRowWise || s.sharding == ShardingKind::kTableRowWise;
  const bool copies = s.sharding == ShardingKind::kDataParallel;
  if (!spread && !copies && !std::all_of(s.groups.begin(), s.groups.end(), single)) {
    throw InputError(v.where("groups"),
                     fmt::format("{} puts a shard on one rank, but a group here has several; use "
                                 "one rank per group, or row_wise",
                                 name_of(s.sharding)));
  }
  if (copies && s.split != Split::kReplicate) {
    throw InputError(v.where("split"), "data_parallel keeps a copy on every member; use replicate");
  }
  if (spread && s.split == Split::kReplicate) {
    throw InputError(
        v.where("split"),
        fmt::format("{} spreads rows over a group; use block or stripe", name_of(s.sharding)));
  }
}

PlanShard shard_from(const Value& v, std::int64_t devices) {
  v.keys({"rows", "columns", "sharding", "tier", "groups", "split", "cache"});
  PlanShard s;
  s.rows = ends_from(v.at("rows", "[first, end)"));
  s.columns = ends_from(v.at("columns", "[first, end)"));
  s.sharding = v.at("sharding", "a kind of sharding").choice(sharding_names());
  if (const auto tier = v.find("tier")) {
    s.tier = tier->name();
  }
  if (const auto cache = v.find("cache")) {
    cache->keys({"bytes", "policy"});
    const Value bytes = cache->at("bytes", kCacheBytes);
    if (bytes.is_string()) {
      s.cache_bytes = bytes.amount<Bytes>().base();
    } else if (bytes.json().is_number()) {
      s.cache_bytes = bytes.number(1, 1e18);
    } else {
      bytes.fail(kCacheBytes);
    }
    if (const auto policy = cache->find("policy")) {
      s.cache_policy = policy->choice(cache_policy_names());
    }
    if (s.tier == "hbm") {
      cache->reject("only rows of a slower tier are cached; name that tier, or leave it out");
    }
  }
  s.groups = groups_from(v.at("groups", "a list of groups of ranks"), devices);
  const bool copies = s.sharding == ShardingKind::kDataParallel;
  s.split = copies ? Split::kReplicate : Split::kBlock;
  if (const auto split = v.find("split")) {
    s.split = split->choice(split_names());
  }
  check_kind(s, v);
  return s;
}

bool overlap(const Ends& a, const Ends& b) { return a[0] < b[1] && b[0] < a[1]; }

void check_disjoint(const PlanTable& t, const std::string& where) {
  for (std::size_t i = 0; i < t.shards.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(t.shards[i].rows, t.shards[j].rows) &&
          overlap(t.shards[i].columns, t.shards[j].columns)) {
        throw InputError(fmt::format("{}.shards[{}]", where, i),
                         fmt::format("rows [{}, {}) x columns [{}, {}) overlap shards[{}]; shards "
                                     "tile rows x columns exactly once",
                                     t.shards[i].rows[0], t.shards[i].rows[1],
                                     t.shards[i].columns[0], t.shards[i].columns[1], j));
      }
    }
  }
}

/// The ids of hot rows: listed, as a zipf law of a seed has them, or those a recording has most of.
RowOrder order_from(const Value& v, std::int64_t rows, std::int64_t hot) {
  constexpr std::string_view kForms =
      "{\"ids\": [..]}, {\"seed\": n} or {\"indices\": \"file\", \"hash\": \"..\"}";
  if (!v.is_object() || v.members().empty()) {
    v.fail(kForms);
  }
  if (const auto seed = v.find("seed")) {
    v.keys({"seed"});
    return RowOrder::seeded(rows, static_cast<std::uint64_t>(
                                      seed->integer(0, std::numeric_limits<std::int64_t>::max())));
  }
  if (const auto list = v.find("ids")) {
    v.keys({"ids"});
    std::vector<std::int64_t> ids;
    std::unordered_set<std::int64_t> seen;
    for (const Value& id : list->items("a list of row ids, hottest first")) {
      ids.push_back(id.integer(0, rows - 1));
      if (!seen.insert(ids.back()).second) {
        id.reject(fmt::format("row {} is listed twice; list each hot row once", ids.back()));
      }
    }
    return RowOrder::listed(rows, std::move(ids));
  }
  v.keys({"indices", "hash"});
  const Value file = v.at("indices", kForms);
  const std::filesystem::path path = file.folder() / file.text("a file of recorded row ids");
  auto order = RowOrder::of(Access::indices(rows, read_indices(path, file.where())), hot);
  const std::string hash = v.at("hash", kForms).text("the hash of the hot ids");
  if (const std::string now = hash_of_ids(order->ids()); now != hash) {
    throw InputError(
        v.where("hash"),
        fmt::format("found \"{}\", but the {} hottest ids of {} have {}: the recording "
                    "is another one than the plan was made from; restore it, or plan "
                    "again",
                    hash, hot, path.string(), now));
  }
  return std::move(*order);
}

PlanTable table_from(const Value& v, std::int64_t devices) {
  v.keys({"name", "row_order", "hot", "shards"});
  PlanTable t;
  t.name = v.at("name", "the name of a table").name();
  if (const auto order = v.find("row_order")) {
    t.frequency_order = order->choice<bool>({{"frequency", true}, {"workload", false}});
  }
  for (const Value& s :
       v.at("shards", "a list of shards").items("a list of at least one shard", 1)) {
    t.shards.push_back(shard_from(s, devices));
    if (t.shards.size() > 4096) {
      v.reject("more than 4096 shards for one table; use fewer");
    }
  }
  check_disjoint(t, v.where());
  if (const auto hot = v.find("hot")) {
    if (!t.frequency_order) {
      hot->reject("names hot rows, but row_order is workload; use \"row_order\": \"frequency\"");
    }
    std::int64_t rows = 0;
    for (const PlanShard& s : t.shards) {
      rows = std::max(rows, s.rows[1]);
    }
    t.order = std::make_shared<const RowOrder>(order_from(*hot, rows, t.hot_rows()));
    if (const auto file = hot->find("indices")) {
      t.order_file = std::filesystem::absolute(file->folder() / file->text("a file"))
                         .lexically_normal()
                         .string();
    }
  }
  return t;
}

/// Settings of the job that the plan was made for, by the path that --set takes.
std::vector<PlanSetting> made_for_from(const Value& v) {
  std::vector<PlanSetting> settings;
  const Job none;
  const std::vector<PlanSetting> known = plan_settings(none);
  std::vector<std::string_view> keys;
  for (const PlanSetting& s : known) {
    keys.push_back(s.key);
  }
  v.keys(keys);
  for (const PlanSetting& s : known) {
    if (const auto value = v.find(s.key)) {
      settings.push_back({s.key, value->is_string() ? value->text("") : value->json().dump()});
    }
  }
  return settings;
}

/// With disjoint shards inside the table, equal areas mean that they tile it.
void check_tiling(const PlanTable& plan, const EmbeddingTable& table, const std::string& where) {
  double covered = 0;
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    const PlanShard& s = plan.shards[i];
    const auto inside = [&](const char* key, const Ends& r, std::int64_t size) {
      if (r[1] > size) {
        throw InputError(fmt::format("{}.shards[{}].{}", where, i, key),
                         fmt::format("[{}, {}) reaches beyond the {} {} of table {}; end at {}",
                                     r[0], r[1], size, key, table.name, size));
      }
    };
    inside("rows", s.rows, table.rows);
    inside("columns", s.columns, table.dim);
    covered += static_cast<double>(s.rows[1] - s.rows[0]) *
               static_cast<double>(s.columns[1] - s.columns[0]);
  }
  const double whole = static_cast<double>(table.rows) * static_cast<double>(table.dim);
  if (covered != whole) {
    throw InputError(where + ".shards",
                     fmt::format("the shards cover {:.0f} of the {:.0f} elements of table {} ({} "
                                 "rows x {} columns); they must tile it exactly once",
                                 covered, whole, table.name, table.rows, table.dim));
  }
}

/// The system has the shard's tier, and room for its cache.
void check_tier(const PlanShard& s, const System& system, const std::string& where) {
  if (s.tier == "hbm") {
    return;
  }
  std::vector<std::string> names{"hbm"};
  const Tier* found = nullptr;
  for (const Tier& t : system.tiers) {
    if (t.name != "hbm") {
      names.push_back(t.name);
    }
    found = t.name == s.tier ? &t : found;
  }
  if (found == nullptr) {
    throw InputError(where + ".tier", fmt::format("system {} has no tier \"{}\"; {}", system.name,
                                                  s.tier, suggestion(s.tier, names)));
  }
  if (s.groups.size() > 1 || s.sharding == ShardingKind::kDataParallel) {
    throw InputError(where + ".tier",
                     fmt::format("found \"{}\": rows with several copies are updated from dense "
                                 "gradients and stay in device memory; use \"hbm\", or one copy",
                                 s.tier));
  }
  if (s.cache_bytes <= 0) {
    return;
  }
  const auto reject = [&](const TierExcess& excess, const std::string& of) {
    throw InputError(
        where + ".cache.bytes",
        fmt::format("caches of {:.0f} bytes are more than {}, {:.0f}; use smaller ones",
                    excess.held.base(), of, excess.capacity.base()));
  };
  const std::vector<std::int32_t>& holders = s.groups.front();
  std::vector<Bytes> cached(
      static_cast<std::size_t>(*std::max_element(holders.begin(), holders.end())) + 1);
  for (const std::int32_t rank : holders) {
    cached[static_cast<std::size_t>(rank)] = Bytes(s.cache_bytes);
  }
  if (const auto excess = tier_excess(*found, cached)) {
    reject(*excess, found->shared_by > 1
                        ? fmt::format("the {} that {} ranks share", s.tier, found->shared_by)
                        : s.tier);
  }
  if (const auto excess = tier_excess(*tier_named(system, "hbm"), cached)) {
    reject(*excess, "the device's memory");
  }
}

}  // namespace

const std::vector<std::pair<std::string, ShardingKind>>& sharding_names() {
  static const std::vector<std::pair<std::string, ShardingKind>> names = [] {
    std::vector<std::pair<std::string, ShardingKind>> all;
    for (const ShardingKind k :
         {ShardingKind::kTableWise, ShardingKind::kRowWise, ShardingKind::kColumnWise,
          ShardingKind::kTableRowWise, ShardingKind::kDataParallel}) {
      all.emplace_back(name_of(k), k);
    }
    return all;
  }();
  return names;
}
const std::vector<std::pair<std::string, RowCachePolicy>>& cache_policy_names() {
  static const std::vector<std::pair<std::string, RowCachePolicy>> names{
      {"lru", RowCachePolicy::kLru}, {"lfu", RowCachePolicy::kLfu}};
  return names;
}
const std::vector<std::pair<std::string, Split>>& split_names() {
  static const std::vector<std::pair<std::string, Split>> names{
      {"replicate", Split::kReplicate}, {"block", Split::kBlock}, {"stripe", Split::kStripe}};
  return names;
}

EmbeddingPlan plan_from(const Value& v) {
  if (!v.is_object()) {
    v.fail("a plan {\"kind\": \"embedding\", ...}");
  }
  v.keys({"stepcast", "kind", "workload", "system", "devices", "sync_interval", "dedup", "made_for",
          "predicted_step_s", "lower_bound_s", "gap", "content_hash", "tables", "ledger",
          // fields that `plan --format json` adds to a plan
          "planner", "objective_s", "buildable", "not_built_because", "mix"});
  if (const auto version = v.find("stepcast")) {
    (void)version->integer(1, 1);
  }
  if (const auto kind = v.find("kind"); kind && !kind->is("embedding")) {
    kind->fail("\"embedding\": only an embedding plan places tables");
  }
  EmbeddingPlan p;
  p.workload = v.at("workload", "the name of the workload it was made for").name();
  p.system = v.at("system", "the name of the system it was made for").name();
  p.devices = v.at("devices", "the number of devices").integer(1, 1 << 20);
  if (const auto interval = v.find("sync_interval")) {
    p.sync_interval = interval->integer(1, kLongestInterval);
  }
  if (const auto dedup = v.find("dedup")) {
    p.dedup = dedup->choice<bool>({{"off", false}, {"ikjt", true}});
  }
  if (const auto settings = v.find("made_for")) {
    p.made_for = made_for_from(*settings);
  }
  // Figures of the planner; without them a plan made by hand is as good.
  const auto seconds = [&v](const char* key) {
    const auto value = v.find(key);
    return value ? value->number(0, 1e9) : 0;
  };
  p.predicted_step = seconds("predicted_step_s");
  p.lower_bound = seconds("lower_bound_s");
  p.gap = seconds("gap");
  std::map<std::string, std::size_t> seen;
  for (const Value& t :
       v.at("tables", "a list of tables").items("a list of at least one table", 1)) {
    p.tables.push_back(table_from(t, p.devices));
    if (const auto [first, fresh] = seen.emplace(p.tables.back().name, p.tables.size() - 1);
        !fresh) {
      throw InputError(t.where("name"),
                       fmt::format("table \"{}\" is also tables[{}]; list each table once",
                                   first->first, first->second));
    }
  }
  return p;
}

void check_plan(const EmbeddingPlan& plan, const LayeredWorkload& workload, const System& system,
                std::int64_t devices, const std::string& where) {
  if (plan.devices != devices) {
    throw InputError(
        where + "devices",
        fmt::format(
            "the plan is for {} devices, the job has {}; make another plan or set devices={}",
            plan.devices, devices, plan.devices));
  }
  std::map<std::string, const EmbeddingTable*> tables;
  std::vector<std::string> names;
  for (const EmbeddingTable& t : workload.tables) {
    tables.emplace(t.name, &t);
    names.push_back(t.name);
  }
  for (std::size_t i = 0; i < plan.tables.size(); ++i) {
    const std::string at = fmt::format("{}tables[{}]", where, i);
    const auto it = tables.find(plan.tables[i].name);
    if (it == tables.end()) {
      throw InputError(
          at + ".name",
          fmt::format("the workload has no table \"{}\" (the plan was made for {}); {}",
                      plan.tables[i].name, plan.workload, suggestion(plan.tables[i].name, names)));
    }
    check_tiling(plan.tables[i], *it->second, at);
    for (std::size_t s = 0; s < plan.tables[i].shards.size(); ++s) {
      check_tier(plan.tables[i].shards[s], system, fmt::format("{}.shards[{}]", at, s));
    }
    it->second = nullptr;
    tables.erase(it);
  }
  if (!tables.empty()) {
    throw InputError(where + "tables", fmt::format("table \"{}\" of the workload is not in the "
                                                   "plan (made for {}); every table needs a place",
                                                   tables.begin()->first, plan.workload));
  }
}

}  // namespace stepcast::config
