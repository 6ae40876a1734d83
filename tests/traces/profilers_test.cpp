// Exports of Nsight Systems, rocprofv3 and XLA, in small: every time and join known.
#include <sqlite3.h>

#include <map>

#include "core/error.h"
#include "tests/traces/shared_traces.h"
#include "traces/input/wire.h"
#include "traces/measured_step.h"
#include "traces/open_trace.h"

using namespace stepcast;
using namespace stepcast::traces;
using Catch::Contains;
using test::Folder;

namespace {

/// One process: a pushed range, a launch with its kernel, a copy, a collective's kernel, a wait.
constexpr const char* kTables = R"sql(
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
  contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER, gridX INTEGER,
  gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
  staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
  contextId INTEGER, streamId INTEGER, correlationId INTEGER, bytes INTEGER, copyKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER,
  contextId INTEGER, streamId INTEGER, correlationId INTEGER, syncType INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
  globalTid INTEGER, textId INTEGER);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'ampere_sgemm_128x64'),
  (3, 'ncclDevKernel_AllReduce_Sum_f32'), (4, 'cudaMemcpyAsync_v3020'),
  (5, 'cudaDeviceSynchronize_v3020'), (6, 'iteration');
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '');
INSERT INTO NVTX_EVENTS VALUES (1000, 90000, 59, NULL, 0x700000B0000C, 6);
INSERT INTO NVTX_EVENTS VALUES (1000, NULL, 34, 'a mark', 0x700000B0000C, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (2000, 7003, 0, 0x700000B0000C, 11, 1, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (9000, 9500, 0, 0x700000B0000C, 12, 4, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10000, 14000, 0, 0x700000B0000C, 13, 1, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (20000, 80000, 0, 0x700000B0000C, 14, 5, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
  VALUES (8000, 30001, 0, 1, 7, 11, 0x700000000000, 2, 2, 32, 8, 2, 1, 128, 1, 1, 1024, 24);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
  VALUES (40000, 79000, 0, 1, 20, 13, 0x700000000000, 3, 3, 96, 24, 1, 1, 512, 1, 1, 0, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (31000, 32000, 0, 1, 7, 12, 4096, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (20500, 79500, 0, 1, 4294967295, 14, 4);
)sql";

std::filesystem::path database(const Folder& folder, const std::string& sql) {
  const std::filesystem::path file = folder.path() / "report.sqlite";
  std::filesystem::remove(file);
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(file.c_str(), &db) == SQLITE_OK);
  const int state = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  const std::string message = sqlite3_errmsg(db);
  sqlite3_close(db);
  INFO(message);
  REQUIRE(state == SQLITE_OK);
  return file;
}

EventId event_named(const Recording& r, std::string_view name) {
  const Events& e = r.ranks[0].events;
  for (EventId i = 0; i < e.size(); ++i) {
    if (r.names.view(e.name[i]) == name) {
      return i;
    }
  }
  return kNoEvent;
}

/// For a kernel "gemm" launched by a call, on its stream.
void check_joined(const Recording& r, std::string_view kernel, std::string_view call) {
  const Events& e = r.ranks[0].events;
  const EventId k = event_named(r, kernel);
  REQUIRE(k != kNoEvent);
  REQUIRE(e.link[k] != kNoEvent);
  CHECK(r.names.view(e.name[e.link[k]]) == call);
  CHECK(e.category[k] == EventCategory::kKernel);
  CHECK(r.ranks[0].lanes[e.lane[k]].stream == 7);
}

/// Two dispatches, a copy and a range, as rocprofv3 writes them.
constexpr const char* kRocprof = R"({"rocprofiler-sdk-tool": [{
"metadata": {"pid": 11},
"agents": [{"id": {"handle": 900}, "type": 1, "name": "AMD EPYC"},
           {"id": {"handle": 901}, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X"}],
"kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "Cijk_gemm"},
                   {"kernel_id": 4, "formatted_kernel_name": "ncclDevKernel_Generic"}],
"strings": {"buffer_records": [{"kind": "NONE", "operations": []},
                               {"kind": "HIP_RUNTIME_API", "operations": ["hipMalloc", "hipLaunchKernel", "hipMemcpyAsync"]}],
            "marker_api": [{"key": 50, "value": "iteration"}]},
"buffer_records": {
 "hip_api": [{"kind": 1, "operation": 1, "thread_id": 12, "correlation_id": {"internal": 21}, "start_timestamp": 2000, "end_timestamp": 7003},
             {"kind": 1, "operation": 2, "thread_id": 12, "correlation_id": {"internal": 22}, "start_timestamp": 9000, "end_timestamp": 9500},
             {"kind": 1, "operation": 1, "thread_id": 12, "correlation_id": {"internal": 23}, "start_timestamp": 10000, "end_timestamp": 14000}],
 "marker_api": [{"kind": 0, "operation": 0, "thread_id": 12, "correlation_id": {"internal": 50}, "start_timestamp": 1000, "end_timestamp": 90000}],
 "kernel_dispatch": [
  {"correlation_id": {"internal": 21}, "start_timestamp": 8000, "end_timestamp": 30001, "stream_id": {"handle": 7},
   "dispatch_info": {"agent_id": {"handle": 901}, "queue_id": {"handle": 1}, "kernel_id": 3, "group_segment_size": 1024,
                     "workgroup_size": {"x": 256, "y": 1, "z": 1}, "grid_size": {"x": 2048, "y": 2, "z": 1}}},
  {"correlation_id": {"internal": 23}, "start_timestamp": 40000, "end_timestamp": 79000,
   "dispatch_info": {"agent_id": {"handle": 901}, "queue_id": {"handle": 2}, "kernel_id": 4,
                     "workgroup_size": {"x": 512, "y": 1, "z": 1}, "grid_size": {"x": 512, "y": 1, "z": 1}}}],
 "memory_copy": [{"correlation_id": {"internal": 22}, "start_timestamp": 31000, "end_timestamp": 32000, "bytes": 4096,
                  "stream_id": {"handle": 7}, "src_agent_id": {"handle": 900}, "dst_agent_id": {"handle": 901}}]}}]})";

std::string message(std::uint32_t field, const std::string& bytes) {
  std::string text;
  traces::internal::put_bytes(text, field, bytes);
  return text;
}
std::string integer(std::uint32_t field, std::uint64_t value) {
  std::string text;
  traces::internal::put_integer(text, field, value);
  return text;
}

/// A plane of XSpace under construction (xplane.proto: name 2, lines 3, names of events 4 and of
/// stats 5, stats 6).
class PlaneMaker {
 public:
  explicit PlaneMaker(std::string name) : name_(std::move(name)) {}
  /// XStat: the name's id 1, a number 3, a text 5 or a reference to a text 7.
  std::string stat(const std::string& name, std::uint64_t number) {
    return integer(1, id(stats_, name)) + integer(3, number);
  }
  std::string text(const std::string& name, const std::string& value) {
    return integer(1, id(stats_, name)) + message(5, value);
  }
  std::string reference(const std::string& name, const std::string& value) {
    return integer(1, id(stats_, name)) + integer(7, id(stats_, value));
  }
  /// XEvent: the name's id 1, picoseconds of offset 2 and duration 3, stats 4.
  std::string event(const std::string& name, std::uint64_t begin_ns, std::uint64_t end_ns,
                    const std::vector<std::string>& stats) {
    std::string e = integer(1, id(events_, name)) + integer(2, begin_ns * 1000) +
                    integer(3, (end_ns - begin_ns) * 1000);
    for (const std::string& s : stats) {
      e += message(4, s);
    }
    return message(4, e);
  }
  /// XLine: id 1, name 2, nanoseconds of its start 3, events 4.
  void line(std::uint64_t number, const std::string& name, std::uint64_t start,
            const std::string& events) {
    lines_ += message(3, integer(1, number) + message(2, name) + integer(3, start) + events);
  }
  void own(const std::string& stat) { own_ += message(6, stat); }
  [[nodiscard]] std::string plane() const {
    std::string names;
    for (const auto& [table, field] : {std::pair(&events_, 4U), std::pair(&stats_, 5U)}) {
      for (const auto& [name, number] : *table) {
        names +=
            message(field, integer(1, number) + message(2, integer(1, number) + message(2, name)));
      }
    }
    return message(1, integer(1, 9) + message(2, name_) + lines_ + names + own_);
  }

 private:
  using Ids = std::map<std::string, std::uint64_t>;
  static std::uint64_t id(Ids& ids, const std::string& name) {
    return ids.try_emplace(name, ids.size() + 1).first->second;
  }
  std::string name_, lines_, own_;
  Ids events_, stats_;
};

/// Two numbered steps: in each a call of the driver, with a kernel, then a copy and a fill; lines
/// count from the start of the profile.
std::string xspace() {
  PlaneMaker host("/host:CPU");
  PlaneMaker gpu("/device:GPU:1");
  std::string python, main, stream7, stream8, derived;
  for (std::uint64_t s = 0; s < 2; ++s) {
    const std::uint64_t t = s * 100000;
    const std::uint64_t c = 10 * (s + 1);
    main += host.event("train", t + 1000, t + 90000, {host.stat("step_num", s + 4)});
    main += host.event("PjitFunction(step)", t + 1500, t + 9000, {});
    main += host.event("cuLaunchKernel", t + 2000, t + 7003,
                       {host.stat("device_id", 1), host.stat("correlation_id", c)});
    main += host.event("cuMemcpyDtoHAsync_v2", t + 9000, t + 9500,
                       {host.stat("correlation_id", c + 1)});
    python += host.event("$train.py:12 step", t + 900, t + 90100, {});
    stream7 += gpu.event("loop_fusion(float*)", t + 8000, t + 30001,
                         {gpu.stat("correlation_id", c), gpu.text("context_id", "$$1"),
                          gpu.reference("kernel_details",
                                        "regs:32 static_shared:1024 dynamic_shared:24 grid:8,2,1 "
                                        "block:128,1,1 occ_pct:50"),
                          gpu.reference("hlo_op", "loop_fusion")});
    stream8 +=
        gpu.event("MemcpyD2H", t + 31000, t + 32000,
                  {gpu.stat("correlation_id", c + 1),
                   gpu.reference("memcpy_details",
                                 "kind_src:device kind_dst:pinned size:4096 dest:0 async:1")});
    stream8 += gpu.event("Memset", t + 33000, t + 33500,
                         {gpu.reference("Memset_details", "kind:device num_bytes:64 async:1")});
    derived += gpu.event("jit_step", t + 8000, t + 32000, {});
  }
  host.line(77, "python", 0, python + main);
  gpu.line(7, "Stream #7(Compute)", 0, stream7);
  gpu.line(8, "Stream #8(MemcpyD2H,Memset)", 0, stream8);
  gpu.line(9, "XLA Modules", 0, derived);
  gpu.own(gpu.text("gpu_device_name", "NVIDIA H100 80GB HBM3"));
  PlaneMaker task("Task Environment");
  task.own(task.stat("profile_start_time", 1700000000000000000));
  PlaneMaker metadata("/host:metadata");
  return metadata.plane() + gpu.plane() + host.plane() + task.plane();
}

}  // namespace

