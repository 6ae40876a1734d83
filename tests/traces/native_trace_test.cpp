#include "traces/native/native_trace.h"
#include "core/error.h"
#include "core/graph/program_builder.h"
#include "tests/traces/shared_traces.h"
#include "traces/chrome/chrome_writer.h"
#include "traces/events/open_native.h"

using namespace stepcast;
using namespace stepcast::traces;
using test::Folder;
using test::text_of;
namespace fs = std::filesystem;

namespace {

SimTime us(std::int64_t v) { return SimTime{v * 1'000'000}; }

/// Two ranks, one compute op and one all-reduce per step.
ExecutionGraph two_rank_graph() {
  ProgramBuilder b;
  const std::int32_t event = b.event();
  const auto s = b.begin_segment("step");
  b.op(OpKind::kGemm, "mlp \"0\"", {4, 5, 6, 1}).records(event);
  b.op(OpKind::kAllReduce, "gradients", {100})
      .communicator(0)
      .on("data")
      .waits(event)
      .phase(Phase::kGradientSync);
  b.end_segment();
  b.call(s);
  ExecutionGraph g;
  g.mesh.data = 2;
  g.communicators.push_back({"data", {Axis::kData}, {}});
  g.programs.push_back(std::move(b).finish());
  g.classes.push_back({0, {0, 1}});
  return g;
}

/// Rank 1 starts its collective 30 us late and its clock runs 1000 us ahead.
GraphRun late_second_rank() {
  GraphRun t;
  t.producer = "test";
  t.graph = two_rank_graph();
  for (std::int32_t r = 0; r < 2; ++r) {
    RankTrace rank;
    rank.rank = r;
    for (std::int32_t step = 0; step < 3; ++step) {
      const std::int64_t base = 1000 * r + 500 * step;
      const std::int64_t late = 30 * r;
      rank.steps.push_back({step, us(base), us(base + 100)});
      rank.ops.push_back(
          {r, step, {0, 0}, us(base), us(base + 1), us(base + 1), us(base + 11 + late), 0});
      rank.ops.push_back({r,
                          step,
                          {0, 1},
                          us(base),
                          us(base + 11 + late),
                          us(base + 11 + late),
                          us(base + 61),
                          400});
      rank.host.push_back({r, step, HostSpan::Kind::kIssue, us(base), us(base + 1)});
    }
    t.ranks.push_back(std::move(rank));
  }
  return t;
}

void write(const fs::path& folder, const GraphRun& t) {
  for (const RankTrace& r : t.ranks) {
    write_rank(folder, r);
  }
  write_manifest(folder, t, static_cast<int>(t.ranks.size()));
}

void put(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

}  // namespace

TEST_CASE("clocks are aligned by the ends of symmetric collectives, and waits are separated",
          "[traces]") {
  GraphRun t = late_second_rank();
  align_clocks(t);
  // Both ranks leave the all-reduce at the same time; rank 1's clock shows 1000 us more.
  CHECK(ticks(t.ranks[1].clock_offset) == -ticks(us(1000)));
  CHECK(t.ranks[1].clock_residual.base() == Approx(0).margin(1e-12));
  const auto first = samples_of(t, 0, 1);
  REQUIRE(first.size() == 2);
  REQUIRE(first[1].seconds.size() == 2);  // step 0 skipped
  // Rank 0 begins at 11 us, rank 1 at 41 us, both end at 61 us: 30 us of wait, 20 us of transfer.
  CHECK(first[1].seconds[0] == Approx(20e-6));
  CHECK(samples_of(t, 1, 1)[1].seconds[0] == Approx(20e-6));
  // A step lasts from the earliest begin to the latest end once the clocks agree: 100 us.
  CHECK(step_seconds(t, 0) ==
        std::vector<double>{step_seconds(t, 0)[0], step_seconds(t, 0)[0], step_seconds(t, 0)[0]});
  CHECK(step_seconds(t, 0)[0] == Approx(100e-6));
}

TEST_CASE("a native trace reads back with the same op ids, shapes and times", "[traces]") {
  const Folder folder;
  GraphRun t = late_second_rank();
  t.core_probe = microseconds(40);
  write(folder.path() / "t", t);
  REQUIRE(is_native(folder.path() / "t"));
  const GraphRun back = read_native(folder.path() / "t");
  REQUIRE(back.ranks.size() == 2);
  CHECK(back.core_probe / microseconds(40) == Approx(1));
  const Program& p = back.graph.program_of(1);
  CHECK(p.name(p.ops[0]) == "mlp \"0\"");
  CHECK(p.ops[0].shape[2] == 6);
  CHECK(p.ops[0].flops == Flops(2.0 * 4 * 5 * 6));
  CHECK(p.ops[1].kind == OpKind::kAllReduce);
  CHECK(p.waits_of(p.ops[1])[0] == 0);
  CHECK(p.streams == std::vector<std::string>{"compute", "data"});
  GraphRun aligned = t;
  align_clocks(aligned);
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(back.ranks[r].ops.size() == t.ranks[r].ops.size());
    for (std::size_t i = 0; i < t.ranks[r].ops.size(); ++i) {
      CHECK(back.ranks[r].ops[i].ref == aligned.ranks[r].ops[i].ref);
      CHECK(back.ranks[r].ops[i].begin == aligned.ranks[r].ops[i].begin);
      CHECK(back.ranks[r].ops[i].ready == aligned.ranks[r].ops[i].ready);
      CHECK(back.ranks[r].ops[i].end == aligned.ranks[r].ops[i].end);
    }
    CHECK(back.ranks[r].host.size() == 3);
  }
}

