#include <unistd.h>

#include <string>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "models/cost_model.h"
#include "models/kernels/kernel_form.h"
#include "models/measured/op_text.h"
#include "studies/fit/calibration_rows.h"
#include "studies/fit/fit.h"
#include "studies/fit/shadowed_models.h"
#include "tests/studies/synthetic_rows.h"

using namespace stepcast;
using namespace stepcast::studies;
using Catch::Matchers::Contains;

namespace {

FitDataOptions options_on(Device device) {
  FitDataOptions options;
  options.base.device = std::move(device);
  options.date = "2026-01-02";
  options.max_points = 50;
  return options;
}

double worst_error(const models::MeasuredTable& table, const System& system) {
  const models::CostModel cost(system, {});
  double worst = 0;
  for (const auto& row : table.ops) {
    const double predicted = cost.kernel(*table.program, table.op(row)).time.base();
    worst = std::max(worst, std::abs(predicted / row.time.base() - 1));
  }
  return worst;
}

}  // namespace

TEST_CASE("only what a fit answers in the place of leaves the base", "[studies][fit]") {
  const FittedModels given{{"gemm", {}}, {"gemm.bf16", {}}, {"add", {}}};
  FittedModels base = given;
  forget_shadowing(base, {{"gemm", {}}}, {"gemm.bf16", "gemm"});
  CHECK_FALSE(base.contains("gemm.bf16"));  // it would answer for the rows that were fitted
  CHECK(base.contains("gemm"));             // replaced by whoever stores the fit
  CHECK(base.contains("add"));
  base = given;
  forget_shadowing(base, {}, {"gemm.bf16", "gemm"});  // too few rows: nothing was fitted
  CHECK(base.size() == given.size());
}

TEST_CASE("a fit recovers the law its rows follow", "[studies][fit]") {
  const auto table =
      test::adds("law", 120, [](double bytes, int) { return test::typical_milliseconds(bytes); });
  const FitDataResult result = fit_data(table, options_on(test::t4()));
  CHECK(worst_error(table, result.system) < 0.01);
  const FittedModel& add = result.system.device.fitted.at("add");
  CHECK(add.samples == 120);
  CHECK(add.error.p90 < 0.01);
  CHECK_FALSE(add.range.empty());
  // Which data, which framework, when.
  CHECK_THAT(add.source, Contains("120 rows of law.csv, torch 2.1") && Contains("2026-01-02") &&
                             Contains("held-out"));
}

TEST_CASE("a fit replaces what answers for its rows and keeps the rest", "[studies][fit]") {
  const auto table =
      test::adds("merge", 60, [](double bytes, int) { return test::typical_milliseconds(bytes); });
  Device base = test::t4();
  FittedModel wrong;
  wrong.form = "memory.roofline";
  wrong.constants["memory_efficiency"] = 0.01;
  base.fitted["add.fp32"] = wrong;  // more specific than "add": would answer in its place
  base.fitted["add"] = wrong;
  base.fitted["norm_forward"] = wrong;
  const FitDataResult result = fit_data(table, options_on(base));
  CHECK(worst_error(table, result.system) < 0.01);
  CHECK(result.system.device.fitted.at("norm_forward").constants == wrong.constants);
}

TEST_CASE("rows the device cannot have run are named, not used", "[studies][fit]") {
  // Every tenth row a hundred times too fast: 80 % of 320 GB/s becomes 25.6 TB/s.
  const auto table = test::adds("fast", 100, [](double bytes, int row) {
    return test::typical_milliseconds(bytes) / (row % 10 == 3 ? 100 : 1);
  });
  const FitDataResult result = fit_data(table, options_on(test::t4()));
  REQUIRE(result.skipped.size() == 10);
  CHECK_THAT(result.skipped[0].place, Contains("fast.csv:5"));  // row 3, after the header
  CHECK_THAT(result.skipped[0].reason, Contains("above the memory bandwidth of t4"));
  CHECK(result.system.device.fitted.at("add").samples == 90);
  REQUIRE_FALSE(result.kernels.empty());
  CHECK(result.kernels[0].skipped == 10);
}

TEST_CASE("rows of other devices, stand-ins and other stacks are counted", "[studies][fit]") {
  const auto table = test::adds(
      "mixed", 40, [](double bytes, int) { return test::typical_milliseconds(bytes); },
      "add,64,64,1e-5,,p4,torch 2.1,\nadd,64,64,1e-5,,t4,torch 2.1,mul\n"
      "add,64,64,-1,,t4,torch 2.1,\n");
  const FitDataResult result = fit_data(table, options_on(test::t4()));
  CHECK(result.other_devices == 1);
  CHECK(result.stand_ins == 1);
  REQUIRE(result.skipped.size() == 1);
  CHECK_THAT(result.skipped[0].place, Contains("mixed.csv:44"));

  Device other = test::t4();
  other.name = "l40s";
  try {
    (void)fit_data(table, options_on(other));
    FAIL("a device without rows was fitted");
  } catch (const InputError& e) {
    CHECK_THAT(e.what(), Contains("l40s") && Contains("p4, t4"));
  }
}