TEST_CASE("an export of Nsight Systems is calls, kernels, copies, waits and ranges, joined",
          "[traces][nsys]") {
  const Folder folder;
  const Recording r = open_trace(database(folder, kTables));
  CHECK(r.format == "nsys");
  CHECK(r.absolute);
  CHECK(r.origin.count() == 1700000000000001000);  // the range begins first
  const RankRecording& rank = r.ranks.front();
  CHECK(rank.devices == std::vector<std::string>{"NVIDIA H100 80GB HBM3"});
  check_joined(r, "ampere_sgemm_128x64", "cudaLaunchKernel_v7000");
  const EventId k = event_named(r, "ampere_sgemm_128x64");
  CHECK(rank.events.begin[k].count() == 7000);
  CHECK(rank.events.duration[k].count() == 22001);
  const LaunchInfo& launch = rank.launches[static_cast<std::size_t>(rank.events.detail[k])];
  CHECK(launch.grid == std::array<std::int32_t, 3>{8, 2, 1});
  CHECK(launch.shared_memory == 1048);
  CHECK(launch.graph == -1);  // the export has no such column
  CHECK(rank.count(EventCategory::kCollective) == 1);
  CHECK(rank.copies.front().bytes == 4096);
  const EventId range = event_named(r, "iteration");
  REQUIRE(range != kNoEvent);
  CHECK(rank.events.category[range] == EventCategory::kUserRange);
  const Lane& thread = rank.lanes[rank.events.lane[range]];
  CHECK(thread.process == 0x700000 % 0x1000000);
  CHECK(thread.thread == 0xB0000C);
  CHECK(event_named(r, "a mark") == kNoEvent);
  // The wait is stripped: 20 us to the end of the collective at 79.
  const MeasuredRun run = measured_run(r, "iteration");
  REQUIRE(run.steps.size() == 1);
  CHECK(run.steps[0].ranks[0].stripped == (79000 - 20000) * 1000);
}

