#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <thread>

#include "cli/print/human.h"
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

namespace stepcast::cli {
namespace {

using validation::Suite;

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

/// `usual`: what is held out unless it is said.
template <class Validate>
Suite score_models(const ValidateOptions& options, const Context& context, const char* suite,
                   const char* usual, Validate validate) {
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
  study.holdout =
      *validation::holdout_named(options.holdout.empty() ? usual : options.holdout.c_str());
  study.form_only = options.form_only;
  study.device = options.device;
  study.framework = options.framework;
  study.max_points = options.points;
  study.thin = options.thin;
  Suite result = validate(table, facts, study);
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

}  // namespace

Suite score_kernels(const ValidateOptions& options, const Context& context) {
  return score_models(options, context, "kernels", "pairs", validation::validate_kernels);
}

Suite score_collectives(const ValidateOptions& options, const Context& context) {
  return score_models(options, context, "collectives", "sizes", validation::validate_collectives);
}

Suite score_published(const ValidateOptions& options, const Context& context) {
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
  const config::Library library{context.library};
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

Suite score_dlrm(const ValidateOptions& options, const Context& context) {
  if (options.calibrate == "shipped") {
    throw InputError(
        "--calibrate",
        "shipped applies to published; predictions of dlrm have no efficiency: use facts or one-row");
  }
  if (options.calibrate == "loso") {
    throw InputError("--calibrate",
                     "loso has no other source for dlrm: each GPU occurs in one round only; use "
                     "facts or one-row");
  }
  const auto rows = validation::read_dlrm_step_times(options.data);
  if (!options.out_pace.empty()) {
    auto tables = validation::fit_dlrm_efficiencies(rows, {context.library});
    for (auto& [framework, table] : tables) {
      table.source = fmt::format("stepcast validate dlrm --out-pace, {}: {} rows", today(),
                                 table.groups.empty() ? 0 : table.groups.front().rows);
    }
    write_output(options.out_pace, config::efficiencies_to_json(tables));
  }
  return validation::validate_dlrm(rows, {context.library},
                                   options.calibrate == "facts" ? validation::DlrmRegime::kFacts
                                                                : validation::DlrmRegime::kOneRow);
}

Suite score_memory(const ValidateOptions& options, const Context& context) {
  return validation::validate_memory(options.data, {context.library});
}

}  // namespace stepcast::cli
