#include "tests/models/collective_groups.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "core/config/config.h"
#include "models/fit/fit.h"

using namespace stepcast::models::test;

namespace stepcast::models {
namespace {

/// Time never falls as bytes grow, takes no jump, and stays above what the links allow.
void check_curve(const CostModel& cost, OpKind kind, const GroupShape& group, double step) {
  double previous = 0;
  for (double size = 1; size <= 64.0 * (1ULL << 30U); size = std::ceil(size * step)) {
    const double t = time_of(cost, kind, size, group);
    REQUIRE(std::isfinite(t));
    REQUIRE(t >= previous * (1 - 1e-12));
    if (cost.system().fabric.size() > 1) {  // ports are described
      REQUIRE(t >= physical_limit(kind, size, group, cost.system()).base() * (1 - 1e-12));
    }
    // One byte more: no jump. The steepest stretch is between two points 0.2 apart whose times
    // differ by 2 ln 2 plus what the form adds, all of which may sit in a knee of slope 2.
    if (size > 1000) {
      REQUIRE(time_of(cost, kind, size + 1, group) <= t * (1 + 100 / size));
    }
    previous = t;
  }
}

}  // namespace

TEST_CASE("bytes of one device's port per level", "[models][collective][oracle]") {
  // Rows of kernels-and-collectives 3.3 with G = 16, L = 8 and S = 1 (in bytes, any unit).
  const System system = cluster();
  const GroupShape g = group_shape(system, strided(16, 1));
  REQUIRE(g.members == std::vector<std::int64_t>{8, 16});
  const double G = 16;
  const double L = 8;
  const double S = 1e9;
  for (const auto& [kind, passes] : {std::pair{OpKind::kAllGather, 1.0},
                                     {OpKind::kReduceScatter, 1.0},
                                     {OpKind::kAllReduce, 2.0}}) {
    const auto ring = port_bytes(kind, Algorithm::kRing, S, g, cluster());
    CHECK(ring[0] == Approx(passes * S * (G - 1) / G));  // one rate on every hop of a channel
    CHECK(ring[1] == Approx(passes * S * (G - 1) / (G * L)));
    const auto bound = port_bytes(kind, Algorithm::kHierarchical, S, g, cluster());
    CHECK(bound[0] == Approx(passes * S * (L - 1) / L));
    CHECK(bound[1] == Approx(passes * S * (G - L) / (G * L)));
  }
  const auto direct = port_bytes(OpKind::kAllToAll, Algorithm::kDirect, S, g, cluster());
  CHECK(direct[0] == Approx(S * (L - 1) / G));
  CHECK(direct[1] == Approx(S * (G - L) / G));  // no division by L
  // Eight and four: each of the four has eight peers elsewhere.
  const GroupShape uneven = group_shape(system, strided(12, 1));
  CHECK(port_bytes(OpKind::kAllToAll, Algorithm::kDirect, S, uneven, cluster())[1] ==
        Approx(S * 8 / 12));
}

TEST_CASE("one member per node saves nothing", "[models][collective][oracle]") {
  const System system = cluster();
  const GroupShape g = group_shape(system, strided(4, 8));
  REQUIRE(g.members == std::vector<std::int64_t>{1, 4});
  CHECK(g.siblings[0] == 8);
  const auto ring = port_bytes(OpKind::kReduceScatter, Algorithm::kRing, 1e9, g, cluster());
  CHECK(ring[0] == 0);
  CHECK(ring[1] == Approx(1e9 * 3 / 4));  // S (G - 1) / G
  const auto bound =
      port_bytes(OpKind::kReduceScatter, Algorithm::kHierarchical, 1e9, g, cluster());
  CHECK(bound[1] == Approx(1e9 * 3 / 4));
}

TEST_CASE("a group inside a node is a plain ring", "[models][collective][oracle]") {
  const GroupShape g = group_shape(cluster(), strided(8, 1));
  for (const Algorithm a : {Algorithm::kRing, Algorithm::kHierarchical}) {
    const auto bytes = port_bytes(OpKind::kAllReduce, a, 1e9, g, cluster());
    CHECK(bytes[0] == Approx(2e9 * 7 / 8));
    CHECK(bytes[1] == 0);
  }
}

TEST_CASE("switches between machines carry what a machine has summed once each way",
          "[models][collective][oracle]") {
  // 4 machines of 8, whose own switches reduce: S at 450 GB/s takes 2.2 ms of 1 GB. Between
  // machines S/8 = 0.125 GB at 50 GB/s take 2.5 ms instead of 2 S (32 - 8) / (32 * 8) = 0.1875 GB.
  const auto time = [](bool reduces) {
    System system = cluster(true);
    system.fabric[1].in_switch_reduction = reduces;
    const GroupShape g = group_shape(system, strided(32, 1));
    const auto bytes = port_bytes(OpKind::kAllReduce, Algorithm::kInSwitch, 1e9, g, system);
    CHECK(bytes[0] == Approx(1e9));
    CHECK(bytes[1] == Approx(reduces ? 0.125e9 : 0.1875e9));
    return CostModel(system, {}).collective(collective_of(OpKind::kAllReduce, 1e9), g);
  };
  CHECK(time(true).memory.base() == Approx(2.5e-3));
  CHECK(time(false).memory.base() == Approx(3.75e-3));
}

TEST_CASE("reduction in the switch beats the ring's bound on large groups",
          "[models][collective]") {
  // In the switch a port carries S instead of 2 S (L - 1) / L = 1.75 S.
  const GroupShape g = group_shape(cluster(true), strided(8, 1));
  const Prediction with =
      CostModel(cluster(true), {}).collective(collective_of(OpKind::kAllReduce, 1e9), g);
  const Prediction without =
      CostModel(cluster(false), {}).collective(collective_of(OpKind::kAllReduce, 1e9), g);
  CHECK(with.memory.base() == Approx(1e9 / 450e9));
  CHECK(without.memory.base() == Approx(1.75e9 / 450e9));
  CHECK(with.algorithm == "reduction in the switch");
  CHECK(with.bound == "link");
}

TEST_CASE("time grows with bytes, without a jump, above the limit: every system and kind",
          "[models][collective][property]") {
  const config::Library library{STEPCAST_SOURCE_DIR};
  for (const config::Entry& entry : config::list_systems(library)) {
    const System system = config::load_system(entry.name, library);
    const auto unit = static_cast<std::int32_t>(system.fabric[0].size);
    for (const Calibration::Kind calibration :
         {Calibration::Kind::kAuto, Calibration::Kind::kNone}) {
      const CostModel cost(system, {calibration, 1});
      for (const auto& ranks : {strided(2, 1), strided(unit, 1), strided(3 * unit, 1),
                                strided(4, unit), strided(5, unit / 2)}) {
        const GroupShape group = group_shape(system, ranks);
        for (const OpKind kind : kSized) {
          CAPTURE(system.name, name_of(kind), ranks.size());
          check_curve(cost, kind, group, 1.1);
        }
      }
    }
  }
}

TEST_CASE("time grows with bytes whatever a fit writes", "[models][collective][property]") {
  const auto form = GENERATE(values<std::string>({"collective.fabric", "collective.knee"}));
  const auto seed = GENERATE(range(0, 24));
  System system = cluster(seed % 2 == 0, seed % 3 == 0 ? 4 : 1);
  if (form == "collective.knee") {
    system.fabric.resize(1);
  }
  system.fitted = random_models(system, form, static_cast<std::uint64_t>(seed));
  const CostModel cost(system, {});
  for (const auto& ranks : {strided(2, 1), strided(4, 1), strided(6, 1), strided(16, 1),
                            strided(24, 1), strided(4, 8), strided(128, 1)}) {
    const GroupShape group = group_shape(system, ranks);
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kAllToAll,
                              OpKind::kBroadcast, OpKind::kSend}) {
      CAPTURE(form, seed, name_of(kind), ranks.size());
      check_curve(cost, kind, group, 1.04);
    }
  }
}

