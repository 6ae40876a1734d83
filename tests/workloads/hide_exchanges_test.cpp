// Exchanges of experts' tokens that overlap with another micro-batch: what awaits them, and what
// the overlap costs kernels.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/graph/op_traits.h"
#include "simulator/side_by_side.h"
#include "tests/workloads/transformer_jobs.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

Job experts_job() {
  Job job = llama_job(2, 64, 4, 2, 96, 32, 128);
  MixtureOfExperts moe;
  moe.experts = 8;
  moe.per_token = 2;
  moe.ffn_hidden = 48;
  transformer_of(job).moe = moe;
  split(job, 1, 1, 4, 4);
  job.parallel.expert = 4;
  job.parallel.overlap.expert = job.parallel.overlap.expert_batch = true;
  return job;
}

bool exchanges(const Op& op) {
  return is_collective(op.kind) && op.traffic == TrafficKind::kExperts;
}

/// Events that ops of a segment wait for and exchanges of tokens in it record, those waited for
/// before any is recorded, and exchanges.
struct Awaited {
  std::size_t own = 0, earlier = 0, exchanges = 0;
};
Awaited awaited(const Program& program, const Segment& segment) {
  Awaited found;
  std::vector<std::int32_t> recorded;
  std::vector<std::int32_t> waited;
  for (const Op& op : program.ops_of(segment)) {
    for (const std::int32_t e : program.waits_of(op)) {
      found.own += std::count(recorded.begin(), recorded.end(), e) > 0 && op.stream == 0 ? 1 : 0;
      waited.push_back(e);
    }
    if (exchanges(op)) {
      ++found.exchanges;
      found.earlier += std::count(waited.begin(), waited.end(), op.record) > 0 ? 1 : 0;
      recorded.push_back(op.record);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("exchanges are awaited by the next pass of their kind", "[workloads][experts]") {
  Job job = experts_job();
  job.parallel.recompute.kind = GENERATE(RecomputeKind::kNone, RecomputeKind::kFull);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  for (const Segment& s : program.segments) {
    CAPTURE(s.name);
    const Awaited found = awaited(program, s);
    if (s.kind != SegmentKind::kForward && s.kind != SegmentKind::kBackward) {
      continue;
    }
    const bool again =
        s.kind == SegmentKind::kBackward && job.parallel.recompute.kind == RecomputeKind::kFull;
    CHECK(found.exchanges == (again ? 8 : 4));  // there and back in two layers, and made again
    CHECK(found.earlier == 4);
    CHECK(found.own == (again ? 4 : 0));
  }
}

TEST_CASE("kernels lose the multiprocessors of collectives that overlap", "[simulator][experts]") {
  Job job = experts_job();
  job.system.device.multiprocessors = 100;
  job.system.framework.exchange_multiprocessors = GENERATE(0, 20, 100);
  const double exchange = GENERATE(2.0, 1e6);
  CAPTURE(job.system.framework.exchange_multiprocessors, exchange);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  std::vector<double> before;
  for (const Op& op : program.ops) {
    before.push_back(exchanges(op) ? exchange : 1);
  }
  std::vector<double> times = before;
  // A device with no more multiprocessors than a collective holds is no GPU.
  const bool holds = job.system.framework.exchange_multiprocessors == 20;
  CHECK(simulator::slow_beside_exchanges(program, job.system, times) == holds);
  Job measured = job;
  measured.system.fitted["slowdown"] = {};
  std::vector<double> once = before;
  CHECK_FALSE(simulator::slow_beside_exchanges(program, measured.system, once));
  for (const Segment& s : program.segments) {
    CAPTURE(s.name);
    const auto kernels_of = [&](std::int16_t layer) {
      const auto ops = program.ops_of(s);
      return static_cast<double>(std::count_if(ops.begin(), ops.end(), [&](const Op& op) {
        return op.layer == layer && !is_collective(op.kind);
      }));
    };
    const bool pass = s.kind == SegmentKind::kForward || s.kind == SegmentKind::kBackward;
    for (std::size_t o = s.first_op; o < std::size_t{s.first_op} + s.op_count; ++o) {
      const Op& op = program.ops[o];
      // There and back, against as many seconds as the layer has kernels.
      const double factor = std::min(1 + 0.2 * 2 * exchange / kernels_of(op.layer), 1 / 0.8);
      const bool slowed = holds && pass && op.layer != kNoLayer && !is_collective(op.kind);
      CHECK(times[o] == Approx(before[o] * (slowed ? factor : 1)));
    }
  }
}
