#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/input/archive.h"
#include "tests/traces/shared_traces.h"
#include "traces/chakra/chakra_writer.h"
#include "traces/chrome/chrome_writer.h"
#include "traces/events/edit.h"
#include "traces/events/host_calls.h"
#include "traces/events/rank_builder.h"
#include "traces/formats.h"
#include "traces/native/native_trace.h"
#include "traces/open_trace.h"

using namespace stepcast;
using namespace stepcast::traces;
using Catch::Contains;
using test::Folder;

namespace {

Nanoseconds ns(std::int64_t v) { return Nanoseconds(v); }

/// One rank of two: two steps, each a host op with a launch inside, a kernel, a collective on
/// another stream that waits for it, and a host wait.
RankRecording small_rank(Names& names, std::int32_t number) {
  RankBuilder b(names, fmt::format("rank {}", number));
  b.rank().rank = number;
  b.rank().world_size = 2;
  b.rank().devices = {"toy \"gpu\""};
  b.rank().groups.push_back({"world", "default", {0, 1}, 2});
  b.group("world");
  const std::uint16_t host = b.host_lane(40, 41);
  const std::uint16_t compute = b.stream_lane(0, 1, 7);
  const std::uint16_t comm = b.stream_lane(0, 1, 20);
  const auto add = [&](std::int64_t begin, std::int64_t duration, std::string_view name,
                       EventCategory category, std::uint16_t lane, std::int64_t correlation = 0,
                       std::int32_t detail = kNoDetail) {
    b.add({ns(begin), ns(duration), names.intern(name), category, lane, correlation, -1, detail});
  };
  for (std::int64_t s = 0; s < 2; ++s) {
    const std::int64_t t = 1700000000000000001 + s * 100000;
    const std::int64_t c = 10 * s;
    add(t, 90000, fmt::format("ProfilerStep#{}", 5 + s), EventCategory::kUserRange, host);
    b.rank().ops.push_back({.shapes = names.intern("[[4,8],[8,2]]"),
                            .types = names.intern("[\"float\",\"float\"]"),
                            .sequence = 17 + s,
                            .record_function = 3 + s,
                            .forward_thread = 1});
    add(t + 1000, 30000, "secret::layer", EventCategory::kCpuOp, host, 0,
        static_cast<std::int32_t>(s));
    add(t + 2003, 5000, "cudaLaunchKernel", EventCategory::kRuntimeCall, host, c + 1);
    add(t + 8000, 1000, "cudaEventRecord", EventCategory::kRuntimeCall, host, c + 2);
    add(t + 10000, 1000, "cudaStreamWaitEvent", EventCategory::kRuntimeCall, host, c + 3);
    add(t + 12000, 4000, "cudaLaunchKernel", EventCategory::kRuntimeCall, host, c + 4);
    add(t + 40000, 40000, "cudaDeviceSynchronize", EventCategory::kRuntimeCall, host, c + 5);
    add(t + 9007, 20000, "secret_gemm", EventCategory::kKernel, compute, c + 1,
        b.launch({{8, 2, 1}, {128, 1, 1}, 32, 1024}));
    b.rank().syncs.push_back({SyncInfo::Kind::kStreamWait, 20, 7, 3, c + 2});
    add(t + 10500, 100, "Stream Wait Event", EventCategory::kSync, comm, c + 3,
        static_cast<std::int32_t>(s));
    CollectiveInfo all_reduce;
    all_reduce.kind = OpKind::kAllReduce;
    all_reduce.name = names.intern("allreduce");
    all_reduce.group = 0;
    all_reduce.sequence = s;
    all_reduce.elements_in = all_reduce.elements_out = 1000;
    all_reduce.dtype = names.intern("Float");
    all_reduce.bytes = 4000;
    b.rank().collectives.push_back(all_reduce);
    add(t + 30000, 45000, "ncclDevKernel_AllReduce_Sum_f32", EventCategory::kCollective, comm,
        c + 4, static_cast<std::int32_t>(s));
  }
  // RankBuilder numbers the group we put there by hand: it is the first.
  while (b.rank().groups.size() > 1) {
    b.rank().groups.pop_back();
  }
  return std::move(b).finish();
}

Recording small_recording() {
  Recording r;
  r.format = "test";
  r.ranks.push_back(small_rank(r.names, 0));
  r.ranks.push_back(small_rank(r.names, 1));
  r.origin = r.ranks[0].events.begin[0];
  r.absolute = true;
  for (RankRecording& rank : r.ranks) {
    for (Nanoseconds& t : rank.events.begin) {
      t -= r.origin;
    }
    for (StepRange& s : rank.steps) {
      s.begin -= r.origin;
      s.end -= r.origin;
    }
  }
  return r;
}

struct Same {
  bool details = true;  ///< tables too
};

void check_same(const Recording& a, const Recording& b, Same same = {}) {
  CHECK(a.origin == b.origin);
  REQUIRE(a.ranks.size() == b.ranks.size());
  for (std::size_t r = 0; r < a.ranks.size(); ++r) {
    const RankRecording& x = a.ranks[r];
    const RankRecording& y = b.ranks[r];
    REQUIRE(x.events.size() == y.events.size());
    CHECK(x.rank == y.rank);
    // Kineto states a world size always.
    CHECK((x.world_size == y.world_size || x.world_size == 0));
    CHECK(x.events.begin == y.events.begin);
    CHECK(x.events.duration == y.events.duration);
    CHECK(x.events.category == y.events.category);
    CHECK(x.events.lane == y.events.lane);
    CHECK(x.events.correlation == y.events.correlation);
    CHECK(x.events.external == y.events.external);
    CHECK(x.events.link == y.events.link);
    CHECK(x.steps.size() == y.steps.size());
    CHECK(x.dependencies.targets == y.dependencies.targets);
    CHECK(x.dependencies.offsets == y.dependencies.offsets);
    bool names = true;
    bool details = true;
    for (EventId i = 0; i < x.events.size(); ++i) {
      names = names && a.names.view(x.events.name[i]) == b.names.view(y.events.name[i]);
      const std::int32_t p = x.events.detail[i];
      const std::int32_t q = y.events.detail[i];
      details = details && (p == kNoDetail) == (q == kNoDetail);
      if (p == kNoDetail || q == kNoDetail) {
        continue;
      }
      if (x.events.category[i] == EventCategory::kKernel) {
        details = details && x.launches.at(static_cast<std::size_t>(p)) ==
                                 y.launches.at(static_cast<std::size_t>(q));
      } else if (x.events.category[i] == EventCategory::kCollective) {
        const CollectiveInfo& c = x.collectives.at(static_cast<std::size_t>(p));
        const CollectiveInfo& d = y.collectives.at(static_cast<std::size_t>(q));
        details = details && c.kind == d.kind && c.bytes == d.bytes && c.sequence == d.sequence &&
                  c.elements_in == d.elements_in &&
                  a.names.view(c.dtype) == b.names.view(d.dtype) && (c.group < 0) == (d.group < 0);
      } else if (x.events.category[i] == EventCategory::kCpuOp) {
        const OpInfo& o = x.ops.at(static_cast<std::size_t>(p));
        const OpInfo& u = y.ops.at(static_cast<std::size_t>(q));
        details = details && a.names.view(o.shapes) == b.names.view(u.shapes) &&
                  a.names.view(o.types) == b.names.view(u.types) && o.sequence == u.sequence &&
                  o.record_function == u.record_function;
      }
    }
    CHECK(names);
    CHECK((details || !same.details));
  }
}

std::map<std::string, std::uint64_t> by_name(const Losses& losses) {
  std::map<std::string, std::uint64_t> out;
  for (const Loss& l : losses) {
    out[l.what] = l.count;
  }
  return out;
}

}  // namespace

