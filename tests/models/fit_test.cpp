#include "models/fit/fit.h"
#include "core/access/access.h"
#include "core/graph/program.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <random>

#include "models/collectives/collective_form.h"
#include "models/fit/points.h"
#include "models/kernels/kernel_form.h"
#include "models/residual.h"

namespace stepcast::models {
namespace {

Device core() {
  Device d;
  d.bandwidth = GBps(10);
  d.l2 = MB(2);
  d.multiprocessors = 1;
  d.launch = microseconds(1);
  d.peak = {{Format::kFp32, teraflops(0.2)}};
  return d;
}

/// Programs of one op each, in a container that keeps their addresses.
struct Bench {
  std::deque<Program> programs;
  std::vector<MeasuredOp> rows;
  void add(Program p, const KernelForm& form, const Device& device, const FittedModel& truth,
           double noise) {
    programs.push_back(std::move(p));
    const Program& program = programs.back();
    const double t =
        form.predict(OpFacts(program, program.ops[0]), device, constants_of(form, device, &truth))
            .time.base();
    rows.push_back({&program, &program.ops[0], Seconds(t * std::exp(noise)),
                    static_cast<std::int64_t>(rows.size())});
  }
};

Program program_of(OpKind kind, const std::array<std::int64_t, 6>& shape,
                   Format format = Format::kFp32) {
  Program p;
  Op op;
  op.kind = kind;
  op.format = format;
  op.shape = shape;
  fill_work(op);
  p.ops.push_back(op);
  return p;
}

Program gemm_program(std::int64_t m, std::int64_t n, std::int64_t k, std::uint8_t flags = 0) {
  Program p = program_of(OpKind::kGemm, {m, n, k, 1});
  p.ops.front().flags = flags;
  fill_work(p.ops.front());
  return p;
}

FittedModel gemm_truth() {
  FittedModel truth;
  truth.constants = {{"start", 2e-6},   {"call", 1e-8},    {"rate", 1.5e11}, {"half_m", 3},
                     {"half_n", 12},    {"half_k", 20},    {"nt", 0.9},      {"tn", 0.7},
                     {"tn_half_n", 40}, {"vector", 1e-10}, {"near", 8e10},   {"far", 1e10},
                     {"capacity", 2e6}};
  return truth;
}

Bench gemm_bench(double sigma, std::uint64_t seed, bool outliers = false) {
  const KernelForm& form = *kernel_form_named("gemm.shape_rate");
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, sigma);
  std::uniform_real_distribution<double> size(std::log(2.0), std::log(2000.0));
  Bench bench;
  for (int i = 0; i < 240; ++i) {
    const auto draw = [&] { return static_cast<std::int64_t>(std::exp(size(engine))); };
    const auto flags = static_cast<std::uint8_t>(i % 3 == 0   ? 0
                                                 : i % 3 == 1 ? op_flags::kTransposeA
                                                              : op_flags::kTransposeB);
    const double slow =
        outliers && i % 20 == 0 ? 2.0 : 0.0;  // one row in twenty took 7 times as long
    bench.add(gemm_program(draw(), draw(), draw(), flags), form, core(), gemm_truth(),
              (sigma > 0 ? normal(engine) : 0) + slow);
  }
  return bench;
}

Program embedding_program(OpKind kind, std::int64_t tables, std::int64_t rows, std::int64_t dim,
                          double lookups, double exponent) {
  Program p;
  EmbeddingGroup group;
  for (std::int64_t t = 0; t < tables; ++t) {
    EmbeddingShard s;
    s.rows = s.table_rows = rows;
    s.dim = dim;
    s.lookups = lookups;
    s.bags = 256;
    s.access = std::make_shared<const Access>(Access::zipf(rows, exponent));
    group.shards.push_back(s);
  }
  p.embeddings.push_back(group);
  Op op;
  op.kind = kind;
  op.attributes = EmbeddingAttributes{.group = 0};
  op.shape = {static_cast<std::int64_t>(lookups) * tables, 256 * tables, dim * tables, 0, 0, 0};
  p.ops.push_back(op);
  return p;
}

}  // namespace

