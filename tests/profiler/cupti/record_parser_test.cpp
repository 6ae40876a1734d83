#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "made_records.h"
#include "traces/native/native_trace.h"

namespace stepcast::profiler::cupti {
namespace {

using made::Records;
using traces::EventCategory;
using traces::EventId;
using traces::kNoEvent;
using traces::ParseWarning;
using traces::RankRecording;
using traces::Recording;
using traces::SyncInfo;

EventId find(const Recording& r, std::string_view name, std::size_t nth = 0) {
  const auto& e = r.ranks.front().events;
  for (EventId i = 0; i < e.size(); ++i) {
    if (r.names.view(e.name[i]) == name && nth-- == 0) {
      return i;
    }
  }
  return kNoEvent;
}

const SyncInfo& sync_of(const RankRecording& rank, EventId e) {
  return rank.syncs.at(static_cast<std::size_t>(rank.events.detail.at(e)));
}

TEST_CASE("kernels are joined to their launches by correlation, in any order",
          "[profiler][cupti]") {
  const bool backwards = GENERATE(false, true);
  Records made;
  made.launch("_Z4gemmi", 7, 10, 30, 50, 1);
  made.launch("norm", 7, 20, 50, 60, 2);
  made.api(Records::kCopyAsync, 30, 34, 3);
  made.copy(4096, 13, 40, 45, 3);
  const Recording r = made.parse({}, {}, backwards);
  const RankRecording& rank = r.ranks.front();
  const auto& e = rank.events;
  REQUIRE(e.size() == 6);
  const EventId gemm = find(r, "gemm(int)"), copy = find(r, "Memcpy HtoD (pinned -> device)");
  REQUIRE(gemm != kNoEvent);
  REQUIRE(copy != kNoEvent);
  CHECK(r.names.view(e.name[e.link[gemm]]) == "cudaLaunchKernel_v7000");
  CHECK(e.link[e.link[gemm]] == gemm);
  // The first call, at 10 us, is the origin.
  CHECK(r.origin.count() == static_cast<std::int64_t>(Records::us(10)));
  CHECK(e.begin[gemm].count() == 20'000);
  CHECK(e.duration[gemm].count() == 20'000);
  CHECK(rank.copies.at(static_cast<std::size_t>(e.detail[copy])).bytes == 4096);
  // One host thread and streams 7 and 13.
  REQUIRE(rank.lanes.size() == 3);
  CHECK(rank.lanes[0].thread == Records::kThread);
  CHECK(rank.lanes[1].stream == 7);
  CHECK(rank.lanes[2].stream == 13);
  const auto& launch = rank.launches.at(static_cast<std::size_t>(e.detail[gemm]));
  CHECK(launch.grid == std::array<std::int32_t, 3>{8, 1, 1});
  CHECK(launch.block == std::array<std::int32_t, 3>{128, 1, 1});
  CHECK(launch.shared_memory == 1536);
  CHECK(launch.graph == -1);
  CHECK(r.all_oddities().total() == 0);
}

TEST_CASE("records are complete when each launch has its work, by its own number or a nested one's",
          "[profiler][cupti]") {
  const auto complete = [](const Records& made) {
    RecordParser parser("rank", &Records::api_name);
    for (const Record* record : made.all()) {
      parser.add(*record);
    }
    return parser.complete();
  };
  Records made;
  CHECK(complete(made));
  made.api(Records::kDeviceSync, 1, 9, 1);  // launches nothing
  CHECK(complete(made));
  made.api(Records::kLaunch, 10, 20, 2);
  made.api(Records::kDriverLaunch, 10, 18, 3, false);
  CHECK_FALSE(complete(made));
  SECTION("work of the runtime call") { made.kernel("k", 7, 30, 40, 2); }
  SECTION("work of the driver call") { made.kernel("k", 7, 30, 40, 3); }
  CHECK(complete(made));
  // A call before, after or on another thread does not answer for one.
  made.launch("k", 7, 50, 60, 70, 4);
  made.api(Records::kLaunch, 56, 58, 5);
  CHECK_FALSE(complete(made));
  made.kernel("k", 7, 80, 90, 5);
  CHECK(complete(made));
  made.api(Records::kLaunch, 11, 12, 6).threadId = Records::kThread + 1;
  CHECK_FALSE(complete(made));
}

TEST_CASE("a driver call inside a runtime call is that call", "[profiler][cupti]") {
  // The kernel may bear the number of either.
  const std::uint32_t of_kernel = GENERATE(1, 2);
  Records made;
  made.external(kOpIds, 77, 2);
  made.api(Records::kLaunch, 10, 20, 1);
  made.api(Records::kDriverLaunch, 12, 18, 2, false);
  made.kernel("k", 7, 30, 40, of_kernel);
  made.api(Records::kDriverLaunch, 25, 28, 3, false);  // a program's own
  made.kernel("triton", 7, 40, 50, 3);
  const Recording r = made.parse();
  const auto& e = r.ranks.front().events;
  REQUIRE(e.size() == 4);
  CHECK(r.names.view(e.name[e.link[find(r, "k")]]) == "cudaLaunchKernel_v7000");
  CHECK(e.external[find(r, "k")] == 77);
  CHECK(r.names.view(e.name[e.link[find(r, "triton")]]) == "cuLaunchKernel");
  CHECK(e.external[find(r, "triton")] == -1);
  CHECK(r.ranks.front().records.at("driver calls within runtime calls") == 1);
  CHECK(r.all_oddities().total() == 0);
}

TEST_CASE("waits are paired with records by sync id, though the event is reused",
          "[profiler][cupti]") {
  Records made;
  for (std::uint32_t turn = 0; turn < 2; ++turn) {  // event 5 each time, sync ids 900 and 901
    const std::uint32_t t = 10 + turn * 100, c = turn * 10;
    made.launch("a", 7, t, t + 10, t + 40, c + 1);
    made.api(Records::kRecordEvent, t + 6, t + 7, c + 2);
    made.recorded(5, 900 + turn, 7, c + 2);
    made.api(Records::kStreamWait, t + 8, t + 9, c + 3);
    made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, t + 8, t + 9, c + 3, 13, 5,
              900 + turn);
    made.launch("b", 13, t + 10, t + 40, t + 60, c + 4);
  }
  const Recording r = made.parse({}, {}, GENERATE(false, true));
  const RankRecording& rank = r.ranks.front();
  for (std::uint32_t turn = 0; turn < 2; ++turn) {
    const SyncInfo& wait = sync_of(rank, find(r, "stream wait event", turn));
    CHECK(wait.kind == SyncInfo::Kind::kStreamWait);
    CHECK(wait.stream == 13);
    CHECK(wait.source_stream == 7);
    CHECK(wait.event == 5);
    CHECK(wait.record_correlation == turn * 10 + 2);
  }
  CHECK(rank.count(EventCategory::kEventRecord) == 2);
  CHECK(r.all_oddities().total() == 0);
}

TEST_CASE("a wait whose record is not there is counted", "[profiler][cupti]") {
  Records made;
  made.api(Records::kStreamWait, 8, 9, 3);
  made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, 8, 9, 3, 13, 5, 1234);
  const Recording r = made.parse();
  CHECK(r.all_oddities()[ParseWarning::kUnpairedWait].count == 1);
  CHECK(sync_of(r.ranks.front(), find(r, "stream wait event")).record_correlation == -1);
}

TEST_CASE("every kind of synchronisation keeps what it waited for", "[profiler][cupti]") {
  constexpr std::uint32_t kNone = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  Records made;
  made.api(Records::kRecordEvent, 10, 11, 1);
  made.recorded(4, 50, 7, 1);
  made.api(Records::kEventSync, 12, 20, 2);
  made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, 12, 20, 2, kNone, 4, 50);
  made.api(Records::kStreamSync, 21, 30, 3);
  made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, 21, 30, 3, 7, kNone, kNone);
  made.api(Records::kDeviceSync, 31, 40, 4);
  made.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, 31, 40, 4, kNone, kNone,
            kNone);
  const Recording r = made.parse();
  const RankRecording& rank = r.ranks.front();
  const SyncInfo& event = sync_of(rank, find(r, "event synchronize"));
  CHECK(event.kind == SyncInfo::Kind::kEventSync);
  CHECK(event.source_stream == 7);
  CHECK(event.record_correlation == 1);
  const SyncInfo& stream = sync_of(rank, find(r, "stream synchronize"));
  CHECK(stream.stream == 7);
  CHECK(stream.event == -1);
  const SyncInfo& context = sync_of(rank, find(r, "context synchronize"));
  CHECK(context.kind == SyncInfo::Kind::kContextSync);
  CHECK(context.stream == -1);
  CHECK(r.all_oddities().total() == 0);
}

