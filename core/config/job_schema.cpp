#include <fmt/ranges.h>

#include <algorithm>

#include "core/config/internal/job_tables.h"
#include "core/config/internal/layer_loaders.h"
#include "core/config/job_keys.h"

namespace stepcast::config {
namespace {

OrderedJson workload_form() {
  std::vector<OrderedJson> kinds;
  for (const auto& [kind, table] : workload_tables()) {
    kinds.push_back(object_form(table));
  }
  return any_form(std::move(kinds));
}

/// An embedding plan is a document of its own (docs/jobs.md).
OrderedJson plan_form() {
  return {{"type", "object"}, {"required", {"workload", "system", "devices", "tables"}}};
}

std::string number_text(const OrderedJson& number) {
  const double value = number.get<double>();
  return number.is_number_integer() ? number.dump() : fmt::format("{:g}", value);
}

/// Text for people of what a form allows.
std::string type_text(const OrderedJson& form) {
  if (form.contains("$ref")) {
    const auto ref = form["$ref"].get<std::string>();
    return "object: " + ref.substr(ref.rfind('/') + 1);
  }
  if (form.contains("const")) {
    return form["const"].dump();
  }
  if (form.contains("enum")) {
    std::vector<std::string> names;
    for (const OrderedJson& name : form["enum"]) {
      names.push_back(name.get<std::string>());
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }
  if (form.contains("anyOf")) {
    std::vector<std::string> forms;
    for (const OrderedJson& one : form["anyOf"]) {
      forms.push_back(type_text(one));
    }
    return fmt::format("{}", fmt::join(forms, "; or "));
  }
  const auto type = form["type"].get<std::string>();
  if (type == "boolean") {
    return "true or false";
  }
  if (type == "integer" || type == "number") {
    if (form["minimum"] == form["maximum"]) {
      return form["minimum"].dump();
    }
    return fmt::format("{} from {} to {}", type, number_text(form["minimum"]),
                       number_text(form["maximum"]));
  }
  if (type == "string") {
    return form.contains("examples")
               ? fmt::format("amount such as {}", form["examples"].front().dump())
               : form["title"].get<std::string>();
  }
  if (type == "array") {
    return "list of " + type_text(form["items"]);
  }
  return form.contains("properties") ? "object" : "object by name";
}

/// Words that a form allows.
void add_choices(const OrderedJson& form, std::vector<std::string>& all) {
  if (form.contains("enum")) {
    for (const OrderedJson& name : form["enum"]) {
      all.push_back(name.get<std::string>());
    }
  } else if (form.contains("anyOf")) {
    for (const OrderedJson& one : form["anyOf"]) {
      add_choices(one, all);
    }
  } else if (form.value("type", "") == "boolean") {
    all.insert(all.end(), {"true", "false"});
  }
}

void add_object(const std::string& path, const OrderedJson& form, std::vector<JobKey>& all);

/// The keys inside a value of that form.
void add_inside(const std::string& path, const OrderedJson& form, std::vector<JobKey>& all) {
  if (form.contains("anyOf")) {
    for (const OrderedJson& one : form["anyOf"]) {
      add_inside(path, one, all);
    }
  } else if (form.contains("properties")) {
    add_object(path, form, all);
  } else if (form.contains("items")) {
    add_inside(path + "[]", form["items"], all);
  } else if (const auto value = form.find("additionalProperties");
             value != form.end() && value->is_object()) {
    add_inside(path + ".*", *value, all);
  }
}

void add_object(const std::string& path, const OrderedJson& form, std::vector<JobKey>& all) {
  for (const auto& [name, property] : form["properties"].items()) {
    JobKey key;
    key.path = path.empty() ? name : path + "." + name;
    key.type = type_text(property);
    key.help = property["description"].get<std::string>();
    const auto usual = property.find("default");
    key.usual = usual != property.end()
                    ? usual->is_string() ? usual->get<std::string>() : usual->dump()
                    : property.value("$comment", "");
    key.applies = property.value("x-applies-to", "");
    add_choices(property, key.choices);
    all.push_back(key);
    add_inside(key.path, property, all);
  }
}

void add_table(const std::string& path, const KeyTable& table, std::vector<JobKey>& all) {
  add_object(path, object_form(table), all);
}

}  // namespace

std::vector<JobKey> job_keys() {
  std::vector<JobKey> all;
  add_table("", job_table(), all);
  const std::size_t of_workloads = all.size();
  for (const auto& [kind, table] : workload_tables()) {
    std::vector<JobKey> keys;
    add_table("workload", table, keys);
    for (JobKey& key : keys) {
      const auto same = std::find_if(all.begin() + static_cast<std::ptrdiff_t>(of_workloads),
                                     all.end(), [&key](const JobKey& other) {
                                       return other.path == key.path && other.type == key.type &&
                                              other.usual == key.usual && other.help == key.help;
                                     });
      if (same == all.end()) {
        key.applies = kind;
        all.push_back(std::move(key));
      } else {
        same->applies += ", " + kind;
      }
    }
  }
  add_table("access", access_table(), all);
  add_table("system", system_table(), all);
  add_table("system.device", device_table(), all);
  return all;
}

namespace {

/// "- `schedule` (1f1b): the order of a stage's passes; gpipe, 1f1b, ... [transformers]".
std::string key_line(const JobKey& key, bool says_kinds) {
  const std::string name = key.path.substr(key.path.rfind('.') + 1);
  const bool usual = key.usual != "none" && key.usual != "all";
  // Bounds of numbers are the schema's; names to choose from are not told by the default.
  const bool named = key.type.find(", ") != std::string::npos &&
                     key.type.find("integer") == std::string::npos &&
                     key.type.find("number") == std::string::npos;
  const bool says = says_kinds && !key.applies.empty() && key.applies != "transformers";
  return fmt::format("- `{}`{}: {}{}{}\n", name,
                     !usual                    ? ""
                     : key.usual == "required" ? "*"
                                               : " (" + key.usual + ")",
                     key.help, named ? "; " + key.type : "", says ? " [" + key.applies + "]" : "");
}

}  // namespace

std::string job_keys_page() {
  std::vector<std::pair<std::string, std::string>> sections;
  for (const JobKey& key : job_keys()) {
    const std::size_t dot = key.path.rfind('.');
    const std::string object = dot == std::string::npos ? "" : key.path.substr(0, dot);
    // Names and sources say themselves; constants are written by `calibrate` and `fit`.
    if (key.type == "a name" || key.path.ends_with(".source") || key.path == "workload.kind" ||
        object.find(".fitted.") != std::string::npos) {
      continue;
    }
    auto section = std::find_if(sections.begin(), sections.end(),
                                [&](const auto& s) { return s.first == object; });
    if (section == sections.end()) {
      section = sections.insert(section, {object, ""});
    }
    section->second += key_line(key, !object.starts_with("workload."));
  }
  std::string page =
      "## All keys\n\nWritten `key` (default): meaning; values [workloads it applies to]; a star: required. "
      "`stepcast list keys` prints this part, `stepcast list schema` the "
      "[JSON Schema](job.schema.json) with types and bounds.\n";
  for (const auto& [object, lines] : sections) {
    page += fmt::format("\n### {}\n\n{}", object.empty() ? "The job" : "`" + object + "`", lines);
  }
  return page;
}

std::string job_schema() {
  OrderedJson schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                     {"title", "A stepcast job"}};
  schema.update(object_form(job_table()));
  schema["$defs"] = {
      {"workload", workload_form()},           {"access", object_form(access_table())},
      {"repeat", object_form(repeat_table())}, {"plan", plan_form()},
      {"system", object_form(system_table())}, {"device", object_form(device_table())}};
  return pretty(schema, 2);
}

}  // namespace stepcast::config