TEST_CASE("exports of other versions of Nsight Systems lack columns, or hold graphs as a whole",
          "[traces][nsys]") {
  // The columns of 2024.3's table of graphs, recorded as a whole unless asked otherwise; kernels as
  // few columns as tools that read exports rely on; a device that CUDA_VISIBLE_DEVICES has moved.
  const Folder folder;
  const Recording r = open_trace(database(folder, R"sql(
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
  contextId INTEGER, streamId INTEGER, correlationId INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER,
  contextId INTEGER, greenContextId INTEGER, streamId INTEGER, correlationId INTEGER,
  globalPid INTEGER, graphId INTEGER, graphExecId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
  globalTid INTEGER);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'sgemm'),
  (3, 'cudaGraphLaunch_v10000');
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA T4'), (1, 'NVIDIA H100 80GB HBM3');
INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 99, ''), (1, 0, 11, ''), (0, 1, 11, '');
INSERT INTO NVTX_EVENTS VALUES (1000, 90000, 59, 'iteration', 0x00000B00000C);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (2000, 7003, 0x00000B00000C, 11, 1),
  (9000, 9500, 0x00000B00000C, 12, 3);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (8000, 30001, 0, 1, 7, 11, 2);
INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (31000, 79000, 0, 1, 0, 7, 12, 0x00000B000000, 5, 6);
)sql"));
  const RankRecording& rank = r.ranks.front();
  CHECK(rank.devices == std::vector<std::string>{"NVIDIA H100 80GB HBM3", "NVIDIA T4"});
  check_joined(r, "sgemm", "cudaLaunchKernel_v7000");
  check_joined(r, "CUDA graph 5", "cudaGraphLaunch_v10000");
  const EventId k = event_named(r, "sgemm");
  const LaunchInfo& launch = rank.launches[static_cast<std::size_t>(rank.events.detail[k])];
  CHECK(launch.grid == std::array<std::int32_t, 3>{0, 0, 0});
  CHECK(launch.shared_memory == -1);
  const EventId graph = event_named(r, "CUDA graph 5");
  CHECK(rank.events.duration[graph].count() == 48000);
  CHECK(rank.launches[static_cast<std::size_t>(rank.events.detail[graph])].graph == 5);
  CHECK(rank.oddities[ParseWarning::kDownsampled].count == 1);
  CHECK_THAT(rank.oddities[ParseWarning::kDownsampled].example,
             Contains("--cuda-graph-trace=node"));
  CHECK(measured_run(r, "iteration").steps.size() == 1);

  CHECK_THROWS_WITH(
      open_trace(database(folder, "CREATE TABLE rocpd_kernel_dispatch_0 (id INTEGER);")),
      Contains("rocprofv3 --output-format json"));
}

