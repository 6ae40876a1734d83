#include <catch2/catch.hpp>
#include <cmath>

#include "models/cost_model.h"
#include "models/kernel_form.h"
#include "models/residual.h"

namespace stepcast::models {
namespace {

System toy(double start = 0) {
  System s;
  s.device.name = "toy";
  s.device.bandwidth = GBps(100);
  s.device.l2 = MB(10);
  s.device.multiprocessors = 10;
  s.device.launch = Seconds(start);
  s.device.peak = {{Format::kFp32, teraflops(1)}};
  return s;
}

Op op_of(OpKind kind, std::array<std::int64_t, 6> shape) {
  Op op;
  op.kind = kind;
  op.format = Format::kFp32;
  op.shape = shape;
  fill_work(op);
  return op;
}

Prediction predict(const System& system, const Op& op) {
  return CostModel(system, {}).kernel(Program{}, op);
}

/// Realistic constants of every form, as a fit would give them.
FittedModels realistic() {
  const auto model = [](const std::string& form, std::map<std::string, double> constants) {
    FittedModel m;
    m.form = form;
    m.constants = std::move(constants);
    return m;
  };
  return {{"gemm", model("gemm.tile_wave", {{"start", 3e-6},
                                            {"compute_efficiency", 0.8},
                                            {"memory_efficiency", 0.8},
                                            {"tile_cost", 8},
                                            {"wave_share", 0.3},
                                            {"blend", 0.3},
                                            {"depth", 90}})},
          {"attention", model("attention.tiles", {{"start", 5e-6},
                                                  {"compute_efficiency", 0.6},
                                                  {"half_queries", 100},
                                                  {"half_parallel", 20},
                                                  {"diagonal", 40}})},
          {"memory_bound", model("memory.levels", {{"start", 1e-6},
                                                   {"row", 1e-9},
                                                   {"element", 1e-11},
                                                   {"near", 4e11},
                                                   {"far", 1e11},
                                                   {"capacity", 1e7}})}};
}

}  // namespace

TEST_CASE("a matrix product is bound by the slower of compute and memory", "[models][gemm]") {
  // Compute: 2 * 10^9 FLOP / 10^12 FLOP/s = 2 ms. Memory: 3 * 10^6 * 4 B / 10^11 B/s = 0.12 ms.
  // Launch 5 us.
  const Prediction p = predict(toy(5e-6), op_of(OpKind::kGemm, {1000, 1000, 1000, 1}));
  CHECK(p.compute.base() == Approx(2e-3));
  CHECK(p.memory.base() == Approx(0.12e-3));
  CHECK(p.time.base() == Approx(2.005e-3));
  CHECK(p.bound == "compute");
  CHECK(p.model == "gemm.tile_wave");
  CHECK_FALSE(p.in_range);
  // One row: 2 * 10^6 FLOP = 2 us against (10^6 + 2000) * 4 B = 40.08 us.
  const Prediction thin = predict(toy(), op_of(OpKind::kGemm, {1, 1000, 1000, 1}));
  CHECK(thin.bound == "memory");
  CHECK(thin.time.base() == Approx(40.08e-6));
}

TEST_CASE("a batch of products costs as much as its parts", "[models][gemm]") {
  const double one = predict(toy(), op_of(OpKind::kGemm, {64, 64, 64, 1})).time.base();
  const double eight = predict(toy(), op_of(OpKind::kGemm, {64, 64, 64, 8})).time.base();
  CHECK(eight == Approx(8 * one));
}

TEST_CASE("without calibration no kernel is below the roofline or above it", "[models][property]") {
  for (auto kind = 0; kind < static_cast<int>(OpKind::kAllReduce); ++kind) {
    const auto k = static_cast<OpKind>(kind);
    const Op op = op_of(k, {64, 32, 32, 128, 128, 32});
    const Prediction p = predict(toy(1e-6), op);
    CAPTURE(name_of(k));
    const double memory = (op.bytes_read + op.bytes_written).base() / 100e9;
    CHECK(p.time.base() >= memory);
    CHECK(p.time.base() >= op.flops.base() / 1e12);
    CHECK(p.time.base() <= Approx(1e-6 + std::max(memory, op.flops.base() / 1e12)));
  }
}

TEST_CASE("constants within their bounds never beat the roofline", "[models][gemm][property]") {
  System calibrated = toy(1e-6);
  calibrated.device.fitted = realistic();
  const auto m = GENERATE(1, 7, 64, 300, 4096);
  const auto n = GENERATE(1, 100, 512, 3000);
  const auto k = GENERATE(1, 16, 1000, 8192);
  CAPTURE(m, n, k);
  const Op op = op_of(OpKind::kGemm, {m, n, k, 1});
  CHECK(predict(calibrated, op).time > predict(toy(), op).time);
}

TEST_CASE("a larger op is never faster", "[models][property]") {
  System system = toy(1e-6);
  if (GENERATE(false, true)) {
    system.device.fitted = realistic();
  }
  const auto kind =
      GENERATE(OpKind::kGemm, OpKind::kAttentionForward, OpKind::kAttentionBackward, OpKind::kAdd,
               OpKind::kNormForward, OpKind::kActivationForward, OpKind::kRopeForward,
               OpKind::kDotInteractionForward, OpKind::kOptimizer);
  const auto axis = GENERATE(0, 1, 2);
  double previous = 0;
  for (std::int64_t size = 8; size <= 4096; size += 8) {
    std::array<std::int64_t, 6> shape{48, 48, 48, 48, 48, 48};
    shape[static_cast<std::size_t>(axis)] = size;
    if (kind == OpKind::kAttentionForward || kind == OpKind::kAttentionBackward) {
      shape = {2, 4, 4, size, size, 64};
    }
    const double t = predict(system, op_of(kind, shape)).time.base();
    CAPTURE(name_of(kind), axis, size);
    REQUIRE(t >= previous * (1 - 1e-9));
    previous = t;
  }
}

TEST_CASE("twice the bandwidth halves a memory-bound op", "[models][memory][property]") {
  System fast = toy();
  fast.device.bandwidth *= 2;
  const Op op = op_of(OpKind::kAdd, {1000, 1000});
  CHECK(predict(fast, op).time.base() == Approx(predict(toy(), op).time.base() / 2));
}

TEST_CASE("a causal mask halves attention that is bound by compute", "[models][attention]") {
  Op full = op_of(OpKind::kAttentionForward, {1, 8, 8, 4096, 4096, 128});
  Op causal = full;
  causal.flags = op_flags::kCausal;
  fill_work(causal);
  CHECK(predict(toy(), causal).time.base() == Approx(predict(toy(), full).time.base() / 2));
}

TEST_CASE("calibrated answers say whether they are in range", "[models]") {
  System system = toy();
  FittedModel m;
  m.form = "memory.levels";
  m.constants = {{"start", 1e-6}};
  m.samples = 10;
  m.log_sigma = 0.03;
  m.range = {{"log_rows", {0, std::log(100.0)}}, {"log_width", {0, std::log(100.0)}}};
  system.device.fitted["add"] = m;
  CHECK(predict(system, op_of(OpKind::kAdd, {100, 10})).in_range);
  CHECK(predict(system, op_of(OpKind::kAdd, {100, 10})).log_sigma == 0.03);
  CHECK_FALSE(predict(system, op_of(OpKind::kAdd, {101, 10})).in_range);
  // Constants that were taken over from another device carry no samples and no range.
  system.device.fitted["add"].samples = 0;
  CHECK_FALSE(predict(system, op_of(OpKind::kAdd, {100, 10})).in_range);
}

TEST_CASE("the most specific constants win", "[models]") {
  System system = toy();
  FittedModel all;
  all.form = "memory.levels";
  all.constants = {{"start", 1.0}};
  FittedModel adam = all;
  adam.constants["start"] = 2.0;
  system.device.fitted = {{"memory_bound", all}, {"optimizer.adam", adam}};
  Op op = op_of(OpKind::kOptimizer, {10});
  op.variant = static_cast<std::uint8_t>(OptimizerKind::kAdam);
  CHECK(predict(system, op).overhead.base() == 2.0);
  op.variant = static_cast<std::uint8_t>(OptimizerKind::kSgd);
  CHECK(predict(system, op).overhead.base() == 1.0);
}

TEST_CASE("the residual surface meets its points and fades away from them", "[models][residual]") {
  const ResidualSurface surface({{{0, 0}, 0.2}, {{1, 0}, -0.1}}, 1.0, 1e-6);
  CHECK(surface.at(std::vector<double>{0, 0}) == Approx(0.2).margin(1e-4));
  CHECK(surface.at(std::vector<double>{1, 0}) == Approx(-0.1).margin(1e-4));
  CHECK(std::abs(surface.at(std::vector<double>{20, 0})) < 1e-6);
  // Leave one out: at (0, 0) only the other point speaks, -0.1 e^-1; the residual is 0.2 + 0.1
  // e^-1.
  CHECK(surface.leave_one_out()[0] == Approx(0.2 + 0.1 * std::exp(-1)).margin(1e-4));
}

}  // namespace stepcast::models
