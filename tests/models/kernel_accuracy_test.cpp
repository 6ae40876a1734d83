#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "models/fit/fit.h"
#include "tests/models/measured.h"

namespace stepcast::models {
namespace {

using test::MeasuredSet;

std::int64_t integer(const test::Record& r, const std::string& field) {
  return std::atoll(r.at(field).c_str());
}
Seconds latency(const test::Record& r) {
  return milliseconds(std::atof(r.at("latency_ms").c_str()));
}

FitOptions constants_only() {
  FitOptions o;
  o.folds = 1;
  o.max_points = 0;
  return o;
}

Device pcie_a100() {
  Device d = test::a100();
  d.name = "a100-pcie-40gb";
  d.bandwidth = GBps(1555);
  return d;
}

}  // namespace

// Reference (kernels-and-collectives section 5): roofline + start 17 % (H100) and 13 % (A100)
// median, tile forms 9-13 %.
TEST_CASE("attention from a few constants on measured kernels", "[models][attention][accuracy]") {
  struct Case {
    std::string file;
    Device device;
    double median_bound;
  };
  const auto c = GENERATE(
      values<Case>({{"context_attention__h100_sxm__trtllm_1.3.0rc20.csv.gz", test::h100(), 0.16},
                    {"context_attention__a100_sxm__sglang_0.5.10.csv", test::a100(), 0.13}}));
  const auto records =
      test::read_csv(std::string(STEPCAST_SHARED_DATA) + "/kernels/attention/" + c.file);
  if (!records) {
    WARN("skipped: " << c.file << " is not in " << STEPCAST_SHARED_DATA);
    return;
  }
  MeasuredSet set;
  for (const test::Record& r : *records) {
    if (r.at("attn_dtype") != "bfloat16" ||
        (r.contains("window_size") && r.at("window_size") != "0")) {
      continue;
    }
    Op op;
    op.kind = OpKind::kAttentionForward;
    op.format = Format::kBf16;
    op.flags = op_flags::kCausal;
    op.shape = {
        integer(r, "batch_size"), integer(r, "num_heads"), integer(r, "num_key_value_heads"),
        integer(r, "isl"),        integer(r, "isl"),       integer(r, "head_dim")};
    set.add(op, latency(r));
  }
  const FittedModels fitted = fit_kernels(c.device, set.rows(0, 2), constants_only());
  fmt::print("{} attention, {} rows\n", c.device.name, set.times.size());
  test::print_constants(fitted);
  const FitError held = test::score(c.device, fitted, set.rows(1, 2));
  test::print_error("constants, the other half", held);
  CHECK(held.median <= c.median_bound);
}

// Elementwise rows are 4 B of traffic times 3 (binary) or 2 (unary, row-wise) per element;
// reference: 0.1-0.6 % median.
TEST_CASE("memory-bound kernels follow their traffic", "[models][memory][accuracy]") {
  const std::string folder = std::string(STEPCAST_SHARED_DATA) + "/kernels/memory_bound/";
  const auto elementwise = test::read_csv(folder + "train_elementwise.csv");
  const auto norms = test::read_csv(folder + "train_layernorm.csv");
  if (!elementwise || !norms) {
    WARN("skipped: no memory-bound rows in " << STEPCAST_SHARED_DATA);
    return;
  }
  MeasuredSet adds;
  MeasuredSet norm_rows;
  for (const test::Record& r : *elementwise) {
    if (r.at("device") == "NVIDIA A100-PCIE-40GB" && (r.at("op") == "add" || r.at("op") == "mul")) {
      Op op;
      op.kind = OpKind::kAdd;
      op.shape = {integer(r, "B"), integer(r, "H"), 0, 0, 0, 0};
      adds.add(op, latency(r));
    }
  }
  for (const test::Record& r : *norms) {
    if (r.at("device") == "NVIDIA A100-PCIE-40GB") {
      Op op;
      op.kind = OpKind::kNormForward;
      op.shape = {integer(r, "B"), integer(r, "H"), 0, 0, 0, 0};
      norm_rows.add(op, latency(r));
    }
  }
  const FittedModels fitted = fit_kernels(pcie_a100(), adds.rows(0, 2), constants_only());
  fmt::print("a100-pcie-40gb elementwise, fp32\n");
  test::print_constants(fitted);
  const FitError held = test::score(pcie_a100(), fitted, adds.rows(1, 2));
  test::print_error("constants, the other half", held);
  CHECK(held.mean <= 0.015);

  const FittedModels norm_fit = fit_kernels(pcie_a100(), norm_rows.rows(0, 2), constants_only());
  test::print_constants(norm_fit);
  test::print_error("layer norm, the other half",
                    test::score(pcie_a100(), norm_fit, norm_rows.rows(1, 2)));
}

}  // namespace stepcast::models