TEST_CASE("a recording survives the native format and Kineto, to the nanosecond", "[traces]") {
  const Folder t;
  const Recording r = small_recording();
  write_recording(t.path() / "native", r);
  CHECK(is_native(t.path() / "native"));
  check_same(r, open_trace(t.path() / "native"));
  CHECK(write_kineto(t.path() / "kineto", r).empty());
  check_same(r, open_trace(t.path() / "kineto"));
  // One rank gives a file.
  Recording one = small_recording();
  one.ranks.pop_back();
  write_kineto(t.path() / "one.json", one);
  check_same(one, open_trace(t.path() / "one.json"));
  CHECK(std::distance(std::filesystem::directory_iterator(t.path()), {}) == 3);
}

TEST_CASE("a recording survives Chakra in structure and time; what goes is said",
          "[traces][chakra]") {
  const Folder t;
  const Recording r = small_recording();
  const auto lost = by_name(write_chakra(t.path() / "chakra", r));
  check_same(r, open_trace(t.path() / "chakra"), {.details = false});
  // 2 ranks x 2 steps, a kernel each, a wait each, a collective each.
  CHECK(lost == std::map<std::string, std::uint64_t>{
                    {"grid and block sizes of kernels", 4},
                    {"details of device-side waits (their order is kept as edges)", 4},
                    {"element counts, types and parts of collectives (bytes stay)", 4}});
}

