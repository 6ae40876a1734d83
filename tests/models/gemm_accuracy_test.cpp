#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "models/fit/fit.h"
#include "models/kernel_form.h"
#include "tests/models/measured.h"

namespace stepcast::models {
namespace {

using test::MeasuredSet;

std::optional<MeasuredSet> gemm_rows(const std::string& file, const std::string& dtype,
                                     Format format) {
  const auto records = test::read_csv(std::string(STEPCAST_SHARED_DATA) + "/kernels/gemm/" + file);
  if (!records) {
    return std::nullopt;
  }
  MeasuredSet set;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>
      weights;  // configurations: whole (n, k) pairs
  for (const test::Record& r : *records) {
    if (r.at("gemm_dtype") != dtype) {
      continue;
    }
    Op op;
    op.kind = OpKind::kGemm;
    op.format = format;
    op.shape = {std::atoll(r.at("m").c_str()),
                std::atoll(r.at("n").c_str()),
                std::atoll(r.at("k").c_str()),
                1,
                0,
                0};
    const auto weight =
        weights.try_emplace({op.shape[1], op.shape[2]}, static_cast<std::int64_t>(weights.size()))
            .first->second;
    set.add(op, milliseconds(std::atof(r.at("latency_ms").c_str())), weight);
  }
  return set;
}

}  // namespace

// Baselines of the same data (reference: kernels-and-collectives 2.1): ideal roofline 37-47 %
// median, fitted roofline 7-10 %.
TEST_CASE("a few constants predict measured matrix products", "[models][gemm][accuracy]") {
  struct Case {
    std::string file, dtype;
    Format format;
    Device device;
    double median_bound;
  };
  const auto c = GENERATE(values<Case>(
      {{"gemm__h100_sxm__trtllm_1.3.0rc20.csv.gz", "bfloat16", Format::kBf16, test::h100(), 0.07},
       {"gemm__a100_sxm__sglang_0.5.10.csv.gz", "bfloat16", Format::kBf16, test::a100(), 0.075}}));
  const auto set = gemm_rows(c.file, c.dtype, c.format);
  if (!set) {
    WARN("skipped: " << c.file << " is not in " << STEPCAST_SHARED_DATA);
    return;
  }
  const auto fit_rows = set->rows(0, 2);
  const auto test_rows = set->rows(1, 2);
  FitOptions constants_only;
  constants_only.folds = 1;
  constants_only.max_points = 0;
  const FittedModels constants = fit_kernels(c.device, fit_rows, constants_only);
  fmt::print("{} {}\n", c.device.name, c.dtype);
  test::print_constants(constants);
  test::print_error("hardware facts only, the other half", test::score(c.device, {}, test_rows));
  const FitError held = test::score(c.device, constants, test_rows);
  test::print_error("constants, the other half", held);
  CHECK(held.median <= c.median_bound);
  CHECK(held.p90 <= 0.30);

  // With residual points, whole (n, k) pairs withheld: the error estimate of the fit itself.
  FitOptions with_points;
  with_points.folds = 4;
  with_points.max_rows = 1500;
  with_points.max_points = 400;
  const FittedModels points = fit_kernels(c.device, set->rows(0, 7), with_points);
  test::print_error("constants + 400 points, unseen (n, k)", points.at("gemm").error);
  CHECK(points.at("gemm").error.median <= held.median + 0.01);
}

}  // namespace stepcast::models
