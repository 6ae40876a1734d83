#include "models/kernels/transfer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/graph/program_builder.h"
#include "models/cost_model.h"
#include "models/fit/fit.h"
#include "models/kernels/kernel_form.h"
#include "models/measured/measured_table.h"
#include "tests/measured_tables.h"
#include "tests/models/measured.h"

using namespace stepcast;
using namespace stepcast::models;

namespace {

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

/// One fitted GEMM; launch 4 us.
Device source_device() {
  Device d;
  d.name = "old";
  d.bandwidth = BytesPerSecond(1000e9);
  d.l2 = MB(40);
  d.multiprocessors = 100;
  d.launch = microseconds(4);
  d.peak = {{Format::kFp32, FlopsPerSecond(10e12)},
            {Format::kBf16, FlopsPerSecond(100e12)},
            {Format::kFp8, FlopsPerSecond(200e12)}};
  FittedModel gemm;
  gemm.form = "gemm.tile_wave";
  gemm.constants = {{"start", 6e-6},   {"compute_efficiency", 0.8}, {"memory_efficiency", 0.9},
                    {"tile_cost", 10}, {"wave_share", 0.2},         {"blend", 0.3},
                    {"depth", 50},     {"residual_scale", 1},       {"residual_noise", 0.1}};
  gemm.points = {{{1, 2, 3, 4, 0, 0}, 0.2}};
  gemm.range = {{"log_m", {0, 10}}};
  gemm.samples = 1000;
  gemm.error.median = 0.03;
  gemm.log_sigma = 0.2;
  gemm.source = "rows";
  d.fitted["gemm.bf16"] = gemm;
  gemm.samples = 10;
  gemm.constants["compute_efficiency"] = 0.5;
  d.fitted["gemm.fp8"] = gemm;
  return d;
}

Device target_device() {
  Device d = source_device();
  d.name = "new";
  d.multiprocessors = 132;
  d.launch = microseconds(2);
  d.peak = {{Format::kFp32, FlopsPerSecond(20e12)}, {Format::kBf16, FlopsPerSecond(300e12)}};
  d.fitted.clear();
  return d;
}

}  // namespace

TEST_CASE("a transfer keeps efficiencies and scales times by the facts", "[models][transfer]") {
  const FittedModels t = transferred(source_device(), target_device());
  // No fp8 peak, so no fp8 model; "gemm" is that of most samples.
  REQUIRE(t.count("gemm.bf16") == 1);
  CHECK(t.count("gemm.fp8") == 0);
  REQUIRE(t.count("gemm") == 1);
  CHECK(t.at("gemm").constants.at("compute_efficiency") == 0.8);
  const FittedModel& gemm = t.at("gemm.bf16");
  CHECK(gemm.constants.at("start") == Approx(3e-6));  // 6 us * 2 us / 4 us
  CHECK(gemm.constants.at("compute_efficiency") == 0.8);
  CHECK(gemm.constants.at("memory_efficiency") == 0.9);
  CHECK(gemm.constants.at("tile_cost") == 10);
}

TEST_CASE("a transfer is never in range and less certain than its source", "[models][transfer]") {
  const FittedModel gemm = transferred(source_device(), target_device()).at("gemm.bf16");
  CHECK(gemm.samples == 0);
  CHECK(gemm.range.empty());
  CHECK(gemm.points.empty());
  CHECK(gemm.constants.count("residual_scale") == 0);
  CHECK(gemm.log_sigma == Approx(0.4));  // 2 * 0.2
  CHECK(gemm.source == "transferred from old: rows");
  ProgramBuilder b;
  b.begin_segment("s");
  const TensorId x = b.activation("x", 1024, 1024, Format::kBf16);
  b.op(OpKind::kGemm, "g", {1024, 1024, 1024, 1}).format(Format::kBf16).in({x, x}).out({x});
  b.end_segment();
  b.call(0);
  const Program program = std::move(b).finish();
  System system;
  system.device = with_transferred(target_device(), source_device());
  const Prediction p = CostModel(system, {}).kernel(program, program.ops[0]);
  CHECK_FALSE(p.in_range);
  CHECK(p.log_sigma == Approx(0.4));
}

