#include <map>

#include "core/error.h"
#include "tests/packed.h"
#include "tests/traces/shared_traces.h"
#include "traces/events/host_calls.h"
#include "traces/events/rank_builder.h"
#include "traces/kineto/internal/decimal.h"
#include "traces/kineto/kineto_reader.h"
#include "traces/open_trace.h"

using namespace stepcast;
using namespace stepcast::traces;
using Catch::Contains;
using test::Folder;

namespace {

std::string event(const std::string& fields) { return "{\"ph\": \"X\", " + fields + "}"; }

/// A launch, its kernel on stream 7 and a step around them.
std::string small_trace(const std::string& more = "") {
  return R"({"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [)" +
         event(
             R"("cat": "user_annotation", "name": "ProfilerStep#3", "pid": 9, "tid": 9, "ts": 100, "dur": 50)") +
         ",\n" +
         event(
             R"("cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 110, "dur": 5, "args": {"correlation": 4})") +
         ",\n" +
         event(
             R"("cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 120.25, "dur": 10.5, "args": {"device": 0, "stream": 7, "correlation": 4, "grid": [1, 2, 3], "block": [32, 1, 1]})") +
         more + "]}";
}

RankRecording read(const std::string& text, Names& names) {
  Input input = Input::of_text("t.json", text);
  return read_kineto(input, names);
}
RankRecording read(const std::string& text) {
  static std::vector<Names> kept;  // the views of a recording outlive this call
  kept.emplace_back();
  return read(text, kept.back());
}

}  // namespace

TEST_CASE("microseconds become exact nanoseconds, also where a double has no digits left",
          "[traces][kineto]") {
  const auto ns = [](std::string_view text) {
    const auto t = internal::nanoseconds_of_microseconds(text);
    REQUIRE(t.has_value());
    return t->nanoseconds;
  };
  CHECK(ns("1694128201428473") == 1694128201428473000);
  CHECK(ns("1712195495519695.857") == 1712195495519695857);  // 19 digits; a double gives ...920
  CHECK(ns("4458676522690.655") == 4458676522690655);
  CHECK(ns("0.001") == 1);
  CHECK(ns("-1.5") == -1500);
  CHECK(ns("\"12\"") == 12000);
  CHECK(ns("1.694128201428473e15") == 1694128201428473000);
  CHECK(ns("25e-4") == 3);  // 2.5 ns, to nearest and up
  CHECK(internal::nanoseconds_of_microseconds("2.0004")->rounded);
  CHECK_FALSE(internal::nanoseconds_of_microseconds("2.00000")->rounded);
  for (const char* bad : {"", "x", "1.2.3", "1e", "--1", "99999999999999999", "1e300", "0x10"}) {
    CAPTURE(bad);
    CHECK_FALSE(internal::nanoseconds_of_microseconds(bad).has_value());
  }
}

TEST_CASE("a kernel is joined to its launch and its stream, to the nanosecond",
          "[traces][kineto]") {
  const RankRecording r = read(small_trace());
  REQUIRE(r.events.size() == 3);
  REQUIRE(r.lanes.size() == 2);
  CHECK(r.lanes[0].kind == Lane::Kind::kHostThread);
  CHECK(r.lanes[1].stream == 7);
  const EventId kernel = r.lanes[1].first;
  CHECK(r.events.begin[kernel].count() == 120250);
  CHECK(r.events.duration[kernel].count() == 10500);
  const EventId launch = r.events.link[kernel];
  REQUIRE(launch != kNoEvent);
  CHECK(r.events.category[launch] == EventCategory::kRuntimeCall);
  CHECK(r.events.link[launch] == kernel);
  CHECK(r.launches.at(static_cast<std::size_t>(r.events.detail[kernel])).grid[2] == 3);
  REQUIRE(r.steps.size() == 1);
  CHECK(r.steps[0].number == 3);
  CHECK(r.oddities.total() == 0);
}

TEST_CASE("threads have the names that metadata gives them, wherever the phase stands",
          "[traces]") {
  const Folder folder;
  const Recording r = open_trace(folder.file("named.json", R"json({"traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 5, "tid": 6, "ts": 1, "dur": 2},
{"ph": "X", "cat": "cpu_op", "name": "b", "pid": 5, "tid": 7, "ts": 1, "dur": 2},
{"name": "thread_name", "ph": "M", "pid": 5, "tid": 6, "args": {"name": "thread 6 (python)"}},
{"ph": "M", "name": "thread_name", "pid": 5, "tid": 7, "args": {"name": "pt_autograd_0"}}
]})json"));
  const auto& lanes = r.ranks.front().lanes;
  REQUIRE(lanes.size() == 2);
  CHECK(r.names.view(lanes[0].name) == "thread 6 (python)");
  CHECK(r.names.view(lanes[1].name) == "pt_autograd_0");
}

