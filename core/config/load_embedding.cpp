// How a job places and exchanges embedding tables: its `embedding`.
#include <algorithm>

#include "core/config/internal/job_tables.h"
#include "core/config/internal/keys.h"
#include "core/job/tier_units.h"

namespace stepcast::config {
namespace {

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
      v.reject(fmt::format("found \"{}\"; {}, or the path of a plan file", text,
                           suggestion(text, names)));
    }
    const std::filesystem::path file = (v.folder() / text).lexically_normal();
    j.embedding_plan = plan_of_file(file, v.where(), j, library);
    j.embedding_choice = file.string();
    check_plan(*j.embedding_plan, *j.workload.layered(), j.system, j.devices, file.string() + ": ");
  } else {
    j.embedding_plan = plan_from(v);
    j.embedding_choice = "inline";
    check_plan(*j.embedding_plan, *j.workload.layered(), j.system, j.devices, v.where() + ".");
  }
}

KeyTable constraint_table() {
  return {open_fact("sharding", list_form(choice_form(sharding_names()), 1), "kinds it may have",
                    "all"),
          open_fact("memory", list_form(text_form("the name of a tier"), 1), "tiers it may be in",
                    "all"),
          open_fact("cache", boolean_form(), "rows of a slow tier are cached, or not", "either"),
          open_fact("narrowest_columns", integer_form(1, 1 << 20), "of a column part", "any")};
}

/// Reads limits on what searched plans may do with single tables.
void read_constraints(const Value& v, Job& j) {
  std::vector<std::string> tables;
  if (has_tables(j)) {
    for (const EmbeddingTable& t : j.workload.layered()->tables) {
      tables.push_back(t.name);
    }
  }
  for (const auto& [table, of_table] : v.members()) {
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) {
      of_table.reject(
          fmt::format("the workload has no table \"{}\"; {}", table, suggestion(table, tables)));
    }
    expect_keys(of_table, constraint_table());
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
          tier.reject(fmt::format("system {} has no tier \"{}\"; name one of system.tiers",
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

/// The job's own, or the one its plan was made for.
void read_sync_interval(const Value& v, Job& j, const Reading&) {
  const std::int64_t planned = j.embedding_plan ? j.embedding_plan->sync_interval : 0;
  j.sync_interval = v.integer(1, kLongestInterval);
  if (planned > 0 && planned != j.sync_interval) {
    v.reject(
        fmt::format("found {}, but the plan was made for {} steps between synchronisations; "
                    "leave the key out, or plan again",
                    j.sync_interval, planned));
  }
  if (j.sync_interval > 1 && !has_tables(j)) {
    v.reject(
        fmt::format("found {}: there are no embedding tables whose replicas could wait; "
                    "remove it",
                    j.sync_interval));
  }
}

void read_dedup(const Value& v, Job& j, const Reading&) {
  j.embedding_dedup = v.choice<bool>({{"off", false}, {"ikjt", true}});
  if (j.embedding_dedup && is_transformer(j)) {
    v.reject("found \"ikjt\": a transformer has no embedding tables; use off");
  }
}

void read_transform(const Value& v, Job& j, const Reading&) {
  j.sptt = v.choice<bool>({{"none", false}, {"sptt", true}});
  const std::int64_t node = j.system.host.devices;
  if (j.sptt && (!has_tables(j) || j.devices % node != 0 || j.devices == node)) {
    v.reject(
        fmt::format("found \"sptt\": towers are machines of {} devices with tables; use "
                    "tables and several whole machines, or none",
                    node));
  }
}

void read_chosen_plan(const Value& v, Job& j, const Reading& reading) {
  if (!has_tables(j) && !v.is("auto")) {
    v.reject(fmt::format("found {}: {} has no embedding tables to place; remove it",
                         shown(v.json()), is_transformer(j) ? "a transformer" : "the workload"));
  }
  read_plan(v, j, *reading.library);
  j.embedding_chosen = true;
  if (j.embedding_plan) {  // what it was made for, unless the job says otherwise
    j.embedding_dedup = j.embedding_plan->dedup;
    j.sync_interval = std::max<std::int64_t>(1, j.embedding_plan->sync_interval);
  }
}

void read_tower_compression(const Value& v, Job& j, const Reading&) {
  const std::int64_t times = v.integer(1, 1 << 16);
  j.tower_compression = static_cast<double>(times);
  if (times > 1 && !j.sptt) {
    v.reject(
        fmt::format("found {}: only towers compress; use \"transform\": \"sptt\", or 1", times));
  }
}

OrderedJson chosen_plan_json(const Job& job, const Writing&) {
  return job.embedding_plan ? plan_json(*job.embedding_plan) : OrderedJson(job.embedding_choice);
}

const Keys<Job>& embedding_keys() {
  static const Keys<Job> keys{
      custom_key<Job>("plan",
                      any_form({text_form("auto, search, tiered, a kind of sharding or the path of "
                                          "a plan file"),
                                named_form("plan")}),
                      "where rows are held", read_chosen_plan, chosen_plan_json)
          .usual("auto")
          .of(kWithTables),
      custom_key<Job>("dedup", choice_form({"off", "ikjt"}),
                      "rows looked up several times in a batch are sent once", read_dedup,
                      [](const Job& job, const Writing&) {
                        return OrderedJson(job.embedding_dedup ? "ikjt" : "off");
                      })
          .otherwise("off, or what the plan was made for")
          .of(kWithTables),
      custom_key<Job>("sync_interval", integer_form(1, kLongestInterval),
                      "steps between two synchronisations of replicated rows", read_sync_interval,
                      [](const Job& job, const Writing&) {
                        return job.sync_interval > 1 ? OrderedJson(job.sync_interval)
                                                     : OrderedJson();
                      })
          .otherwise("1, or what the plan was made for")
          .of(kWithTables),
      custom_key<Job>(
          "transform", choice_form({"none", "sptt"}),
          "sptt: rows are exchanged inside each machine first, then between towers", read_transform,
          [](const Job& job, const Writing&) { return OrderedJson(job.sptt ? "sptt" : "none"); })
          .usual("none")
          .of(kWithTables),
      custom_key<Job>("tower_compression", integer_form(1, 1 << 16),
                      "with sptt: a machine's columns are that many times narrower outside it",
                      read_tower_compression,
                      [](const Job& job, const Writing&) { return plain(job.tower_compression); })
          .terse_usual(1)
          .of(kWithTables),
      custom_key<Job>(
          "constraints", map_form(object_form(constraint_table())),
          "by table: what plans that are searched may do with it",
          [](const Value& v, Job& j, const Reading&) { read_constraints(v, j); },
          [](const Job& job, const Writing&) {
            return job.plan_constraints.empty() ? OrderedJson()
                                                : constraints_json(job.plan_constraints);
          })
          .of(kWithTables)
          .written_after("sync_interval")};
  return keys;
}

}  // namespace

OrderedJson embedding_json(const Job& job) { return write_keys(embedding_keys(), job, {&job}); }
const KeyTable& embedding_table() {
  static const KeyTable table = facts_of(embedding_keys());
  return table;
}

void read_embedding(const Value& job, Job& j, const Library& library) {
  if (const auto v = job.find("embedding")) {
    read_keys(*v, embedding_keys(), j, {&j, &library});
  }
}

EmbeddingPlan load_plan(const std::filesystem::path& file, const Job& job, const Library& library) {
  return plan_of_file(file.lexically_normal(), "--from", job, library);
}

}  // namespace stepcast::config