TEST_CASE("the same chip keeps its residual points", "[models][transfer]") {
  Device faster = source_device();
  faster.name = "faster memory";
  faster.bandwidth = BytesPerSecond(1300e9);
  const FittedModel gemm = transferred(source_device(), faster).at("gemm.bf16");
  CHECK(gemm.points.size() == 1);
  CHECK(gemm.constants.count("residual_scale") == 1);
  CHECK(gemm.log_sigma == Approx(0.25));  // 1.25 * 0.2
  CHECK(gemm.samples == 0);
}

TEST_CASE("the same chip under another power limit sustains its cube root", "[models][transfer]") {
  Device source = source_device();
  source.watts = 700;
  Device limited = source_device();
  const auto sustained = [&](const Device& to) {
    return transferred(source, to).at("gemm.bf16").constants.at("compute_efficiency");
  };
  limited.watts = 500;
  CHECK(sustained(limited) == Approx(0.8 * std::cbrt(5.0 / 7)));
  limited.watts = 800;
  CHECK(sustained(limited) == Approx(0.8 * std::cbrt(8.0 / 7)));
  limited.watts = 5000;
  CHECK(sustained(limited) == 1);   // no more than the peak
  Device slower = source_device();  // half the clock under half the power
  slower.watts = 350;
  for (auto& [format, peak] : slower.peak) {
    peak *= 0.5;
  }
  CHECK(sustained(slower) == 1);  // 0.8 * cbrt(1 / 2) of the old peak is 1.27 of its own
  Device other = target_device();
  other.watts = 500;
  CHECK(sustained(other) == 0.8);  // another chip draws what it draws
}

TEST_CASE("measured chips under other power limits follow the rule", "[models][transfer]") {
  const auto rate = [](const char* name) {
    const Device d = config::load_device(name, kLibrary);
    return d.peak.at(Format::kBf16).base() * d.fitted.at("gemm.bf16").constants.at("sustained");
  };
  // B200 under 1000 W, GB200 under 1200 W: 1.073 measured, cbrt(1.2) = 1.063.
  CHECK(rate("gb200") / rate("b200-sxm") == Approx(std::cbrt(1.2)).epsilon(0.03));
}

TEST_CASE("chips are told by multiprocessors and rates, not by clocks", "[models][transfer]") {
  const auto points = [](const char* from, const char* to) {
    Device source = config::load_device(from, kLibrary);
    source.fitted = source_device().fitted;
    Device target = config::load_device(to, kLibrary);
    return transferred(source, target).at("gemm").points.size();
  };
  CHECK(points("h100-sxm-80gb", "h200-sxm-141gb") == 1);
  CHECK(points("a100-sxm-80gb", "a100-pcie-40gb") == 1);
  CHECK(points("v100-sxm2-32gb", "v100-pcie-32gb") == 1);
  CHECK(points("a100-sxm-80gb", "h100-sxm-80gb") == 0);
  CHECK(points("h100-sxm-80gb", "l40s") == 0);
}

TEST_CASE("a device keeps what was fitted on itself", "[models][transfer]") {
  Device own = target_device();
  own.fitted["gemm.bf16"] = source_device().fitted.at("gemm.fp8");  // 10 samples of its own
  own.fitted["memory_bound"] = {};                                  // no samples: not its own
  const Device d = with_transferred(own, source_device());
  CHECK(d.fitted.at("gemm.bf16").samples == 10);
  CHECK(d.fitted.at("gemm").source == "transferred from old: rows");
  CHECK(d.fitted.count("memory_bound") == 0);
}