TEST_CASE("stacks are not mixed unless the user chooses", "[studies][fit]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("stepcast-stacks-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const char* framework : {"one 1.0", "two 2.0"}) {
    std::string text = "kind,format,s0,s1,s2,seconds,configuration,device,stack\n";
    for (int i = 1; i <= 20; ++i) {
      const double seconds = 1e-5 + 2.0 * (128 * i) * 1024 * 1024 / (0.5 * 125e12);
      text +=
          fmt::format("gemm,fp16,{},1024,1024,{:.6g},1024,t4,{}\n", 128 * i, seconds, framework);
    }
    write_whole_file(folder / fmt::format("{}.csv", framework), text);
  }
  const auto table = models::read_measured(folder);
  FitDataOptions options = options_on(test::t4());
  options.base.device.peak[Format::kFp16] = teraflops(125);
  try {
    (void)fit_data(table, options);
    FAIL("two stacks were mixed");
  } catch (const InputError& e) {
    CHECK_THAT(e.what(), Contains("--stack") && Contains("one 1.0, two 2.0"));
  }
  options.framework = "two";
  const FitDataResult result = fit_data(table, options);
  CHECK(result.other_frameworks == 20);
  REQUIRE(result.kernels.size() == 1);
  CHECK(result.kernels[0].framework == "two 2.0");
  CHECK(result.kernels[0].used == 20);
  options.framework = "three";
  CHECK_THROWS_AS(fit_data(table, options), InputError);
}

TEST_CASE("calibration rows are read back as they were measured", "[studies][fit]") {
  FitRows rows;
  ExecutionGraph graph;
  graph.programs.emplace_back();
  Program& program = graph.programs.front();
  program.names = {"layer, first"};
  Op op;
  op.kind = OpKind::kGemm;
  op.flags = op_flags::kTransposeB;
  op.shape = {64, 32, 16, 1};
  fill_work(op);
  const std::uint32_t index = models::add_with_reuse(program, op, "4096@14336 2048@1000000");
  rows.graphs.push_back(std::move(graph));
  const Program& kept = rows.graphs.front().programs.front();
  rows.ops.push_back({&kept, &kept.ops[index], microseconds(12), 0});
  rows.collectives.push_back(
      {OpKind::kAllReduce, 4096, {2, {2}, {2}, {1}}, microseconds(20), Format::kFp32, seconds(1e-3)});
  rows.hosts.push_back({.step_seconds = 1e-3, .medians = {{1e-6}, {2e-6}, {3e-6}}, .all = {}});
  rows.steps.push_back({5e6, 6e6, 1e-3});

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("stepcast-own-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  write_whole_file(folder / "ops.csv", calibration_csv(rows));
  const auto table =
      models::read_measured(folder, {.device = "local-cpu-core", .system = "local-cpu"});
  CHECK(table.skipped.empty());
  REQUIRE(table.ops.size() == 1);
  const Op& back = table.op(table.ops[0]);
  CHECK(back.kind == OpKind::kGemm);
  CHECK(back.flags == op_flags::kTransposeB);
  CHECK(back.shape == op.shape);
  CHECK(back.flops == op.flops);
  CHECK(table.ops[0].time.base() == Approx(12e-6));
  const models::OpFacts before(kept, kept.ops[index]);
  const models::OpFacts after(*table.program, back);
  REQUIRE(after.operands.size() == before.operands.size());
  for (std::size_t i = 0; i < before.operands.size(); ++i) {
    CHECK(after.operands[i].bytes ==
          Approx(before.operands[i].bytes).epsilon(1e-3));  // whole bytes
    CHECK(after.operands[i].distance == Approx(before.operands[i].distance));
  }
  REQUIRE(table.collectives.size() == 1);
  CHECK(table.collectives[0].bytes == 4096);
  CHECK(table.collectives[0].idle_time.base() == Approx(1e-3));
  const models::MeasuredHost host = models::measured_host(table, "local-cpu-core");
  CHECK(host.issue == std::vector<double>{1e-6});
  CHECK(host.dispatch == std::vector<double>{2e-6});
  CHECK(host.step == std::vector<double>{3e-6});
  REQUIRE(table.steps.size() == 1);
  CHECK(table.steps[0].flops == 5e6);
}
