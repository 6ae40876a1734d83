#include "studies/predict/show.h"
#include "core/access/access.h"

#include <catch2/catch.hpp>
#include <map>

#include "core/error.h"
#include "core/graph/program_builder.h"
#include "studies/traces/recorded_step.h"
#include "tests/jobs.h"
#include "traces/measured_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

Job transformer() {
  return fixtures::zoo_job("gpt-22b", "dgx-a100-80gb",
                           "workload.layers=4 devices=16 parallel.tensor=2 parallel.pipeline=2 "
                           "parallel.recompute=full batch.global=16 batch.micro=1 "
                           "batch.sequence=512");
}
Job dlrm() { return fixtures::zoo_job("dlrm-default", "dgx-h100"); }

TEST_CASE("the op list names every template with its calls", "[studies][show]") {
  const ExecutionGraph graph = workloads::build_graph(transformer());
  std::map<std::int32_t, std::uint64_t> executed;
  for (const OpContent& o : op_list(graph)) {
    executed[o.rank_class] += static_cast<std::uint64_t>(o.calls);
    CHECK(o.communicator.empty() == !is_collective(o.op->kind));
    for (const std::int64_t w : o.waits) {
      CHECK(w >= 0);  // every event is recorded by some op
    }
  }
  REQUIRE(executed.size() == graph.classes.size());
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    CHECK(executed[static_cast<std::int32_t>(c)] ==
          graph.program_of(graph.classes[c].ranks.front()).executed_ops());
  }
}

TEST_CASE("work by kind is the hardware FLOPs of the step", "[studies][show]") {
  const Job job = transformer();
  const auto rows = work_by_kind(workloads::build_graph(job), true);
  Flops products;
  Flops attention;
  for (const WorkRow& w : rows) {
    if (w.kind == OpKind::kGemm) {
      products += w.flops;
    } else if (w.kind == OpKind::kAttentionForward || w.kind == OpKind::kAttentionBackward) {
      attention += w.flops;
    }
    CHECK(w.flops_most * 16 >= w.flops);  // 16 ranks, none above the busiest
    CHECK(w.flops_most <= w.flops);
  }
  // The convention counts the full score matrix, a causal kernel executes half of it.
  const auto flops = workloads::step_flops(job);
  CHECK((products + 2 * attention) / flops.hardware == Approx(1));
  CHECK(attention > Flops{});
}

TEST_CASE("work of phases adds up to the work of kinds", "[studies][show][property]") {
  const bool tables = GENERATE(true, false);
  const ExecutionGraph graph = workloads::build_graph(tables ? dlrm() : transformer());
  Flops flops[2];
  Bytes bytes[2];
  double executions[2] = {0, 0};
  for (const int split : {0, 1}) {
    for (const WorkRow& w : work_by_kind(graph, split == 1)) {
      flops[split] += w.flops;
      bytes[split] += w.read + w.written;
      executions[split] += w.executions;
    }
  }
  CHECK(flops[0] / flops[1] == Approx(1));
  CHECK(bytes[0] / bytes[1] == Approx(1));
  CHECK(executions[0] == executions[1]);
}

TEST_CASE("sent bytes follow the bandwidth-optimal algorithms", "[studies][show][oracle]") {
  ProgramBuilder b;
  const auto parts = b.exchange({{10, 20, 30, 40}});
  const auto s = b.begin_segment("step");
  b.op(OpKind::kAllReduce, "a", {1000}).communicator(0);
  b.op(OpKind::kAllGather, "b", {1000}).communicator(0);
  b.op(OpKind::kReduceScatter, "c", {1000}).communicator(0).format(Format::kBf16);
  b.op(OpKind::kAllToAllV, "d", {100})
      .communicator(0)
      .attributes(CollectiveAttributes{.exchange = parts});
  b.op(OpKind::kSend, "e", {1000}).communicator(0, 1);
  b.op(OpKind::kRecv, "f", {1000}).communicator(0, 1);
  b.op(OpKind::kBarrier, "g", {0}).communicator(0);
  b.end_segment();
  b.call(s);
  const Program p = std::move(b).finish();
  const auto sent = [&p](std::size_t op) { return sent_bytes(p, p.ops[op], 4, 2).base(); };
  CHECK(sent(0) == Approx(2 * 0.75 * 4000));  // 4 members, 1000 fp32
  CHECK(sent(1) == Approx(0.75 * 4000));
  CHECK(sent(2) == Approx(0.75 * 2000));
  CHECK(sent(3) == Approx((10 + 20 + 40) * 4));  // all parts but its own, the third
  CHECK(sent(4) == Approx(4000));
  CHECK(sent(5) == 0);
  CHECK(sent(6) == 0);
  CHECK(sent_bytes(p, p.ops[0], 1, 0) == Bytes{});  // alone
}

