// Exchanges of experts' tokens beside another micro-batch: which passes hide theirs, and what that
// costs.
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

Job experts_job(std::int64_t pipeline, std::int64_t microbatches, std::int64_t chunks = 1) {
  Job job = llama_job(2 * pipeline * chunks, 64, 4, 2, 96, 32, 128);
  MixtureOfExperts moe;
  moe.experts = 8;
  moe.per_token = 2;
  moe.ffn_hidden = 48;
  transformer_of(job).moe = moe;
  split(job, 1, pipeline, 4, microbatches);
  job.parallel.expert = 4;
  job.parallel.virtual_stages = static_cast<std::int32_t>(chunks);
  job.parallel.overlap.expert = job.parallel.overlap.expert_batch = true;
  return job;
}

/// The passes of a stage in order: "f" and "b", capital where exchanges run beside another pass.
std::string passes_of(const Program& program) {
  std::string passes;
  for (const Call& call : program.calls) {
    const Segment& s = program.segments[call.segment];
    const bool beside = s.name.find("_beside") != std::string::npos;
    if (s.kind == SegmentKind::kForward) {
      passes += beside ? 'F' : 'f';
    } else if (s.kind == SegmentKind::kBackward) {
      passes += beside ? 'B' : 'b';
    }
  }
  return passes;
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

TEST_CASE("a pass hides its exchanges beside one of another micro-batch alone",
          "[workloads][experts]") {
  const auto passes = [](const Job& job, std::size_t stage) {
    return passes_of(workloads::build_graph(job).programs[stage]);
  };
  CHECK(passes(experts_job(1, 1), 0) == "fb");
  CHECK(passes(experts_job(1, 4), 0) == "fFBFBFBb");
  CHECK(passes(experts_job(2, 4), 0) == "ffFBFBbb");
  CHECK(passes(experts_job(2, 4), 1) == "fFBFBFBb");
  // 2 (p - 1 - i) + (v - 1) p + 1 forwards first: 5 and 3 of 8.
  CHECK(passes(experts_job(2, 4, 2), 0) == "fffffFBFBFBbbbbb");
  CHECK(passes(experts_job(2, 4, 2), 1) == "fffFBFBFBFBFBbbb");
  Job in_turn = experts_job(2, 4);
  in_turn.parallel.overlap.expert_batch = false;
  CHECK(passes(in_turn, 0) == "ffbfbfbb");
}

TEST_CASE("exchanges beside another pass are awaited by the next one", "[workloads][experts]") {
  Job job = experts_job(1, 4);
  job.parallel.recompute.kind = GENERATE(RecomputeKind::kNone, RecomputeKind::kFull);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  for (const Segment& s : program.segments) {
    CAPTURE(s.name);
    const Awaited found = awaited(program, s);
    if (s.kind != SegmentKind::kForward && s.kind != SegmentKind::kBackward) {
      continue;
    }
    const bool again = s.kind == SegmentKind::kBackward &&
                       job.parallel.recompute.kind == RecomputeKind::kFull;
    CHECK(found.exchanges == (again ? 8 : 4));  // there and back in two layers, and made again
    const bool beside = s.name.find("_beside") != std::string::npos;
    CHECK(found.earlier == (beside ? 4 : 0));
    CHECK(found.own == (!beside ? found.exchanges : again ? 4 : 0));
  }
}

TEST_CASE("kernels beside an exchange lose its multiprocessors", "[simulator][experts]") {
  const ExecutionGraph graph = workloads::build_graph(experts_job(1, 4));
  const Program& program = graph.programs.front();
  System system = experts_job(1, 4).system;
  system.device.multiprocessors = 100;
  const auto slowed = [&](double exchange) {
    std::vector<double> times;
    for (const Op& op : program.ops) {
      times.push_back(exchanges(op) ? exchange : 1);
    }
    const std::vector<double> before = times;
    const bool any = simulator::slow_beside_exchanges(program, system, times);
    CHECK(any == (times != before));
    std::vector<double> factors;
    for (const Segment& s : program.segments) {
      factors.push_back(times[s.first_op] / before[s.first_op]);
      for (std::size_t o = s.first_op; o < std::size_t{s.first_op} + s.op_count; ++o) {
        CHECK(times[o] == Approx(before[o] * (exchanges(program.ops[o]) ? 1 : factors.back())));
      }
    }
    return factors;
  };
  system.framework.exchange_multiprocessors = 0;
  for (const double factor : slowed(1)) {
    CHECK(factor == 1);
  }
  system.framework.exchange_multiprocessors = 20;
  const std::vector<double> some = slowed(2);
  const std::vector<double> most = slowed(1e6);
  for (std::size_t i = 0; i < program.segments.size(); ++i) {
    const Segment& s = program.segments[i];
    CAPTURE(s.name);
    const bool beside = s.name.find("_beside") != std::string::npos;
    // Four exchanges of 2 s beside as many seconds of kernels as there are.
    CHECK(some[i] == Approx(beside ? 1 + 0.2 * 8 / (s.op_count - 4.0) : 1));
    CHECK(most[i] == Approx(beside ? 1 / 0.8 : 1));
  }
}