TEST_CASE("constants that matter are recovered", "[models][fit]") {
  const Bench bench = gemm_bench(0, 1);
  FitOptions options;
  options.max_points = 0;
  const FittedModel model = fit_kernels(core(), bench.rows, options).at("gemm");
  CHECK(model.form == "gemm.shape_rate");
  const auto& truth = gemm_truth().constants;
  for (const std::string name : {"rate", "half_n", "half_k", "nt", "tn"}) {
    CAPTURE(name);
    CHECK(model.constants.at(name) == Approx(truth.at(name)).epsilon(0.05));
  }
  // Without batches a start and a call are one.
  CHECK(model.constants.at("start") + model.constants.at("call") ==
        Approx(truth.at("start") + truth.at("call")).epsilon(0.02));
  CHECK(model.error.p90 < 0.005);
  CHECK(model.samples == 240);
}

TEST_CASE("constants of jagged attention are recovered, and its range told", "[models][fit]") {
  const KernelForm& form = *kernel_form_named("attention.parts");
  FittedModel truth;
  truth.constants = {{"start", 1e-6},   {"call", 2e-6},     {"rate", 8e10},    {"half_dim", 16},
                     {"half_keys", 40}, {"softmax", 4e-10}, {"bandwidth", 6e9}};
  std::mt19937_64 engine(5);
  const auto between = [&](double low, double high) {
    std::uniform_real_distribution<double> size(std::log(low), std::log(high));
    return static_cast<std::int64_t>(std::exp(size(engine)));
  };
  const auto program = [](std::int64_t samples, std::int64_t heads, std::int64_t rows,
                          std::int64_t mean, std::int64_t dim) {
    // Rows of sequences twice as long as the mean: geometric lengths, seen from a row.
    Program p = program_of(OpKind::kJaggedAttentionForward,
                           {samples, heads, heads, rows, samples * rows * 2 * mean, dim});
    Op& op = p.ops.front();
    op.attributes = JaggedAttributes{{LengthKind::kGeometric, static_cast<float>(mean)}};
    fill_work(op);
    return p;
  };
  Bench bench;
  for (int i = 0; i < 200; ++i) {
    bench.add(program(between(1, 64), between(1, 16), 1024, between(4, 400), between(8, 128)), form,
              core(), truth, 0);
  }
  FitOptions options;
  options.max_points = 0;
  const FittedModels fitted = fit_kernels(core(), bench.rows, options);
  const FittedModel& model = fitted.at("jagged_attention_forward");
  CHECK(model.form == "attention.parts");
  CHECK(model.constants.at("rate") == Approx(8e10).epsilon(0.05));
  // A pair costs 4 half_dim / rate + softmax beside its 4 dim FLOPs: rows tell the sum alone,
  // 4 * 16 / 8e10 + 4e-10.
  CHECK(4 * model.constants.at("half_dim") / model.constants.at("rate") +
            model.constants.at("softmax") ==
        Approx(1.2e-9).epsilon(0.1));
  CHECK(model.error.p90 < 0.005);
  System system;
  system.device = core();
  system.device.fitted["jagged_attention_forward"] = model;
  const CostModel cost(system, {});
  const Program inside = program(8, 4, 1024, 50, 64);
  const Program outside = program(8, 4, 1024, 50, 512);
  CHECK(cost.kernel(inside, inside.ops[0]).in_range);
  CHECK_FALSE(cost.kernel(outside, outside.ops[0]).in_range);
  // Half the pairs.
  const Program shorter = program(8, 4, 1024, 25, 64);
  CHECK(cost.kernel(shorter, shorter.ops[0]).time < cost.kernel(inside, inside.ops[0]).time);
}

TEST_CASE("noise and outliers leave the fit where it is", "[models][fit]") {
  const Bench bench = gemm_bench(0.03, 2, true);
  FitOptions options;
  options.max_points = 0;
  const FittedModel model = fit_kernels(core(), bench.rows, options).at("gemm");
  CHECK(model.constants.at("rate") == Approx(1.5e11).epsilon(0.08));
  CHECK(model.log_sigma ==
        Approx(0.03).epsilon(0.3));  // of the bulk: quantiles do not see one row in twenty
  CHECK(model.error.median < 0.03);
}

TEST_CASE("a fit is a function of its rows", "[models][fit]") {
  const Bench bench = gemm_bench(0.05, 3);
  const FittedModel a = fit_kernels(core(), bench.rows).at("gemm");
  const FittedModel b = fit_kernels(core(), bench.rows).at("gemm");
  CHECK(a.constants == b.constants);
  CHECK(a.error.mean == b.error.mean);
}