TEST_CASE("points are met where they were measured and fade beyond", "[models][collective]") {
  System system = cluster();
  FittedModel m;
  m.form = "collective.fabric";
  // 30 % above the form on 8 and 16 devices (two nodes), 10 % above it on 4.
  for (const double log_bytes : {8.0, 12.0, 16.0, 20.0}) {
    m.points.push_back({{log_bytes, std::log(4.0), std::log(4.0)}, std::log(1.1)});
    m.points.push_back({{log_bytes, std::log(8.0), std::log(8.0)}, std::log(1.3)});
    m.points.push_back({{log_bytes, std::log(16.0), std::log(8.0)}, std::log(1.3)});
  }
  system.fitted["all_gather"] = m;
  const CostModel cost(system, {});
  const CostModel plain(system, {Calibration::Kind::kNone, 1});
  const auto added = [&](const std::vector<std::int32_t>& ranks, double bytes) {
    const GroupShape g = group_shape(system, ranks);
    return time_of(cost, OpKind::kAllGather, bytes, g) /
           time_of(plain, OpKind::kAllGather, bytes, g);
  };
  const double at = std::round(std::exp(16.0));
  CHECK(added(strided(4, 1), at) == Approx(1.1).epsilon(1e-4));
  CHECK(added(strided(8, 1), at) == Approx(1.3).epsilon(1e-4));
  CHECK(added(strided(16, 1), at) == Approx(1.3).epsilon(1e-4));
  CHECK(added(strided(8, 1), 1e12) == Approx(1.3).epsilon(1e-4));  // beyond: the form, scaled
  // 6 devices lie ln(6/4) / ln(8/4) = 0.585 of the way from 4 to 8.
  const double share = std::log(1.5) / std::log(2.0);
  CHECK(added(strided(6, 1), at) ==
        Approx(std::exp((1 - share) * std::log(1.1) + share * std::log(1.3))).epsilon(1e-3));
  // 32 devices are ln 2 beyond the last size: the residual halves. One per node is ln 8 away from
  // eight per node as well; no group of one node says anything about it.
  CHECK(added(strided(32, 1), at) == Approx(std::pow(1.3, 0.5)).epsilon(1e-3));
  CHECK(added(strided(16, 8), at) == Approx(std::pow(1.3, 1.0 / 8)).epsilon(1e-3));
}