TEST_CASE("the list alone, escapes, text ids and quoted numbers are Chrome traces too",
          "[traces][kineto]") {
  Names names;
  const RankRecording r = read(
      R"([{"name": "a \"b\" \u00e9", "ph": "X", "cat": "Kernel", "pid": "gpu", "tid": "stream 7", "ts": "5", "dur": "1"},)"
      R"({"name": "c", "ph": "X", "cat": "Runtime", "pid": "host", "tid": "main", "ts": 1, "dur": 1}])",
      names);
  REQUIRE(r.events.size() == 2);
  CHECK(r.lanes[1].stream == 7);
  CHECK(names.view(r.events.name[1]) == "a \"b\" \xc3\xa9");
  CHECK(r.lanes[0].thread < -1);  // a number of its own, below any real one
}

TEST_CASE("oddities are counted by kind, each with an example that names the place",
          "[traces][kineto]") {
  const auto counts = [](const std::string& more) {
    std::map<std::string, std::uint64_t> out;
    const RankRecording r = read(small_trace(more));
    for (std::size_t k = 0; k < static_cast<std::size_t>(ParseWarning::kCount); ++k) {
      const auto kind = static_cast<ParseWarning>(k);
      if (r.oddities[kind].count > 0) {
        out[std::string(name_of(kind))] = r.oddities[kind].count;
        CHECK_THAT(r.oddities[kind].example, Contains("t.json"));
      }
    }
    return out;
  };
  using Counts = std::map<std::string, std::uint64_t>;
  const std::string kernel = R"("cat": "kernel", "name": "k", "pid": 0, "tid": 7, )";
  CHECK(counts("," + event(kernel +
                           R"("ts": 200, "dur": 1, "args": {"stream": 7, "correlation": 99})")) ==
        Counts{{"orphan", 1}});
  // 125 lies within the kernel at 120.25 + 10.5.
  CHECK(
      counts("," + event(kernel + R"("ts": 125, "dur": 1, "args": {"device": 0, "stream": 7})")) ==
      Counts{{"orphan", 1}, {"overlap", 1}});
  CHECK(
      counts(
          "," +
          event(
              R"("cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 130, "dur": 5, "args": {"correlation": 5})")) ==
      Counts{{"launch-without-work", 1}});
  CHECK(
      counts("," +
             event(R"("cat": "cpu_op", "name": "c", "pid": 9, "tid": 9, "ts": 140, "dur": 20)")) ==
      Counts{{"crossing", 1}});
  CHECK(counts("," + event(R"("cat": "cpu_op", "name": "c", "pid": 9, "tid": 9, "ts": 140)")) ==
        Counts{{"no-time", 1}});
  CHECK(
      counts("," +
             event(R"("cat": "cpu_op", "name": "c", "pid": 9, "tid": 9, "ts": 140, "dur": -1)")) ==
      Counts{{"negative-duration", 1}});
  CHECK(counts("," +
               event(R"("cat": "quark", "name": "c", "pid": 9, "tid": 9, "ts": 140, "dur": 1)")) ==
        Counts{{"unknown-category", 1}});
  for (const char* times : {R"("ts": "noon", "dur": 1)", R"("ts": 140, "dur": 9223372036854775)"}) {
    CHECK(counts("," + event(R"("cat": "cpu_op", "name": "c", "pid": 9, "tid": 9, )" +
                             std::string(times))) == Counts{{"bad-time", 1}});
  }
  // One event in eleven is of the year 2024: its clock jumped. One in four: files were joined.
  const std::string op = R"("cat": "cpu_op", "name": "c", "pid": 9, "tid": 9, "dur": 1, "ts": )";
  const std::string jump = "," + event(op + "1712195495519695");
  std::string more;
  for (int i = 0; i < 7; ++i) {
    more += "," + event(op + std::to_string(151 + 2 * i));
  }
  CHECK(counts(more + jump) == Counts{{"bad-time", 1}});
  CHECK_THROWS_WITH(read(small_trace(jump)), Contains("a clock jumped"));
  // The same operator twice; of two that last no time nobody knows.
  CHECK(counts("," + event(op + R"(151, "args": {"External id": 3})") + "," +
               event(op + R"(151, "args": {"External id": 3})")) == Counts{{"repeated", 1}});
  CHECK(counts(more + "," + event(op + "151")) == Counts{});
  CHECK(counts(R"(,{"ph": "C", "name": "memory", "pid": 9, "ts": 1})") ==
        Counts{{"unread-record", 1}});
  CHECK(counts("," + event("\"cat\": \"cpu_op\", \"name\": \"\xff\xfe\", \"pid\": 9, \"tid\": 9, "
                           "\"ts\": 140, \"dur\": 1")) == Counts{{"bad-text", 1}});
  // A collective between devices of nobody knows what size, launched before the window.
  CHECK(
      counts(
          "," +
          event(
              R"j("cat": "kernel", "name": "ncclKernel_AllReduce_RING_LL_Sum_float()", "pid": 0, "tid": 9, "ts": 200, "dur": 1, "args": {"stream": 9})j")) ==
      Counts{{"orphan", 1}, {"unsized-collective", 1}});
}

TEST_CASE("lists longer than a window are read whole, wherever the windows end",
          "[traces][kineto]") {
  // 40,000 events of about 150 bytes: six windows of 1 MiB; names hold what may mislead the cut.
  std::string text = "{\"traceEvents\": [";
  const int n = 40000;
  for (int i = 0; i < n; ++i) {
    text += fmt::format(
        R"({}{{"ph":"X","cat":"cpu_op","name":"f}}, {{\"ph\": {}","pid":1,"tid":2,"ts":{},"dur":1,"args":{{"list":[{{"a":[1,{{"b":2}},{{"c":3}}]}},{{"d":4}}]}}}})",
        i == 0 ? "" : ", ", i % 7, 3 * i);
  }
  text += "], \"other\": [{\"a\": 1}, {\"b\": 2}]}";
  REQUIRE(text.size() > (std::size_t{2} << 21));
  Names names;
  const RankRecording r = read(text, names);
  REQUIRE(r.events.size() == n);
  CHECK(r.events.begin[n - 1].count() == 3000LL * (n - 1));
  CHECK(names.view(r.events.name[6]) == "f}, {\"ph\": 6");
}