TEST_CASE("residual points learn what the form cannot say, and do not hurt when it says all",
          "[models][fit]") {
  Bench bench = gemm_bench(0.01, 4);
  FitOptions without;
  without.max_points = 0;
  const double plain = fit_kernels(core(), bench.rows, without).at("gemm").error.mean;
  CHECK(fit_kernels(core(), bench.rows).at("gemm").error.mean < 1.2 * plain);
  // A smooth bump of 30 % around n = 64 that no constant describes.
  for (MeasuredOp& row : bench.rows) {
    const double x = std::log(static_cast<double>(row.op->shape[1]) / 64);
    row.time *= std::exp(0.3 * std::exp(-x * x));
  }
  const double bump = fit_kernels(core(), bench.rows, without).at("gemm").error.mean;
  CHECK(fit_kernels(core(), bench.rows).at("gemm").error.mean < 0.8 * bump);
}

TEST_CASE("a surface smoothed over many rows is better than single noisy ones", "[models][fit]") {
  // A bump in n that no constant describes, under noise of 10 %: each of 40 points speaks for the
  // rows around it.
  Bench bench;
  const KernelForm& form = *kernel_form_named("gemm.shape_rate");
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal(0, 0.1);
  std::uniform_real_distribution<double> size(std::log(16.0), std::log(2000.0));
  for (int i = 0; i < 1200; ++i) {
    const auto n = static_cast<std::int64_t>(std::exp(size(engine)));
    const double x = std::log(static_cast<double>(n) / 180);
    bench.add(gemm_program(256, n, 256, 0), form, core(), gemm_truth(),
              0.4 * std::sin(2 * x) + normal(engine));
  }
  FitOptions options;
  options.max_points = 0;
  const double plain = fit_kernels(core(), bench.rows, options).at("gemm").error.median;
  options.max_points = 40;
  const FittedModel smoothed = fit_kernels(core(), bench.rows, options).at("gemm");
  CHECK(smoothed.points.size() == 40);
  CHECK(smoothed.error.median < 0.5 * plain);
  // Errors that are left are mostly the noise: the median of |N(0, 0.1)| is 0.067.
  CHECK(smoothed.error.median < 0.1);
}

TEST_CASE("rows that sweep m at many (n, k) are kept as curves", "[models][fit]") {
  // Effect that no constant says: a wave along m whose height depends on n. 36 pairs, m in steps of
  // 20 %.
  Bench bench;
  const KernelForm& form = *kernel_form_named("gemm.shape_rate");
  std::int64_t pair = 0;
  for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048}) {
    for (const std::int64_t k : {64, 128, 256, 512, 1024, 2048}) {
      const double height = 0.05 * std::log(static_cast<double>(n) / 64);
      for (double m = 16; m < 4000; m *= 1.2) {
        bench.add(gemm_program(static_cast<std::int64_t>(m), n, k, 0), form, core(), gemm_truth(),
                  height * std::sin(3 * std::log(m)));
        bench.rows.back().configuration = pair;
      }
      ++pair;
    }
  }
  FitOptions options;
  options.max_points = 0;
  const double plain = fit_kernels(core(), bench.rows, options).at("gemm").error.mean;
  options.max_points = 100;
  const FittedModel model = fit_kernels(core(), bench.rows, options).at("gemm");
  CHECK(model.points.size() == 36);
  CHECK(residual_knots(model).size() > 25);
  CHECK(model.error.mean < 0.7 * plain);  // of pairs the fit did not see
}

TEST_CASE("embedding constants predict held-out groups", "[models][fit][embedding]") {
  const KernelForm& form = *kernel_form_named("embedding_forward.levels");
  FittedModel truth;
  truth.constants = {{"start", 2e-6},     {"table", 4e-7},    {"bag", 2e-8},
                     {"lookup", 5e-9},    {"element", 1e-10}, {"near_miss", 1e-9},
                     {"near_line", 2e-9}, {"far_miss", 2e-8}, {"far_line", 1e-8},
                     {"near", 1e6},       {"far", 3e7},       {"kept", 0.3}};
  Bench bench;
  for (const std::int64_t tables : {1, 8}) {
    for (const std::int64_t rows : {1000, 30'000, 300'000}) {
      for (const std::int64_t dim : {16, 128}) {
        for (const double lookups : {256.0, 4096.0}) {
          for (const double exponent : {0.0, 1.05}) {
            bench.add(
                embedding_program(OpKind::kEmbeddingForward, tables, rows, dim, lookups, exponent),
                form, core(), truth, 0);
          }
        }
      }
    }
  }
  const FittedModel model = fit_kernels(core(), bench.rows).at("embedding_forward");
  CHECK(model.error.median < 0.03);
  CHECK(model.error.p90 < 0.10);
}

