#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "core/config/config.h"
#include "tests/models/collective_groups.h"

using namespace stepcast::models::test;

namespace stepcast::models {

TEST_CASE("each hop costs the latency of the link it crosses", "[models][collective][oracle]") {
  // Launch 2 us, a hop inside a machine 2 us, between machines 5 us. Four machines of 8.
  const auto latency = [](const System& system, OpKind kind, const std::vector<std::int32_t>& on) {
    return CostModel(system, {}).collective(collective_of(kind, 1), group_shape(system, on));
  };
  // A ring of 32 has 28 hops inside machines and 3 between them.
  const Prediction ring = latency(cluster(), OpKind::kAllGather, strided(32, 1));
  CHECK(ring.overhead.base() == Approx(2e-6 + 28 * 2e-6 + 3 * 5e-6));
  CHECK(ring.algorithm == "ring, pipelined over levels");
  // One rank of each of 16 machines: log2 16 = 4 doublings instead of 15 hops.
  const Prediction pat = latency(cluster(), OpKind::kReduceScatter, strided(16, 8));
  CHECK(pat.overhead.base() == Approx(2e-6 + 4 * 5e-6));
  CHECK(pat.algorithm == "parallel aggregated trees");
  // A tree: a chain of 7 hops inside, 2 doublings between 4 machines, up and down.
  const Prediction tree = latency(cluster(), OpKind::kAllReduce, strided(32, 1));
  CHECK(tree.overhead.base() == Approx(2e-6 + 2 * (7 * 2e-6 + 2 * 5e-6)));
  // Where the machine's switch reduces no rank is walked inside.
  const Prediction nvls = latency(cluster(true), OpKind::kAllReduce, strided(32, 1));
  CHECK(nvls.overhead.base() == Approx(2e-6 + 2 * 2 * 5e-6));
  CHECK(latency(cluster(true), OpKind::kAllGather, strided(8, 1)).overhead.base() == Approx(2e-6));
}

TEST_CASE("the wire hides steps of the bandwidth protocol", "[models][collective][oracle]") {
  // Eight ranks: 7 hops of 2 us, each 5 latencies more under the bandwidth protocol: 70 us. Far
  // above the knee and with a wire of 2 * 70 us they show by half: 35 us; later not at all.
  System system = cluster();
  FittedModel m;
  m.form = "collective.fabric";
  m.constants = {{"bulk", 5}, {"bulk_bytes", 1e3}, {"cover", 2}, {"own", 0}};
  system.fitted["all_gather"] = m;
  const CostModel cost(system, {});
  const GroupShape g = group_shape(system, strided(8, 1));
  const auto shown = [&](double wire) {  // beside launch and 7 hops
    const double bytes = std::round(wire * 450e9 * 8 / 7);
    return time_of(cost, OpKind::kAllGather, bytes, g) - 16e-6 - wire;
  };
  CHECK(shown(140e-6) == Approx(35e-6).epsilon(1e-3));
  CHECK(shown(14e-3) == Approx(70e-6 / 10001).epsilon(1e-2));
}

TEST_CASE("more bandwidth and less latency are never slower, whatever a fit writes",
          "[models][collective][property]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 200)));
  std::mt19937_64 engine(seed);
  const auto among = [&engine](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(engine);
  };
  System system = cluster(seed % 2 == 0, seed % 3 == 0 ? 4 : 1);
  system.fabric[0].size = among(2, 72);
  system.fabric[1].in_switch_reduction = seed % 5 == 0;
  system.fitted = random_models(system, "collective.fabric", seed);
  system.fitted.at("collective").points.clear();
  const auto ranks = strided(among(2, 512), among(1, 12));
  const GroupShape group = group_shape(system, ranks);
  const double bytes = std::exp(std::uniform_real_distribution<double>(4, 25)(engine));
  for (const OpKind kind : kSized) {
    const double before = time_of(CostModel(system, {}), kind, bytes, group);
    for (std::size_t level = 0; level < 2; ++level) {
      System wide = system;
      wide.fabric[level].bandwidth *= 2;
      System quick = system;
      quick.fabric[level].latency *= 0.5;
      CAPTURE(seed, name_of(kind), level, ranks.size(), bytes);
      CHECK(time_of(CostModel(wide, {}), kind, bytes, group) <= before * (1 + 1e-9));
      CHECK(time_of(CostModel(quick, {}), kind, bytes, group) <= before * (1 + 1e-9));
    }
  }
}

}  // namespace stepcast::models
