// Records of a small program of two ranks, through the parser and the merge to what replay reads.
#include <catch2/catch.hpp>

#include "made_records.h"
#include "profiler/capture/captured_parts.h"
#include "traces/measured_step.h"

namespace stepcast::profiler::cupti {
namespace {

using made::Records;

constexpr std::uint32_t kCompute = 7, kNccl = 20;

NcclCall all_reduce(std::int32_t rank, std::uint64_t launch, std::uint64_t at) {
  NcclCall c;
  c.launch = launch;
  c.communicator = 0xfeed;
  c.members = 2;
  c.rank = rank;
  c.function = NcclFunction::kAllReduce;
  c.count = 250'000;
  c.type = 7;
  c.thread = Records::kThread;
  c.sequence = static_cast<std::int64_t>(launch) - 1;
  c.begin = static_cast<std::int64_t>(Records::us(at));
  c.end = c.begin + 20'000;
  return c;
}

/// Six steps of 1000 us. Each: a gemm of 200 us (rank 1: 300 us), two all-reduces behind it on
/// another stream, the second of which ends 600 us into the step on both ranks, an optimizer that
/// waits for it, and a device synchronisation.
traces::Recording rank_of(std::int32_t rank) {
  Records made;
  std::vector<NcclCall> calls;
  std::uint32_t id = 0;
  for (std::uint32_t step = 0; step < 6; ++step) {
    const std::uint32_t t = 1000 + step * 1000, gemm = rank == 0 ? 200 : 300;
    constexpr const char* kNames[]{"step 0", "step 1", "step 2", "step 3", "step 4", "step 5"};
    made.range(kNames[step], t, t + 990);
    made.launch("gemm", kCompute, t + 10, t + 20, t + 20 + gemm, ++id);
    made.api(Records::kRecordEvent, t + 20, t + 22, ++id);
    made.recorded(1, 100 + 2 * step, kCompute, id);
    made.api(Records::kStreamWait, t + 24, t + 26, ++id);
    made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, t + 24, t + 26, id, kNccl, 1,
              100 + 2 * step);
    for (std::uint32_t n = 0; n < 2; ++n) {
      const std::uint64_t launch = 2 * step + n + 1;
      calls.push_back(all_reduce(rank, launch, t + 30 + n * 20));
      made.external(kNcclIds, launch, ++id);
      // Rank 0 comes 100 us before rank 1 to the first; both ends are common.
      const std::uint32_t begin = n == 0 ? t + 22 + gemm : t + 462;
      made.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", kNccl,
                  t + 32 + n * 20, begin, n == 0 ? t + 460 : t + 600, id);
    }
    made.api(Records::kRecordEvent, t + 72, t + 74, ++id);
    made.recorded(1, 101 + 2 * step, kNccl, id);
    made.api(Records::kStreamWait, t + 76, t + 78, ++id);
    made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, t + 76, t + 78, id, kCompute,
              1, 101 + 2 * step);
    made.launch("optimizer", kCompute, t + 80, t + 604, t + 700, ++id);
    made.api(Records::kDeviceSync, t + 90, t + 704, ++id);
    made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, t + 90, t + 704, id,
              CUPTI_SYNCHRONIZATION_INVALID_VALUE, CUPTI_SYNCHRONIZATION_INVALID_VALUE, 0);
  }
  CaptureFacts facts;
  facts.rank = rank;
  facts.world_size = 2;
  facts.process = Records::kProcess;
  facts.first = {1000, 2'000'000'000'000};
  facts.last = facts.first;
  facts.metadata["clock.boot"] = "one machine";
  return made.parse(facts, calls);
}

traces::Recording program() {
  std::vector<traces::Recording> parts;
  parts.push_back(rank_of(1));
  parts.push_back(rank_of(0));
  return merge_ranks(std::move(parts));
}

const OpSpan& span_of(const traces::MeasuredStep& step, std::size_t rank, std::string_view name,
                      std::size_t nth = 0) {
  const Program& p = step.graph->program_of(static_cast<std::int32_t>(rank));
  for (const OpSpan& s : step.ranks[rank].spans) {
    if (p.name(p.ops[s.ref.op]) == name && nth-- == 0) {
      return s;
    }
  }
  FAIL("no op named " << name);
  throw 0;
}

TEST_CASE("a made program of two ranks is rebuilt: streams, waits, collectives",
          "[profiler][cupti]") {
  const traces::Recording recording = program();
  CHECK(recording.all_oddities().total() == 0);
  const traces::MeasuredRun run = traces::measured_run(recording);
  REQUIRE(run.step_count() == 6);
  CHECK(run.warnings.empty());  // nothing guessed, no orphan, clocks aligned by 11 common ends
  const traces::MeasuredStep& step = *run.chain();
  const std::string kReduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)";
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Program& p = step.graph->program_of(static_cast<std::int32_t>(rank));
    const auto& gemm = span_of(step, rank, "gemm");
    CHECK(ticks(gemm.end) - ticks(gemm.begin) == (rank == 0 ? 200 : 300) * 1'000'000LL);
    const Op& reduce = p.ops[span_of(step, rank, kReduce).ref.op];
    CHECK(reduce.kind == OpKind::kAllReduce);
    CHECK(reduce.communicator >= 0);
    // The all-reduce waits for the gemm, the optimizer for the second all-reduce.
    CHECK(p.waits_of(reduce).size() == 1);
    CHECK(p.waits_of(p.ops[span_of(step, rank, "optimizer").ref.op]).size() == 1);
  }
  // Rank 1 comes last to the first all-reduce, 322 us into a step; its transfer ends at 460 us on
  // both.
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const OpSpan& first = span_of(step, rank, kReduce);
    CHECK(ticks(first.end) - ticks(first.ready) == (460 - 322) * 1'000'000LL);
    CHECK(ticks(first.ready) - ticks(first.begin) == (rank == 0 ? 100 : 0) * 1'000'000LL);
  }
  // The host waited for the device in each synchronisation: from 90 us to the optimizer's end, 700.
  CHECK(step.ranks[0].stripped == 6 * 610 * 1'000'000LL);
}

TEST_CASE("host time lost to a full launch queue is stripped", "[profiler][cupti]") {
  Records made;
  made.range("step 0", 100, 1000);
  made.launch("long", kCompute, 110, 120, 900, 1);
  made.api(Records::kLaunch, 200, 700, 2);  // 500 us, of which 450 in a full queue
  made.overhead(CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL, 210, 660, 2);
  made.kernel("next", kCompute, 900, 950, 2);
  const traces::MeasuredRun run = traces::measured_run(made.parse());
  REQUIRE(run.steps.size() == 1);
  CHECK(run.steps[0].ranks[0].stripped == 450 * 1'000'000LL);
}

TEST_CASE("a host that waits for an event waits for the work before its record",
          "[profiler][cupti]") {
  Records made;
  made.range("step 0", 100, 2000);
  made.launch("early", kCompute, 110, 120, 300, 1);
  made.api(Records::kRecordEvent, 116, 118, 2);
  made.recorded(1, 50, kCompute, 2);
  made.launch("late", kNccl, 120, 130, 500, 3);
  made.api(Records::kEventSync, 130, 510, 4);  // returned late: the host was scheduled away
  made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, 130, 510, 4,
            CUPTI_SYNCHRONIZATION_INVALID_VALUE, 1, 50);
  const traces::MeasuredRun run = traces::measured_run(made.parse());
  // It waited for "early" alone, from 130 to 300 us.
  CHECK(run.steps.at(0).ranks[0].stripped == 170 * 1'000'000LL);
}

}  // namespace
}  // namespace stepcast::profiler::cupti
