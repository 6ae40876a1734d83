#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "core/config/config.h"
#include "core/config/paces.h"
#include "core/config/published_names.h"
#include "validation/published/paces.h"
#include "validation/published/predictions.h"
#include "validation/published/rows.h"

namespace stepcast::validation {
namespace {

TEST_CASE("the paces that ship are what the tables show", "[.long][studies][published][accuracy]") {
  const std::filesystem::path data = std::filesystem::path(STEPCAST_SHARED_DATA) / "llm";
  if (!std::filesystem::exists(data)) {
    WARN("skipped: no measurements at " << data);
    return;
  }
  const config::Library library{STEPCAST_SOURCE_DIR};
  const auto rows = read_published(data);
  const auto predictions =
      predict_published(rows, config::load_published_names(library), library, {});
  std::vector<const PublishedPrediction*> all;
  for (const PublishedPrediction& p : predictions) {
    all.push_back(&p);
  }
  PaceTable fitted = fit_paces(all);
  const PaceTable shipped = config::load_paces(library);
  fitted.source = shipped.source;
  CHECK(config::paces_to_json(fitted) == config::paces_to_json(shipped));
}

}  // namespace
}  // namespace stepcast::validation
