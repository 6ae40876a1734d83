#include "validation/embedding.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>

#include "core/access/access.h"

namespace stepcast::validation {
using namespace studies;
namespace {

using runtime::calibration::embedding_cases;
using runtime::calibration::EmbeddingSample;
using runtime::calibration::EmbeddingSweepOptions;

/// A machine that needs 1 ns per element looked up and 100 ns per distinct row.
std::vector<EmbeddingSample> invented() {
  EmbeddingSweepOptions options;
  options.cases_per_cell = 1;
  std::vector<EmbeddingSample> samples;
  for (const auto& c : embedding_cases(options)) {
    const Access law = c.zipf > 0 ? Access::zipf(c.rows, c.zipf) : Access::uniform(c.rows);
    const auto lookups = static_cast<double>(c.batch * c.pooling);
    const auto tables = static_cast<double>(c.tables);
    const double t =
        tables * (lookups * static_cast<double>(c.dim) * 1e-9 + law.unique(lookups).value * 100e-9);
    samples.push_back({c, Seconds(t), Seconds(2 * t), 0.01, 30, false});
  }
  return samples;
}

}  // namespace

TEST_CASE("the embedding study scores what it has not seen", "[studies][embedding]") {
  std::vector<EmbeddingSample> samples = invented();
  samples[3].unstable = true;
  ValidateEmbeddingOptions options;
  options.max_points = 0;
  const ValidationSuite suite = validate_embedding(samples, options);
  // Two splits, of each: both passes, forward, backward; of each of those: whole, blind, form only.
  REQUIRE(suite.groups.size() == 18);
  const ValidationGroup& unseen = suite.groups[0];
  CHECK(unseen.name == "unseen exponent");
  CHECK(unseen.errors.n == 2 * (samples.size() - 1));
  CHECK(unseen.skipped == 1);
  CHECK(unseen.baseline_mean == suite.groups[1].errors.mean);
  // Distinct rows decide here, so a model that does not know the law must do worse.
  CHECK(suite.groups[1].errors.mean > 1.5 * unseen.errors.mean);
  const auto voids = std::count_if(suite.rows.begin(), suite.rows.end(),
                                   [](const ValidationRow& r) { return r.skipped.has_value(); });
  CHECK(voids == 1);
}

TEST_CASE("rows of the embedding sweep have the calibration columns", "[studies][embedding]") {
  std::vector<EmbeddingSample> samples = invented();
  samples.resize(2);
  samples[1].unstable = true;
  std::istringstream text(embedding_rows(samples));
  std::string header, forward, backward, more;
  std::getline(text, header);
  std::getline(text, forward);
  std::getline(text, backward);
  CHECK_FALSE(std::getline(text, more));
  const auto cells = [](const std::string& line) {
    return std::count(line.begin(), line.end(), ',');
  };
  CHECK(cells(header) == 19);
  CHECK(cells(forward) == 19);
  CHECK(cells(backward) == 19);
  CHECK(forward.find("embedding_forward") != std::string::npos);
  CHECK(backward.find("embedding_backward") != std::string::npos);
}

}  // namespace stepcast::validation