TEST_CASE("between two points the form says where time rises", "[models][collective]") {
  // A protocol switch of 100 us at a chunk of 1 MB; measured at 64 KiB per rank, on the form, and
  // at 64 MiB, 20 % above it. At 256 KiB hardly any of the 20 % is there.
  System system = cluster();
  FittedModel m;
  m.form = "collective.fabric";
  m.constants = {{"bulk", 50}, {"bulk_bytes", 1e6}};
  const auto point = [](double bytes, double log_ratio) {
    return FittedModel::Point{{std::log(bytes), std::log(2.0), std::log(2.0)}, log_ratio};
  };
  m.points = {point(2.0 * 65536, 0), point(2.0 * 67108864, std::log(1.2))};
  system.fitted["all_gather"] = m;
  System without = system;
  without.fitted["all_gather"].points.clear();
  const CostModel with_points(system, {});
  const CostModel form(without, {});
  const GroupShape pair = group_shape(system, strided(2, 1));
  const auto form_time = [&](double bytes) {
    return std::log(time_of(form, OpKind::kAllGather, bytes, pair));
  };
  for (double bytes = 131072; bytes <= 134217728; bytes *= 2) {
    const double drift = 0.05 * std::log(bytes / 131072);
    const double share = (form_time(bytes) - form_time(131072) + drift) /
                         (form_time(134217728) - form_time(131072) + 0.05 * std::log(1024.0));
    CHECK(time_of(with_points, OpKind::kAllGather, bytes, pair) ==
          Approx(time_of(form, OpKind::kAllGather, bytes, pair) * std::pow(1.2, share)));
    CHECK((bytes > 524288 || share < 0.25));
  }
}

TEST_CASE("no residual takes a prediction below the links' limit", "[models][collective]") {
  System system = cluster();
  system.fitted = random_models(system, "collective.fabric", 1);
  for (FittedModel::Point& p : system.fitted.at("collective").points) {
    p.log_ratio = -3;
  }
  const GroupShape g = group_shape(system, strided(8, 1));
  CHECK(time_of(CostModel(system, {}), OpKind::kAllGather, 1e9, g) ==
        Approx(1e9 * 7 / 8 / 450e9));  // S (n-1)/n at full bandwidth
}

TEST_CASE("a collective says whether its size and its group were measured",
          "[models][collective]") {
  System system = cluster();
  system.fitted = random_models(system, "collective.fabric", 2);
  const CostModel cost(system, {});
  const auto asked = [&](double bytes, const std::vector<std::int32_t>& ranks) {
    return cost.collective(collective_of(OpKind::kAllGather, bytes), group_shape(system, ranks));
  };
  CHECK(asked(1e6, strided(8, 1)).in_range);
  CHECK(asked(1e6, strided(8, 1)).log_sigma == 0.1);
  CHECK_FALSE(asked(1e10, strided(8, 1)).in_range);   // e^22 = 3.6 GB is the largest measured
  CHECK_FALSE(asked(1e6, strided(128, 1)).in_range);  // more ranks than any row
  CHECK_FALSE(asked(1e6, strided(8, 8)).in_range);    // one member per node
  CHECK_FALSE(
      CostModel(system, {Calibration::Kind::kNone, 1})
          .collective(collective_of(OpKind::kAllGather, 1e6), group_shape(system, strided(8, 1)))
          .in_range);
}