TEST_CASE("a folder holds one trace: an older one is replaced", "[traces]") {
  const Folder folder;
  const GraphRun t = late_second_rank();
  write(folder.path(), t);
  put(folder.path() / "rank-7.csv", "of a run on more ranks");
  put(folder.path() / "rank-notes.csv", "mine");
  // An older trace is gone, its manifest first, before anything is written: it never looks whole.
  begin_trace(folder.path());
  CHECK_FALSE(is_native(folder.path()));
  CHECK_FALSE(fs::exists(folder.path() / "rank-0.csv"));
  CHECK_FALSE(fs::exists(folder.path() / "rank-7.csv"));
  CHECK(text_of(folder.path() / "rank-notes.csv") == "mine");
  write(folder.path(), t);

  Recording events;
  events.ranks.resize(1);
  write_recording(folder.path(), events);
  CHECK_FALSE(fs::exists(folder.path() / "rank-1.csv"));
  CHECK(read_recording(folder.path()).own == nullptr);
  CHECK_THROWS_WITH(read_native(folder.path()), Catch::Contains("of another program"));
  write_recording(folder.path(), recording_of(t, "t"));
  CHECK(read_native(folder.path()).ranks.size() == 2);
  put(folder.path() / "file", "");
  CHECK_THROWS_AS(begin_trace(folder.path() / "file" / "below"), InputError);
}

TEST_CASE("a damaged native trace is refused with file and line", "[traces][malformed]") {
  const Folder folder;
  GraphRun whole = late_second_rank();
  whole.core_probe = microseconds(40);
  write(folder.path(), whole);
  const std::string good = text_of(folder.path() / "rank-1.csv");
  const auto rejected = [&folder](const std::string& text, const std::string& expected) {
    put(folder.path() / "rank-1.csv", text);
    CHECK_THROWS_WITH(read_native(folder.path()),
                      Catch::Contains("rank-1.csv") && Catch::Contains(expected));
  };
  rejected(good.substr(0, good.rfind("end")), "no closing 'end' line");
  rejected("op,0,0,0,1,2\nend,0\n", "too few columns");
  rejected("op,0,0,0,1,2,3,4,5\nend,0\n", "too many columns");
  rejected("op,0,0,9,1,2,3,4\nend,0\n", "not in segment");
  rejected("op,0,7,0,1,2,3,4\nend,0\n", "names call 7");
  rejected("op,0,0,0,1,5,3,4\nend,0\n", "ends before it begins");
  rejected("op,0,0,0,1,99999999999999999999,3,4\nend,0\n",
           "column 6: found '99999999999999999999'");
  rejected("zap,1\nend,0\n", "none of op, host, step, end");
  put(folder.path() / "rank-1.csv", good);
  CHECK_NOTHROW(read_native(folder.path()));
  const std::string manifest = text_of(folder.path() / "trace.json");
  // The mesh of two ranks and the ranks of the class, replaced by what does not fit.
  const auto unreadable = [&](const std::string& from, const std::string& to,
                              const std::string& place) {
    std::string text = manifest;
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    put(folder.path() / "trace.json", text.replace(at, from.size(), to));
    CHECK_THROWS_WITH(read_native(folder.path()),
                      Catch::Contains("trace.json") && Catch::Contains(place));
  };
  unreadable("\"mesh\":{\"data\":2}", "\"mesh\":{\"data\":2000000000}", "mesh");
  unreadable("\"mesh\":{\"data\":2}", "\"mesh\":{\"data\":4294967298}", "mesh");
  unreadable("\"mesh\":{\"data\":2}", "\"mesh\":{\"data\":5e25}", "mesh");
  unreadable("\"ranks\":[0,1]", "\"ranks\":[0]", "classes");
  unreadable("\"ranks\":[0,1]", "\"ranks\":[1,0]", "ascending");
  unreadable("\"ranks\":[0,1]", "\"ranks\":[0,7]", "none of 2");
  unreadable("\"axes\":[\"data\"]", "\"axes\":[\"data\",\"data\"]", "twice");
  unreadable("\"axes\":[\"data\"]", "\"axes\":[]", "not in");
  unreadable("\"schema\":2", "\"schema\":1",
             "schema: found 1, expected 2; record the run again with this version");
  unreadable("[4,5,6,1,", "[-9223372036854775808,5,6,1,", "a size beyond 2^53");
  unreadable("[4,5,6,1,", "[9007199254740993,5,6,1,", "a size beyond 2^53");
  unreadable("\"clock_ns\":0.0", "\"clock_ns\":-5", "host.clock_ns");
  unreadable("\"core_probe_ns\":4", "\"core_probe_ns\":-4", "host.core_probe_ns");
  unreadable("\"shares_core\":true", "\"shares_core\":1", "host.shares_core");
  put(folder.path() / "trace.json", manifest.substr(0, manifest.size() / 2));
  CHECK_THROWS_WITH(read_native(folder.path()),
                    Catch::Contains("trace.json") && Catch::Contains("not JSON"));
  fs::remove(folder.path() / "trace.json");
  CHECK_THROWS_AS(read_native(folder.path()), InputError);
}

TEST_CASE("a Perfetto timeline shows wait and transfer apart and escapes names", "[traces]") {
  const Folder folder;
  GraphRun t = late_second_rank();
  align_clocks(t);
  write_timeline(folder.path() / "t.json", t.graph, t.ranks[0].ops, t.ranks[0].host);
  const std::string text = text_of(folder.path() / "t.json");
  CHECK_THAT(text, Catch::Contains("gradients (wait)"));
  CHECK_THAT(text, Catch::Contains("mlp \\\"0\\\""));
  CHECK_THAT(text, Catch::Contains("\"dur\":30.000"));  // the wait of rank 0
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}