TEST_CASE("lists are parsed ahead on threads to the same events", "[traces][kineto]") {
  // Parts of 1 MiB end behind an event that is followed by one of the same first key; lists of
  // objects with that key, in the middle of the file, are what may be taken for such.
  std::string text = "{\"traceEvents\": [";
  const int n = 130000;
  for (int i = 0; i < n; ++i) {
    const bool odd = i % 1000 == 0 || (i > 50000 && i < 75000);
    text += fmt::format(
        R"({}{{"ph":"X","cat":"cpu_op","name":"f}}, {{\"ph\": {}","pid":1,"tid":{},"ts":{},"dur":1,"args":{{{}}}}})",
        i == 0 ? "" : ",\n  ", i % 7, i % 3, 3 * i,
        odd ? R"("list":[{"ph":1,"name":"inner"}, {"ph":2,"name":"inner"}, {"ph":3}])"
            : R"("External id": 7, "Input Dims": [[1, 2], [3]])");
  }
  text += "], \"displayTimeUnit\": \"ms\"}";
  REQUIRE(text.size() > (std::size_t{1} << 24));
  const Folder folder;
  const Recording r = open_trace(folder.file("ahead.json", text));
  Names names;
  const RankRecording one_by_one = read(text, names);  // a text in memory is read window by window
  const Events &a = r.ranks.front().events, &b = one_by_one.events;
  REQUIRE(a.size() == n);
  CHECK(a.begin == b.begin);
  CHECK(a.name == b.name);
  CHECK(a.detail == b.detail);
  CHECK(a.lane == b.lane);
  CHECK(r.ranks.front().metadata.at("displayTimeUnit") == "ms");
  for (const std::size_t cut : {text.size() / 2, text.size() - 40}) {
    CHECK_THROWS_WITH(open_trace(folder.file("cut.json", text.substr(0, cut))), Contains("byte "));
  }
}

