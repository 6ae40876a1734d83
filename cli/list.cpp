#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "cli/support/console.h"
#include "core/config/aliases.h"
#include "core/config/config.h"
#include "core/config/job_keys.h"
#include "core/config/published_names.h"
#include "core/error.h"
#include "core/formats.h"
#include "models/collectives/collective_form.h"
#include "models/kernels/kernel_form.h"
#include "studies/run/executable.h"
#include "workloads/passes/graph_pass.h"

namespace stepcast::cli {
namespace {

std::vector<config::Entry> formats() {
  std::vector<config::Entry> entries;
  for (const FormatInfo& f : all_formats()) {
    entries.push_back(
        {std::string(f.name),
         f.block == 0
             ? fmt::format("{} bits per element + {} bytes per row", f.element_bits, f.row_bytes)
             : fmt::format("{:g} bits per element", bits_per_element(f.format))});
  }
  return entries;
}

std::vector<config::Entry> model_forms() {
  std::vector<config::Entry> entries;
  for (const auto& form : models::builtin_kernel_forms()) {
    entries.push_back({std::string(form->name()), "kernels"});
  }
  for (const auto& form : models::builtin_collective_forms()) {
    entries.push_back({std::string(form->name()), "collectives"});
  }
  entries.push_back({"attention.unfused", "the sum of its products, softmax and dropout"});
  entries.push_back(
      {"tier.shared_link", "rows between memories, sharing a link with other traffic"});
  return entries;
}

/// Parts of jobs that are predicted only.
std::vector<config::Entry> runs() {
  std::vector<config::Entry> entries;
  for (const studies::PredictedOnly& p : studies::predicted_only()) {
    entries.push_back({std::string(p.key), fmt::format("{}; runs {}; {}", p.what,
                                                       p.cpu    ? "on the CPU only"
                                                       : p.cuda ? "on CUDA only"
                                                                : "nowhere",
                                                       p.remedy)});
  }
  return entries;
}

/// Passes that rewrite the graph of a job, in their order.
std::vector<config::Entry> passes() {
  std::vector<config::Entry> entries;
  for (const workloads::GraphPass& pass : workloads::graph_passes()) {
    entries.push_back({std::string(pass.name), std::string(pass.what)});
  }
  return entries;
}

/// Names that `stack` of a job takes.
std::vector<config::Entry> frameworks(const config::Library& library) {
  std::vector<config::Entry> entries;
  for (const config::Framework& s : config::load_published_names(library).frameworks) {
    const std::string plans = s.default_of.empty() ? std::string()
                                                   : fmt::format("default of {} plans; ",
                                                                 fmt::join(s.default_of, " and "));
    entries.push_back({s.name, plans + s.evidence});
  }
  return entries;
}

/// Short names of keys.
std::vector<config::Entry> aliases() {
  std::vector<config::Entry> entries;
  for (const config::KeyAlias& alias : config::key_aliases()) {
    entries.push_back({std::string(alias.alias), std::string(alias.key)});
  }
  return entries;
}

struct ListOptions {
  std::string what;
  OutputFormat format = OutputFormat::kText;
};

/// Keys of a job.
std::vector<config::Entry> keys() {
  std::vector<config::Entry> entries;
  for (const config::JobKey& key : config::job_keys()) {
    entries.push_back(
        {key.path, fmt::format("{}; default {}{}; {}", key.type, key.usual,
                               key.applies.empty() ? "" : "; of " + key.applies, key.help)});
  }
  return entries;
}

/// A thing that can be listed, and other words for it.
struct Topic {
  const char* name;
  const char* facts;
  std::vector<config::Entry> (*entries)(const config::Library& library);
  const char* also = "";
};

const std::vector<Topic>& topics() {
  using L = const config::Library&;
  static const std::vector<Topic> all{
      {"models", "built-in models and recommenders; their aliases work too", config::list_workloads,
       "workloads"},
      {"systems", "built-in systems: machines, their GPUs and networks", config::list_systems},
      {"devices", "built-in GPUs and other accelerators", config::list_devices, "gpus"},
      {"frameworks",
       "training frameworks and releases, what they overlap and where that is written", frameworks,
       "stacks"},
      {"keys", "keys of a job, for files and --set", [](L) { return keys(); }},
      {"aliases", "short names of keys, such as tp", [](L) { return aliases(); }},
      {"schema", "keys of a job as JSON Schema", nullptr},
      {"formats", "number formats", [](L) { return formats(); }},
      {"passes", "rewrites of the graph of a job", [](L) { return passes(); }},
      {"cost-models", "models of kernels and collectives", [](L) { return model_forms(); }},
      {"runs", "parts of a job that `run` trains, and that are predicted only",
       [](L) { return runs(); }},
      {"commands", "commands of this program", nullptr}};
  return all;
}

std::vector<config::Entry> topic_entries() {
  std::vector<config::Entry> entries;
  for (const Topic& topic : topics()) {
    entries.push_back({topic.name, topic.facts});
  }
  return entries;
}

std::vector<std::string> topic_names() {
  std::vector<std::string> names;
  for (const Topic& topic : topics()) {
    names.emplace_back(topic.name);
    if (*topic.also != 0) {
      names.emplace_back(topic.also);
    }
  }
  return names;
}

std::vector<config::Entry> commands_of(const CLI::App& app) {
  std::vector<config::Entry> entries;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    entries.push_back({command->get_name(), command->get_description()});
  }
  return entries;
}

/// A document that is a list, without what made it.
void print(const std::vector<config::Entry>& entries, OutputFormat format) {
  const DataTable table = table_of(
      "entries", "",
      Columns<config::Entry>{{"facts", "", &config::Entry::facts, kInJson},
                             {"name", "", &config::Entry::name},
                             {"facts", "", &config::Entry::facts, kInText | kInCsv | kLeft}},
      entries);
  switch (format) {
    case OutputFormat::kText:
      table.print_text(answer(), terminal_style(answer()));
      break;
    case OutputFormat::kJson:
      answer() << table.json().dump(2) << '\n';
      break;
    case OutputFormat::kCsv:
      table.print_csv(answer());
      break;
  }
}

}  // namespace

void add_list(CLI::App& app, Context& context) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = app.add_subcommand("list", "List built-in names");
  command->add_option("what", options->what, "Names to list; without it, what can be listed")
      ->check(CLI::IsMember(topic_names()));
  add_format_option(*command, options->format);
  command->callback([options, &app, &context] {
    const std::string& what = options->what;
    if (what == "schema") {
      answer() << config::job_schema();
      return;
    }
    if (what == "keys" && options->format == OutputFormat::kText) {
      answer() << config::job_keys_page();
      return;
    }
    if (what == "runs" && options->format == OutputFormat::kText) {
      answer() << studies::what_runs_page();
      return;
    }
    if (what.empty() || what == "commands") {
      print(what.empty() ? topic_entries() : commands_of(app), options->format);
      return;
    }
    const auto topic = std::find_if(topics().begin(), topics().end(), [&](const Topic& t) {
      return what == t.name || what == t.also;
    });
    print(topic->entries({context.library}), options->format);
  });
}

}  // namespace stepcast::cli