TEST_CASE("what pipelines send is what they receive", "[studies][show][property]") {
  Bytes sent;
  Bytes received;
  for (const TrafficRow& t : traffic(workloads::build_graph(transformer()))) {
    sent += t.kind == OpKind::kSend ? t.buffers : Bytes{};
    received += t.kind == OpKind::kRecv ? t.buffers : Bytes{};
  }
  CHECK(sent == received);
  // 8 stage pairs (tensor 2, data 4), forward and back, 4 microbatches of 512 x 6144 bf16 each.
  CHECK(sent.base() == Approx(8.0 * 2 * 4 * 512 * 6144 * 2));
}

TEST_CASE("lookups count bytes of rows", "[studies][show]") {
  const Job job = dlrm();
  const auto rows = lookups(job);
  REQUIRE(rows.size() == job.workload.layered()->tables.size());
  const EmbeddingTable& t = job.workload.layered()->tables.front();
  const double n = static_cast<double>(job.batch.global) * t.pooling;
  CHECK(rows[0].lookups == Approx(n));
  CHECK(rows[0].looked_up.base() == Approx(n * static_cast<double>(t.dim) * 4));
  CHECK(rows[0].unique <= std::min(n, static_cast<double>(t.rows)));
  CHECK(rows[0].unique == Approx(t.access->unique(n).value));
  CHECK(lookups(transformer()).empty());
}

TEST_CASE("the largest tensors and the ledger are of the same program", "[studies][show]") {
  const ExecutionGraph graph = workloads::build_graph(transformer());
  for (const MemoryContent& c : memory_content(graph, SIZE_MAX)) {
    std::map<TensorRole, Bytes> by_role;
    Bytes before = c.largest.front().bytes;
    for (const auto& a : c.largest) {
      CHECK(a.bytes <= before);  // descending
      before = a.bytes;
      by_role[a.role] += a.bytes;
    }
    CHECK(by_role[TensorRole::kParameter] == c.use.parameters);
    CHECK(by_role[TensorRole::kGradient] == c.use.gradients);
    CHECK(by_role[TensorRole::kOptimizerState] == c.use.optimizer);
    // Peaks of single tensors need not meet.
    CHECK(by_role[TensorRole::kActivation] >= c.use.activations * 0.999);
  }
  CHECK(memory_content(graph, 3).front().largest.size() == 3);
}

TEST_CASE("1f1b keeps as many instances as stages are ahead", "[studies][show]") {
  // 2 stages: the first holds 2 microbatches at once, the last 1.
  const auto content = memory_content(workloads::build_graph(transformer()), SIZE_MAX);
  REQUIRE(content.size() == 2);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    std::int64_t most = 0;
    for (const auto& a : content[stage].largest) {
      most = std::max(most, a.instances);
    }
    CHECK(most == (stage == 0 ? 2 : 1));
  }
}

SimTime at(std::int64_t us) { return SimTime{us * 1'000'000}; }

/// Two ranks, two steps of 100 us: a GEMM, then an all-reduce. Rank 1 computes 60 us, rank 0 40 us;
/// the transfer takes 20 us once both are there; the rest is gap.
traces::GraphRun two_rank_trace() {
  ProgramBuilder b;
  const auto s = b.begin_segment("step");
  b.op(OpKind::kGemm, "layer", {100, 100, 100, 1});
  b.op(OpKind::kAllReduce, "gradients", {100}).communicator(0).phase(Phase::kGradientSync);
  b.end_segment();
  b.call(s);
  traces::GraphRun t;
  t.graph.mesh.data = 2;
  t.graph.communicators.push_back({"data", {Axis::kData}, {}});
  t.graph.programs.push_back(std::move(b).finish());
  t.graph.classes.push_back({0, {0, 1}});
  for (std::int32_t r = 0; r < 2; ++r) {
    traces::RankTrace rank;
    rank.rank = r;
    for (std::int32_t step = 0; step < 2; ++step) {
      const std::int64_t o = 100 * step;
      const std::int64_t done = r == 0 ? 45 : 65;
      rank.steps.push_back({step, at(o), at(o + 100)});
      rank.host.push_back({r, step, HostSpan::Kind::kIssue, at(o), at(o + 5)});
      rank.ops.push_back({r, step, {0, 0}, at(o + 3), at(o + 5), at(o + 5), at(o + done), 0});
      rank.ops.push_back({r, step, {0, 1}, at(o + 4), at(o + done), at(o + 65), at(o + 85), 400});
    }
    t.ranks.push_back(rank);
  }
  return t;
}

