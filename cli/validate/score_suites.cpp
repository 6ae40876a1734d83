#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "cli/print/human.h"
#include "cli/support/checks.h"
#include "cli/support/output_files.h"
#include "cli/support/progress.h"
#include "cli/validate/validate.h"
#include "core/config/paces.h"
#include "core/config/published_names.h"
#include "core/error.h"
#include "core/whole_file.h"
#include "validation/dlrm.h"
#include "validation/memory.h"
#include "validation/models.h"
#include "validation/published/published.h"
#include "validation/traces.h"

namespace stepcast::cli {
namespace {

using validation::Suite;
using Scored = std::optional<Suite>;

/// Facts of every device and system the rows name, without what is fitted to them.
validation::ModelFacts facts_of(const models::MeasuredTable& table, const config::Library& library,
                                const std::optional<System>& given) {
  validation::ModelFacts facts;
  std::set<std::string> devices, systems;
  for (const models::Testbed& t : table.testbeds) {
    devices.insert(t.device);
    systems.insert(t.system);
  }
  for (const config::Entry& entry : config::list_devices(library)) {
    if (devices.contains(entry.name)) {
      facts.devices[entry.name] = config::load_device(entry.name, library);
    }
  }
  for (const config::Entry& entry : config::list_systems(library)) {
    if (systems.contains(entry.name)) {
      facts.systems[entry.name] = config::load_system(entry.name, library);
    }
  }
  if (given) {
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

/// `usual`: what is held out unless it is said.
Scored score_models(const ValidateOptions& options, const Context& context, const char* suite,
                    std::string usual, decltype(validation::validate_kernels) validate) {
  std::optional<System> given;
  if (!options.system.empty()) {
    given = system_of("--system", options.system, context.library);
  }
  const models::MeasuredTable table = models::read_measured(
      std::filesystem::path(options.data), {.device = given ? given->device.name : options.device,
                                            .system = given ? given->name : std::string()});
  Suite result = validate(
      table, facts_of(table, context.library, given),
      {.holdout = *validation::holdout_named(options.holdout.empty() ? usual : options.holdout),
       .form_only = options.form_only,
       .device = options.device,
       .framework = options.framework,
       .max_points = options.points,
       .thin = options.thin});
  for (const models::MeasuredTable::Skipped& s : table.skipped) {
    result.rows.push_back({table.place(s.origin), 0, 0, s.reason});
  }
  if (!table.skipped.empty()) {
    result.notes.push_back(
        fmt::format("{} rows of the files cannot be used, the first {}: {}", table.skipped.size(),
                    table.place(table.skipped.front().origin), table.skipped.front().reason));
  }
  if (result.groups.empty()) {
    throw InputError("--data", fmt::format("no {} rows in {}{}", suite, options.data,
                                           options.device.empty() ? "" : " of " + options.device));
  }
  return result;
}

Scored score_kernels(const ValidateOptions& options, Context& context) {
  return score_models(options, context, "kernels", "pairs", validation::validate_kernels);
}

Scored score_collectives(const ValidateOptions& options, Context& context) {
  return score_models(options, context, "collectives", "sizes", validation::validate_collectives);
}

Scored score_published(const ValidateOptions& options, Context& context) {
  using Regime = validation::PublishedRegime;
  if (!options.leave_out.empty() && !options.calibrate.empty() && options.calibrate != "loso") {
    throw InputError("--leave-out", fmt::format("found with --calibrate {}; leave one of them out",
                                                options.calibrate));
  }
  const std::string asked = !options.leave_out.empty()   ? options.leave_out
                            : !options.calibrate.empty() ? options.calibrate
                                                         : "shipped";
  validation::PublishedBasis basis = *validation::basis_named(asked);
  const bool unseen = !options.scalars.empty();
  if (unseen &&
      (basis.regime != Regime::kLeftOut || basis.leave_out != validation::LeaveOut::kSource)) {
    throw InputError("--scalars", fmt::format("takes the efficiencies of the other table's "
                                              "sources; found {}, expected --leave-out source",
                                              asked));
  }
  const config::Library& library = context.library;
  const auto names = config::load_published_names(library);
  const auto predicted = [&](const std::vector<validation::PublishedRow>& rows) {
    Progress progress("predicting");
    return validation::predict_published(
        rows, names, library,
        {.facts = basis.regime == Regime::kFacts,
         .threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
         .progress = [&progress](double done) { progress.update(done, 1, ""); }});
  };
  const validation::PublishedTables tables = validation::read_published_tables(options.data);
  const auto others = unseen ? validation::read_published(options.scalars)
                             : std::vector<validation::PublishedRow>{};
  const auto predictions = predicted(tables.rows);
  if (basis.regime == Regime::kShipped) {
    basis.shipped = config::load_efficiencies(library);
  }
  Suite result = unseen ? validation::validate_unseen(predictions, predicted(others))
                        : validation::validate_published(predictions, basis);
  if (!options.out_pace.empty()) {
    const auto all = validation::pointers(predictions);
    EfficiencyTable table = validation::fit_efficiencies(all);
    std::map<std::string, int> files;  // rows that gave an efficiency
    for (const auto* p : validation::where(all, validation::gives_efficiency)) {
      const std::string& place = p->row->place;
      ++files[std::filesystem::path(place.substr(0, place.rfind(':'))).filename().string()];
    }
    std::string of;
    for (const auto& [file, rows] : files) {
      of += fmt::format("{}{} rows of {}", of.empty() ? "" : ", ", rows, file);
    }
    table.source = fmt::format("stepcast validate published --out-pace, {}: {}", today(), of);
    write_output(options.out_pace, config::efficiencies_to_json(table));
  }
  result.notes.insert(result.notes.end(), tables.left_out.begin(), tables.left_out.end());
  return result;
}

Scored score_dlrm(const ValidateOptions& options, Context& context) {
  if (options.calibrate == "shipped") {
    throw InputError("--calibrate",
                     "shipped applies to published; predictions of dlrm have no efficiency: use "
                     "facts or one-row");
  }
  if (options.calibrate == "loso") {
    throw InputError("--calibrate",
                     "loso has no other source for dlrm: each GPU occurs in one round only; use "
                     "facts or one-row");
  }
  const auto rows = validation::read_dlrm_step_times(options.data);
  if (!options.out_pace.empty()) {
    auto tables = validation::fit_dlrm_efficiencies(rows, context.library);
    for (auto& [framework, table] : tables) {
      table.source = fmt::format("stepcast validate dlrm --out-pace, {}: {} rows", today(),
                                 table.groups.empty() ? 0 : table.groups.front().rows);
    }
    write_output(options.out_pace, config::efficiencies_to_json(tables));
  }
  return validation::validate_dlrm(rows, context.library,
                                   options.calibrate == "facts" ? validation::DlrmRegime::kFacts
                                                                : validation::DlrmRegime::kOneRow);
}

Scored score_memory(const ValidateOptions& options, Context& context) {
  return validation::validate_memory(options.data, context.library);
}

Scored score_traces(const ValidateOptions& options, Context& context) {
  if (options.run) {
    return validate_what_if(options, context);
  }
  if (options.data.empty()) {
    throw InputError("--data",
                     "is needed: a folder of traces (or --run, to check what-if answers)");
  }
  return validation::validate_traces(options.data, context.library);
}

constexpr SuiteEntry kSuites[] = {
    {"published", "a table with the columns of data/llm/published.csv", false, score_published},
    {"dlrm", "the folder of mlperf_step_times.csv, or a file like it", false, score_dlrm},
    {"kernels", "the folder of measured kernels, or a file of them", false, score_kernels},
    {"collectives", "the folder of measured collectives, or a file of them", false,
     score_collectives},
    {"memory", "the folder of golden.csv and cases/", false, score_memory},
    {"traces", nullptr, true, score_traces},
    {"runtime", nullptr, true, validate_runtime},
    {"plans", nullptr, true, validate_plans}};

}  // namespace

std::span<const SuiteEntry> validation_suites() { return kSuites; }

}  // namespace stepcast::cli