TEST_CASE("a report of several processes is a rank for each that used a device", "[traces][nsys]") {
  // The second process, 0x700001, uses device 0 and so is rank 0; 0x700002 has calls alone.
  const Folder folder;
  const Recording r = open_trace(database(folder, std::string(kTables) + R"sql(
UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1;
ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY ADD COLUMN globalPid INTEGER;
ALTER TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ADD COLUMN globalPid INTEGER;
UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET globalPid = 0x700000000000;
UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET globalPid = 0x700000000000;
INSERT INTO NVTX_EVENTS VALUES (1500, 80000, 59, NULL, 0x700001B00001, 6);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (3000, 4000, 0, 0x700001B00001, 11, 1, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (3000, 4000, 0, 0x700002B00001, 11, 1, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
  VALUES (9000, 29000, 0, 1, 7, 11, 0x700001000000, 2, 2, 32, 8, 2, 1, 128, 1, 1, 1024, 24);
)sql"));
  REQUIRE(r.ranks.size() == 2);
  CHECK_THAT(r.ranks[0].source, Contains("process 7340033"));
  CHECK(r.ranks[0].count(EventCategory::kKernel) == 1);
  CHECK(r.ranks[0].count(EventCategory::kRuntimeCall) == 1);
  CHECK(r.ranks[1].count(EventCategory::kKernel) == 1);
  CHECK(r.ranks[1].count(EventCategory::kCollective) == 1);
  CHECK(r.ranks[1].count(EventCategory::kRuntimeCall) == 4);
  for (const RankRecording& rank : r.ranks) {
    CHECK(rank.count(EventCategory::kUserRange) == 1);
    CHECK(rank.oddities[ParseWarning::kOrphan].count == 0);
  }
}

TEST_CASE("databases that are no report are refused", "[traces][nsys][malformed]") {
  const Folder folder;
  CHECK_THROWS_WITH(open_trace(database(folder, "CREATE TABLE other (id INTEGER);")),
                    Contains("expected an export of Nsight Systems"));
  // A view that never ends is no table.
  CHECK_THROWS_WITH(
      open_trace(database(folder,
                          "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                          "SELECT i + 1 FROM n) SELECT i AS start FROM n;")),
      Contains("expected an export of Nsight Systems"));
  const std::string whole = test::text_of(database(folder, kTables));
  for (const std::size_t kept : {std::size_t{100}, whole.size() / 3, whole.size() - 4096}) {
    CHECK_THROWS_AS(open_trace(folder.file("cut.sqlite", whole.substr(0, kept))), InputError);
  }
  for (std::size_t at = 100; at < whole.size(); at += 97) {  // damaged: rejected or read, no more
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    try {
      (void)open_trace(folder.file("damaged.sqlite", damaged));
    } catch (const InputError&) {
    }
  }
}

TEST_CASE("what rocprofv3 writes is calls, dispatches, copies and ranges, joined",
          "[traces][rocprof]") {
  const Folder folder;
  const Recording r = open_trace(folder.file("results.json", kRocprof));
  CHECK(r.format == "rocprofv3");
  const RankRecording& rank = r.ranks.front();
  CHECK(rank.devices == std::vector<std::string>{"AMD Instinct MI300X"});
  check_joined(r, "Cijk_gemm", "hipLaunchKernel");
  const EventId k = event_named(r, "Cijk_gemm");
  const LaunchInfo& launch = rank.launches[static_cast<std::size_t>(rank.events.detail[k])];
  CHECK(launch.grid == std::array<std::int32_t, 3>{8, 2, 1});  // 2048 work items of 256
  CHECK(launch.shared_memory == 1024);
  CHECK(rank.count(EventCategory::kCollective) == 1);
  const EventId copy = event_named(r, "Memcpy HtoD");
  REQUIRE(copy != kNoEvent);
  CHECK(rank.copies[static_cast<std::size_t>(rank.events.detail[copy])].bytes == 4096);
  CHECK(r.names.view(rank.events.name[rank.events.link[copy]]) == "hipMemcpyAsync");
  CHECK(measured_run(r, "iteration").steps.size() == 1);

  // With calls of HSA recorded, work names those: their ancestor is the call of HIP around them.
  // Marks and ranges of the process are no nested ranges.
  std::string with_hsa = kRocprof;
  const auto put = [&with_hsa](std::string_view before, std::string_view text) {
    with_hsa.insert(with_hsa.find(before), text);
  };
  put(R"("marker_api": [{"kind": 0)",
      R"("hsa_api": [{"kind": 2, "operation": 0, "thread_id": 12, "correlation_id": {"internal": 31, "ancestor": 30}, "start_timestamp": 3100, "end_timestamp": 3200},
{"kind": 2, "operation": 0, "thread_id": 12, "correlation_id": {"internal": 30, "ancestor": 21}, "start_timestamp": 3000, "end_timestamp": 3300}],)");
  put(R"({"kind": "HIP_RUNTIME_API")", R"({"kind": "MARKER", "operations": ["roctxMarkA"]},)");
  const std::string launched = R"({"correlation_id": {"internal": 21}, "start_timestamp": 8000)";
  with_hsa.replace(with_hsa.find(launched), launched.size(),
                   R"({"correlation_id": {"internal": 31}, "start_timestamp": 8000)");
  for (const char* kind : {R"("kind": 1, "operation": 1)", R"("kind": 1, "operation": 2)"}) {
    for (std::size_t at = 0; (at = with_hsa.find(kind, at)) != std::string::npos;) {
      with_hsa[at + 8] = '2';  // names of HIP stand one place later now
    }
  }
  put(R"({"kind": 0, "operation": 0, "thread_id": 12, "correlation_id": {"internal": 50})",
      R"({"kind": 1, "operation": 0, "thread_id": 12, "correlation_id": {"internal": 51}, "start_timestamp": 500, "end_timestamp": 500},)");
  put(R"({"key": 50)", R"({"key": 51, "value": "a mark"},)");
  const Recording deep = open_trace(folder.file("hsa.json", with_hsa));
  check_joined(deep, "Cijk_gemm", "hipLaunchKernel");
  CHECK(event_named(deep, "a mark") == kNoEvent);
  CHECK(event_named(deep, "iteration") != kNoEvent);

  const std::string text = kRocprof;
  CHECK_THROWS_WITH(open_trace(folder.file("cut.json", text.substr(0, text.size() / 2))),
                    Contains("byte "));
  // Launchers are processes without records.
  std::string two = kRocprof;
  two.insert(two.rfind("]}"), R"(, {"metadata": {"pid": 12}, "buffer_records": {"hip_api": []}})");
  CHECK(open_trace(folder.file("two.json", two)).ranks.size() == 1);
  std::string ranks = kRocprof;
  const std::string process = ranks.substr(ranks.find("[{") + 1);
  ranks.insert(ranks.rfind("]}"), ", " + process.substr(0, process.rfind("]}")));
  const Recording both = open_trace(folder.file("ranks.json", ranks));
  REQUIRE(both.ranks.size() == 2);
  CHECK(both.ranks[0].events.size() == both.ranks[1].events.size());
  CHECK_THROWS_WITH(open_trace(folder.file("none.json", R"({"rocprofiler-sdk-tool": [{}]})")),
                    Contains("was a device profiled?"));
}

TEST_CASE("dispatches without the API are one step of the device alone", "[traces][rocprof]") {
  // rocprofv3 --kernel-trace: the first kernel begins at 8 us, the last ends at 79.
  std::string text = kRocprof;
  for (const char* list : {"\"hip_api\": [", "\"marker_api\": [{\"kind\""}) {
    const std::size_t at = text.find(list);
    const std::size_t open = text.find('[', at), close = text.find("]", open);
    text.erase(open + 1, close - open - 1);
  }
  const Folder folder;
  const MeasuredRun run = measured_run(open_trace(folder.file("kernels.json", text)));
  REQUIRE(run.steps.size() == 1);
  CHECK(run.steps[0].wall == 71'000'000);
  CHECK(run.steps[0].ranks[0].spans.size() == 3);
}

TEST_CASE("a profile of XLA is calls, kernels, copies, ranges, frames and numbered steps, joined",
          "[traces][xplane]") {
  const Folder folder;
  const std::string bytes = xspace();
  const Recording r = open_trace(folder.file("host.xplane.pb", bytes));
  CHECK(r.format == "xplane");
  CHECK(r.absolute);
  CHECK(r.origin.count() == 1700000000000000900);  // the frame of Python begins first
  const RankRecording& rank = r.ranks.front();
  CHECK(rank.devices == std::vector<std::string>{"", "NVIDIA H100 80GB HBM3"});
  check_joined(r, "loop_fusion(float*)", "cuLaunchKernel");
  const EventId k = event_named(r, "loop_fusion(float*)");
  CHECK(rank.events.begin[k].count() == 8000 - 900);
  CHECK(rank.events.duration[k].count() == 22001);
  CHECK(rank.lanes[rank.events.lane[k]].device == 1);
  const LaunchInfo& launch = rank.launches[static_cast<std::size_t>(rank.events.detail[k])];
  CHECK(launch.grid == std::array<std::int32_t, 3>{8, 2, 1});
  CHECK(launch.block == std::array<std::int32_t, 3>{128, 1, 1});
  CHECK(launch.registers == 32);
  CHECK(launch.shared_memory == 1048);
  const EventId copy = event_named(r, "Memcpy DtoH");
  REQUIRE(copy != kNoEvent);
  CHECK(rank.copies[static_cast<std::size_t>(rank.events.detail[copy])].bytes == 4096);
  CHECK(rank.count(EventCategory::kMemset) == 2);
  CHECK(rank.count(EventCategory::kPythonFunction) == 2);
  CHECK(rank.count(EventCategory::kUserRange) == 4);
  CHECK(rank.oddities[ParseWarning::kUnreadRecord].count == 2);  // of the derived line
  REQUIRE(rank.steps.size() == 2);
  CHECK(rank.steps[0].number == 4);
  CHECK(r.names.view(rank.events.name[rank.steps[1].event]) == "train");
  CHECK(rank.steps[1].begin.count() == 101000 - 900);
  CHECK(measured_run(r, "").step_count() == 2);

  PlaneMaker cpu("/host:CPU");
  cpu.line(1, "python", 0, cpu.event("train", 0, 10, {}));
  CHECK_THROWS_WITH(open_trace(folder.file("cpu.xplane.pb", cpu.plane())),
                    Contains("no work of a GPU, only planes /host:CPU"));
  for (std::size_t kept = 1; kept < bytes.size(); kept += 13) {
    CHECK_THROWS_AS(open_trace(folder.file("cut.xplane.pb", bytes.substr(0, kept))), InputError);
  }
  for (std::size_t at = 40; at < bytes.size(); at += 3) {  // damaged: rejected or read, no more
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    try {
      (void)open_trace(folder.file("damaged.xplane.pb", damaged));
    } catch (const InputError&) {
    }
  }
}

TEST_CASE("a profile of XLA on two devices without calls is one step of both", "[traces][xplane]") {
  std::string planes;
  for (const std::string device : {"4", "6"}) {
    PlaneMaker gpu("/device:GPU:" + device);
    const std::uint64_t at = device == "4" ? 1000 : 3000;
    const auto kernel = [&gpu](const char* name, std::uint64_t begin, std::uint64_t end) {
      return gpu.event(name, begin, end, {gpu.text("kernel_details", "grid:8,2,1 block:128,1,1")});
    };
    gpu.line(7, "Stream #7(Compute)", 0,
             kernel("fusion", at, at + 20000) + kernel("gemm", at + 30000, at + 60000));
    gpu.line(9, "Steps", 0, gpu.event("1", at, at + 60000, {}));
    planes += gpu.plane();
  }
  const Folder folder;
  const Recording r = open_trace(folder.file("two.xplane.pb", planes));
  REQUIRE(r.ranks.size() == 1);
  CHECK(r.ranks[0].count(EventCategory::kKernel) == 4);
  const MeasuredRun run = measured_run(r);
  CHECK(run.step_count() == 1);
  CHECK(run.steps[0].wall == 62'000'000);
  CHECK(run.steps[0].ranks[0].spans.size() == 4);
}