TEST_CASE("damaged Kineto files are refused with file and byte", "[traces][kineto][malformed]") {
  const std::string good = small_trace();
  const auto rejected = [](const std::string& text, const std::string& expected) {
    CAPTURE(text.substr(0, 200));
    CHECK_THROWS_WITH(read(text), Contains("t.json") && Contains(expected));
    CHECK_THROWS_AS(read(text), InputError);
  };
  // Cut anywhere, the error names a byte; only the last brace is all.
  for (std::size_t cut = 1; cut < good.size(); cut += 3) {
    rejected(good.substr(0, cut), "byte ");
  }
  rejected("{\"traceEvents\": [" + event(R"("cat": "cpu_op", "ts": 1, "dur": 1)") + " " +
               event(R"("ts": 2, "dur": 1)") + "]}",
           "byte ");
  rejected("{\"schemaVersion\": 1}", "no traceEvents");
  rejected(good + "x", "follows the end");
  const std::string deep(100000, '[');
  rejected("{\"other\": " + deep, "nested more than 256 deep");
  rejected("{\"traceEvents\": " + deep, "byte ");
  rejected(small_trace("," + event("\"args\": {\"Input Dims\": " + deep + "}")), "byte ");
  // Whole but deep, where nobody looks: passed over.
  CHECK_NOTHROW(read(small_trace("," + event(R"("ts": 1, "dur": 1, "args": {"x": )" + deep +
                                             std::string(100000, ']') + "}"))));
}

TEST_CASE("compressed files that are cut or damaged are refused with file and byte",
          "[traces][malformed]") {
  const auto folder = test::shared_traces();
  if (folder.empty()) {
    return;
  }
  const Folder t;
  const std::string good = test::text_of(
      folder / "hta/critical_path_cuda_event_sync_multi_stream__event_sync_trace.json.gz");
  CHECK_THROWS_WITH(open_trace(t.file("cut.json.gz", good.substr(0, good.size() / 2))),
                    Contains("cut.json.gz: byte ") && Contains("end early"));
  std::string bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 0x55);
  bad[bad.size() / 2 + 1] = static_cast<char>(bad[bad.size() / 2 + 1] ^ 0x55);
  CHECK_THROWS_WITH(open_trace(t.file("bad.json.gz", bad)), Contains("bad.json.gz: byte "));
  // Two members, one after the other, are one file (as gzip writes appended parts).
  CHECK_THROWS_WITH(open_trace(t.file("two.json.gz", good + good)), Contains("follows the end"));
  const std::string et = test::text_of(folder / "chakra/chakra.0.et");
  for (const std::size_t size : {et.size() / 2, et.size() - 1, std::size_t{70}}) {
    CHECK_THROWS_WITH(open_trace(t.file("cut.et", et.substr(0, size))),
                      Contains("cut.et: byte ") && Contains("cut"));
  }
  const std::string tar = test::text_of(folder / "astra-resnet-dp/onecomm_allreduce.tar.gz");
  CHECK_THROWS_WITH(open_trace(t.file("cut.tar.gz", tar.substr(0, tar.size() - 40))),
                    Contains("cut.tar.gz"));
}

