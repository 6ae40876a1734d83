// Paces that published runs show: groups, factors and intervals from numbers derived here.
#include "validation/published/efficiencies.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/config/paces.h"
#include "core/config/published_names.h"
#include "core/error.h"
#include "tests/validation/published_runs.h"

namespace stepcast::validation {
using namespace studies;
using testing::Runs;
namespace {

const EfficiencyGroup& group(const EfficiencyTable& table, const std::string& device,
                             const std::string& framework, const std::string& family) {
  const auto found =
      std::find_if(table.groups.begin(), table.groups.end(), [&](const EfficiencyGroup& g) {
        return g.device == device && g.framework == framework && g.family == family;
      });
  REQUIRE(found != table.groups.end());
  return *found;
}

TEST_CASE("a source counts once in a pace, however many rows it has", "[studies][published]") {
  Runs runs;
  for (int i = 0; i < 5; ++i) {
    runs.add("many", "h100", "core", "fsdp", 2);
  }
  runs.add("one", "h100", "core", "fsdp", 1.2);
  runs.add("other", "h100", "core", "fsdp", 1.5);
  const auto rows = pointers(runs.predictions);
  // A third of the weight each at 1.2, 1.5 and 2.
  CHECK(efficiency_factor(rows) == Approx(1.5));
  CHECK(efficiency_factor({}) == 1);
}

TEST_CASE("rows of plans that do not fit, and of whole runs, give no pace",
          "[studies][published]") {
  Runs runs;
  runs.add("a", "h100", "core", "fsdp", 1.5);
  runs.add("a", "h100", "core", "fsdp", 3);
  runs.add("a", "h100", "core", "fsdp", 3);
  runs.add("a", "h100", "core", "fsdp", 3);
  runs.predictions[1].memory = 2;  // of 1
  runs.rows[2].hours_of = "run";
  runs.predictions[3].skipped = "why";
  const EfficiencyTable table = fit_efficiencies(pointers(runs.predictions));
  CHECK(group(table, "h100", "core", "fsdp").rows == 1);
  CHECK(group(table, "", "", "").factor == Approx(1.5));
}

TEST_CASE("intervals are those of sources left out in turn, and wider where the group is",
          "[studies][published]") {
  Runs runs;
  runs.add("a", "h100", "core", "tensor/pipeline", 1);
  runs.add("b", "h100", "core", "tensor/pipeline", 1.1);
  runs.add("c", "h100", "core", "tensor/pipeline", 1.21);
  runs.add("d", "a100", "light", "fsdp", 2);
  const EfficiencyTable table = fit_efficiencies(pointers(runs.predictions));
  // Three sources measure the group: a lies ln 1.1 below the others' lower middle 1.1, b ln 1.1
  // above 1, c ln 1.21 above 1. 0.9 * 4 / 3 of them is more than all: the largest.
  const EfficiencyGroup& own = group(table, "h100", "core", "tensor/pipeline");
  CHECK(own.factor == Approx(1.1));
  CHECK(own.high == Approx(1.1 * 1.21).margin(1e-4));
  CHECK(own.low == Approx(1.1 / 1.21).margin(1e-4));
  CHECK(own.sources == 3);
  // d has no other of its kind, so all runs say 1.1 of it: ln(2 / 1.1) off.
  const EfficiencyGroup& all = group(table, "", "", "");
  CHECK(all.factor == Approx(1.1));
  CHECK(all.high == Approx(2).margin(1e-4));
  // Nothing of its family was left out and predicted by its like: as wide as the widest of all.
  const EfficiencyGroup& alone = group(table, "a100", "light", "fsdp");
  CHECK(alone.factor == Approx(2));
  CHECK(alone.high == Approx(2 * 2 / 1.1).margin(1e-4));
}

TEST_CASE("a group that no other source predicted is as wide as its family, not as other families",
          "[studies][published]") {
  Runs runs;
  runs.add("a", "a100", "one", "fsdp", 1);
  runs.add("b", "h100", "two", "fsdp", 1.1);
  runs.add("c", "b200", "three", "fsdp", 1.21);
  runs.add("d", "h100", "core", "experts", 1);
  runs.add("e", "h100", "core", "experts", 3);
  const EfficiencyTable table = fit_efficiencies(pointers(runs.predictions));
  // The family's sources lie up to ln 1.21 from the others' lower middle; experts ln 3.
  for (const EfficiencyGroup* own :
       {&group(table, "h100", "two", "fsdp"), &group(table, "", "two", "fsdp"),
        &group(table, "h100", "", "fsdp"), &group(table, "", "", "fsdp")}) {
    CHECK(own->factor == Approx(1.1));
    CHECK(own->high == Approx(1.1 * 1.21).margin(1e-4));
  }
  CHECK(group(table, "h100", "core", "experts").high == Approx(3).margin(1e-4));
  CHECK(group(table, "", "", "").high > 1.5);
}

TEST_CASE("the rows of the nearest group predict a source that is left out",
          "[studies][published]") {
  Runs runs;
  runs.add("a", "h100", "core", "tensor/pipeline", 1);
  runs.add("b", "a100", "core", "tensor/pipeline", 1.2);
  runs.add("c", "a100", "light", "tensor/pipeline", 1.4);
  runs.add("d", "a100", "light", "fsdp", 1.6);
  const auto all = pointers(runs.predictions);
  const auto nearest = [&](std::size_t of) {
    const auto others = where(all, [&](const auto* p) { return p->source != all[of]->source; });
    return efficiency_factor(efficiency_rows(others, *all[of]));
  };
  CHECK(nearest(0) == Approx(1.2));  // the framework elsewhere
  CHECK(nearest(2) == Approx(1.2));  // its family on its GPU
  CHECK(nearest(3) == Approx(1.2));  // all
}

TEST_CASE("paces survive their file", "[studies][published]") {
  Runs runs;
  runs.add("a", "h100", "core", "tensor/pipeline", 1.25);
  runs.add("b", "h100", "core", "fsdp", 1.5);
  EfficiencyTable table = fit_efficiencies(pointers(runs.predictions));
  table.source = "a test";
  const std::string text = config::efficiencies_to_json(table);
  const EfficiencyTable again =
      config::read_efficiencies(config::text_source(text.c_str(), "paces.json"));
  CHECK(config::efficiencies_to_json(again) == text);
  CHECK(group(again, "h100", "core", "fsdp").factor == Approx(1.5));
  CHECK_THROWS_AS(
      config::read_efficiencies(config::text_source(R"({"groups": [{}]})", "paces.json")),
      InputError);
}

}  // namespace
}  // namespace stepcast::validation