TEST_CASE("an exchange says whether it was measured", "[models][collective][exchange]") {
  System system = cluster();
  system.fitted = random_models(system, "collective.fabric", 3);
  const CostModel cost(system, {});
  std::vector<double> send(64, 1e5);
  const ExchangePrediction inside = cost.all_to_all_v(send, strided(8, 1));
  CHECK(inside.in_range);
  CHECK(inside.log_sigma == 0.1);
  CHECK(inside.model == "collective.fabric");
  send[1] = 1e11;  // one pair far beyond the rows
  CHECK_FALSE(cost.all_to_all_v(send, strided(8, 1)).in_range);
  CHECK_FALSE(cost.all_to_all_v(std::vector<double>(64, 1e5), strided(8, 8)).in_range);
  const ExchangePrediction facts = CostModel(system, {Calibration::Kind::kNone, 1})
                                       .all_to_all_v(std::vector<double>(64, 1e5), strided(8, 1));
  CHECK_FALSE(facts.in_range);
}

TEST_CASE("an equal all-to-all-v is an all-to-all, constants and points included",
          "[models][collective][exchange][property]") {
  const auto seed = GENERATE(range(-1, 6));  // -1: the hardware's facts alone
  System system = cluster();
  if (seed >= 0) {
    system.fitted = random_models(system, "collective.fabric", static_cast<std::uint64_t>(seed));
  }
  const CostModel cost(system, {});
  for (const std::int32_t n : {2, 8, 16, 24}) {
    for (const double bytes : {1e3, 1e5, 1e7}) {
      const auto ranks = strided(n, 1);
      const auto count = static_cast<std::size_t>(n);
      const auto equal = time_of(cost, OpKind::kAllToAll, bytes * n, group_shape(system, ranks));
      const ExchangePrediction v =
          cost.all_to_all_v(std::vector<double>(count * count, bytes), ranks);
      CAPTURE(seed, n, bytes);
      for (const Seconds end : v.ends) {
        CHECK(end.base() == Approx(equal));
      }
    }
  }
}

TEST_CASE("twice the bandwidth halves pure transfer", "[models][collective][property]") {
  System slow = cluster();
  System fast = cluster();
  for (FabricLevel& level : slow.fabric) {
    level.latency = Seconds{};
  }
  slow.device.launch = Seconds{};
  fast = slow;
  for (FabricLevel& level : fast.fabric) {
    level.bandwidth *= 2;
  }
  const auto count = GENERATE(2, 8, 16, 64);
  const GroupShape g = group_shape(slow, strided(count, 1));
  for (const OpKind kind : kSized) {
    CAPTURE(count, name_of(kind));
    CHECK(time_of(CostModel(fast, {}), kind, 1e8, g) ==
          Approx(time_of(CostModel(slow, {}), kind, 1e8, g) / 2));
  }
}

TEST_CASE("steps of a cut exchange take together as long as the exchange", "[models][collective]") {
  const CostModel cost(cluster(), {});
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter}) {
    for (const std::vector<std::int32_t>& ranks : {strided(8, 1), strided(4, 4)}) {
      const GroupShape group = group_shape(cost.system(), ranks);
      const auto steps = static_cast<std::int64_t>(ranks.size()) - 1;
      Op step = collective_of(kind, 7e6 / static_cast<double>(steps));
      step.shape[1] = steps;
      CHECK(static_cast<double>(steps) * cost.collective(step, group).time.base() ==
            Approx(time_of(cost, kind, static_cast<double>(step.shape[0] * steps), group)));
    }
  }
}

TEST_CASE("a group of one communicates nothing", "[models][collective]") {
  const CostModel cost(cluster(), {});
  CHECK(time_of(cost, OpKind::kAllReduce, 1e9, group_shape(cluster(), strided(1, 1))) == 0);
  CHECK(cost.all_to_all_v(std::vector<double>{1e9}, strided(1, 1)).ends[0].base() == 0);
}