TEST_CASE("nodes of a CUDA graph share their launch", "[profiler][cupti]") {
  Records made;
  for (std::uint32_t turn = 0; turn < 2; ++turn) {
    const std::uint32_t t = 10 + turn * 100;
    made.api(Records::kGraphLaunch, t, t + 5, turn + 1);
    for (std::uint32_t node = 0; node < 3; ++node) {
      auto& k = made.kernel("node", 7, t + 10 + node * 10, t + 20 + node * 10, turn + 1);
      k.graphId = 6;
      k.graphNodeId = (std::uint64_t{6} << 32) + node + 1;
    }
  }
  auto& whole = made.add<GraphRecord>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  whole.start = Records::us(300);
  whole.end = Records::us(400);
  whole.graphId = 9;
  whole.contextId = Records::kContext;
  whole.streamId = 7;
  whole.correlationId = 3;
  made.api(Records::kGraphLaunch, 290, 295, 3);
  const Recording r = made.parse();
  const RankRecording& rank = r.ranks.front();
  const auto& e = rank.events;
  for (std::uint32_t i = 0; i < 6; ++i) {
    const EventId node = find(r, "node", i);
    CHECK(e.begin[e.link[node]].count() == (i / 3) * 100'000);
    const auto& launch = rank.launches.at(static_cast<std::size_t>(e.detail[node]));
    CHECK(launch.graph == 6);
    CHECK(launch.graph_node == (std::int64_t{6} << 32) + i % 3 + 1);
  }
  CHECK(rank.launches.size() == 3);  // the two launches ran the same nodes
  CHECK(e.link[find(r, "CUDA graph 9")] != kNoEvent);
  CHECK(r.all_oddities().total() == 0);
}

TEST_CASE("work launched by other threads in an op's window is the op's, unless it has an id",
          "[profiler][cupti]") {
  Records made;
  made.api(Records::kLaunch, 100, 105, 1).threadId = 77;  // NCCL's thread, within the window
  made.kernel("inside", 7, 110, 120, 1);
  made.api(Records::kLaunch, 130, 135, 2).threadId = 77;  // after it
  made.kernel("outside", 7, 140, 150, 2);
  made.api(Records::kLaunch, 106, 108, 3);
  made.kernel("named", 7, 120, 130, 3);
  auto& id = made.add<ExternalRecord>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  id.externalKind = kOpIds;
  id.externalId = 9;
  id.correlationId = 3;
  auto& node = made.kernel("node", 7, 160, 170, 2);
  node.graphId = 1;
  node.graphNodeId = 40;
  const auto at = [](std::uint64_t t) { return static_cast<std::int64_t>(Records::us(t)); };
  const traces::Recording recording = made.parse({}, {}, false, [&](RecordParser& parser) {
    parser.add(RecordParser::OpWindow{at(95), at(125), 5});
    parser.add_node(40, 6);
  });
  const traces::Events& e = recording.ranks[0].events;
  const auto external = [&](const char* name) {
    for (traces::EventId i = 0; i < e.size(); ++i) {
      if (recording.names.view(e.name[i]) == name) {
        return e.external[i];
      }
    }
    return std::int64_t{-2};
  };
  CHECK(external("inside") == 5);
  CHECK(external("outside") == -1);
  CHECK(external("named") == 9);
  CHECK(external("node") == 6);
}

TEST_CASE("records without times are counted, not used", "[profiler][cupti]") {
  Records made;
  made.launch("good", 7, 10, 30, 50, 1);
  made.api(Records::kLaunch, 20, 25, 2);
  made.kernel("never collected", 7, 0, 0, 2);
  made.kernel("never ended", 7, 60, 0, 2);
  made.kernel("backwards", 7, 80, 70, 2);
  made.api(Records::kLaunch, 0, 0, 3);
  made.marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 9, 0, "untimed", nullptr);
  const Recording r = made.parse();
  const auto odd = r.all_oddities();
  CHECK(odd[ParseWarning::kNoTime].count == 4);
  CHECK(odd[ParseWarning::kNegativeDuration].count == 1);
  CHECK(odd[ParseWarning::kLaunchWithoutWork].count == 1);
  CHECK(find(r, "good") != kNoEvent);
  CHECK(find(r, "never collected") == kNoEvent);
  CHECK(r.ranks.front().records.at("kernel") == 4);
}

