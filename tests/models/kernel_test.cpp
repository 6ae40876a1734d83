#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "core/graph/op_traits.h"
#include "core/graph/program_builder.h"
#include "models/cost_model.h"
#include "models/kernels/kernel_form.h"
#include "models/kernels/newton_schulz.h"
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
FittedModels realistic(double wave_share = 0.3) {
  const auto model = [](const std::string& form, std::map<std::string, double> constants) {
    FittedModel m;
    m.form = form;
    m.constants = std::move(constants);
    return m;
  };
  return {{"gemm", model("gemm.tile_wave", {{"start", 3e-6},
                                            {"memory_efficiency", 0.8},
                                            {"resident", 0.5},
                                            {"tile_efficiency", 0.95},
                                            {"half_tile", 25},
                                            {"tile_power", 4},
                                            {"sustained", 0.78},
                                            {"wave_share", wave_share},
                                            {"crowding", 0.4},
                                            {"epilogue", 1},
                                            {"core_bandwidth", 5},
                                            {"cache_bandwidth", 4},
                                            {"split_start", 2.5e-6},
                                            {"split_traffic", 0.6},
                                            {"blend", 0.3}})},
          {"attention", model("attention.tiles", {{"start", 5e-6},
                                                  {"memory_efficiency", 0.5},
                                                  {"serial", 0.6},
                                                  {"compute_efficiency", 0.7},
                                                  {"softmax_columns", 25},
                                                  {"block", 2e-6},
                                                  {"critical", 0.7},
                                                  {"packing", 0.5}})},
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
    // With drawn lengths the fifth size is the pairs: whole tiles where each of 64 * 128 rows sees
    // 128.
    const bool jagged = std::holds_alternative<JaggedAttributes>(traits_of(k).attributes);
    Op op = op_of(k, {64, 32, 32, 128, jagged ? 64 * 128 * 128 : 128, 32});
    op.attributes = traits_of(k).attributes;
    const Prediction p = predict(toy(1e-6), op);
    CAPTURE(name_of(k));
    const double memory = (op.bytes_read + op.bytes_written).base() / 100e9;
    CHECK(p.time.base() >= memory);
    CHECK(p.time.base() >= op.flops.base() / 1e12);
    if (k != OpKind::kOrthogonalize) {  // many kernels
      CHECK(p.time.base() <= Approx(1e-6 + std::max(memory, op.flops.base() / 1e12)));
    }
  }
}

TEST_CASE("no constants and no residual points beat the physical limit",
          "[models][gemm][property]") {
  System calibrated = toy(1e-6);
  calibrated.device.fitted = realistic();
  if (GENERATE(false, true)) {  // points that claim a tenth of the form's time everywhere
    FittedModel& gemm = calibrated.device.fitted.at("gemm");
    gemm.constants["residual_scale"] = 100;
    gemm.points = {{{5, 5, 5, 0, 0}, -2.3}};
  }
  const auto m = GENERATE(1, 7, 64, 300, 4096);
  const auto n = GENERATE(1, 100, 512, 3000);
  const auto k = GENERATE(1, 16, 1000, 8192);
  CAPTURE(m, n, k);
  const Op op = op_of(OpKind::kGemm, {m, n, k, 1});
  // 1 TFLOP/s; 100 GB/s for what exceeds the cache of 10 MB.
  const double bytes = (op.bytes_read + op.bytes_written).base();
  const double time = predict(calibrated, op).time.base();
  CHECK(time >= op.flops.base() / 1e12 * (1 - 1e-12));
  CHECK(time >= (bytes - 10e6) / 100e9 * (1 - 1e-12));
}

TEST_CASE("waves of tiles", "[models][gemm]") {
  // 10 multiprocessors of 0.1 TFLOP/s. Tiles of 256 x 128 at full rate, nothing else costs time:
  // one tile of k = 4096 is 2 * 256 * 128 * 4096 / 1e11 = 2.684 ms. Smaller tiles are as good per
  // product, but dear beyond one wave, and nothing is split (1 s to start).
  System system = toy();
  system.device.bandwidth = GBps(1e6);
  FittedModel gemm;
  gemm.form = "gemm.tile_wave";
  gemm.constants = {{"half_tile", 1e-3},    {"wave_share", 1}, {"crowding", 5},
                    {"core_bandwidth", 50}, {"epilogue", 0},   {"cache_bandwidth", 50},
                    {"split_start", 1},     {"start", 0}};
  system.device.fitted["gemm"] = gemm;
  const double tile = 2.0 * 256 * 128 * 4096 / 1e11;
  const auto time = [&](std::int64_t tiles) {
    return predict(system, op_of(OpKind::kGemm, {256, 128 * tiles, 4096, 1})).time.base();
  };
  CHECK(time(10) == Approx(tile));
  CHECK(time(11) == Approx(2 * tile));
  CHECK(time(20) == Approx(2 * tile));
  // Half of the quantisation: 1.5 exact + 0.5 * (2 - 1.5).
  system.device.fitted["gemm"].constants["wave_share"] = 0.5;
  CHECK(time(15) == Approx(1.75 * tile));
}

