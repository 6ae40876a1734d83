#include <catch2/catch.hpp>

#include "profiler/capture/device_times.h"
#include "traces/events/rank_builder.h"

namespace stepcast::profiler {
namespace {

using traces::Nanoseconds;

constexpr std::int64_t kEpoch = 1000;  // ns of the recording's clock at time 0 of the trace

/// Adds a launch at `called` and its work, in ns of the trace.
void launch(traces::RankBuilder& b, std::int64_t id, std::int64_t external, std::int64_t called,
            std::int64_t begin, std::int64_t end) {
  b.add({.begin = Nanoseconds(called + kEpoch),
         .duration = Nanoseconds(1),
         .name = b.names().intern("cudaLaunchKernel"),
         .category = traces::EventCategory::kRuntimeCall,
         .lane = b.host_lane(1, 1),
         .correlation = id,
         .external = external});
  b.add({.begin = Nanoseconds(begin + kEpoch),
         .duration = Nanoseconds(end - begin),
         .name = b.names().intern("k"),
         .category = traces::EventCategory::kKernel,
         .lane = b.stream_lane(0, 1, 7),
         .correlation = id,
         .external = external});
}

TEST_CASE("ops get the span of the device work they launched in their step", "[profiler]") {
  const OpRef gemm{0, 4}, other{1, 4}, empty{1, 5};
  traces::Recording recording;
  traces::RankBuilder b(recording.names, "rank");
  const auto id = [](OpRef ref) { return static_cast<std::int64_t>(op_id(ref)); };
  launch(b, 1, id(gemm), 50, 60, 70);     // before the first step
  launch(b, 2, id(gemm), 110, 120, 150);  // step 3: two kernels
  launch(b, 3, id(gemm), 115, 150, 180);
  launch(b, 4, id(other), 190, 230, 260);  // launched in step 3, runs into step 4
  launch(b, 5, id(gemm), 210, 260, 300);   // step 4
  launch(b, 6, -1, 220, 300, 310);
  recording.origin = Nanoseconds(0);
  recording.ranks.push_back(std::move(b).finish());
  recording.ranks[0].oddities.add(
      traces::ParseWarning::kDropped, [] { return std::string(); }, 2);

  Program program;
  program.streams = {"compute"};
  program.ops.resize(6);
  traces::RankTrace rank;
  const auto ns = [](std::int64_t t) { return SimTime{t * 1000}; };
  rank.steps = {{3, ns(100), ns(200)}, {4, ns(200), ns(300)}};
  const auto op = [&rank](std::int32_t step, OpRef ref) {
    OpSpan span;
    span.step = step;
    span.ref = ref;
    rank.ops.push_back(span);
  };
  op(3, gemm);
  op(3, other);
  op(3, empty);
  op(4, gemm);
  const DeviceTimes found = take_device_times(rank, program, recording, Nanoseconds(kEpoch));
  CHECK(found.ops == 3);
  CHECK(found.without == 1);
  CHECK(found.unnamed == 1);
  CHECK(rank.dropped == 2);
  CHECK(rank.ops[0].issued == ns(110));
  CHECK(rank.ops[0].begin == ns(120));
  CHECK(rank.ops[0].ready == ns(120));
  CHECK(rank.ops[0].end == ns(180));
  CHECK(rank.ops[1].end == ns(260));
  CHECK(rank.ops[2].begin == ns(260));  // no device work: after the op before it
  CHECK(rank.ops[2].end == ns(260));
  CHECK(rank.ops[3].begin == ns(260));
}

}  // namespace
}  // namespace stepcast::profiler