TEST_CASE("a recorded step says where each rank's time went", "[studies][show]") {
  const RecordedStep s = recorded_step(traces::measured_run(two_rank_trace()));
  const auto us = [](Seconds t) { return t / microseconds(1); };
  REQUIRE(s.by_rank.size() == 2);
  CHECK(s.steps == 2);
  CHECK(us(s.median) == Approx(100));
  const RankStep& r = s.by_rank[0];
  CHECK(us(r.compute) == Approx(40));
  CHECK(us(r.bubble) == Approx(20));                 // waits from 45 to 65
  CHECK(us(r.exposed_communication) == Approx(20));  // 65 to 85
  CHECK(us(r.host) == Approx(5));                    // issuing until 5
  CHECK(us(r.other) == Approx(15));                  // 85 to 100
  CHECK(us(r.wait) == Approx(20));
  CHECK(us(r.issuing) == Approx(5));
  CHECK(us(s.by_rank[1].compute) == Approx(60));
  CHECK(us(s.by_rank[1].wait) == Approx(0).margin(1e-9));
  // Rank 1 comes last to the one collective of each step; rank 0 waits 20 us for it.
  CHECK(s.by_rank[1].last_arrivals == Approx(1));
  CHECK(us(s.by_rank[1].caused_wait) == Approx(20));
  CHECK(s.by_rank[0].last_arrivals == 0);
  CHECK(s.critical_rank == 1);
  CHECK(s.mostly == "compute");
  CHECK(s.mostly_share == Approx(0.6));
  CHECK(s.imbalance == Approx(0.2));  // 60 over a mean of 50
}

TEST_CASE("recorded ops carry rates and the slowest rank", "[studies][show]") {
  const RecordedStep s = recorded_step(traces::measured_run(two_rank_trace()));
  REQUIRE(s.ops.size() == 2);
  const RecordedOp& gemm = s.ops[0];
  CHECK(gemm.name == "layer");
  CHECK(gemm.executions == 1);
  CHECK(gemm.time / microseconds(1) == Approx(50));
  CHECK(gemm.fastest_rank / microseconds(1) == Approx(40));
  CHECK(gemm.slowest == 1);
  CHECK(gemm.flops_per_second == Approx(2e6 / 50e-6));  // 2 * 100^3 FLOP in a mean of 50 us
  CHECK(s.ops[1].time / microseconds(1) == Approx(20));
  CHECK(s.ops[1].wait / microseconds(1) == Approx(10));  // 20 us on one of two ranks
  CHECK(s.ops[1].bytes_per_second == Approx(400 / 20e-6));
}

TEST_CASE("drops and unsure clocks are told; too much skipping is an error", "[studies][show]") {
  traces::GraphRun t = two_rank_trace();
  CHECK(recorded_step(traces::measured_run(t)).warnings.empty());
  t.ranks[1].dropped = 7;
  t.ranks[1].clock_residual = microseconds(3);  // of a step of 100 us
  const RecordedStep s = recorded_step(traces::measured_run(t), 1);
  CHECK(s.steps == 1);
  CHECK(s.dropped == 7);
  REQUIRE(s.warnings.size() == 2);
  CHECK_THAT(s.warnings[0], Catch::Contains("dropped 7 records"));
  CHECK_THAT(s.warnings[1], Catch::Contains("rank 1: clocks agree only within 3 us"));
  CHECK_THROWS_AS(recorded_step(traces::measured_run(t), 2), InputError);
}

}  // namespace
}  // namespace stepcast::studies