TEST_CASE("zstd is read like plain text, and refused with its byte when cut", "[traces]") {
  const Folder t;
  // Longer than the decompressor's chunks, so that output is handed over in pieces.
  std::string more;
  for (int i = 0; i < 20000; ++i) {
    more += "," + event(fmt::format(
                      R"("cat": "cpu_op", "name": "op {}", "pid": 9, "tid": 8, "ts": {}, "dur": 1)",
                      i * 7919 % 1000, 200 + 2 * i));
  }
  const std::string plain = small_trace(more);
  const std::string packed = packed_text(plain, "zstd");
  CHECK(open_trace(t.file("t.json.zst", packed)).ranks[0].events.size() == 20003);
  CHECK_THROWS_WITH(open_trace(t.file("cut.zst", packed.substr(0, packed.size() - 9))),
                    Contains("cut.zst: byte ") && Contains("end early"));
}

TEST_CASE("gzip is read member by member, and refused where its sum is another", "[traces]") {
  const Folder t;
  const auto events = [](const std::filesystem::path& file) {
    return open_trace(file).ranks[0].events.size();
  };
  const std::string plain = small_trace();
  const std::string whole = packed_text(plain, "gzip");
  CHECK(events(t.file("whole.json.gz", whole)) == 3);
  CHECK(events(t.file("padded.json.gz", whole + std::string(512, '\0'))) == 3);
  const std::string parts =
      packed_text(plain.substr(0, 50), "gzip") + packed_text(plain.substr(50), "gzip");
  CHECK(events(t.file("parts.json.gz", parts)) == 3);
  std::string other = whole;
  other[other.size() - 8] = static_cast<char>(other[other.size() - 8] ^ 1);
  CHECK_THROWS_WITH(events(t.file("other.json.gz", other)),
                    Contains("other.json.gz: byte ") && Contains("sum"));
}

TEST_CASE("a Chakra file with false lengths is refused, without their memory",
          "[traces][chakra][malformed]") {
  const Folder t;
  const std::string version(
      "\x07\x0a\x05"
      "0.0.4",
      8);
  const auto rejected = [&](const std::string& text, const std::string& expected) {
    CHECK_THROWS_WITH(open_trace(t.file("rank.0.et", text)),
                      Contains("rank.0.et: byte ") && Contains(expected));
  };
  // 10^10 as a varint: 0x80 0xc8 0xaf 0xa0 0x25. The length stands at byte 8.
  const std::string ten_gb("\x80\xc8\xaf\xa0\x25", 5);
  rejected(version + ten_gb + "abc", "byte 8: found a message of 10000000000 bytes");
  // 200 MB is allowed, but the file has three bytes: 200000000 = 0x80 0x84 0xaf 0x5f.
  rejected(version + std::string("\x80\x84\xaf\x5f", 4) + "abc", "ends after 3");
  rejected(version + std::string(11, '\xff'), "length of more than 10 bytes");
  // A field that claims 100 bytes in a message of 4; a wire type that is none.
  rejected(version + std::string("\x04\x12\x64"
                                 "ab",
                                 5),
           "a field of 100 bytes");
  rejected(version + std::string("\x02\x0f\x01", 3), "wire type 7");
}

TEST_CASE("a Chakra attribute that is no number is no harm", "[traces][chakra][malformed]") {
  const Folder t;
  // A version; a node of 19 bytes: its name, and an attribute "abc" whose double is not a number.
  const std::string file(
      "\x07\x0a\x05"
      "0.0.4"
      "\x13\x12\x01n\x52\x0e\x0a\x03"
      "abc\x19\x00\x00\x00\x00\x00\x00\xf8\x7f",
      28);
  const Recording r = open_trace(t.file("rank.0.et", file));
  CHECK(r.ranks[0].events.size() == 1);
}

