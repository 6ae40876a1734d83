#include "cli/validate/validate_models.h"

#include <algorithm>
#include <filesystem>

#include "cli/support/output_files.h"
#include "core/config/config.h"
#include "core/error.h"
#include "validation/models.h"

namespace stepcast::cli {
namespace {

/// Facts of every device and system the rows name, without what is fitted to them.
validation::ModelFacts facts_of(const models::MeasuredTable& table, const config::Library& library,
                                const System* given) {
  validation::ModelFacts facts;
  const auto known = [](const std::vector<config::Entry>& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(),
                       [&](const config::Entry& e) { return e.name == name; });
  };
  const auto devices = config::list_devices(library);
  const auto systems = config::list_systems(library);
  for (const models::Testbed& t : table.testbeds) {
    if (!facts.devices.contains(t.device) && known(devices, t.device)) {
      facts.devices[t.device] = config::load_device(t.device, library);
    }
    if (!facts.systems.contains(t.system) && known(systems, t.system)) {
      facts.systems[t.system] = config::load_system(t.system, library);
    }
  }
  if (given != nullptr) {
    facts.devices[given->device.name] = given->device;
    facts.systems[given->name] = *given;
  }
  for (auto& [name, device] : facts.devices) {
    device.fitted.clear();
  }
  for (auto& [name, system] : facts.systems) {
    system.fitted.clear();
    system.device.fitted.clear();
  }
  return facts;
}

}  // namespace

void add_model_options(CLI::App& command, ValidateModelsCommand& options) {
  command.add_option("--device", options.device, "Only rows of this device (kernels, collectives)");
  command.add_option("--stack", options.stack, "Only rows of this software stack");
  command
      .add_option("--holdout", options.holdout,
                  "What a fit does not see (default: pairs of kernels, sizes of collectives)")
      ->check(CLI::IsMember({"pairs", "sizes", "ranks", "device", "rows"}));
  command.add_flag("--form-only", options.form_only,
                   "The analytical form alone, without residual points");
  command.add_option("--points", options.points, "Residual points per model")
      ->check(CLI::Range(0, 5000));
  command.add_option("--thin", options.thin, "Look at every n-th configuration of kernels only")
      ->check(CLI::Range(1, 1000));
}

validation::ValidationSuite validate_models(const std::string& suite,
                                            const ValidateModelsCommand& options,
                                            const Context& context) {
  if (options.data.empty()) {
    throw InputError("--data",
                     "is needed: the folder of measured " + suite + ", or a file of them");
  }
  const config::Library library{context.library};
  System given;
  if (!options.system.empty()) {
    given = config::load_system(options.system, library);
  }
  const models::MeasuredTable table =
      models::read_measured(std::filesystem::path(options.data),
                            {.device = options.system.empty() ? options.device : given.device.name,
                             .system = given.name});
  const validation::ModelFacts facts =
      facts_of(table, library, options.system.empty() ? nullptr : &given);
  validation::ValidateModelsOptions study;
  const std::string holdout = !options.holdout.empty() ? options.holdout
                              : suite == "kernels"     ? "pairs"
                                                       : "sizes";
  study.holdout = *validation::holdout_named(holdout);
  study.form_only = options.form_only;
  study.device = options.device;
  study.stack = options.stack;
  study.max_points = options.points;
  study.thin = options.thin;
  validation::ValidationSuite result = suite == "kernels"
                                           ? validation::validate_kernels(table, facts, study)
                                           : validation::validate_collectives(table, facts, study);
  for (const models::MeasuredTable::Skipped& s : table.skipped) {
    result.rows.push_back({table.place(s.origin), 0, 0, s.reason});
  }
  if (!table.skipped.empty()) {
    result.notes.push_back(
        fmt::format("{} rows of the files cannot be used, the first {}: {}", table.skipped.size(),
                    table.place(table.skipped.front().origin), table.skipped.front().reason));
  }
  if (result.groups.empty()) {
    throw InputError("--data", "no " + suite + " rows in " + options.data +
                                   (options.device.empty() ? "" : " of " + options.device));
  }
  return result;
}

}  // namespace stepcast::cli