TEST_CASE("files of others survive: native and Kineto keep all, Chakra keeps its own graphs",
          "[traces]") {
  const auto folder = test::shared_traces();
  if (folder.empty()) {
    return;
  }
  const Folder t;
  for (const char* file :
       {"dlrm8-kineto", "hta/nccl_parser_config__nccl_data.json.gz",
        "hta/critical_path_alexnet__benchmark_result_2869224_1695835535_trace.json.gz"}) {
    CAPTURE(file);
    const Recording r = open_trace(folder / file);
    write_recording(t.path() / "n", r);
    const Recording back = open_trace(t.path() / "n");
    check_same(r, back);
    CHECK(back.all_oddities().total() == r.all_oddities().total());
    CHECK_THAT(test::text_of(t.path() / "n/trace.json"), !Contains(folder.string()));
    write_kineto(t.path() / "k", r);
    check_same(r, open_trace(t.path() / "k"));
    write_chakra(t.path() / "c", r);
    check_same(r, open_trace(t.path() / "c"), {.details = false});
    std::filesystem::remove_all(t.path() / "n");
    std::filesystem::remove_all(t.path() / "k");
    std::filesystem::remove_all(t.path() / "c");
  }
  for (const char* file :
       {"chakra/chakra.0.et", "chakra/feeder_tests_trace.v2.tar.gz",
        "astra-resnet-dp/Resnet50_DataParallel.0.et", "param/linear_et.json.gz"}) {
    CAPTURE(file);
    const Recording r = open_trace(folder / file);
    write_chakra(t.path() / "g.0.et", r);
    const Recording back = open_trace(t.path() / "g.0.et");
    REQUIRE(back.ranks[0].events.size() == r.ranks[0].events.size());
    CHECK(back.ranks[0].events.external == r.ranks[0].events.external);
    CHECK(back.ranks[0].events.duration == r.ranks[0].events.duration);
    CHECK(back.ranks[0].dependencies.targets == r.ranks[0].dependencies.targets);
    CHECK_THROWS_WITH(write_kineto(t.path() / "k.json", r), Contains("without begin times"));
    CHECK_FALSE(std::filesystem::exists(t.path() / "k.json"));
  }
}