TEST_CASE("ranges nest, keep their domain, and mark steps", "[profiler][cupti]") {
  Records made;
  made.range("iteration 3", 10, 100);
  made.range("forward", 20, 60);
  made.range("ncclAllReduce", 30, 40, "NCCL");
  made.range("iteration 4", 100, 200);
  made.marker(CUPTI_ACTIVITY_FLAG_MARKER_END, 99, 50, nullptr, nullptr);
  made.marker(CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, 98, 50, "mark", nullptr);
  made.marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 97, 150, "open", nullptr);
  const Recording r = made.parse();
  const RankRecording& rank = r.ranks.front();
  REQUIRE(rank.steps.size() == 2);
  CHECK(rank.steps[0].number == 3);
  CHECK(rank.steps[1].number == 4);
  CHECK(rank.steps[1].begin.count() == 90'000);
  CHECK(find(r, "forward") != kNoEvent);
  CHECK(find(r, "NCCL: ncclAllReduce") != kNoEvent);
  CHECK(rank.records.at("ranges begun before the capture") == 1);
  CHECK(rank.records.at("ranges still open") == 1);
  CHECK(rank.records.at("instants") == 1);
}

TEST_CASE("steps seen while the program ran stand for the ranges that marked them",
          "[profiler][cupti]") {
  Records made;
  made.range("ProfilerStep#8", 10, 100);
  CaptureFacts facts;
  facts.process = Records::kProcess;
  facts.steps = {{8, static_cast<std::int64_t>(Records::us(9)),
                  static_cast<std::int64_t>(Records::us(101)), Records::kThread}};
  const Recording r = made.parse(facts);
  REQUIRE(r.ranks.front().steps.size() == 1);
  CHECK(r.ranks.front().steps[0].number == 8);
  CHECK((r.ranks.front().steps[0].end - r.ranks.front().steps[0].begin).count() == 92'000);
}

TEST_CASE("a window keeps calls that begin in it, with their work, and work that runs into it",
          "[profiler][cupti]") {
  Records made;
  made.launch("long before", 7, 10, 20, 30, 1);
  made.launch("runs into", 7, 40, 90, 130, 2);
  made.launch("inside", 7, 110, 130, 140, 3);
  made.launch("drains", 7, 190, 220, 260, 4);  // launched inside, runs after: kept
  made.launch("after", 7, 210, 260, 270, 5);
  made.kernel("orphan inside", 13, 150, 160, 88);
  made.kernel("orphan after", 13, 250, 260, 89);
  made.range("before", 50, 60);
  CaptureFacts facts;
  facts.begin = static_cast<std::int64_t>(Records::us(100));
  facts.end = static_cast<std::int64_t>(Records::us(200));
  const Recording r = made.parse(facts);
  CHECK(find(r, "long before") == kNoEvent);
  CHECK(find(r, "after") == kNoEvent);
  CHECK(find(r, "orphan after") == kNoEvent);
  CHECK(find(r, "before") == kNoEvent);
  for (const char* kept : {"runs into", "inside", "drains", "orphan inside"}) {
    CHECK(find(r, kept) != kNoEvent);
  }
  CHECK(r.ranks.front().count(EventCategory::kRuntimeCall) == 2);
  // Launched outside or never seen: kept and flagged.
  CHECK(r.all_oddities()[ParseWarning::kOrphan].count == 2);
  // Two kernels, one orphan, three calls, one range.
  CHECK(r.ranks.front().records.at("outside the window") == 7);
}

TEST_CASE("overheads, devices, streams, peer copies and fills are kept; what CUPTI lost is said",
          "[profiler][cupti]") {
  Records made;
  made.api(Records::kLaunch, 10, 60, 1);
  auto& full = made.overhead(CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL, 12, 58, 1);
  full.overheadData = std::malloc(16);  // the parser's to free
  made.overhead(CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING, 70, 80, 0);
  auto& device = made.add<DeviceRecord>(CUPTI_ACTIVITY_KIND_DEVICE);
  device.id = 0;
  device.name = "Made GPU";
  device.numMultiprocessors = 12;
  auto& context = made.add<ContextRecord>(CUPTI_ACTIVITY_KIND_CONTEXT);
  context.contextId = Records::kContext;
  context.deviceId = 0;
  auto& stream = made.add<StreamRecord>(CUPTI_ACTIVITY_KIND_STREAM);
  stream.contextId = Records::kContext;
  stream.streamId = 13;
  stream.flag = CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING;
  auto& peer = made.add<PeerCopyRecord>(CUPTI_ACTIVITY_KIND_MEMCPY2);
  peer.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  peer.bytes = 64;
  peer.start = Records::us(90);
  peer.end = Records::us(95);
  peer.contextId = Records::kContext;
  peer.streamId = 13;
  peer.srcDeviceId = 0;
  peer.dstDeviceId = 3;
  auto& fill = made.add<FillRecord>(CUPTI_ACTIVITY_KIND_MEMSET);
  fill.bytes = 32;
  fill.start = Records::us(96);
  fill.end = Records::us(97);
  fill.contextId = Records::kContext;
  fill.streamId = 13;
  made.add<Record>(CUPTI_ACTIVITY_KIND_PCIE);
  CaptureFacts facts;
  facts.dropped = 17;
  facts.first = {1000, 2000};
  facts.last = {1500, 2600};
  const Recording r = made.parse(facts);
  const RankRecording& rank = r.ranks.front();
  CHECK(rank.count(EventCategory::kOverhead) == 2);
  CHECK(rank.events.correlation[find(r, "command buffer full")] == 1);
  CHECK(rank.devices == std::vector<std::string>{"Made GPU"});
  CHECK(rank.metadata.at("stream 13 of context 1") == "non-blocking, priority 0");
  CHECK(rank.metadata.at("clock.drift_ns") == "100");
  REQUIRE(rank.copies.size() == 2);
  CHECK(rank.copies[0].bytes == 64);
  CHECK(rank.copies[0].peer == 3);
  CHECK(rank.copies[1].bytes == 32);
  CHECK(r.all_oddities()[ParseWarning::kDropped].count == 17);
  CHECK(r.all_oddities()[ParseWarning::kUnreadRecord].count == 1);
}

TEST_CASE("streams of two contexts that bear one id are told apart", "[profiler][cupti]") {
  Records made;
  made.launch("first", 7, 10, 20, 30, 1);
  made.api(Records::kLaunch, 11, 16, 2);
  auto& other = made.kernel("second", 7, 40, 50, 2);
  other.contextId = 2;
  other.deviceId = 1;
  const Recording r = made.parse({}, {}, GENERATE(false, true));
  const RankRecording& rank = r.ranks.front();
  const auto& first = rank.lanes[rank.events.lane[find(r, "first")]];
  const auto& second = rank.lanes[rank.events.lane[find(r, "second")]];
  CHECK(first.stream == 7);
  CHECK(second.stream == 8);
  CHECK(second.device == 1);
}

TEST_CASE("a parsed recording survives being written and read", "[profiler][cupti]") {
  Records made;
  made.range("ProfilerStep#1", 5, 100);
  made.api(Records::kGraphLaunch, 10, 15, 1);
  auto& k = made.kernel("node", 7, 20, 30, 1);
  k.graphId = 2;
  k.graphNodeId = 3;
  made.launch("plain", 7, 20, 40, 50, 2);
  const Recording r = made.parse();
  const auto folder =
      std::filesystem::temp_directory_path() / ("stepcast_parsed_" + std::to_string(getpid()));
  traces::write_recording(folder, r);
  const Recording back = traces::read_recording(folder);
  std::filesystem::remove_all(folder);
  CHECK(back.format == "cupti");
  CHECK(back.origin == r.origin);
  REQUIRE(back.ranks.size() == 1);
  CHECK(back.ranks[0].events.begin == r.ranks[0].events.begin);
  CHECK(back.ranks[0].events.link == r.ranks[0].events.link);
  CHECK(back.ranks[0].launches == r.ranks[0].launches);
  CHECK(back.ranks[0].steps.size() == 1);
}

}  // namespace
}  // namespace stepcast::profiler::cupti
