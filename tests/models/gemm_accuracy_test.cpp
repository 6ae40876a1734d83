#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "models/fit/fit.h"
#include "tests/models/measured.h"

namespace stepcast::models {
namespace {

const test::OpFilter kBf16Products{.kind = OpKind::kGemm, .format = Format::kBf16};

}  // namespace

// Baselines of the same data (reference: kernels-and-collectives 2.1): ideal roofline 37-47 %
// median, fitted roofline 7-10 %, tile and wave form 5.9-6.8 %, half the data as a table 2.5-4.0 %.
// Errors are those of folds: whole (n, k) pairs are withheld from constants and points.
TEST_CASE("measured matrix products of unseen (n, k)", "[models][gemm][accuracy]") {
  struct Bound {
    double median, p90;
  };
  struct Case {
    std::string file, device;
    Bound form, points;
  };
  const auto c = GENERATE(values<Case>({{"gemm/gemm__h100_sxm__trtllm_1.3.0rc20.csv.gz",
                                         "h100-sxm-80gb",
                                         {0.05, 0.15},
                                         {0.03, 0.10}},
                                        {"gemm/gemm__a100_sxm__sglang_0.5.10.csv.gz",
                                         "a100-sxm-80gb",
                                         {0.05, 0.15},
                                         {0.042, 0.125}}}));
  const test::MeasuredRows set = test::rows_of(c.file, kBf16Products);
  if (set.ops.empty()) {
    return;
  }
  const Device device = test::facts_of(c.device);
  fmt::print("{}, {} rows, unseen (n, k)\n", c.device, set.ops.size());
  test::print_error("hardware facts only", test::score(device, {}, set.ops));
  FitOptions options;
  options.folds = 5;
  options.max_rows = 2000;
  options.max_points = 0;
  const FittedModels form = fit_kernels(device, set.ops, options);
  test::print_error("form only", form.at("gemm").error);
  CHECK(form.at("gemm").error.median <= c.form.median);
  CHECK(form.at("gemm").error.p90 <= c.form.p90);
  options.max_points = 400;
  const FittedModels points = fit_kernels(device, set.ops, options);
  test::print_error("form and 400 points", points.at("gemm").error);
  CHECK(points.at("gemm").error.median <= c.points.median);
  CHECK(points.at("gemm").error.p90 <= c.points.p90);
}

}  // namespace stepcast::models