TEST_CASE("a timeline nests its slices on every track and escapes names", "[traces]") {
  const Folder t;
  Recording r = small_recording();
  // A second kernel on the compute stream that crosses the first: 9007..29007 and 20000..40000.
  RankRecording& rank = r.ranks[0];
  EventId kernel = 0;
  while (rank.events.category[kernel] != EventCategory::kKernel) {
    ++kernel;
  }
  rank.events.begin[kernel + 1] = rank.events.begin[kernel] + ns(11000);
  rank.events.name[kernel] = r.names.intern("a \"quoted\" \\ name\n");
  const auto lost = by_name(write_timeline(t.path() / "t.json", r));
  CHECK(lost.at("slices that cross others, on a track of their own") == 1);
  const auto j = nlohmann::json::parse(test::text_of(t.path() / "t.json"));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  std::set<std::string> names;
  for (const auto& e : j["traceEvents"]) {
    if (e["ph"] == "X") {
      tracks[{e["pid"], e["tid"]}].emplace_back(e["ts"],
                                                e["ts"].get<double>() + e["dur"].get<double>());
      names.insert(e["name"]);
    }
  }
  CHECK(names.count("a \"quoted\" \\ name\n") == 1);
  CHECK(tracks.size() == 7);  // a host and two streams per rank, and the track of the crossing one
  for (const auto& [track, slices] : tracks) {
    for (const auto& [a, b] : slices) {
      for (const auto& [c, d] : slices) {
        const bool crosses = a < c - 1e-6 && c < b - 1e-6 && b < d - 1e-6;
        CHECK_FALSE(crosses);
      }
    }
  }
}

TEST_CASE("a Chakra graph of a timeline obeys the feeder and keeps streams and waits in order",
          "[traces][chakra]") {
  const Folder t;
  Recording r = small_recording();
  write_chakra(t.path() / "c", r);
  // Read as anyone else would: without our attributes the edges are what is left.
  std::string file = test::text_of(t.path() / "c" / "rank.0.et");
  for (std::size_t at = file.find("begin_ns"); at != std::string::npos;
       at = file.find("begin_ns")) {
    file.replace(at, 8, "begin_xx");
  }
  t.file("other.0.et", file);
  const Recording graph = open_trace(t.path() / "other.0.et");
  const RankRecording& rank = graph.ranks[0];
  CHECK(graph.all_oddities()[ParseWarning::kUnknownDependency].count == 0);
  int waits = 0;
  int launches = 0;
  for (EventId i = 0; i < rank.events.size(); ++i) {
    for (const EventId on : rank.dependencies.of(i)) {
      CHECK(on != i);
      const EventCategory before = rank.events.category[on];
      const EventCategory category = rank.events.category[i];
      launches += category == EventCategory::kKernel && before == EventCategory::kRuntimeCall;
      waits += category == EventCategory::kCollective && before == EventCategory::kKernel;
    }
    // Host time is counted once: 30 us of the op hold calls of 5 + 1 + 1 + 4, so 19 are its own.
    if (graph.names.view(rank.events.name[i]) == "secret::layer") {
      CHECK(rank.events.duration[i] == std::chrono::microseconds(19));
    }
    if (graph.names.view(rank.events.name[i]) == "cudaDeviceSynchronize") {
      CHECK(rank.events.duration[i] == ns(0));
    }
  }
  CHECK(launches == 2);
  CHECK(waits == 2);
}

