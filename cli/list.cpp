#include <fmt/format.h>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "cli/support/console.h"
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

std::vector<config::Entry> entries_of(const std::string& what, const config::Library& library) {
  if (what == "workloads") {
    return config::list_workloads(library);
  }
  if (what == "systems") {
    return config::list_systems(library);
  }
  if (what == "devices") {
    return config::list_devices(library);
  }
  if (what == "stacks") {
    return frameworks(library);
  }
  if (what == "keys") {
    return keys();
  }
  if (what == "passes") {
    return passes();
  }
  if (what == "runs") {
    return runs();
  }
  return what == "formats" ? formats() : model_forms();
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
  command
      ->add_option(
          "what", options->what,
          "workloads, systems, devices, stacks, formats, models, passes, keys of a job or its "
          "schema, what runs and what is predicted only")
      ->check(CLI::IsMember({"workloads", "systems", "devices", "stacks", "formats", "models",
                             "passes", "keys", "schema", "runs"}));
  add_format_option(*command, options->format);
  command->callback([options, &context] {
    if (options->what.empty()) {
      throw InputError(
          "list",
          "say what: workloads, systems, devices, stacks, formats, models, passes, keys, schema or "
          "runs, such as `stepcast list workloads`");
    }
    if (options->what == "schema") {
      answer() << config::job_schema();
      return;
    }
    if (options->what == "keys" && options->format == OutputFormat::kText) {
      answer() << config::job_keys_page();
      return;
    }
    if (options->what == "runs" && options->format == OutputFormat::kText) {
      answer() << studies::what_runs_page();
      return;
    }
    print(entries_of(options->what, {context.library}), options->format);
  });
}

}  // namespace stepcast::cli