TEST_CASE("a product of few tiles is split along k", "[models][gemm]") {
  // One tile of 64 x 16 keeps one of ten multiprocessors busy. In 48 parts it takes five waves of
  // 1/48 each, the least of the menu: 8 parts one of 1/8, 64 parts seven of 1/64.
  System system = toy();
  system.device.bandwidth = GBps(1e6);
  FittedModel gemm;
  gemm.form = "gemm.tile_wave";
  gemm.constants = {{"half_tile", 1e-3},   {"core_bandwidth", 50}, {"cache_bandwidth", 50},
                    {"split_start", 1e-6}, {"split_traffic", 0},   {"start", 0},
                    {"wave_share", 1},     {"sustained", 1}};
  system.device.fitted["gemm"] = gemm;
  const double whole = 2.0 * 64 * 16 * 1e6 / 1e11;
  const Op op = op_of(OpKind::kGemm, {16, 16, 1000000, 1});
  CHECK(predict(system, op).time.base() == Approx(whole * 5 / 48 + 1e-6).epsilon(1e-3));
  system.device.fitted["gemm"].constants["split_start"] = 1;
  CHECK(predict(system, op).time.base() == Approx(whole).epsilon(1e-3));
}

TEST_CASE("a layout is slower by its own constant", "[models][gemm]") {
  System system = toy();
  system.device.fitted = realistic();
  system.device.fitted["gemm"].constants["sustained"] = 1;
  system.device.fitted["gemm"].constants["transposed_a"] = 0.8;
  Op op = op_of(OpKind::kGemm, {4096, 4096, 4096, 1});
  const Prediction forward = predict(system, op);
  op.flags = op_flags::kTransposeA;
  CHECK(predict(system, op).compute > forward.compute);
  op.flags = op_flags::kTransposeB;  // not measured: as forward
  CHECK(predict(system, op).time == forward.time);
}