TEST_CASE("collectives keep link efficiencies and the bytes that their times are worth",
          "[models][transfer]") {
  System from;
  from.name = "old";
  from.device = source_device();
  from.fabric = {{.name = "links", .size = 8, .bandwidth = GBps(300), .latency = microseconds(2)}};
  FittedModel ring;
  ring.form = "collective.fabric";
  ring.constants = {{"start", 8e-6}, {"ring", 0.7}, {"ramp", 2e-5}, {"latency", 0.5}, {"outer", 2}};
  ring.points = {{{1, 1}, 0.1}};
  ring.samples = 60;
  ring.log_sigma = 0.05;
  from.fitted["all_reduce"] = ring;
  System to = from;
  to.name = "new";
  to.device = target_device();
  to.fabric[0].bandwidth = GBps(400);
  to.fabric[0].latency = microseconds(1);
  to.fitted.clear();
  from.device.fitted["host"].constants["issue"] = 5e-5;
  const System t = with_transferred(to, from);
  CHECK(t.device.fitted.at("host").constants.at("issue") == 5e-5);  // of the program, not the chip
  const FittedModel& moved = t.fitted.at("all_reduce");
  CHECK(moved.constants.at("start") == Approx(6e-6));  // 8 us * 300 / 400
  CHECK(moved.constants.at("ring") == 0.7);
  CHECK(moved.constants.at("ramp") == Approx(1.5e-5));
  // A hop of 0.5 * 2 us becomes one of 0.75 us = 0.75 * 1 us; an outer hop stays 0.5 * 2 of its
  // fact.
  CHECK(moved.constants.at("latency") == Approx(0.75));
  CHECK(moved.constants.at("latency") * moved.constants.at("outer") == Approx(0.5 * 2));
  CHECK(moved.points.empty());
  CHECK(moved.log_sigma == Approx(0.3));  // 2 * 0.05 is less than the least
  to.device = source_device();
  to.fabric = from.fabric;
  CHECK(with_transferred(to, from).fitted.at("all_reduce").points.size() == 1);
}

TEST_CASE("to itself a transfer changes no prediction", "[models][transfer][property]") {
  const Device d = source_device();
  for (const auto& [key, model] : transferred(d, d)) {
    CAPTURE(key);
    if (const auto own = d.fitted.find(key); own != d.fitted.end()) {
      CHECK(model.constants == own->second.constants);
    }
  }
}

namespace {

FitError score(const System& system, const std::vector<MeasuredCollective>& rows) {
  const CostModel cost(system, {});
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const MeasuredCollective& row : rows) {
    Op op;
    op.kind = row.kind;
    op.format = row.format;
    op.shape[0] = std::llround(row.bytes / (bits_per_element(row.format, 1) / 8));
    predicted.push_back(cost.collective(op, row.group).time.base());
    measured.push_back(row.time.base());
  }
  return error_of(predicted, measured);
}

/// Constants of one generation, rows of another: no worse than the bound, and than what hardware
/// facts alone say.
void check_scores(const std::string& what, const char* from, const char* to, std::size_t rows,
                  const FitError& moved, const FitError& facts, double bound) {
  std::cout << what << ", " << from << " -> " << to << ": " << rows << " rows, transferred median "
            << moved.median << " mean " << moved.mean << "; hardware facts median " << facts.median
            << " mean " << facts.mean << '\n';
  CHECK(rows >= 50);
  CHECK(moved.median < facts.median);
  CHECK(moved.median <= bound);
}

/// A file whose constants belong to an older version of their form says nothing until it is fitted
/// again.
bool stale(const FittedModel& model, const Device& device) {
  const KernelForm* form = kernel_form_named(model.form);
  const auto known = form != nullptr ? form->constants(device) : std::vector<Constant>{};
  return std::any_of(model.constants.begin(), model.constants.end(), [&known](const auto& c) {
    return !c.first.starts_with("residual_") &&
           std::none_of(known.begin(), known.end(),
                        [&c](const Constant& k) { return k.name == c.first; });
  });
}

