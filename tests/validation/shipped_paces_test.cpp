#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "core/config/config.h"
#include "core/config/paces.h"
#include "core/config/published_names.h"
#include "validation/published/efficiencies.h"
#include "validation/published/predictions.h"
#include "validation/published/rows.h"

namespace stepcast::validation {
namespace {

TEST_CASE("the efficiencies that ship are what the tables show",
          "[.long][studies][published][accuracy]") {
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
  EfficiencyTable fitted = fit_efficiencies(all);
  const EfficiencyTable shipped = config::load_efficiencies(library);
  fitted.source = shipped.source;
  CHECK(config::efficiencies_to_json(fitted) == config::efficiencies_to_json(shipped));
}

}  // namespace
}  // namespace stepcast::validation
