#include <catch2/catch.hpp>

#include "core/graph/program_builder.h"
#include "profiler/host/host_recorder.h"
#include "profiler/host/recording_cost.h"

using namespace stepcast;

TEST_CASE("the recorder keeps every op of the promised steps and counts what does not fit",
          "[profiler]") {
  ProgramBuilder b;
  const auto s = b.begin_segment("step");
  b.op(OpKind::kFill, "a", {8});
  b.op(OpKind::kFill, "b", {8}).on("second");
  b.end_segment();
  b.call(s);
  const Program p = std::move(b).finish();
  profiler::HostRecorder recorder(3, p, 2);
  for (std::int32_t step = 0; step < 4; ++step) {  // two steps more than promised
    recorder.on_step_begin(3, step, SimTime{step * 100});
    for (std::uint32_t op = 0; op < 2; ++op) {
      recorder.on_op({3,
                      step,
                      {0, op},
                      SimTime{step * 100},
                      SimTime{step * 100 + 1},
                      SimTime{step * 100 + 1},
                      SimTime{step * 100 + 5},
                      0});
    }
    recorder.on_step_end(3, step, SimTime{step * 100 + 50});
  }
  const traces::RankTrace t = recorder.finish();
  CHECK(t.rank == 3);
  CHECK(t.ops.size() == 4);  // 2 steps x 2 ops
  CHECK(t.dropped == 4);     // the other 2 steps
  REQUIRE(t.steps.size() == 4);
  CHECK(t.steps[1].end == SimTime{150});
}

TEST_CASE("reading the clock costs nanoseconds, and something", "[profiler]") {
  const profiler::RecordingCost cost = profiler::recording_cost();
  CHECK(cost.clock > nanoseconds(1));
  CHECK(cost.clock < microseconds(20));  // a clock that is a system call, on a busy machine
  CHECK(cost.store >= Seconds{});
  CHECK(cost.store < microseconds(20));
}
