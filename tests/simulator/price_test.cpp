// Costs from the real model: asked once per template, placed where the engine looks for them.
#include <catch2/catch.hpp>

#include "tests/simulator/graphs.h"

namespace stepcast::simulator {
namespace {

using test::each;

/// Two machines of two devices.
System toy() {
  System s;
  s.name = "toy";
  s.device.name = "toy";
  s.device.memory = GB(16);
  s.device.bandwidth = GBps(1000);
  s.device.launch = microseconds(5);
  s.device.multiprocessors = 80;
  s.device.peak = {{Format::kFp32, teraflops(10)}};
  s.fabric = {{"inside", 2, GBps(100), microseconds(1), 1, false},
              {"between", 2, GBps(10), microseconds(5), 1, false}};
  s.host.devices = 2;
  s.host.cores = 8;
  return s;
}

Program rank_program(int rank) {
  ProgramBuilder b;
  b.set_format(Format::kFp32);
  const std::int32_t exchange = b.exchange({{0, 1 << 20, rank == 3 ? 0.0 : 1 << 20, 0}});
  const auto s = b.begin_segment("all");
  b.op(OpKind::kGemm, "gemm", {512, 512, 512, 1});              // 0
  b.op(OpKind::kAllReduce, "wide", {1 << 20}).communicator(0);  // 1
  b.op(OpKind::kAllReduce, "near", {1 << 20}).communicator(1);  // 2
  b.op(OpKind::kAllToAllV, "exchange", {2 << 20})               // 3
      .communicator(0)
      .attributes(CollectiveAttributes{.exchange = exchange});
  if (rank % 2 == 0) {
    b.op(OpKind::kSend, "send", {1 << 20, 0}).communicator(1, 1);  // 4
  } else {
    b.op(OpKind::kRecv, "recv", {1 << 20, 0}).communicator(1, 0);
  }
  b.end_segment();
  b.call(s);
  return std::move(b).finish();
}

ExecutionGraph four_ranks() {
  std::vector<Program> programs;
  for (int r = 0; r < 4; ++r) {
    programs.push_back(rank_program(r));
  }
  ExecutionGraph graph = each(std::move(programs));
  graph.mesh = {.tensor = 2, .context = 1, .pipeline = 1, .data = 2};
  graph.communicators = {{"world", {Axis::kTensor, Axis::kData}, {}},
                         {"near", {Axis::kTensor}, {}}};
  return graph;
}

TEST_CASE("price() fills the engine's arrays from the model", "[simulator][price]") {
  const ExecutionGraph graph = four_ranks();
  const System system = toy();
  const models::CostModel model(system, Calibration{});
  const StepCosts costs = price(graph, model);
  REQUIRE(costs.ops.size() == 4);
  for (std::size_t r = 0; r < 4; ++r) {
    const OpCosts& row = costs.ops[r];
    const Program& program = graph.programs[r];
    CHECK(row.ticks[0] == to_ticks(model.kernel(program, program.ops[0]).time));
    // The near group uses the inner level only. The wide group's ring has one rate on all its hops,
    // half of it through each card of a machine: 1 / 100 inside for each 0.5 / 10 between.
    const auto path = [&](std::size_t op) {
      return costs.paths[static_cast<std::size_t>(row.path[op])];
    };
    REQUIRE(path(1).size() == 2);
    CHECK(path(1)[0].sent == Approx(0.2));
    CHECK(path(1)[1] == LevelUse{1, 1, 1});
    CHECK(path(2) == std::vector<LevelUse>{{0, 1, 1}});
    CHECK(path(4) == std::vector<LevelUse>{{0, 1, 1}});
    CHECK(row.ticks[1] > row.ticks[2]);
    CHECK(row.link_share[1] > 0);
    CHECK(row.link_share[1] <= 1);
    CHECK(row.ticks[4] > 0);
  }
  // Rank 0 only sends in the exchange. Rank 3 sends 4 MB to rank 1 of the other machine, whose card
  // has as much to take from rank 2: its own is half used until that is done.
  const auto ports = [&](std::size_t r) {
    return costs.paths[static_cast<std::size_t>(costs.ops[r].path[3])];
  };
  CHECK(ports(3) == std::vector<LevelUse>{{1, 1, 0}});
  CHECK(costs.ops[3].link_share[3] == Approx(0.5));
  CHECK(costs.ops[1].link_share[3] == 1);
  for (const LevelUse& use : ports(0)) {
    CHECK(use.sent > 0);
    CHECK(use.received == 0);
  }
  // Sends: 0 -> 1, 0 -> 2, 1 -> 1, 1 -> 2, 2 -> 1, 2 -> 2, 3 -> 1. Partners by bytes either way:
  const auto needs = [&](std::size_t r) {
    return costs.needs[static_cast<std::size_t>(costs.ops[r].needs[3])];
  };
  CHECK(needs(0) == std::vector<std::int32_t>{1, 2});
  CHECK(needs(1) == std::vector<std::int32_t>{0, 2, 3});
  CHECK(needs(2) == std::vector<std::int32_t>{0, 1});
  CHECK(needs(3) == std::vector<std::int32_t>{1});
  CHECK(costs.issue == to_ticks(model.host().issue));
  // The step is at least its longest chain of one rank.
  const auto result = simulate(graph, costs);
  for (const OpCosts& row : costs.ops) {
    CHECK(ticks(result.makespan) >= row.ticks[0] + row.ticks[1] + row.ticks[2]);
  }
}

TEST_CASE("what the clock does not hold is refused, by name", "[simulator][price]") {
  const ExecutionGraph graph = four_ranks();
  const auto rejection = [&](const System& system) {
    const models::CostModel model(system, Calibration{});
    CHECK_THROWS_AS(price(graph, model), InputError);
    CHECK_THROWS_WITH(price(graph, model),
                      Catch::Contains(" days") && Catch::Contains("more than 100 days") &&
                          (Catch::Contains("op gemm [") || Catch::Contains("op wide [")));
  };
  System slow = toy();
  slow.device.peak = {{Format::kFp32, FlopsPerSecond(1)}};  // 2 * 512^3 s = 3107 days
  rejection(slow);
  slow = toy();
  slow.fabric[1].bandwidth = BytesPerSecond(0.1);
  rejection(slow);
}

TEST_CASE("a step of ops that fit the clock only one by one is refused", "[simulator][price]") {
  ProgramBuilder b;
  b.set_microbatches(2);
  const auto s = b.begin_segment("all");
  test::compute(b, "long");
  b.end_segment();
  b.call(s, 0);
  b.call(s, 1);
  const ExecutionGraph graph = test::alike(2, std::move(b).finish());
  StepCosts costs = blank_costs(graph);
  const std::int64_t day = to_ticks(Seconds(86400));
  test::set_cost(graph, costs, "long", 49 * day);
  CHECK(ticks(simulate(graph, costs).makespan) == 98 * day);
  test::set_cost(graph, costs, "long", 51 * day);
  CHECK_THROWS_AS(simulate(graph, costs), InputError);
  CHECK_THROWS_WITH(simulate(graph, costs), Catch::Contains("the step") && Catch::Contains("102"));
}

}  // namespace
}  // namespace stepcast::simulator
