#include "cli/validate/validate_published.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include "cli/support/output_files.h"
#include "cli/support/progress.h"
#include "core/config/paces.h"
#include "core/config/published_names.h"
#include "core/error.h"
#include "core/whole_file.h"
#include "validation/published/paces.h"
#include "validation/published/published.h"
#include "validation/published/select.h"
#include "validation/published/unseen.h"

namespace stepcast::cli {
validation::ValidationSuite validate_published(const ValidatePublishedCommand& command,
                                               const Context& context) {
  if (command.data.empty()) {
    throw InputError("--data", "is needed: a table with the columns of data/llm/published.csv");
  }
  const auto regime = validation::regime_named(command.calibrate);
  if (!regime) {
    throw InputError("--calibrate",
                     "found " + command.calibrate + ", expected shipped, facts, loso or one-row");
  }
  const bool unseen = !command.scalars.empty();
  if (unseen && regime != validation::PublishedRegime::kLoso) {
    throw InputError("--scalars",
                     "takes the scalars of the other table's sources; found "
                     "--calibrate " +
                         command.calibrate + ", expected loso");
  }
  const config::Library library{context.library};
  const auto names = config::load_published_names(library);
  const auto predicted = [&](const std::vector<validation::PublishedRow>& rows) {
    Progress progress("predicting");
    validation::PublishedPredictOptions options;
    options.facts = *regime == validation::PublishedRegime::kFacts;
    options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    options.progress = [&progress](double done) { progress.update(done, 1, ""); };
    return validation::predict_published(rows, names, library, options);
  };
  validation::PublishedTables tables = validation::read_published_tables(command.data);
  const auto& rows = tables.rows;
  const auto others = unseen ? validation::read_published(command.scalars)
                             : std::vector<validation::PublishedRow>{};
  const auto predictions = predicted(rows);
  validation::ValidationSuite result =
      unseen ? validation::validate_unseen(predictions, predicted(others))
             : validation::validate_published(predictions, *regime,
                                              regime == validation::PublishedRegime::kShipped
                                                  ? config::load_paces(library)
                                                  : PaceTable{});
  if (!command.paces.empty()) {
    PaceTable table = validation::fit_paces(validation::pointers(predictions));
    table.source = fmt::format("stepcast validate published --out-pace: {} steps of {}",
                               table.groups.back().rows,
                               std::filesystem::path(command.data).filename().string());
    write_whole_file(command.paces, config::paces_to_json(table));
    tell_written(command.paces);
  }
  for (std::string& file : tables.left_out) {
    result.notes.push_back(std::move(file));
  }
  return result;
}

}  // namespace stepcast::cli
