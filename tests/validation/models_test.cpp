#include "validation/models.h"

#include <string>

#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "tests/folder.h"
#include "tests/studies/synthetic_rows.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::validation;
using Catch::Matchers::Contains;

namespace {

ModelFacts t4_facts() {
  ModelFacts facts;
  facts.devices["t4"] = test::t4();
  return facts;
}

}  // namespace

TEST_CASE("rows that follow a law are predicted unseen", "[studies][validate]") {
  const auto table = test::adds(
      "validated", 150, [](double bytes, int) { return test::typical_milliseconds(bytes); });
  const auto holdout = GENERATE(Holdout::kPairs, Holdout::kSizes, Holdout::kRows);
  ValidateModelsOptions options;
  options.holdout = holdout;
  options.max_points = 50;
  const Suite result = validate_kernels(table, t4_facts(), options);
  REQUIRE(result.groups.size() == 1);
  CHECK(result.groups[0].errors.n == 150);  // every row is held out of one fold
  CHECK(result.groups[0].errors.mean < 0.01);
  CHECK(result.pass);
  std::set<std::string> ids;
  for (const Row& row : result.rows) {
    ids.insert(row.id);
  }
  CHECK(ids.size() == 150);
}

// Whole widths that take twice as long as the others: a fit that saw them would know, so the error
// on held-out widths is about 1/2 for them whatever the points.
TEST_CASE("what is held out was not fitted", "[studies][validate]") {
  const auto table = test::adds("odd", 150, [](double bytes, int row) {
    return test::typical_milliseconds(bytes) * ((row / 3) % 10 == 4 ? 2 : 1);
  });
  ValidateModelsOptions options;
  options.max_points = 150;
  const Suite result = validate_kernels(table, t4_facts(), options);
  const auto& errors = result.groups.at(0).errors;
  CHECK(errors.worst > 0.4);
  CHECK(errors.mean > 0.04);
  CHECK_FALSE(result.pass);  // elementwise: mean <= 1.5 %
  CHECK(result.groups[0].bound == "mean <= 1.5 %");
}

TEST_CASE("rows that cannot be scored are listed with the reason", "[studies][validate]") {
  const auto table = test::adds("listed", 40, [](double bytes, int row) {
    return test::typical_milliseconds(bytes) / (row == 7 ? 100 : 1);
  });
  const Suite result = validate_kernels(table, t4_facts(), {});
  CHECK(result.groups.at(0).errors.n == 39);
  CHECK(result.groups[0].skipped == 1);
  const auto skipped = std::find_if(result.rows.begin(), result.rows.end(),
                                    [](const Row& r) { return r.skipped.has_value(); });
  REQUIRE(skipped != result.rows.end());
  CHECK_THAT(skipped->id, Contains("listed.csv:9"));
  CHECK_THAT(*skipped->skipped, Contains("above the memory bandwidth"));
  // A device nobody knows: all rows are listed.
  const Suite unknown = validate_kernels(table, {}, {});
  CHECK(unknown.groups.at(0).errors.n == 0);
  CHECK(unknown.groups[0].skipped == 40);
}

TEST_CASE("holdouts of the other suite are refused", "[studies][validate]") {
  const auto table = test::adds("refused", 10, [](double bytes, int) { return bytes; });
  ValidateModelsOptions options;
  options.holdout = Holdout::kRanks;
  CHECK_THROWS_AS(validate_kernels(table, t4_facts(), options), InputError);
  options.holdout = Holdout::kPairs;
  CHECK_THROWS_AS(validate_collectives(table, t4_facts(), options), InputError);
  CHECK(holdout_named("device") == Holdout::kDevice);
  CHECK_FALSE(holdout_named("devices").has_value());
}

TEST_CASE("a rank count between two measured ones is predicted", "[studies][validate]") {
  const fixtures::Folder folder;
  std::string text = "kind,format,bytes,seconds,ranks,device,system,stack\n";
  for (const int ranks : {2, 4, 8}) {
    for (int power = 8; power < 28; ++power) {
      // 10 us and a ring at 200 GB/s.
      const double bytes = 2 * std::ldexp(1.0, power);
      const double seconds = 1e-5 + (ranks - 1.0) / ranks * bytes / 200e9;
      text += fmt::format("all_gather,fp16,{},{:.8g},{},a100-sxm-80gb,dgx-a100-80gb,nccl 2.27\n",
                          bytes, seconds, ranks);
    }
  }
  const auto table = models::read_measured(folder.file("nccl.csv", text));
  ModelFacts facts;
  facts.systems["dgx-a100-80gb"] = config::load_system("dgx-a100-80gb", {STEPCAST_SOURCE_DIR});
  ValidateModelsOptions options;
  options.holdout = Holdout::kRanks;
  const Suite ranks = validate_collectives(table, facts, options);
  REQUIRE(ranks.groups.size() == 2);  // the machine as a whole, and the kind
  CHECK(ranks.groups[0].errors.n == 20);
  CHECK(ranks.groups[0].errors.median < 0.08);
  options.holdout = Holdout::kSizes;
  const Suite sizes = validate_collectives(table, facts, options);
  CHECK(sizes.groups[0].errors.n == 60);
  CHECK(sizes.groups[0].errors.median < 0.035);
}

TEST_CASE("bars ask only for what they name", "[studies][validate]") {
  ErrorStatistics e;
  e.n = 10;
  e.median = 0.02;
  e.p90 = 0.2;
  CHECK(Bar{.median = 0.03}.met(e));
  CHECK_FALSE(Bar{.median = 0.03, .p90 = 0.1}.met(e));
  e.n = 0;  // nothing scored is no pass
  CHECK_FALSE(Bar{.median = 0.03}.met(e));
  const GroupKey gemm{OpKind::kGemm, Format::kBf16, "gemm.bf16", "h100-sxm-80gb", "s", ""};
  CHECK(gemm.name() == "gemm bf16 / h100-sxm-80gb / s");
  CHECK(bar_of(gemm, {})->text() == "median <= 3 %, p90 <= 10 %");
  ValidateModelsOptions form;
  form.form_only = true;
  CHECK(bar_of(gemm, form)->text() == "median <= 5 %, p90 <= 15 %");
}
