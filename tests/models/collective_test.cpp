#include "models/collective_form.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "models/cost_model.h"
#include "models/fit/fit.h"

namespace stepcast::models {
namespace {

System cluster(bool in_switch = false, double oversubscription = 1) {
  System s;
  s.name = "cluster";
  s.device.launch = microseconds(2);
  s.fabric = {{"nvlink", 8, GBps(450), microseconds(2), 1, in_switch},
              {"network", 64, GBps(50), microseconds(5), oversubscription, false}};
  s.host.devices = 8;
  return s;
}

std::vector<std::int32_t> strided(std::int32_t count, std::int32_t stride, std::int32_t first = 0) {
  std::vector<std::int32_t> ranks;
  for (std::int32_t i = 0; i < count; ++i) {
    ranks.push_back(first + i * stride);
  }
  return ranks;
}

Op collective_of(OpKind kind, double bytes) {
  Op op;
  op.kind = kind;
  op.format = Format::kInt8;
  op.shape[0] = static_cast<std::int64_t>(bytes);
  return op;
}

double time_of(const CostModel& cost, OpKind kind, double bytes, const GroupShape& group) {
  return cost.collective(collective_of(kind, bytes), group).time.base();
}

const std::vector<OpKind> kSized{OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter,
                                 OpKind::kAllToAll,  OpKind::kAllToAllV, OpKind::kBroadcast,
                                 OpKind::kSend,      OpKind::kRecv};

/// Constants that switch every term of a form on.
FittedModels knees(const std::string& form) {
  FittedModels fitted;
  FittedModel m;
  m.form = form;
  if (form == "collective.fabric") {
    m.constants = {{"start", 6e-6},        {"latency", 2},     {"peer", 3e-7}, {"ring", 0.8},
                   {"hierarchical", 0.65}, {"in_switch", 0.6}, {"ramp", 4e-5}, {"ramp_bytes", 4e6}};
  } else {
    m.constants = {{"start", 1e-6},   {"member", 5e-7},     {"near", 1e10},     {"far", 3e9},
                   {"capacity", 2e6}, {"rendezvous", 4e-6}, {"threshold", 8e3}, {"self", 1e-10}};
  }
  // Residual points that would make time fall with size where they are taken as they are.
  m.points = {{{std::log(1e3), std::log(16.0)}, 0.3},
              {{std::log(1.2e3), std::log(16.0)}, -0.6},
              {{std::log(1e7), std::log(16.0)}, 0.2}};
  m.samples = 3;
  fitted["collective"] = m;
  return fitted;
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
    const auto ring = port_bytes(kind, Algorithm::kRing, S, g);
    CHECK(ring[0] == Approx(passes * S * (G - 1) * (L - 1) / (G * L)));
    CHECK(ring[1] == Approx(passes * S * (G - 1) / (G * L)));
    const auto bound = port_bytes(kind, Algorithm::kHierarchical, S, g);
    CHECK(bound[0] == Approx(passes * S * (L - 1) / L));
    CHECK(bound[1] == Approx(passes * S * (G - L) / (G * L)));
  }
  const auto direct = port_bytes(OpKind::kAllToAll, Algorithm::kDirect, S, g);
  CHECK(direct[0] == Approx(S * (L - 1) / G));
  CHECK(direct[1] == Approx(S * (G - L) / G));  // no division by L
}

TEST_CASE("one member per node saves nothing", "[models][collective][oracle]") {
  const System system = cluster();
  const GroupShape g = group_shape(system, strided(4, 8));
  REQUIRE(g.members == std::vector<std::int64_t>{1, 4});
  CHECK(g.siblings[0] == 8);
  const auto ring = port_bytes(OpKind::kReduceScatter, Algorithm::kRing, 1e9, g);
  CHECK(ring[0] == 0);
  CHECK(ring[1] == Approx(1e9 * 3 / 4));  // S (G - 1) / G
  const auto bound = port_bytes(OpKind::kReduceScatter, Algorithm::kHierarchical, 1e9, g);
  CHECK(bound[1] == Approx(1e9 * 3 / 4));
}

TEST_CASE("a group inside a node is a plain ring", "[models][collective][oracle]") {
  const GroupShape g = group_shape(cluster(), strided(8, 1));
  for (const Algorithm a : {Algorithm::kRing, Algorithm::kHierarchical}) {
    const auto bytes = port_bytes(OpKind::kAllReduce, a, 1e9, g);
    CHECK(bytes[0] == Approx(2e9 * 7 / 8));
    CHECK(bytes[1] == 0);
  }
}

TEST_CASE("reduction in the switch beats the ring's bound on large groups",
          "[models][collective]") {
  // In the switch a port carries S (L + 1) / L = 1.125 S instead of 2 S (L - 1) / L = 1.75 S.
  const GroupShape g = group_shape(cluster(true), strided(8, 1));
  const Prediction with =
      CostModel(cluster(true), {}).collective(collective_of(OpKind::kAllReduce, 1e9), g);
  const Prediction without =
      CostModel(cluster(false), {}).collective(collective_of(OpKind::kAllReduce, 1e9), g);
  CHECK(with.memory.base() == Approx(1.125e9 / 450e9));
  CHECK(without.memory.base() == Approx(1.75e9 / 450e9));
  CHECK(with.algorithm == "reduction in the switch");
  CHECK(with.bound == "link");
}

TEST_CASE("every collective is monotone and continuous in bytes",
          "[models][collective][property]") {
  const auto form = GENERATE(values<std::string>({"none", "collective.fabric", "collective.knee"}));
  const auto in_switch = GENERATE(false, true);
  System system = cluster(in_switch);
  if (form != "none") {
    system.fitted = knees(form);
  }
  const CostModel cost(system, {});
  for (const auto& ranks :
       {strided(2, 1), strided(8, 1), strided(16, 1), strided(4, 8), strided(24, 1)}) {
    const GroupShape g = group_shape(system, ranks);
    for (const OpKind kind : kSized) {
      double previous = 0;
      for (double bytes = 4; bytes <= 16.0 * (1ULL << 30U); bytes *= 1.07) {
        const double t = time_of(cost, kind, bytes, g);
        CAPTURE(form, in_switch, name_of(kind), ranks.size(), bytes);
        REQUIRE(t >= previous * (1 - 1e-12));
        // No jump: growing bytes by at most 1.07 (rounding included: 2 at the smallest) grows time
        // by no more than the steepest segment of the points, which rises 0.3 + ln(bandwidth terms)
        // over ln 1.2.
        if (previous > 0 && bytes > 64) {
          REQUIRE(t <= previous * (form == "none" ? 1.08 : 1.5));
        }
        previous = t;
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

TEST_CASE("an equal all-to-all-v is an all-to-all", "[models][collective][exchange]") {
  const System system = cluster();
  const CostModel cost(system, {});
  const auto count = GENERATE(2, 8, 16);
  const auto ranks = strided(count, 1);
  const auto n = static_cast<std::size_t>(count);
  const std::vector<double> send(n * n, 1e6);
  const auto ends = cost.all_to_all_v(send, ranks).ends;
  const double equal =
      time_of(cost, OpKind::kAllToAll, 1e6 * static_cast<double>(n), group_shape(system, ranks));
  for (const Seconds end : ends) {
    CAPTURE(count);
    CHECK(end.base() == Approx(equal));
  }
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

TEST_CASE("calibration scales time and can be set aside", "[models][collective]") {
  System system = cluster();
  system.fitted = knees("collective.fabric");
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
