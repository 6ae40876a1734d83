#include "core/access/access.h"
#include "core/graph/program.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "models/cost_model.h"
#include "models/kernels/embedding_traffic.h"

namespace stepcast::models {
namespace {

System toy() {
  System s;
  s.device.bandwidth = GBps(1000);
  s.device.l2 = MB(40);
  s.device.multiprocessors = 100;
  s.device.peak = {{Format::kFp32, teraflops(20)}};
  return s;
}

EmbeddingShard shard(const Access& access, std::int64_t dim, double lookups, double bags) {
  EmbeddingShard s;
  s.rows = s.table_rows = access.rows();
  s.dim = dim;
  s.lookups = lookups;
  s.bags = bags;
  s.access = std::make_shared<const Access>(access);
  return s;
}

Program lookup_program(std::vector<EmbeddingShard> shards, OpKind kind) {
  Program p;
  p.embeddings.push_back({std::move(shards), Format::kFp32, OptimizerKind::kRowwiseAdagrad});
  Op op;
  op.kind = kind;
  op.attributes = EmbeddingAttributes{.group = 0};
  op.shape = {1, 1, 1, 0, 0, 0};
  p.ops.push_back(op);
  return p;
}

double time_of(const System& system, const Program& p) {
  return CostModel(system, {}).kernel(p, p.ops[0]).time.base();
}

/// Both calibrated forms with every constant away from its ideal.
FittedModels levels() {
  FittedModel forward;
  forward.form = "embedding_forward.levels";
  forward.constants = {{"start", 1e-6},     {"table", 5e-7},    {"bag", 1e-8},
                       {"lookup", 3e-9},    {"element", 1e-10}, {"near_miss", 2e-9},
                       {"near_line", 2e-9}, {"far_miss", 1e-8}, {"far_line", 5e-9},
                       {"near", 1e6},       {"far", 3e7}};
  FittedModel backward;
  backward.form = "embedding_backward.levels";
  backward.constants = {{"start", 1e-6},     {"table", 1e-6},     {"lookup", 5e-9},
                        {"sort", 3e-9},      {"gradient", 2e-10}, {"row", 1e-8},
                        {"near_line", 2e-9}, {"far_line", 1e-8},  {"capacity", 3e7},
                        {"update", 3e-10}};
  return {{"embedding_forward", forward}, {"embedding_backward", backward}};
}

}  // namespace

TEST_CASE("misses of one table", "[models][embedding]") {
  const ShardTraffic uniform =
      shard_traffic(shard(Access::uniform(1000), 16, 5000, 500), Format::kFp32);
  // A cache for everything: only the cold misses, U(5000) = 1000 (1 - (1 - 1/1000)^5000) = 993.3.
  CHECK(uniform.misses(1) == Approx(1000 * (1 - std::pow(0.999, 5000))).epsilon(1e-6));
  // No cache: every lookup misses.
  CHECK(uniform.misses(0) == Approx(5000).epsilon(0.01));
  // A cache of a tenth of a large uniform table misses nine tenths once warm. Window: U(w) = 100
  // rows of 64 B.
  const double window = own_window(uniform, 100 * 64, 32);
  CHECK(uniform.unique_in(window) == Approx(100).epsilon(1e-6));
  CHECK(uniform.misses(window) == Approx(100 + (1 - window) * 5000 * 0.9).epsilon(0.02));
}

TEST_CASE("one hot row misses once", "[models][embedding][property]") {
  // Hit rate 1 - 1 / (B L): a table of one row.
  const ShardTraffic hot = shard_traffic(shard(Access::uniform(1), 32, 4096, 128), Format::kFp32);
  CHECK(hot.misses(1) == Approx(1));
  CHECK(hot.misses(own_window(hot, 1e6, 32)) == Approx(1));
}

TEST_CASE("misses lie between the distinct rows and all lookups, and fall with the cache",
          "[models][embedding][property]") {
  const auto exponent = GENERATE(0.0, 0.5, 0.8, 1.0, 1.2);
  const auto rows = GENERATE(100, 1000, 10'000, 50'000, 200'000, 2'000'000);
  const double line = GENERATE(32.0, 64.0);
  const ShardTraffic s =
      shard_traffic(shard(Access::zipf(rows, exponent), 64, 20'000, 1000), Format::kFp32);
  double previous = s.lookups * (1 + 1e-9);
  double across_before = previous;
  for (double capacity = 256; capacity < 1e9; capacity *= 1.5) {
    const double misses = s.misses(own_window(s, capacity, line));
    CAPTURE(exponent, rows, line, capacity);
    REQUIRE(misses >= s.unique_rows() * (1 - 1e-9));
    REQUIRE(misses <= s.lookups * (1 + 1e-9));
    // Grid slopes are linear between points: a ripple of half a percent.
    REQUIRE(misses <= previous * 1.005);
    previous = misses;
    // Rows that stay from step to step are misses less.
    const double across =
        s.misses(own_window(s, capacity, line), window_across({s}, 5e5, capacity, line));
    REQUIRE(across >= 0);
    REQUIRE(across <= misses * (1 + 1e-9));
    REQUIRE(across <= across_before * 1.01 + 1e-6);
    across_before = across;
  }
}

TEST_CASE("tables that stay in a cache from step to step", "[models][embedding]") {
  const ShardTraffic s = shard_traffic(shard(Access::uniform(1000), 16, 5000, 500), Format::kFp32);
  // Nothing else passes by: 1000 rows of 64 B and no streams fit 1 MB for ever, and 64 kB at most.
  CHECK(window_across({s}, 0, 1e6, 64) == 4096);
  CHECK(s.misses(1, 4096) == Approx(0).margin(1e-6));
  // 100 kB streamed per step leave 1 MB - 64 kB for 9.36 steps; a row is away for n of them with
  // (1 - 1/1000)^(5000 n), and 5000 lookups miss so: nothing. With 999 kB streamed one step is left
  // ((1 MB - 64 kB) / 999 kB), and rows not seen in 0.937 steps miss: 5000 * 0.999^4685 = 46.
  CHECK(window_across({s}, 1e5, 1e6, 64) == Approx(9.36).epsilon(1e-3));
  const double across = window_across({s}, 999e3, 1e6, 64);
  CHECK(across == Approx(0.937).epsilon(2e-3));
  CHECK(s.misses(1, across) == Approx(5000 * std::pow(0.999, 4685)).epsilon(0.3));
  // Cold start: everything once.
  CHECK(s.misses(1, 0) == s.unique_rows());
}

TEST_CASE("an endless table is all memory traffic", "[models][embedding][property]") {
  // 10^5 lookups of 256 B rows, 8 B id each; 10^4 bags of 8 B offset and a 256 B output; the cache
  // holds nothing twice.
  const Program p = lookup_program({shard(Access::uniform(100'000'000), 64, 1e5, 1e4)},
                                   OpKind::kEmbeddingForward);
  const double bytes = 1e5 * (256 + 8) + 1e4 * (8 + 256);
  CHECK(time_of(toy(), p) == Approx(bytes / 1e12).epsilon(2e-3));
}

// A table that nearly fits is the exception: uniform lookups refresh every row, skewed ones let the
// cold rows be streamed out.
TEST_CASE("more skew never costs more where a table outgrows the cache",
          "[models][embedding][property]") {
  const auto calibrated = GENERATE(false, true);
  const auto kind = GENERATE(OpKind::kEmbeddingForward, OpKind::kEmbeddingBackward);
  System system = toy();
  if (calibrated) {
    system.device.fitted = levels();
  }
  double previous = 1e9;
  for (const double exponent : {0.0, 0.3, 0.6, 0.9, 1.05, 1.2}) {
    const Program p =
        lookup_program({shard(Access::zipf(1'000'000, exponent), 64, 40'000, 2000)}, kind);
    const double t = time_of(system, p);
    CAPTURE(calibrated, name_of(kind), exponent);
    CHECK(t <= previous * (1 + 1e-9));
    previous = t;
  }
}

TEST_CASE("tables share the cache of a device", "[models][embedding]") {
  // One table of 8 MB touched rows fits 40 MB alone; ten of them do not.
  const EmbeddingShard one = shard(Access::uniform(31'250), 64, 300'000, 3000);
  const ShardTraffic traffic = shard_traffic(one, Format::kFp32);
  CHECK(shared_window({traffic}, 40e6, 32) == 1);
  const std::vector<ShardTraffic> ten(10, traffic);
  const double window = shared_window(ten, 40e6, 32);
  CHECK(window < 1);
  CHECK(10 * traffic.unique_in(window) * 256 == Approx(40e6));
}

TEST_CASE("the time of a group does not depend on the order of its tables",
          "[models][embedding][property]") {
  System system = toy();
  system.device.fitted = levels();
  const EmbeddingShard a = shard(Access::zipf(50'000, 1.1), 64, 20'000, 1000);
  const EmbeddingShard b = shard(Access::uniform(1000), 16, 3000, 1000);
  for (const OpKind kind : {OpKind::kEmbeddingForward, OpKind::kEmbeddingBackward}) {
    CHECK(time_of(system, lookup_program({a, b}, kind)) ==
          Approx(time_of(system, lookup_program({b, a}, kind))));
    CHECK(time_of(system, lookup_program({a, b}, kind)) >
          time_of(system, lookup_program({a}, kind)));
  }
}

TEST_CASE("backward sorts lookups and updates unique rows", "[models][embedding]") {
  // One row hit by all: gradient of 1000 bags * 64 * 4 B, 8 B ids + 8 B offsets, sort of 24 B in
  // one pass (1 row: 1 digit), and an update of 2 * (256 B row + one 32 B sector of state).
  const Program p =
      lookup_program({shard(Access::uniform(1), 64, 1000, 1000)}, OpKind::kEmbeddingBackward);
  const double bytes = 1000 * 256 + 1000 * 8 + 1000 * 8 + 1000 * 24 + 2 * (256 + 32);
  CHECK(time_of(toy(), p) == Approx(bytes / 1e12).epsilon(1e-6));
}

}  // namespace stepcast::models
