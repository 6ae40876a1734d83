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
  // A switch that reduces saves the hops inside the machine.
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

namespace {

const std::vector<OpKind> kOfBuffers{OpKind::kAllGather, OpKind::kReduceScatter,
                                     OpKind::kAllReduce};

System shipped(const std::string& name) {
  return config::load_system(name, config::Library{STEPCAST_SOURCE_DIR});
}

/// GB/s that a rank's port would carry in a ring as long as this.
double bus_of(const CostModel& cost, OpKind kind, double bytes, std::int32_t ranks) {
  const double time = time_of(cost, kind, bytes, group_shape(cost.system(), strided(ranks, 1)));
  return moved_bytes(kind, bytes, ranks) / time * 1e-9;
}

}  // namespace

TEST_CASE("more members are never faster, on every system", "[models][collective][property]") {
  // 3 %: the bandwidth protocol begins at a chunk, so of one buffer on more ranks a little later.
  const config::Library library{STEPCAST_SOURCE_DIR};
  for (const config::Entry& entry : config::list_systems(library)) {
    const System system = config::load_system(entry.name, library);
    const CostModel cost(system, {});
    const auto unit = static_cast<std::int32_t>(system.fabric[0].size);
    for (const OpKind kind : kOfBuffers) {
      for (double bytes = 1e4; bytes < 1e11; bytes *= 7) {
        double previous = 0;
        for (std::int32_t ranks = std::min(unit, 8); ranks <= 8192;
             ranks = ranks < unit ? std::min(unit, 2 * ranks) : 2 * ranks) {
          const double time = time_of(cost, kind, bytes, group_shape(system, strided(ranks, 1)));
          CAPTURE(system.name, name_of(kind), bytes, ranks);
          CHECK(time >= 0.97 * previous);
          previous = time;
        }
      }
    }
  }
}

TEST_CASE("a shipped system is not slower with more bandwidth or less latency",
          "[models][collective][property]") {
  const config::Library library{STEPCAST_SOURCE_DIR};
  std::mt19937_64 engine(7);
  const auto among = [&engine](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(engine));
  };
  for (const config::Entry& entry : config::list_systems(library)) {
    const System system = config::load_system(entry.name, library);
    for (int i = 0; i < 20; ++i) {
      const auto ranks = static_cast<std::int32_t>(among(2, 4096));
      const auto stride = static_cast<std::int32_t>(among(1, 16));
      const GroupShape group = group_shape(system, strided(ranks, stride));
      const double bytes = among(1e3, 3e10);
      for (std::size_t level = 0; level < system.fabric.size(); ++level) {
        System wide = system;
        wide.fabric[level].bandwidth *= 2;
        System quick = system;
        quick.fabric[level].latency *= 0.5;
        for (const OpKind kind : kSized) {
          const double before = time_of(CostModel(system, {}), kind, bytes, group);
          CAPTURE(system.name, name_of(kind), level, ranks, stride, bytes);
          CHECK(time_of(CostModel(wide, {}), kind, bytes, group) <= before * 1.002);
          CHECK(time_of(CostModel(quick, {}), kind, bytes, group) <= before * 1.002);
        }
      }
    }
  }
}

TEST_CASE("ranks of one NVLink domain and of several gather at the pace of their links",
          "[models][collective]") {
  // NVLink carries 900 GB/s; 72 cards of 50 GB/s together carry four times that.
  const CostModel gb200(shipped("gb200-nvl72"), {});
  const double on_8 = bus_of(gb200, OpKind::kAllGather, 16e9, 8);
  for (const std::int32_t ranks : {64, 72, 144, 256}) {
    CAPTURE(ranks);
    CHECK(bus_of(gb200, OpKind::kAllGather, 16e9, ranks) >= on_8);
    CHECK(bus_of(gb200, OpKind::kReduceScatter, 16e9, ranks) >= 0.7 * 900);
  }
  // H100 machines: a ring of 8 rails of 50 GB/s, at the share a ring sustains.
  const CostModel h100(shipped("dgx-h100"), {});
  CHECK(bus_of(h100, OpKind::kAllGather, 16e9, 1024) > 0.7 * 400);
}

}  // namespace stepcast::models
