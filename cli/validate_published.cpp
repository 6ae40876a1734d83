#include "cli/validate_published.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "cli/progress.h"
#include "core/config/published_names.h"
#include "core/error.h"
#include "core/whole_file.h"
#include "studies/pictures.h"
#include "studies/validate_published.h"

namespace stepcast::cli {
namespace {

/// "SC21", "NeMo 24.07" as part of a file name.
std::string file_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-'; }, '-');
  return "published-" + text + ".svg";
}

}  // namespace

studies::ValidationSuite validate_published(const std::string& data, const std::string& calibrate,
                                            const std::string& pictures, const Context& context) {
  if (data.empty()) {
    throw InputError("--data", "is needed: a table with the columns of data/llm/published.csv");
  }
  const auto regime = studies::regime_named(calibrate);
  if (!regime) {
    throw InputError("--calibrate", "found " + calibrate + ", expected facts, loso or one-row");
  }
  const config::Library library{context.library};
  const auto rows = studies::read_published(data);
  Progress progress("predicting");
  studies::PublishedPredictOptions options;
  options.facts = *regime == studies::PublishedRegime::kFacts;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.progress = [&progress](double done) { progress.update(done, 1, ""); };
  const auto names = config::load_published_names(library);
  const auto predictions = studies::predict_published(rows, names, library, options);
  studies::PublishedValidation result = studies::validate_published(predictions, *regime);
  if (!pictures.empty()) {
    std::filesystem::create_directories(pictures);
    for (const studies::ScoredCurve& curve : result.curves) {
      if (!curve.points.empty()) {
        const std::vector<const studies::ScoredCurve*> one{&curve};
        write_whole_file(std::filesystem::path(pictures) / file_name(curve.kind),
                         studies::accuracy_picture(curve.kind + ", seconds per step", one));
      }
    }
  }
  return std::move(result.suite);
}

}  // namespace stepcast::cli