TEST_CASE("kinds with few rows fall back to the class of memory-bound ops", "[models][fit]") {
  const KernelForm& form = *kernel_form_named("memory.levels");
  FittedModel truth;
  truth.constants = {{"start", 1e-6}, {"row", 1e-9}, {"element", 2e-10},
                     {"near", 4e10},  {"far", 1e10}, {"capacity", 2e6}};
  Bench bench;
  for (std::int64_t width = 8; width <= 4096; width *= 2) {
    bench.add(program_of(OpKind::kAdd, {128, width}), form, core(), truth, 0);
  }
  const FittedModels models = fit_kernels(core(), bench.rows);
  REQUIRE(models.contains("memory_bound"));
  System system;
  system.device = core();
  system.device.fitted = models;
  Op copy = bench.programs.front().ops[0];
  copy.kind = OpKind::kCopyColumns;
  fill_work(copy);
  const Prediction p = CostModel(system, {}).kernel(bench.programs.front(), copy);
  CHECK(p.model == "memory.levels");
  CHECK_FALSE(p.in_range);
  CHECK(models.at("add").error.median < 0.05);
}

TEST_CASE("routing costs tokens, experts and choices, and says nothing of other kinds",
          "[models][fit]") {
  FittedModel truth;
  truth.constants = {{"start", 2e-6}, {"count", 1.5e-7}, {"element", 2e-9}, {"choice", 6e-8}};
  FittedModel levels;
  levels.constants = {{"start", 1e-6}, {"row", 1e-9}, {"element", 2e-10},
                      {"near", 4e10},  {"far", 1e10}, {"capacity", 2e6}};
  Bench bench;
  for (std::int64_t width = 8; width <= 4096; width *= 2) {
    bench.add(program_of(OpKind::kAdd, {128, width}), *kernel_form_named("memory.levels"), core(),
              levels, 0);
  }
  const FittedModel without = fit_kernels(core(), bench.rows).at("memory_bound");
  for (const std::int64_t tokens : {64, 192, 448, 1024}) {
    for (const std::int64_t experts : {2, 4, 8, 16, 32}) {
      for (const std::int64_t choices : {1, 2}) {
        bench.add(program_of(OpKind::kRouteForward, {tokens, experts, choices}),
                  *kernel_form_named("routing.draw"), core(), truth, 0);
      }
    }
  }
  const FittedModels models = fit_kernels(core(), bench.rows);
  const FittedModel& routing = models.at("route_forward");
  CHECK(routing.form == "routing.draw");
  CHECK(routing.error.p90 < 0.02);
  for (const char* name : {"count", "element", "choice"}) {
    CAPTURE(name);
    CHECK(routing.constants.at(name) == Approx(truth.constants.at(name)).epsilon(0.15));
  }
  CHECK(models.at("memory_bound").constants == without.constants);
}

TEST_CASE("what few rows leave open is as in the rest of their class", "[models][fit]") {
  // `add` is measured at all sizes, `multiply` only where it is large: what a small one costs is
  // for the adds to say. Truth: 40 ns at least.
  const KernelForm& form = *kernel_form_named("memory.levels");
  FittedModel truth;
  truth.constants = {{"start", 4e-8}, {"row", 1e-10}, {"element", 1e-10},
                     {"near", 4e10},  {"far", 2e10},  {"capacity", 1e7}};
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal(0, 0.1);
  Bench bench;
  for (std::int64_t rows = 1; rows < 20000; rows *= 2) {
    bench.add(program_of(OpKind::kAdd, {rows, 64}), form, core(), truth, normal(engine));
  }
  for (const std::int64_t rows : {9000, 10000, 12000, 14000, 16000}) {
    bench.add(program_of(OpKind::kMultiplyForward, {rows, 64}), form, core(), truth,
              normal(engine));
  }
  const Program small = program_of(OpKind::kMultiplyForward, {1, 64});
  const auto time_of = [&](const FittedModel& model) {
    return form.predict(OpFacts(small, small.ops[0]), core(), constants_of(form, core(), &model))
        .time.base();
  };
  FitOptions options;
  options.max_points = 0;
  const double alone = time_of(fit_kernels(core(), bench.rows, options).at("multiply_forward"));
  options.pooled = true;
  options.pull = 0.4;
  const double pooled = time_of(fit_kernels(core(), bench.rows, options).at("multiply_forward"));
  const double right = time_of(truth);
  CHECK(std::abs(std::log(pooled / right)) < 0.3);
  CHECK(std::abs(std::log(alone / right)) > 2 * std::abs(std::log(pooled / right)));
}

