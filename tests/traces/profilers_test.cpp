// Exports of Nsight Systems and rocprofv3, in small: every time and join known.
#include <sqlite3.h>

#include "core/error.h"
#include "tests/traces/shared_traces.h"
#include "traces/measured_step.h"
#include "traces/open_trace.h"

using namespace stepcast;
using namespace stepcast::traces;
using Catch::Contains;
using test::TemporaryFolder;

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
  VALUES (8000, 30001, 0, 1, 7, 11, 0x700000B000000, 2, 2, 32, 8, 2, 1, 128, 1, 1, 1024, 24);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
  VALUES (40000, 79000, 0, 1, 20, 13, 0x700000B000000, 3, 3, 96, 24, 1, 1, 512, 1, 1, 0, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (31000, 32000, 0, 1, 7, 12, 4096, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (20500, 79500, 0, 1, 4294967295, 14, 4);
)sql";

std::filesystem::path database(const TemporaryFolder& folder, const std::string& sql) {
  const std::filesystem::path file = folder.path / "report.sqlite";
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

/// Of a kernel "gemm" launched by a call, on its stream.
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

}  // namespace

TEST_CASE("an export of Nsight Systems is calls, kernels, copies, waits and ranges, joined",
          "[traces][nsys]") {
  const TemporaryFolder folder;
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

TEST_CASE("databases that are no report of one rank are refused", "[traces][nsys][malformed]") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(open_trace(database(folder, "CREATE TABLE rocpd_kernel (id INTEGER);")),
                    Contains("expected an export of Nsight Systems"));
  CHECK_THROWS_WITH(
      open_trace(database(folder, std::string(kTables) +
                                      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT start, end, "
                                      "deviceId, contextId, streamId, 99, 77, 2, 2, 1, 1, 1, 1, 1, "
                                      "1, 1, 0, 0 FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1;")),
      Contains("2 processes"));
  // A view that never ends is no table.
  CHECK_THROWS_WITH(
      open_trace(database(folder,
                          "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                          "SELECT i + 1 FROM n) SELECT i AS start FROM n;")),
      Contains("expected an export of Nsight Systems"));
  const std::string whole = test::text_of(database(folder, kTables));
  for (const std::size_t kept : {std::size_t{100}, whole.size() / 3, whole.size() - 4096}) {
    CHECK_THROWS_AS(open_trace(folder.put("cut.sqlite", whole.substr(0, kept))), InputError);
  }
  for (std::size_t at = 100; at < whole.size(); at += 97) {  // damaged: refused or read, no more
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    try {
      (void)open_trace(folder.put("damaged.sqlite", damaged));
    } catch (const InputError&) {
    }
  }
}

TEST_CASE("what rocprofv3 writes is calls, dispatches, copies and ranges, joined",
          "[traces][rocprof]") {
  const TemporaryFolder folder;
  const Recording r = open_trace(folder.put("results.json", kRocprof));
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

  const std::string text = kRocprof;
  CHECK_THROWS_WITH(open_trace(folder.put("cut.json", text.substr(0, text.size() / 2))),
                    Contains("is not JSON"));
  CHECK_THROWS_WITH(open_trace(folder.put("two.json", R"({"rocprofiler-sdk-tool": [{}, {}]})")),
                    Contains("2 processes"));
  CHECK_THROWS_WITH(open_trace(folder.put("none.json", R"({"rocprofiler-sdk-tool": [{}]})")),
                    Contains("was a device profiled?"));
}
