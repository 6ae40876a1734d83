// Rows of recorded runs with and without overlap: compute beside transfers.
#include <catch2/catch.hpp>

#include "core/graph/program_builder.h"
#include "models/cost_model.h"
#include "studies/fit/overlap_rows.h"
#include "studies/fit_rows.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

SimTime at_us(double us) { return SimTime{std::llround(us * 1e6)}; }

struct Ran {
  double begin, ready, end;
};

/// Two ranks of one program: a product on the compute stream, an all-reduce on another.
traces::GraphRun recorded(Ran compute, Ran transfer) {
  ProgramBuilder b({"compute", "data"});
  const auto segment = b.begin_segment("step");
  b.op(OpKind::kGemm, "mlp", {8, 8, 8, 1}).format(Format::kFp32);
  b.op(OpKind::kAllReduce, "gradients", {1000}).on("data").communicator(0);
  b.end_segment();
  b.call(segment);
  traces::GraphRun trace;
  trace.graph.mesh.data = 2;
  trace.graph.communicators.push_back({.name = "data", .axes = {}, .groups = {{0, 1}}});
  trace.graph.programs.push_back(std::move(b).finish());
  trace.graph.classes.push_back({0, {0, 1}});
  for (const std::int32_t r : {0, 1}) {
    traces::RankTrace rank;
    rank.rank = r;
    rank.steps.push_back({0, at_us(0), at_us(1000)});
    std::uint32_t op = 0;
    for (const Ran& ran : {compute, transfer}) {
      OpSpan s;
      s.rank = r;
      s.ref = {0, op++};
      s.begin = s.issued = at_us(ran.begin);
      s.ready = at_us(ran.ready);
      s.end = at_us(ran.end);
      rank.ops.push_back(s);
    }
    trace.ranks.push_back(std::move(rank));
  }
  return trace;
}

}  // namespace

TEST_CASE("overlapped shares and slowdowns come from two recordings of a job",
          "[studies][slowdown]") {
  // Alone: 100 us of compute, then 60 us of transfer after 5 us of waiting.
  const traces::GraphRun alone = recorded({0, 0, 100}, {100, 105, 165});
  // Beside: the transfer, 66 us after its wait, lies under compute, which now takes 110 us.
  const traces::GraphRun beside = recorded({0, 0, 110}, {10, 20, 86});
  OverlapRows rows;
  add_overlap(rows, alone, beside);
  CHECK(rows.dropped == 0);
  REQUIRE(rows.compute.size() == 2);  // one for each rank
  CHECK(rows.compute[0].alone.base() == Approx(100e-6));
  CHECK(rows.compute[0].time.base() == Approx(110e-6));
  CHECK(rows.compute[0].overlapped.base() == Approx(66e-6));              // waiting is no transfer
  CHECK(rows.compute[0].configuration == rows.compute[1].configuration);  // held out together
  add_overlap(rows, alone, beside);
  // 100 = 44 + 66 / s: s = 66 / 56.
  const FittedModels fitted = models::fit_slowdown(rows.compute, {.source = "test"});
  CHECK(fitted.at("slowdown").constants.at("compute") == Approx(66.0 / 56).epsilon(0.01));
  CHECK(models::fit_slowdown({}, {}).empty());
}

TEST_CASE("records that a recorder lost are counted over ranks and runs", "[studies][slowdown]") {
  traces::GraphRun alone = recorded({0, 0, 100}, {100, 105, 165});
  traces::GraphRun beside = recorded({0, 0, 110}, {10, 20, 86});
  alone.ranks[1].dropped = 3;
  beside.ranks[0].dropped = 4;
  OverlapRows rows;
  add_overlap(rows, alone, beside);
  CHECK(rows.dropped == 7);
  FitRows steps;
  steps.unexplained = {{"step not whole", "rank 0", 9, 0}};
  CHECK(dropped_records(steps) == 0);
  Job job;
  add_steps(steps, job, alone.graph, alone);
  CHECK(dropped_records(steps) == 3);
}

TEST_CASE("jobs drawn for overlap build with and without it", "[studies][slowdown]") {
  System system;
  system.device.memory = GB(1);
  system.host.devices = 2;
  system.fabric.push_back(
      {.name = "link", .size = 2, .bandwidth = GBps(1), .latency = microseconds(1)});
  Draw draw(7);
  for (std::int64_t i = 0; i < 6; ++i) {
    Job job = draw_overlap_case(i, system, 2, draw);
    const std::size_t ops = workloads::build_graph(job).programs[0].ops.size();
    job.parallel.overlap.data = job.parallel.overlap.dense_all_reduce = true;
    const ExecutionGraph graph = workloads::build_graph(job);
    CHECK(graph.programs[0].ops.size() >= ops);
    CHECK(std::any_of(graph.programs[0].ops.begin(), graph.programs[0].ops.end(),
                      [](const Op& op) { return is_collective(op.kind) && op.stream != 0; }));
  }
}