TEST_CASE("steps are cut with the device work they launched", "[traces]") {
  Recording r = small_recording();
  const std::size_t all = r.ranks[0].events.size();
  cut_steps(r, 1, 2);
  CHECK(r.names.find("ProfilerStep#6") != kNoName);
  CHECK(r.names.find("ProfilerStep#5") == kNoName);
  for (const RankRecording& rank : r.ranks) {
    REQUIRE(rank.steps.size() == 1);
    CHECK(rank.steps[0].number == 6);
    CHECK(rank.events.size() == all / 2);
    // One of each a step; of equal launches one in all.
    CHECK(rank.collectives.size() == 1);
    CHECK(rank.collectives[0].sequence == 1);
    CHECK(rank.ops.size() == 1);
    CHECK(rank.syncs.size() == 1);
    CHECK(rank.launches.size() == 1);
    EventId next = 0;
    for (const Lane& lane : rank.lanes) {
      CHECK(lane.first == next);
      next += lane.count;
    }
    for (EventId i = 0; i < rank.events.size(); ++i) {
      CHECK(rank.events.begin[i] >= rank.steps[0].begin);
      if (rank.events.link[i] != kNoEvent) {
        CHECK(rank.events.correlation[rank.events.link[i]] == rank.events.correlation[i]);
      }
    }
  }
  CHECK_THROWS_WITH(cut_steps(r, 1, 2), Contains("--steps") && Contains("has 1 steps"));
}

TEST_CASE("an anonymous recording keeps times and structure and tells no names", "[traces]") {
  const Folder t;
  const Recording before = small_recording();
  Recording r = small_recording();
  anonymize(r);
  CHECK(r.ranks[0].events.begin == before.ranks[0].events.begin);
  CHECK(r.ranks[0].events.link == before.ranks[0].events.link);
  CHECK(r.ranks[1].collectives[0].bytes == 4000);
  CHECK(r.ranks[0].steps.size() == 2);
  // Equal names stay equal, and those of the API stay.
  std::map<std::string_view, std::string_view> renamed;
  for (EventId i = 0; i < r.ranks[0].events.size(); ++i) {
    const auto [it, fresh] = renamed.try_emplace(before.names.view(before.ranks[0].events.name[i]),
                                                 r.names.view(r.ranks[0].events.name[i]));
    CHECK(it->second == r.names.view(r.ranks[0].events.name[i]));
  }
  CHECK(renamed.at("cudaLaunchKernel") == "cudaLaunchKernel");
  CHECK(renamed.at("secret_gemm") != "secret_gemm");
  write_recording(t.path() / "n", r);
  write_kineto(t.path() / "k", r);
  write_chakra(t.path() / "c", r);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(t.path())) {
    if (entry.is_regular_file()) {
      const std::string text = test::text_of(entry.path());
      for (const char* word : {"secret", "[[4,8]", "toy", "world\"", "default", "1700000000"}) {
        CAPTURE(entry.path().string(), word);
        const bool field = std::string(word) == "world\"";
        CHECK((field || text.find(word) == std::string::npos));
      }
    }
  }
}

TEST_CASE("a damaged native recording is refused with file and line", "[traces][malformed]") {
  const Folder t;
  write_recording(t.path(), small_recording());
  const std::string good = test::text_of(t.path() / "rank-1.csv");
  const auto rejected = [&](std::string_view from, std::string_view to,
                            const std::string& expected) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    t.file("rank-1.csv", text.replace(text.find(from), from.size(), to));
    CHECK_THROWS_WITH(read_recording(t.path()), Contains("rank-1.csv:") && Contains(expected));
  };
  rejected("end,", "fin,", "none of event");
  rejected("event,0,0,90000,user_range", "event,0,0,90000,quark", "no category");
  rejected("event,0,0,90000", "event,9,0,90000", "from 0 to 2");
  rejected("event,0,0,90000", "event,1,0,90000", "out of its turn");
  rejected("event,0,0,90000", "event,0,0,-1", "expected a whole number");
  rejected("event,0,0,90000", "event,0,50000,90000", "before the event above");
  rejected("step,5,", "step,5,1,", "");
  t.file("rank-1.csv", good.substr(0, good.rfind("end,")));
  CHECK_THROWS_WITH(read_recording(t.path()), Contains("closing 'end' line"));
  t.file("rank-1.csv", good);
  CHECK_NOTHROW(read_recording(t.path()));
  const std::string manifest = test::text_of(t.path() / "trace.json");
  const auto unreadable = [&](const std::string& from, const std::string& to,
                              const std::string& path) {
    std::string text = manifest;
    REQUIRE(text.find(from) != std::string::npos);
    t.file("trace.json", text.replace(text.find(from), from.size(), to));
    CHECK_THROWS_WITH(read_recording(t.path()), Contains("trace.json: ") && Contains(path));
  };
  unreadable("\"schema\":2", "\"schema\":1", "schema");
  unreadable("\"absolute\":true", "\"absolute\":3", "events.absolute");
  unreadable("\"rank\":1", "\"rank\":0", "events.ranks[1].rank");
  unreadable("\"all_reduce\"", "\"gemm\"", "events.ranks[0].collectives[0][0]");
  t.file("trace.json", manifest.substr(0, manifest.size() / 2));
  CHECK_THROWS_WITH(read_recording(t.path()), Contains("not JSON"));
}

