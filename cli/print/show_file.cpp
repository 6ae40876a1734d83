#include "cli/print/show_file.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/print/human.h"
#include "cli/support/console.h"
#include "core/access/row_order.h"
#include "core/config/aliases.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/json_text.h"

namespace stepcast::cli {
namespace {

using nlohmann::json;

DataTable facts_table(const char* key, const std::string& title) {
  DataTable t(key, title, {{"fact", "", true}, {"value", "", true}});
  t.as_object();
  return t;
}

DataTable device_facts(const Device& d) {
  DataTable t = facts_table("device", "device " + d.name);
  t.row({name_cell("memory", "memory"), cell(d.memory)});
  t.row({name_cell("bandwidth_bytes_per_s", "memory bandwidth"),
         {human(d.bandwidth), d.bandwidth.base()}});
  for (const auto& [format, peak] : d.peak) {
    const std::string name(name_of(format));
    t.row({name_cell("peak_" + name, "peak " + name), {human(peak), peak.base()}});
  }
  t.row({name_cell("source", "source of these"), cell(d.source)});
  return t;
}

DataTable system_facts(const System& s) {
  DataTable t = facts_table("system", "system " + s.name);
  t.row({name_cell("device", "device"), cell(s.device.name)});
  t.row({name_cell("devices_per_machine", "devices of a machine"), cell(s.host.devices)});
  for (const FabricLevel& l : s.fabric) {
    t.row({name_cell("fabric_" + l.name, l.name),
           cell(fmt::format("joins {}, {} per device, latency {}", l.size, human(l.bandwidth),
                            human(l.latency)))});
  }
  for (const Tier& tier : s.tiers) {
    t.row({name_cell("tier_" + tier.name, "memory " + tier.name),
           cell(fmt::format(
               "{}, {}{}", human(tier.capacity), human(tier.bandwidth),
               tier.shared_by > 1 ? fmt::format(" for {} devices", tier.shared_by) : ""))});
  }
  return t;
}

/// Table of what is measured, by whom, and what is not.
DataTable constants(const char* key, const std::string& title, const FittedModels& models) {
  DataTable t(key, title,
              {{"model", "", true},
               {"form", "", true},
               {"rows"},
               {"median_error", "median"},
               {"p90_error", "p90"},
               {"source", "", true}});
  for (const auto& [name, m] : models) {
    t.row({cell(name), cell(m.form), m.samples > 0 ? cell(m.samples) : empty_cell(),
           m.samples > 0 ? share(m.error.median) : empty_cell(),
           m.samples > 0 ? share(m.error.p90) : empty_cell(), cell(m.source)});
  }
  t.note(models.empty() ? "Nothing is measured; all times come from hardware facts."
                        : "Without rows: not measured on this hardware, see the source. Other kinds "
                          "come from hardware facts.");
  return t;
}

DataTable plan_facts(const EmbeddingPlan& p) {
  DataTable t = facts_table("plan", "embedding plan");
  t.row({name_cell("workload", "of workload"), cell(p.workload)});
  t.row({name_cell("system", "on system"), cell(p.system)});
  t.row({name_cell("devices", "devices"), cell(std::int64_t{p.devices})});
  t.row({name_cell("tables", "tables"), cell(static_cast<std::int64_t>(p.tables.size()))});
  for (const PlanSetting& s : p.made_for) {
    t.row({name_cell(s.key, "made for " + s.key), cell(s.value)});
  }
  if (p.predicted_step > 0) {
    t.row({name_cell("predicted_step_s", "step, as predicted"), cell(Seconds(p.predicted_step))});
    t.row({name_cell("lower_bound_s", "lower bound"), cell(Seconds(p.lower_bound))});
    t.row({name_cell("gap", "gap"), share(p.gap)});
  }
  t.note(
      "`stepcast predict JOB --set embedding.plan=FILE` predicts it; `stepcast diff A B` compares "
      "two.");
  return t;
}

/// Who holds a shard: of several copies the ranks of each.
Cell ranks_cell(const PlanShard& s) {
  constexpr std::size_t kGroups = 3;
  std::string text;
  for (std::size_t g = 0; g < s.groups.size() && g < kGroups; ++g) {
    text += (g > 0 ? " | " : "") + rank_list(s.groups[g]);
  }
  if (s.groups.size() > kGroups) {
    text += fmt::format(" | ... ({} copies)", s.groups.size());
  }
  return {text, s.groups};
}

std::string kind_text(const PlanShard& s) {
  const std::string split =
      s.split == Split::kStripe && s.groups.front().size() > 1 ? ", striped" : "";
  const std::string cache =
      s.cache_bytes > 0 ? fmt::format(", cache {}", human(Bytes(s.cache_bytes))) : "";
  return fmt::format("{}{}{}", name_of(s.sharding), split, cache);
}

/// Which ids are hot, in words.
std::string order_text(const PlanTable& t) {
  return !t.frequency_order      ? "workload"
         : t.order == nullptr    ? "frequency, by the job's access"
         : t.order->seed()       ? fmt::format("frequency, zipf seed {}", *t.order->seed())
         : !t.order_file.empty() ? "frequency, ids of " + t.order_file
                                 : fmt::format("frequency, {} ids", t.order->ids().size());
}

DataTable plan_tables(const EmbeddingPlan& p) {
  DataTable t("shards", "shards of tables",
              {{"table", "", true},
               {"rows", "", true},
               {"columns", "", true},
               {"sharding", "", true},
               {"tier", "", true},
               {"ranks", "", true},
               {"order", "order of rows", true}});
  const auto range = [](const std::array<std::int64_t, 2>& r) {
    return Cell{fmt::format("{}-{}", r[0], r[1] - 1), r};
  };
  for (const PlanTable& table : p.tables) {
    for (const PlanShard& s : table.shards) {
      t.row({cell(table.name), range(s.rows), range(s.columns), cell(kind_text(s)), cell(s.tier),
             ranks_cell(s), cell(order_text(table))});
    }
  }
  t.limit(40);
  return t;
}

Tables tables_of(const System& s) {
  return {system_facts(s), device_facts(s.device),
          constants("kernels", "Models of kernels", s.device.fitted),
          constants("collectives", "Models of collectives", s.fitted)};
}

Tables tables_of(const Device& d) {
  return {device_facts(d), constants("kernels", "Models of kernels", d.fitted)};
}

/// JSON of ours that is no input of show: what another command reads.
void reject_output(const json& j, const std::string& file) {
  struct Kind {
    const char* key;
    const char* what;
  };
  const auto reject = [&file](const char* what, const char* reader) {
    throw InputError(file, fmt::format("is {}, which `stepcast {}` reads; show takes jobs, plans, "
                                       "systems, devices and traces",
                                       what, reader));
  };
  if (const auto kind = j.find("kind"); kind != j.end() && *kind == "baseline") {
    reject("a baseline", "replay TRACE --baseline");
  }
  for (const Kind& k :
       {Kind{"iteration_time_s", "a prediction"}, Kind{"plans", "what plan printed"},
        Kind{"points", "what sweep printed"}, Kind{"replays", "what replay printed"},
        Kind{"suites", "what validate printed"}}) {
    if (j.contains(k.key) && !j.contains("workload")) {
      reject(k.what, "report");
    }
  }
}

/// Tables of a built-in system or device, by the name that `list` prints.
std::optional<Tables> built_in_tables(const std::string& name, const Context& context) {
  const config::Library library{context.library};
  const std::vector<std::string> devices = config::built_in_devices(library);
  if (std::find(devices.begin(), devices.end(), name) != devices.end()) {
    return tables_of(config::load_device(name, library));
  }
  if (const std::string system = config::system_called(name, library); !system.empty()) {
    return tables_of(config::load_system(system, library));
  }
  if (!config::workload_called(name, library).empty()) {  // a job on the default system
    return std::nullopt;
  }
  if (name.find_first_of("/.") == std::string::npos) {
    throw InputError(name,
                     "no file, and no built-in model, system or device; `stepcast list` says "
                     "what there is");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Tables> file_tables(const std::string& file, const Context& context) {
  std::error_code error;
  if (file.empty() || file == "-") {
    return std::nullopt;
  }
  const bool document = console() != nullptr && console()->documents.contains(file);
  if (!document && !std::filesystem::is_regular_file(file, error)) {
    return std::filesystem::exists(file, error) ? std::nullopt : built_in_tables(file, context);
  }
  const config::Source source = named_source(file);
  expect_shallow_json(source.text, source.label);
  const json j = json::parse(source.text, nullptr, false, true);
  if (!j.is_object()) {
    return std::nullopt;
  }
  if (j.contains("fabric") && j.contains("device") && !j.contains("workload")) {
    return tables_of(config::read_system(source, {context.library}));
  }
  if (j.contains("memory") && j.contains("bandwidth") && j.contains("peak")) {
    return tables_of(config::read_device(source));
  }
  const auto kind = j.find("kind");
  if (kind != j.end() && *kind == "embedding" && j.contains("tables")) {
    const EmbeddingPlan p = config::read_plan(source);
    return Tables{plan_facts(p), plan_tables(p)};
  }
  reject_output(j, file);
  return std::nullopt;
}

}  // namespace stepcast::cli