TEST_CASE("a folder must hold each rank of one run once", "[traces][malformed]") {
  const auto trace = [](int rank, int world) {
    std::string text = small_trace();
    text.replace(text.find("\"rank\": 0"), 9, fmt::format("\"rank\": {}", rank));
    return text.replace(text.find("\"world_size\": 1"), 15,
                        fmt::format("\"world_size\": {}", world));
  };
  {
    const Folder t;
    t.file("a.json", trace(1, 2));
    t.file("b.json", trace(0, 2));
    const Recording r = open_trace(t.path());
    REQUIRE(r.ranks.size() == 2);
    CHECK(r.ranks[0].source == (t.path() / "b.json").string());
    // Times count from the earliest event, exactly.
    CHECK(r.origin.count() == 100000);
    CHECK(r.ranks[1].events.begin[0].count() == 0);
    t.file("b.json", trace(1, 2));
    CHECK_THROWS_WITH(open_trace(t.path()),
                      Contains("b.json: is rank 1, and so is") && Contains("a.json"));
    t.file("b.json", trace(2, 2));
    CHECK_THROWS_WITH(open_trace(t.path()), Contains("b.json: is rank 2 of 2"));
    t.file("b.json", trace(0, 3));
    CHECK_THROWS_WITH(open_trace(t.path()), Contains("expected one run"));
    t.file("a.json", trace(1, 3));
    CHECK_THROWS_WITH(open_trace(t.path()), Contains("of 3 ranks, but 2 are here"));
    // Named one by one they are what the user means; what is missing is counted.
    const std::vector<std::filesystem::path> files{t.path() / "a.json", t.path() / "b.json"};
    CHECK(open_traces(files).oddities[ParseWarning::kMissingRank].count == 1);
    t.file("b.json",
           "\x07\x0a\x05"
           "0.0.4");
    CHECK_THROWS_WITH(open_trace(t.path()), Contains("expected one format"));
  }
  const Folder empty;
  CHECK_THROWS_WITH(open_trace(empty.path()), Contains("holds no file"));
  CHECK_THROWS_WITH(open_trace(empty.path() / "nothing"), Contains("does not exist"));
  CHECK_THROWS_WITH(open_trace(empty.file("empty.json", "")), Contains("empty"));
  CHECK_THROWS_WITH(open_trace(empty.file("text.txt", "hello")), Contains("no format known"));
}

TEST_CASE("calls and collectives are known by the names libraries give them", "[traces]") {
  CHECK(host_call_of("cudaLaunchKernelExC") == HostCall::kLaunch);
  CHECK(host_call_of("cuLaunchKernel") == HostCall::kLaunch);
  CHECK(host_call_of("cudaGraphLaunch") == HostCall::kLaunch);
  CHECK(host_call_of("cudaMemcpyAsync") == HostCall::kCopy);
  CHECK(host_call_of("cudaMemcpy") == HostCall::kBlockingCopy);
  CHECK(host_call_of("hipStreamSynchronize") == HostCall::kStreamSync);
  CHECK(host_call_of("cudaStreamWaitEvent") == HostCall::kStreamWait);
  CHECK(host_call_of("cudaFuncSetAttribute") == HostCall::kOther);
  CHECK(host_call_of("launch_button") == HostCall::kOther);
  CHECK(collective_kind_of("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)") ==
        OpKind::kReduceScatter);
  CHECK(collective_kind_of("nccl:_all_gather_base") == OpKind::kAllGather);
  CHECK(collective_kind_of("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)") ==
        OpKind::kAllToAllV);
  CHECK(collective_kind_of("allreduce") == OpKind::kAllReduce);
  CHECK_FALSE(collective_kind_of("gemm(AllReduce)").has_value());
  CHECK(element_bytes_of("c10::BFloat16") == 2);
  CHECK(element_bytes_of("long int") == 8);
  CHECK_FALSE(element_bytes_of("tensor").has_value());
  CHECK(shapes_of("[\n [\n  640\n ],\n []\n]") ==
        std::vector<std::vector<std::int64_t>>{{640}, {}});
  CHECK(shapes_of("[[1024, 32], [], [[3], [4]]]") ==
        std::vector<std::vector<std::int64_t>>{{1024, 32}, {}, {3}, {4}});
  CHECK(shapes_of("[[1, x]]").empty());
}

TEST_CASE("equal names have one id, however many there are", "[traces]") {
  Names names;
  for (int round = 0; round < 2; ++round) {
    for (NameId i = 0; i < 20000; ++i) {
      REQUIRE(names.intern(fmt::format("kernel {}", i)) == i);
    }
  }
  CHECK(names.size() == 20000);
  const Names moved = std::move(names);
  CHECK(moved.view(777) == "kernel 777");
  CHECK(moved.find("kernel 19999") == 19999);
  CHECK(moved.find("kernel") == kNoName);
}
