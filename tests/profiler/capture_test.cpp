#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>

#include "core/error.h"
#include "profiler/capture/capture_settings.h"
#include "profiler/capture/captured_parts.h"
#include "profiler/capture/step_marks.h"
#include "tests/folder.h"
#include "traces/events/rank_builder.h"

namespace stepcast::profiler {
namespace {

namespace fs = std::filesystem;
using Change = StepWindow::Change;

struct Variables {
  std::map<std::string, std::string> values;
  const char* operator()(const char* name) const {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  }
};

TEST_CASE("settings survive the environment", "[profiler][capture]") {
  CaptureSettings s;
  s.out = "/tmp/a folder";
  s.steps = {3, 5};
  s.seconds = 2.5;
  s.on_signal = true;
  s.mark = "train";
  s.whole_graphs = true;
  s.buffer_bytes = 1 << 22;
  Variables v;
  for (const std::string& entry : environment_of(s)) {
    const std::size_t equals = entry.find('=');
    v.values[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  const auto back = settings_from(v);
  REQUIRE(back);
  CHECK(back->out == s.out);
  CHECK(back->steps == s.steps);
  CHECK(back->seconds == s.seconds);
  CHECK(back->on_signal);
  CHECK(back->mark == "train");
  CHECK(back->whole_graphs);
  CHECK(back->buffer_bytes == s.buffer_bytes);
  CHECK(back->most_records == s.most_records);
  CHECK_FALSE(settings_from(Variables{}));
}

TEST_CASE("settings that are none are refused by name", "[profiler][capture]") {
  const auto [name, value] = GENERATE(table<std::string, std::string>({
      {"STEPCAST_PROFILE_STEPS", "5:3"},
      {"STEPCAST_PROFILE_STEPS", "3"},
      {"STEPCAST_PROFILE_SECONDS", "0"},
      {"STEPCAST_PROFILE_SECONDS", "nan"},
      {"STEPCAST_PROFILE_BUFFER_BYTES", "12x"},
  }));
  const Variables v{{{"STEPCAST_PROFILE_OUT", "/tmp/x"}, {name, value}}};
  CHECK_THROWS_WITH(settings_from(v), Catch::StartsWith(name + ": found '" + value + "'"));
}

TEST_CASE("the rank is that of the innermost launcher", "[profiler][capture]") {
  const auto of = [](std::map<std::string, std::string> values) {
    return launched_rank(Variables{std::move(values)});
  };
  CHECK(of({}).rank == -1);
  CHECK(of({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}}).rank == 3);
  CHECK(of({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}}).world_size == 8);
  CHECK(of({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"SLURM_PROCID", "0"}}).rank == 2);
  // torchrun below srun: one Slurm task per node, several workers in it.
  const auto torch = of({{"SLURM_PROCID", "1"},
                         {"SLURM_NTASKS", "2"},
                         {"RANK", "9"},
                         {"WORLD_SIZE", "16"},
                         {"LOCAL_RANK", "1"}});
  CHECK(torch.rank == 9);
  CHECK(torch.world_size == 16);
  CHECK(of({{"RANK", "1"}}).rank == 1);
  CHECK(of({{"RANK", "one"}}).rank == -1);
  CHECK(of({{"RANK", "5"}, {"WORLD_SIZE", "2"}}).world_size == 0);
}

TEST_CASE("steps are ranges with a number, of one spelling", "[profiler][capture]") {
  StepNames usual("");
  CHECK_FALSE(usual.step("forward"));
  CHECK_FALSE(usual.step("step"));
  CHECK_FALSE(usual.step("step 3a"));
  CHECK(usual.step("Step_12") == 12);
  CHECK(usual.step("step 13") == 13);
  CHECK_FALSE(usual.step("iteration 4"));  // the program says "step"
  StepNames own("train batch");
  CHECK_FALSE(own.step("step 3"));
  CHECK(own.step("train batch #3") == 3);
  StepNames bare("loop");
  CHECK(bare.step("loop") == 0);
  CHECK(bare.step("loop") == 1);
}

TEST_CASE("a window warms up one step before, and ends with its last", "[profiler][capture]") {
  StepWindow ranges(2, 4);  // begins and ends are marked
  CHECK(ranges.begin(0, 10, 1) == Change::kNone);
  CHECK(ranges.end(19) == Change::kNone);
  CHECK(ranges.begin(1, 20, 1) == Change::kWarmUp);
  CHECK(ranges.end(29) == Change::kNone);
  CHECK(ranges.begin(2, 30, 1) == Change::kBegin);
  CHECK(ranges.end(39) == Change::kNone);
  CHECK(ranges.begin(3, 40, 1) == Change::kNone);
  CHECK(ranges.end(49) == Change::kEnd);
  CHECK(ranges.begin(4, 50, 1) == Change::kNone);
  const auto steps = ranges.steps(99);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].begin == 30);
  CHECK(steps[0].end == 39);
  CHECK(steps[1].number == 3);
  CHECK(steps[1].end == 49);
}

TEST_CASE("where only begins are marked a step ends with the next", "[profiler][capture]") {
  StepWindow window(0, 2);
  CHECK(window.begin(0, 10, 1) == Change::kBegin);
  CHECK(window.begin(1, 20, 1) == Change::kNone);
  CHECK(window.begin(2, 30, 1) == Change::kEnd);
  CHECK(window.begin(3, 40, 1) == Change::kNone);
  const auto steps = window.steps(99);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].end == 20);
  CHECK(steps[1].end == 30);
}