TEST_CASE("a larger op is never faster", "[models][property]") {
  System system = toy(1e-6);
  const double wave_share = GENERATE(-1, 0, 0.3, 1);
  if (wave_share >= 0) {
    system.device.fitted = realistic(wave_share);
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
  // 32 blocks of 128 rows walk 1, 2, ..., 32 times 128 keys instead of 32 times 32: the diagonal
  // tiles are executed whole. 528 / 1024.
  const double both = predict(toy(), full).time.base();
  CHECK(predict(toy(), causal).time.base() == Approx(both * 528 / 1024));
  // A window of 512 leaves blocks 1, 2, 3, 4, then 28 times 5 of them: 10 + 140 of 1024.
  causal.attributes = AttentionAttributes{.window = 512};
  fill_work(causal);
  CHECK(predict(toy(), causal).time.base() == Approx(both * 150 / 1024));
  // Needed work: 512 keys for all queries but the first 512, which see half of it.
  CHECK(causal.flops.base() ==
        Approx(full.flops.base() * (512 * 4096 - 512 * 512 / 2) / (4096.0 * 4096)));
}

TEST_CASE("one query of many keys takes the time to read them", "[models][attention]") {
  System system = toy();
  system.device.peak = {{Format::kFp32, teraflops(100)}};
  FittedModel m;
  m.form = "attention.tiles";
  m.constants = {{"memory_efficiency", 0.5}, {"compute_efficiency", 0.8}, {"critical", 0.8}};
  m.samples = 10;
  const std::pair<double, double> any{-1, 100};
  m.range = {{"log_batch_heads", any}, {"log_queries", any}, {"log_keys", any},
             {"log_head_dim", any},    {"log_group", any},   {"causal", any}};
  system.device.fitted["attention_forward"] = m;
  // 16 sequences of 8,192 keys, 32 heads over 8 of keys and values of 128, fp32: keys and values
  // are 16 * 8192 * 8 * 128 * 2 * 4 B = 1.07 GB, 10.7 ms at 100 GB/s.
  Op decode = op_of(OpKind::kAttentionForward, {16, 32, 8, 1, 8192, 128});
  decode.flags = op_flags::kCausal;
  const double bytes = (decode.bytes_read + decode.bytes_written).base();
  CHECK(bytes == Approx(1.0745e9).epsilon(0.01));
  const Prediction p = predict(system, decode);
  CHECK(p.time.base() == Approx(bytes / 100e9).epsilon(0.05));
  CHECK(p.bound == "memory");
  CHECK_FALSE(p.in_range);
  // Queries of their own keys are what was measured.
  Op prefill = op_of(OpKind::kAttentionForward, {1, 32, 8, 4096, 4096, 128});
  prefill.flags = op_flags::kCausal;
  CHECK(predict(system, prefill).in_range);
  // More keys never take less, at any number of queries.
  for (const std::int64_t queries : {1, 16, 200, 2048}) {
    double before = 0;
    for (std::int64_t keys = queries; keys <= 65536; keys *= 2) {
      Op op = op_of(OpKind::kAttentionForward, {4, 32, 8, queries, keys, 128});
      op.flags = op_flags::kCausal;
      const double seconds = predict(system, op).time.base();
      INFO(queries << " queries, " << keys << " keys");
      CHECK(seconds >= before * (1 - 1e-9));
      before = seconds;
    }
  }
}

TEST_CASE("fused attention of an unusual width has constants of its own", "[models][attention]") {
  using Keys = std::vector<std::string>;
  Op op = op_of(OpKind::kAttentionForward, {1, 16, 16, 4096, 4096, 128});
  op.format = Format::kBf16;
  const Keys usual{"attention_forward.bf16", "attention_forward", "attention"};
  CHECK(fitted_keys(op) == usual);
  op.shape[5] = 160;  // latent: 192 of queries and keys, 128 of values
  Keys own = usual;
  own.insert(own.begin(), "attention_forward.160.bf16");
  CHECK(fitted_keys(op) == own);
  op.flags = op_flags::kUnfused;
  CHECK(fitted_keys(op) == usual);
  // Rows of that width fit that key; others do not read it.
  System system = toy();
  system.device.fitted = realistic();
  op.flags = op_flags::kCausal;
  const Seconds before = predict(system, op).time;
  FittedModel twice = system.device.fitted.at("attention");
  twice.constants["compute_efficiency"] /= 2;
  system.device.fitted["attention_forward.160.bf16"] = twice;
  CHECK(predict(system, op).time > 1.5 * before);
  op.shape[5] = 128;
  const Seconds other = predict(system, op).time;
  system.device.fitted.erase("attention_forward.160.bf16");
  CHECK(predict(system, op).time == other);
}

TEST_CASE("attention blocks: what each constant adds", "[models][attention]") {
  // 10^12 FLOP/s over 10 multiprocessors, 10^11 B/s.
  System system = toy();
  system.device.multiprocessors = 10;
  const Op op = op_of(OpKind::kAttentionForward, {2, 4, 2, 256, 256, 64});
  // 2 * 4 heads, 2 blocks each, 4 key tiles: 64 steps of 4 * 128 * 64 * 64 FLOP at 10^11 FLOP/s.
  const double step = 4.0 * 128 * 64 * 64 / 1e11;
  const double memory = (op.bytes_read + op.bytes_written).base() / 1e11;
  const auto time_with = [&](std::map<std::string, double> constants) {
    FittedModel m;
    m.form = "attention.tiles";
    m.constants = std::move(constants);
    m.constants.try_emplace("start", 0.0);
    system.device.fitted["attention_forward"] = m;
    return predict(system, op).time.base();
  };
  const double plain = 64 * step / 10;
  REQUIRE(plain > memory);
  CHECK(time_with({}) == Approx(plain));
  CHECK(time_with({{"start", 1e-5}}) == Approx(plain + 1e-5));
  CHECK(time_with({{"compute_efficiency", 0.5}}) == Approx(2 * plain));
  CHECK(time_with({{"softmax_columns", 64}}) == Approx(2 * plain));
  CHECK(time_with({{"block", 1e-6}}) == Approx(plain + 16 * 1e-6 / 10));
  CHECK(time_with({{"critical", 0.5}}) == Approx(plain + 0.5 * 4 * step));
  CHECK(time_with({{"serial", 0.25}}) == Approx(plain + 0.25 * memory));
  // Packed: 2 heads fill blocks of 64 positions, so 2 * 2 packed heads with 4 blocks each.
  CHECK(time_with({{"packing", 1}, {"block", 1e-6}}) == Approx(plain + 16 * 1e-6 / 10));
  // One query per sequence: a packed block serves both heads of a group.
  const Op decode = op_of(OpKind::kAttentionForward, {2, 4, 2, 1, 256, 64});
  const auto blocks = [&](double packing) {
    time_with({{"block", 1e-2}, {"packing", packing}});
    return predict(system, decode).time.base() / 1e-3;
  };
  CHECK(blocks(0) == Approx(8).epsilon(0.01));
  CHECK(blocks(1) == Approx(4).epsilon(0.01));
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
  op.attributes = OptimizerAttributes{OptimizerKind::kAdam};
  CHECK(predict(system, op).overhead.base() == 2.0);
  op.attributes = OptimizerAttributes{OptimizerKind::kSgd};
  CHECK(predict(system, op).overhead.base() == 1.0);
}

TEST_CASE("what a collective sent is called back when it is written", "[models][facts]") {
  ProgramBuilder b;
  const TensorId gradient = b.buffer("gradient", 1, 1000, Format::kFp32);
  const TensorId shard = b.buffer("weights.shard", 1, 1000, Format::kFp32);
  const TensorId weights = b.buffer("weights", 1, 2000, Format::kFp32);
  const std::uint32_t step = b.begin_segment("step");
  b.op(OpKind::kFill, "zero", {1000}).out({gradient});
  b.op(OpKind::kOptimizer, "update", {1000})
      .attributes(OptimizerAttributes{OptimizerKind::kSgd})
      .in({gradient, shard})
      .out({shard});
  b.op(OpKind::kAllGather, "gather", {2000}).communicator(0).in({shard}).out({weights});
  b.op(OpKind::kAdd, "add", {1, 2000}).in({weights, weights}).out({weights});
  b.end_segment();
  b.call(step);
  const Program program = std::move(b).finish();
  const OpFacts update(program, program.ops[1]);
  REQUIRE(update.operands.size() == 3);
  CHECK_FALSE(update.operands[0].sent);
  CHECK((update.operands[1].sent && update.operands[2].sent));
  for (const OperandUse& use : OpFacts(program, program.ops[3]).operands) {
    CHECK_FALSE(use.sent);  // received: its own core wrote it
  }

  System core = toy();
  FittedModel levels;
  levels.form = "memory.levels";
  levels.constants = {
      {"start", 0}, {"near", 1e10}, {"far", 1e10}, {"capacity", 1e18}, {"called_back", 5}};
  core.device.fitted["optimizer"] = levels;
  // Reads two operands of 4000 bytes and writes one, of them the shard twice.
  CHECK(CostModel(core, {}).kernel(program, program.ops[1]).time.base() ==
        Approx((4000 + 5 * 8000) / 1e10));
  // Data that has left the cache is nobody's: from memory it takes what it takes.
  levels.constants["capacity"] = 1;
  core.device.fitted["optimizer"] = levels;
  CHECK(CostModel(core, {}).kernel(program, program.ops[1]).time.base() == Approx(12000 / 1e10));
}

TEST_CASE("ids that each have an owner are packed one by one", "[models]") {
  System core = toy();
  FittedModel levels;
  levels.form = "memory.levels";
  levels.constants = {{"start", 0}, {"row", 1e-9}};
  core.device.fitted["index_pack"] = levels;
  const auto time = [&](std::int64_t owned) {
    return predict(core, op_of(OpKind::kIndexPack, {1000, 10, 2, owned})).time.base();
  };
  CHECK(time(400) - time(0) == Approx(400e-9));
}

TEST_CASE("a product that runs once per step is colder than one of every layer",
          "[models][gemm][facts]") {
  ProgramBuilder b;
  const TensorId x = b.activation("x", 16, 16, Format::kFp32);
  const auto product = [&](std::int64_t n) {
    b.op(OpKind::kGemm, "product", {16, n, 16, 1}).in({x, x}).out({x});
  };
  const std::uint32_t layer = b.begin_segment("layer");
  product(16);
  b.op(OpKind::kAdd, "add", {16, 16}).in({x, x}).out({x});
  product(32);
  b.end_segment();
  const std::uint32_t head = b.begin_segment("head");
  product(64);
  b.end_segment();
  for (int i = 0; i < 4; ++i) {
    b.call(layer);
  }
  b.call(head);
  const Program program = std::move(b).finish();
  // Between two layers' first products lie the add and the second product; the head's product waits
  // for four layers of three ops.
  CHECK(OpFacts(program, program.ops[0]).idle_ops == 2);
  CHECK(OpFacts(program, program.ops[2]).idle_ops == 2);
  CHECK(OpFacts(program, program.ops[3]).idle_ops == 12);
  CHECK(OpFacts(program, program.ops[1]).idle_ops == 0);  // no product
  CHECK(OpFacts(Program{}, program.ops[3]).idle_ops == 0);

  System core = toy();
  FittedModel gemm;
  gemm.form = "gemm.shape_rate";
  gemm.constants = {{"start", 0}, {"cold", 1e-6}, {"cold_ops", 12}, {"near", 1e18}, {"far", 1e18}};
  core.device.fitted["gemm"] = gemm;
  const CostModel cost(core, {});
  const double warm = cost.kernel(Program{}, program.ops[3]).time.base();
  // 1 us * 12 / (12 + 12)
  CHECK(cost.kernel(program, program.ops[3]).time.base() == Approx(warm + 0.5e-6));
}

TEST_CASE("an orthogonalisation takes as long as its kernels", "[models][muon]") {
  Op op = op_of(OpKind::kOrthogonalize, {512, 2048, 3, 5});
  op.format = Format::kBf16;
  fill_work(op);
  System system;
  system.device.bandwidth = BytesPerSecond(1e12);
  system.device.peak = {{Format::kBf16, FlopsPerSecond(1e14)},
                        {Format::kFp32, FlopsPerSecond(1e13)}};
  const CostModel model(system, {});
  double seconds = 0;
  double flops = 0;
  Bytes read, written;
  for (const auto& [part, times] : newton_schulz_ops(op)) {
    seconds += times * model.kernel(part).time.base();
    flops += times * part.flops.base();
    read += part.bytes_read * times;
    written += part.bytes_written * times;
  }
  CHECK(model.kernel(Program{}, op).time.base() == Approx(seconds));
  // Three matrices, five times 4 m^2 n + 2 m^3.
  CHECK(flops == 15 * (4.0 * 512 * 512 * 2048 + 2.0 * 512 * 512 * 512));
  CHECK(op.flops.base() == flops);
  CHECK(op.bytes_read == read);
  CHECK(op.bytes_written == written);
  // Bound by products: 2.4 GFLOP each at 10^14 FLOP/s.
  CHECK(seconds == Approx(flops / 1e14).epsilon(0.3));
}

TEST_CASE("a framework with older attention kernels takes longer", "[models][attention]") {
  const Op fused = op_of(OpKind::kAttentionForward, {2, 4, 2, 256, 256, 64});
  Op unfused = fused;
  unfused.flags |= op_flags::kUnfused;
  System system;
  system.device.bandwidth = BytesPerSecond(1e12);
  system.device.peak = {{Format::kFp32, FlopsPerSecond(1e13)}};
  const auto seconds = [&system](const Op& op) {
    return CostModel(system, {}).kernel(Program{}, op).time.base();
  };
  const double plain = seconds(fused);
  const double apart = seconds(unfused);
  system.framework.attention = 1.8;
  system.framework.attention_fp8_devices = 1.7;
  CHECK(seconds(fused) == Approx(1.8 * plain));
  CHECK(seconds(unfused) == apart);
  system.device.peak[Format::kFp8] = FlopsPerSecond(2e13);
  CHECK(seconds(fused) == Approx(1.7 * plain));
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

TEST_CASE("residual curves meet their knots, are linear between them and fade beyond",
          "[models][residual]") {
  FittedModel model;
  model.constants = {{"residual_scale", 2}, {"residual_noise", 1e-6}};
  set_residual_knots(model, {0, 1, 3});
  CHECK(residual_knots(model) == std::vector<double>{0, 1, 3});
  model.points = {{{5, 0.2, 0.4}, 0.0}, {{25, -0.1, -0.1}, -0.1}};  // places 5 and 25
  const ResidualSurface surface(model);
  const auto at = [&](double u, double x) { return surface.at(std::vector<double>{u, x}); };
  CHECK(at(0, 5) == Approx(0.2).margin(1e-4));
  CHECK(at(1, 5) == Approx(0.4).margin(1e-4));
  CHECK(at(3, 5) == Approx(0).margin(1e-4));
  CHECK(at(0.25, 5) == Approx(0.25).margin(1e-4));              // a quarter of the way
  CHECK(at(2, 5) == Approx(0.2).margin(1e-4));                  // half of the way
  CHECK(at(2, 25) == Approx(-0.1).margin(1e-4));                // the other curve
  CHECK(at(-2, 5) == Approx(0.2 * std::exp(-1)).margin(1e-4));  // 2 beyond the end, scale 2
  CHECK(std::abs(at(1, 60)) < 1e-6);                            // far from both curves
}

}  // namespace stepcast::models