void check_kernels(const char* folder, OpKind kind, const char* from, const char* to,
                   double bound) {
  if (!std::filesystem::exists(stepcast::measurements::measured_tables(folder))) {
    WARN(stepcast::measurements::kNoTables);
    return;
  }
  const Device source = config::load_device(from, kLibrary);
  for (const auto& [key, model] : source.fitted) {
    if (key.starts_with(name_of(kind)) && stale(model, source)) {
      FAIL("'" << key << "' of " << from << " was fitted to an older form; fit it again");
    }
  }
  const MeasuredTable table = read_measured(stepcast::measurements::measured_tables(folder));
  const std::vector<std::uint32_t> rows =
      models::test::find_ops(table, {to, "", kind, Format::kBf16});
  std::vector<std::uint32_t> thinned;
  for (std::size_t i = 0; i < rows.size(); i += std::max<std::size_t>(1, rows.size() / 1500)) {
    thinned.push_back(rows[i]);
  }
  REQUIRE(!thinned.empty());
  const Device facts = models::test::facts_of(to);
  const std::vector<MeasuredOp> ops = measured_ops(table, thinned);
  check_scores(std::string(name_of(kind)), from, to, ops.size(),
               models::test::score(facts, with_transferred(facts, source).fitted, ops),
               models::test::score(facts, {}, ops), bound);
}

void check_collectives(const char* from, const char* to, double bound) {
  if (!std::filesystem::exists(stepcast::measurements::measured_tables("collectives"))) {
    WARN(stepcast::measurements::kNoTables);
    return;
  }
  const MeasuredTable table = read_measured(stepcast::measurements::measured_tables("collectives"));
  System facts = config::load_system(to, kLibrary);
  facts.fitted.clear();
  const System moved = with_transferred(facts, config::load_system(from, kLibrary));
  const auto rows = measured_collectives(table, facts, find_collectives(table, facts));
  check_scores("collectives", from, to, rows.size(), score(moved, rows), score(facts, rows), bound);
}

}  // namespace

TEST_CASE("constants of one generation predict another better than hardware facts",
          "[models][transfer][accuracy]") {
  check_kernels("kernels/gemm", OpKind::kGemm, "a100-sxm-80gb", "h100-sxm-80gb", 0.15);
  check_kernels("kernels/gemm", OpKind::kGemm, "h100-sxm-80gb", "a100-sxm-80gb", 0.15);
  // The attention rows of the two are also of two software stacks, which differ by 24 % (median)
  // on the same device.
  check_kernels("kernels/attention", OpKind::kAttentionForward, "a100-sxm-80gb", "h100-sxm-80gb",
                0.40);
  check_kernels("kernels/attention", OpKind::kAttentionForward, "h100-sxm-80gb", "a100-sxm-80gb",
                0.40);
  check_collectives("dgx-a100-80gb", "dgx-h100", 0.15);
  check_collectives("dgx-h100", "dgx-a100-80gb", 0.15);
}

TEST_CASE("a system not measured: constants carried over, bandwidth from facts",
          "[models][transfer][collective][accuracy]") {
  if (!std::filesystem::exists(stepcast::measurements::measured_tables("collectives"))) {
    WARN(stepcast::measurements::kNoTables);
    return;
  }
  const MeasuredTable table = read_measured(stepcast::measurements::measured_tables("collectives"));
  const auto facts_of = [](const char* name) {
    System system = config::load_system(name, kLibrary);
    system.fitted.clear();
    system.device.fitted.clear();
    return system;
  };
  const auto rows_of = [&table](const System& system) {
    auto rows = measured_collectives(table, system, find_collectives(table, system));
    // Sends have a resolution of 1 us and a profiler's overhead.
    std::erase_if(rows, [](const MeasuredCollective& row) { return row.kind == OpKind::kSend; });
    return rows;
  };
  FitOptions options;
  options.folds = 1;
  options.max_points = 0;
  using Names = std::pair<const char*, const char*>;
  for (const auto& [from, to] :
       {Names{"dgx-a100-80gb", "dgx-h100"}, Names{"dgx-h100", "dgx-a100-80gb"}}) {
    CAPTURE(from, to);
    System source = facts_of(from);
    source.fitted = fit_collectives(source, rows_of(source), "collective.fabric", options);
    System target = facts_of(to);
    const auto rows = rows_of(target);
    REQUIRE(rows.size() >= 504);
    const FitError facts = score(target, rows);
    target.fitted = source.fitted;
    const FitError plain = score(target, rows);
    target.fitted = transferred(source, target);
    const FitError moved = score(target, rows);
    CHECK(moved.median <= 0.15);
    CHECK(moved.median < 0.5 * plain.median);
    CHECK(moved.median < 0.5 * facts.median);
  }
}