/// One rank with one kernel at `begin` on its clock.
traces::Recording part(std::int32_t rank, std::int32_t world, std::int64_t begin,
                       const std::string& boot, std::int64_t realtime, const char* kernel = "k") {
  traces::Recording r;
  traces::RankBuilder b(r.names, "process of " + std::to_string(rank));
  b.add({.begin = traces::Nanoseconds(0),
         .duration = traces::Nanoseconds(5),
         .name = r.names.intern(kernel),
         .category = traces::EventCategory::kKernel,
         .lane = b.stream_lane(0, 1, 7)});
  auto& g = b.rank().groups;
  g.resize(1);
  g[0].name = "nccl-1";
  g[0].size = 2;
  g[0].ranks = {-1, -1};
  if (rank >= 0 && rank < 2) {
    g[0].ranks[static_cast<std::size_t>(rank)] = rank;
  }
  traces::CollectiveInfo collective;
  collective.group = 0;
  collective.peer = 1;
  b.rank().collectives.push_back(collective);
  b.rank().rank = rank;
  b.rank().world_size = world;
  b.rank().metadata["clock.boot"] = boot;
  b.rank().metadata["clock.capture_ns"] = "1000";
  b.rank().metadata["clock.realtime_ns"] = std::to_string(realtime);
  r.format = "cupti";
  r.origin = traces::Nanoseconds(begin);
  r.ranks.push_back(std::move(b).finish());
  return r;
}

TEST_CASE("parts of a machine share its clock; others are set by the time of day",
          "[profiler][capture]") {
  constexpr std::int64_t kDay = 1'700'000'000'000'000'000;
  std::vector<traces::Recording> parts;
  parts.push_back(part(2, 3, 1300, "other machine", kDay + 9, "c"));
  parts.push_back(part(1, 3, 1250, "machine", kDay + 3, "b"));  // its own reading was 3 ns late
  parts.push_back(part(0, 3, 1200, "machine", kDay, "a"));
  const traces::Recording all = merge_ranks(std::move(parts));
  REQUIRE(all.ranks.size() == 3);
  CHECK(all.absolute);
  // Ranks come in order, so the offset of "machine" is rank 0's: kDay - 1000.
  CHECK(all.origin.count() == kDay + 200);
  CHECK(all.ranks[0].events.begin[0].count() == 0);
  CHECK(all.ranks[1].events.begin[0].count() == 50);
  CHECK(all.ranks[2].events.begin[0].count() == 109);  // 1300 - 1000 + 9, less 200
  CHECK(all.names.view(all.ranks[2].events.name[0]) == "c");
  CHECK(all.ranks[0].groups[0].ranks == std::vector<std::int32_t>{0, 1});
  CHECK(all.ranks[0].collectives[0].peer == 1);
  CHECK(all.all_oddities().total() == 3);  // the made kernels have no launch
}

TEST_CASE("ranks that nobody told are given; doubles and gaps are said", "[profiler][capture]") {
  std::vector<traces::Recording> parts;
  parts.push_back(part(-1, 0, 1200, "m", 60));
  parts.push_back(part(-1, 0, 1200, "m", 50));
  const traces::Recording two = merge_ranks(std::move(parts));
  REQUIRE(two.ranks.size() == 2);
  CHECK(two.ranks[0].rank == 0);
  CHECK(two.ranks[1].rank == 1);
  CHECK(two.all_oddities()[traces::ParseWarning::kRankGuessed].count == 2);

  parts.clear();
  parts.push_back(part(0, 4, 1200, "m", 60));
  parts.push_back(part(0, 4, 1200, "m", 60));
  const traces::Recording one = merge_ranks(std::move(parts));
  CHECK(one.ranks.size() == 1);
  CHECK(one.all_oddities()[traces::ParseWarning::kRankGuessed].count == 1);
  CHECK(one.all_oddities()[traces::ParseWarning::kMissingRank].count == 3);
  CHECK(one.ranks[0].groups[0].ranks.empty());  // a member was not captured
  CHECK_THROWS_AS(merge_ranks({}), InputError);
}

TEST_CASE("parts and states are found again", "[profiler][capture]") {
  const fixtures::Folder folder;
  const CapturedParts parts(folder / "out");
  CHECK(parts.processes().empty());
  CHECK(parts.recordings().empty());
  parts.write("host-1", ProcessStatus::State::kBusy, "another tool");
  parts.write("host-2", ProcessStatus::State::kStarted, "");
  parts.write("host-2", part(-1, 0, 1200, "m", 60));
  parts.write("host-2", ProcessStatus::State::kWritten, "");
  fs::create_directories(parts.folder() / "host-3");  // began to write and died
  const auto processes = parts.processes();
  REQUIRE(processes.size() == 2);
  CHECK(processes[0].state == ProcessStatus::State::kBusy);
  CHECK(processes[0].text == "another tool");
  CHECK(processes[1].state == ProcessStatus::State::kWritten);
  const auto recordings = parts.recordings();
  REQUIRE(recordings.size() == 1);
  CHECK(recordings[0].ranks[0].rank == -1);  // nobody told
  parts.remove();
  CHECK_FALSE(fs::exists(parts.folder()));
}

}  // namespace
}  // namespace stepcast::profiler