TEST_CASE("sibling groups share oversubscribed uplinks", "[models][collective]") {
  const System system = cluster(false, 2);
  // Eight groups of one member per node: all 8 devices of a node send, each gets half of its port.
  const GroupShape all = group_shape(system, strided(4, 8));
  CHECK(port_bandwidth(system, all, 1) == Approx(25e9));
  // Alone in its nodes the group has 8 uplinks of 25 GB/s to itself, its port is the limit.
  GroupShape alone = all;
  alone.siblings[0] = 1;
  CHECK(port_bandwidth(system, alone, 1) == Approx(50e9));
}

TEST_CASE("a rank of an all-to-all-v ends with its own transfers",
          "[models][collective][exchange]") {
  // Three ranks of one node; 0 and 1 exchange 45 MB each way (100 us at 450 GB/s), 2 only sends
  // 0.45 MB to 0, which shares 0's port: both flows into 0 run at half rate until the small one
  // ends, so 2 ends after 2 * 1 us and 0 after 101 us. 1 waits for its send into 0.
  System system = cluster();
  system.device.launch = Seconds{};
  system.fabric[0].latency = Seconds{};
  const CostModel cost(system, {});
  const std::vector<double> send{0, 45e6, 0, 45e6, 0, 0, 0.45e6, 0, 0};
  const auto ends = cost.all_to_all_v(send, strided(3, 1)).ends;
  CHECK(ends[2].base() == Approx(2e-6));
  CHECK(ends[0].base() == Approx(101e-6));
  CHECK(ends[1].base() == Approx(101e-6));
  // A rank that exchanges nothing is not held up.
  const auto idle =
      cost.all_to_all_v(std::vector<double>{0, 45e6, 0, 45e6, 0, 0, 0, 0, 0}, strided(3, 1)).ends;
  CHECK(idle[2].base() == 0);
  CHECK(idle[0].base() == Approx(100e-6));
}

TEST_CASE("incast is limited by the receiving port", "[models][collective][exchange]") {
  // Seven ranks send 1 MB each to rank 0: 7 MB through one port, and every sender waits for it
  // (they share it equally).
  System system = cluster();
  system.device.launch = Seconds{};
  system.fabric[0].latency = Seconds{};
  std::vector<double> send(64, 0.0);
  for (std::size_t r = 1; r < 8; ++r) {
    send[r * 8] = 1e6;
  }
  const auto ends = CostModel(system, {}).all_to_all_v(send, strided(8, 1)).ends;
  for (const Seconds end : ends) {
    CHECK(end.base() == Approx(7e6 / 450e9));
  }
}

TEST_CASE("a communicator at rest costs more, up to a bound", "[models][collective][rest]") {
  System system = cluster();
  system.fabric.resize(1);
  FittedModel m;
  m.form = "collective.knee";
  m.constants = {{"start", 2e-6},   {"member", 0},    {"cold", 1e-5},
                 {"capacity", 1e6}, {"cold_byte", 0}, {"cold_after", 1e-3}};
  system.fitted["all_reduce"] = m;
  const CostModel cost(system, {});
  const GroupShape pair = group_shape(system, strided(2, 1));
  const Op op = collective_of(OpKind::kAllReduce, 64);
  const auto after = [&](double rest) {
    return cost.collective(op, pair, Seconds(rest)).time.base();
  };
  CHECK(cost.rest_matters());
  CHECK(after(-1) == after(0));
  CHECK(after(1e-3) - after(0) == Approx(0.5e-5));  // t = cold_after: half of it
  CHECK(after(10) - after(0) == Approx(1e-5).epsilon(1e-3));
  // Devices on a described fabric know no rest.
  CHECK_FALSE(CostModel(cluster(), {}).rest_matters());
}

TEST_CASE("calibration scales time and can be set aside", "[models][collective]") {
  System system = cluster();
  system.fitted = random_models(system, "collective.fabric", 7);
  const GroupShape g = group_shape(system, strided(16, 1));
  const Op op = collective_of(OpKind::kAllReduce, 1e6);
  const Prediction fitted = CostModel(system, {}).collective(op, g);
  const Prediction facts = CostModel(system, {Calibration::Kind::kNone, 1}).collective(op, g);
  const Prediction scaled = CostModel(system, {Calibration::Kind::kScale, 1.5}).collective(op, g);
  CHECK_FALSE(facts.in_range);
  CHECK(facts.time < fitted.time);
  CHECK(scaled.time.base() == Approx(1.5 * fitted.time.base()));
}

}  // namespace stepcast::models