TEST_CASE(
    "a trace is told from a job and from a report, and every format that can be written is read",
    "[traces]") {
  const Folder t;
  const auto put = [&t](const char* name, const std::string& text) {
    std::ofstream(t.path() / name) << text;
    return t.path() / name;
  };
  CHECK_FALSE(is_trace(std::string(STEPCAST_SOURCE_DIR) + "/docs/examples/dlrm.json"));
  CHECK_FALSE(is_trace(put("report.json", R"({"stepcast": {"schema": 1}, "replays": []})")));
  CHECK_FALSE(is_trace(put("rows.csv", "kernel,seconds\n")));
  CHECK_FALSE(is_trace(t.path() / "nothing"));
  CHECK_FALSE(is_trace(put("tables.json", R"([{"rows": 1000}])")));
  CHECK_FALSE(is_trace(put("utf16.json", std::string("\xff\xfe{\0}\0", 6))));
  CHECK_FALSE(is_trace(put("packed.txt.gz", gzipped("no trace"))));
  CHECK_FALSE(is_trace(t.path()));  // none of its files is one
  CHECK(is_trace(put("list.json", R"([{"ph": "X"}])")));
  CHECK(is_trace(put("bom.json", "\xef\xbb\xbf{\"traceEvents\": []}")));
  CHECK(is_trace(t.path()));
  CHECK(is_trace(put("et.json", R"({"schema": "1.1.1-chakra.0.0.4", "nodes": []})")));
  for (const TraceFormat& format : formats()) {
    CAPTURE(format.name);
    if (format.write == nullptr) {
      continue;
    }
    const std::filesystem::path out = t.path() / format.name;
    format.write(out, small_recording());
    CHECK(is_trace(out));
    CHECK_FALSE(open_trace(out).ranks.empty());
  }
}

TEST_CASE("what nodes of an execution graph hold beyond events survives Chakra and native",
          "[traces]") {
  const std::filesystem::path shared = test::shared_traces();
  if (shared.empty()) {
    return;
  }
  for (const char* name :
       {"chakra/chakra.0.et", "param/resnet_et.json.gz", "param/linear_et.json.gz"}) {
    CAPTURE(name);
    const Folder folder;
    const Recording given = open_trace(shared / name);
    const auto& fields = given.ranks[0].node_fields;
    CHECK(fields.size() + 2 > given.ranks[0].events.size());  // all but roots have outputs
    write_chakra(folder.path() / "rank.0.et", given);
    const Recording again = open_trace(folder.path() / "rank.0.et");
    CHECK(again.ranks[0].node_fields == fields);
    // From then on byte for byte (execution traces of PyTorch get durations of 0 at first).
    write_chakra(folder.path() / "again.0.et", again);
    write_chakra(folder.path() / "third.0.et", open_trace(folder.path() / "again.0.et"));
    const bool stable =
        test::text_of(folder.path() / "third.0.et") == test::text_of(folder.path() / "again.0.et");
    CHECK(stable);
    write_recording(folder.path() / "native", given);
    CHECK(read_recording(folder.path() / "native").ranks[0].node_fields == fields);
  }
}