TEST_CASE("rows of one configuration share a fold", "[models][fit]") {
  std::vector<std::int64_t> configurations;
  for (int i = 0; i < 300; ++i) {
    configurations.push_back(i / 3);
  }
  const auto folds = folds_of(configurations, 4);
  std::array<int, 4> counts{};
  for (std::size_t i = 0; i < folds.size(); ++i) {
    CHECK(folds[i] == folds[i / 3 * 3]);
    ++counts[static_cast<std::size_t>(folds[i])];
  }
  for (const int n : counts) {  // 75 expected, standard deviation 3 * sqrt(100 * 3/16) = 13
    CHECK(n > 30);
    CHECK(n < 120);
  }
}

TEST_CASE("what a fit leaves out to choose by is not what its caller left out", "[models][fit]") {
  // 64 configurations; of any fold of them left out, a quarter of the rest must remain to choose
  // by.
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < 64; ++i) {
    all.push_back(i);
  }
  const auto outer = folds_of(all, 4);
  for (std::int64_t left_out = 0; left_out < 4; ++left_out) {
    std::vector<std::int64_t> rest;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (outer[i] != left_out) {
        rest.push_back(all[i]);
      }
    }
    const auto inner = folds_of(rest, 4, kInnerDraw);
    for (std::int64_t f = 0; f < 4; ++f) {  // 12 expected of 48, standard deviation 3
      CHECK(std::count(inner.begin(), inner.end(), f) >= 3);
    }
  }
}

TEST_CASE("every fold of a fit keeps what the form leaves", "[models][fit]") {
  // Products whose times wander around the form by up to 20 % with n: a fit on three of four folds
  // of (n, k), whichever they are, must keep the wandering as curves.
  const KernelForm& form = *kernel_form_named("gemm.tile_wave");
  Device gpu;
  gpu.bandwidth = GBps(2000);
  gpu.l2 = MB(40);
  gpu.multiprocessors = 108;
  gpu.launch = microseconds(3);
  gpu.peak = {{Format::kBf16, teraflops(312)}};
  FittedModel truth;
  for (const Constant& c : form.constants(gpu)) {
    truth.constants[std::string(c.name)] = c.start;
  }
  Bench bench;
  std::vector<std::int64_t> configurations;
  for (std::int64_t n = 0; n < 8; ++n) {
    for (std::int64_t k = 0; k < 8; ++k) {
      for (std::int64_t m = 0; m < 10; ++m) {
        bench.add(program_of(OpKind::kGemm, {16LL << m, 256LL << n, 256LL << k, 1}, Format::kBf16),
                  form, gpu, truth, 0);
        bench.rows.back().time =
            bench.rows.back().time * (1 + 0.2 * std::sin(static_cast<double>(n)));
        bench.rows.back().configuration = 8 * n + k;
        configurations.push_back(8 * n + k);
      }
    }
  }
  const auto fold = folds_of(configurations, 4);
  FitOptions options;
  options.folds = 1;
  options.max_rows = 100;
  for (std::int64_t left_out = 0; left_out < 4; ++left_out) {
    std::vector<MeasuredOp> kept;
    for (std::size_t i = 0; i < fold.size(); ++i) {
      if (fold[i] != left_out) {
        kept.push_back(bench.rows[i]);
      }
    }
    CHECK_FALSE(fit_kernels(gpu, kept, options).at("gemm").points.empty());
  }
}

TEST_CASE("errors of a fit", "[models][fit]") {
  // Relative errors +10 %, -20 %, 0, +50 %.
  const FitError e =
      error_of(std::vector<double>{1.1, 0.8, 1, 1.5}, std::vector<double>{1, 1, 1, 1});
  CHECK(e.mean == Approx(0.2));
  CHECK(e.median == Approx(0.15));
  CHECK(e.worst == Approx(0.5));
  CHECK(e.bias == Approx(0.1));
}

}  // namespace stepcast::models
