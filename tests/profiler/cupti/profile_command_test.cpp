// `stepcast profile` from end to end, with the real module and the real command, on the fake GPU of
// tests/profiler/fakes.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>

#include "traces/measured_step.h"
#include "traces/open_trace.h"

namespace stepcast {
namespace {

namespace fs = std::filesystem;
using traces::EventCategory;
using traces::EventId;
using traces::ParseWarning;
using traces::RankRecording;
using traces::Recording;

struct Ended {
  int code = -1;
  std::string text;  ///< both outputs
};

Ended run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  Ended ended;
  std::array<char, 4096> block{};
  while (const std::size_t n = fread(block.data(), 1, block.size(), pipe)) {
    ended.text.append(block.data(), n);
  }
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

const std::string kTraining = std::string(FAKE_GPU_FOLDER) + "/fake_training";

/// A folder of this test, gone at its end.
struct Out {
  fs::path path;
  Out() {
    static int n = 0;
    path = fs::temp_directory_path() /
           ("stepcast_profile_" + std::to_string(getpid()) + "_" + std::to_string(n++));
    fs::remove_all(path);
  }
  ~Out() { fs::remove_all(path); }
  [[nodiscard]] Ended profile(const std::string& options, const std::string& command,
                              const std::string& variables = "") const {
    return run("LD_LIBRARY_PATH=" FAKE_GPU_FOLDER " " + variables +
               " " STEPCAST_EXECUTABLE " profile --out " + path.string() + " " + options + " -- " +
               command);
  }
};

std::size_t linked(const RankRecording& rank) {
  std::size_t n = 0;
  for (EventId e = 0; e < rank.events.size(); ++e) {
    n += traces::is_device_work(rank.events.category[e]) && rank.events.link[e] != traces::kNoEvent
             ? 1
             : 0;
  }
  return n;
}

TEST_CASE("a whole program is captured: launches, waits, collectives, steps", "[profile]") {
  const Out out;
  const Ended ended = out.profile("", kTraining + " steps 4");
  INFO(ended.text);
  REQUIRE(ended.code == 0);
  CHECK(ended.text.find("1 ranks, 40 pieces of device work, 24 collectives") != std::string::npos);
  CHECK(ended.text.find("a second), read at") != std::string::npos);
  CHECK(ended.text.find("another tool") == std::string::npos);
  const Recording r = traces::open_trace(out.path);
  CHECK(r.format == "cupti");
  CHECK(r.absolute);
  const RankRecording& rank = r.ranks.front();
  CHECK(rank.steps.size() == 4);
  // A step: three times a gemm and an all-reduce, one exchange, a gather, a scatter, one optimizer.
  CHECK(rank.count(EventCategory::kKernel) == 16);
  CHECK(rank.count(EventCategory::kCollective) == 24);
  CHECK(linked(rank) == 40);
  CHECK(r.names.find("gemm(float*, float*, int)") != traces::kNoName);
  CHECK(rank.devices == std::vector<std::string>{"Fake GPU"});
  CHECK(r.all_oddities().total() == 8);  // gathers and scatters are no kind of the model
  REQUIRE(rank.groups.size() == 2);      // split from all, and shrunk
  for (const traces::Group& group : rank.groups) {
    CHECK(group.ranks == std::vector<std::int32_t>{0});
    CHECK(group.name != "nccl-0000000000000000");
  }
  std::int64_t reduced = 0, exchanged = 0, rooted = 0;
  for (EventId e = 0; e < rank.events.size(); ++e) {
    if (rank.events.category[e] == EventCategory::kCollective) {
      const auto& c = rank.collectives.at(static_cast<std::size_t>(rank.events.detail[e]));
      if (c.kind == OpKind::kAllReduce) {
        CHECK(c.bytes == 4000);  // 1000 floats
        CHECK(c.sequence == reduced++);
      } else if (c.kind == OpKind::kCount) {  // gather, scatter
        CHECK(c.bytes == 200);
        CHECK(c.sequence == rooted++);
        CHECK(c.group == 1);
      } else {
        CHECK(c.kind == OpKind::kAllToAllV);
        CHECK(c.split_in == std::vector<std::int64_t>{10});
        CHECK(c.sequence == exchanged++);
      }
    }
  }
  CHECK(reduced == 12);
  CHECK(exchanged == 4);
  CHECK(rooted == 8);
  for (const traces::SyncInfo& s : rank.syncs) {
    if (s.kind == traces::SyncInfo::Kind::kStreamWait) {
      CHECK(s.source_stream == 7);
      CHECK(s.stream == 20);
      CHECK(s.record_correlation > 0);
    }
  }
  CHECK_FALSE(fs::exists(out.path / ".parts"));

  const Ended shown = run(STEPCAST_EXECUTABLE " show " + out.path.string());
  INFO(shown.text);
  CHECK(shown.code == 0);
  CHECK(shown.text.find("4 recorded steps of 1 rank") != std::string::npos);
  CHECK(run(STEPCAST_EXECUTABLE " replay " + out.path.string()).code == 0);
  const fs::path chrome = out.path / "chrome.json";
  CHECK(run(STEPCAST_EXECUTABLE " convert " + out.path.string() + " " + chrome.string()).code == 0);
  CHECK(fs::exists(chrome));
}

TEST_CASE("ranks are captured each and meet in their collectives", "[profile]") {
  const Out out;
  const auto rank = [](int r) {
    return "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=" + std::to_string(r) + " " + kTraining +
           " steps 4";
  };
  const Ended ended = out.profile("", "/bin/sh -c '" + rank(0) + " & " + rank(1) + "; wait'");
  INFO(ended.text);
  REQUIRE(ended.code == 0);
  const Recording r = traces::open_trace(out.path);
  REQUIRE(r.ranks.size() == 2);
  CHECK(r.ranks[1].rank == 1);
  CHECK(r.ranks[1].world_size == 2);
  REQUIRE(r.ranks[1].groups.size() == 2);
  CHECK(r.ranks[0].groups[0].name == r.ranks[1].groups[0].name);
  CHECK(r.ranks[0].groups[1].name == r.ranks[1].groups[1].name);
  CHECK(r.ranks[1].groups[0].ranks == std::vector<std::int32_t>{0, 1});
  const traces::MeasuredRun measured = traces::measured_run(r);
  REQUIRE(measured.step_count() == 4);
  std::size_t met = 0;
  for (const Op& op : measured.chain()->graph->program_of(1).ops) {
    met += is_collective(op.kind) && op.communicator >= 0 ? 1 : 0;
  }
  CHECK(met == 4 * 4);
}

TEST_CASE("only the steps asked for are kept, marked by ranges or by calls", "[profile]") {
  const Out out;
  const std::string marks = GENERATE("ranges", "calls");
  const Ended ended = out.profile("--steps 2:4", kTraining + " steps 6 sleep 250 " + marks);
  INFO(marks << ": " << ended.text);
  REQUIRE(ended.code == 0);
  const Recording r = traces::open_trace(out.path);
  const RankRecording& rank = r.ranks.front();
  REQUIRE(rank.steps.size() == 2);
  CHECK(rank.steps[0].number == 2);
  CHECK(rank.steps[1].number == 3);
  CHECK(rank.count(EventCategory::kKernel) == 8);
  CHECK(rank.count(EventCategory::kCollective) == 12);
  CHECK(linked(rank) == 20);
  CHECK(rank.metadata.count("late_start_ns") == 0);
}

TEST_CASE("a capture can be bounded by time and by signals", "[profile]") {
  const Out timed;
  const Ended short_one = timed.profile("--seconds 0.2", kTraining + " steps 16 sleep 100");
  INFO(short_one.text);
  REQUIRE(short_one.code == 0);
  const std::uint64_t kernels =
      traces::open_trace(timed.path).ranks.front().count(EventCategory::kKernel);
  CHECK(kernels >= 4);
  CHECK(kernels < 64);  // of 16 steps

  const Out signalled;
  const Ended ended = signalled.profile(
      "--signal", "/bin/sh -c '" + kTraining + " steps 30 sleep 100 & until ls " +
                      signalled.path.string() +
                      "/.parts/*.status >/dev/null 2>&1; do sleep 0.05; done; sleep 0.5; "
                      "kill -USR2 $!; sleep 0.5; kill -USR2 $!; wait'");
  INFO(ended.text);
  REQUIRE(ended.code == 0);
  const std::uint64_t some =
      traces::open_trace(signalled.path).ranks.front().count(EventCategory::kKernel);
  CHECK(some >= 1);
  CHECK(some < 120);  // of 30 steps
}

TEST_CASE("what keeps a program from being captured is said, with the right code and no trace",
          "[profile]") {
  static const std::string slow = kTraining + " steps 4 sleep 300";
  struct Case {
    const char *options, *command, *variables;
    int code;
    const char* says;
  };
  const Case c = GENERATE_COPY(
      Case{"", "true", "", 3, "no process of true used CUDA: nothing was captured"},
      Case{"", kTraining.c_str(), "FAKE_CUPTI_HOLDER='Nsight Systems'", 3,
           "Nsight Systems holds CUPTI (libcupti 13"},
      Case{"", kTraining.c_str(), "FAKE_CUPTI_REFUSES=1", 3,
           "a reason in CUPTI's words (CUPTI error 35) by libcupti 13"},
      Case{"--steps 90:95", kTraining.c_str(), "", 3, "step 90 never began"},
      Case{"--signal", kTraining.c_str(), "", 3, "no SIGUSR2 came"},
      Case{"", "no-such-program-anywhere", "", 2, "is not in PATH"},
      Case{"--steps 4:2", "true", "", 2, "found '4:2'; expected A:B"},
      Case{"", slow.c_str(), "FAKE_CUDA_CANNOT_LOAD=1", 3,
           "1 processes of " FAKE_GPU_FOLDER
           "/fake_training loaded libcuda.so, but not libstepcast_cupti.so"},
      Case{"", "true", "CUDA_INJECTION64_PATH=/opt/other.so", 3, "another tool profiles here"},
      Case{"", "true", "LD_LIBRARY_PATH=/nowhere", 3, "no CUDA driver here"},
      Case{"", "false", "", 4, "false ended with exit code 1; no trace was written"});
  const Out out;
  const Ended ended = out.profile(c.options, c.command, c.variables);
  INFO(c.command << " " << c.options << ": " << ended.text);
  CHECK(ended.code == c.code);
  CHECK(ended.text.find(c.says) != std::string::npos);
  CHECK_FALSE(fs::exists(out.path));
}

TEST_CASE("a program that dies leaves no half of a trace; one that fails leaves all it did",
          "[profile]") {
  const Out out;
  SECTION("killed") {
    const Ended ended = out.profile("", kTraining + " kill");
    INFO(ended.text);
    CHECK(ended.code == 4);
    CHECK(ended.text.find("was killed by signal 9") != std::string::npos);
    CHECK_FALSE(fs::exists(out.path));
  }
  SECTION("left by _exit") {
    const Ended ended = out.profile("", kTraining + " _exit");
    INFO(ended.text);
    CHECK(ended.code == 4);
    CHECK(ended.text.find("ended without its exit handlers") != std::string::npos);
    CHECK_FALSE(fs::exists(out.path));
  }
  SECTION("killed after its window: the trace is there") {
    const Ended ended = out.profile("--steps 0:2", kTraining + " steps 6 sleep 150 kill");
    INFO(ended.text);
    CHECK(ended.code == 4);
    CHECK(traces::open_trace(out.path).ranks.front().steps.size() == 2);
  }
  SECTION("exit code of its own") {
    const Ended ended = out.profile("", kTraining + " leave 7");
    INFO(ended.text);
    CHECK(ended.code == 4);
    CHECK(ended.text.find("ended with exit code 7; the trace of what it did until then") !=
          std::string::npos);
    CHECK(traces::open_trace(out.path).ranks.front().steps.size() == 4);
  }
}

TEST_CASE("NCCL's own words on its collectives are added where asked for", "[profile]") {
  const Out out;
  const Ended ended = out.profile("--nccl-details", kTraining + " steps 2");
  INFO(ended.text);
  REQUIRE(ended.code == 0);
  const Recording r = traces::open_trace(out.path);
  CHECK(r.names.find("ncclAllReduce RING LL128 4 channels") != traces::kNoName);
  CHECK(r.ranks.front().count(EventCategory::kCollective) == 12);
}

TEST_CASE(
    "a newer CUPTI, which refuses a named subscriber the calls of old, is subscribed without one",
    "[profile]") {
  const Out out;
  const Ended ended = out.profile("", kTraining + " steps 2", "FAKE_CUPTI_LIKE=13.3");
  INFO(ended.text);
  REQUIRE(ended.code == 0);
  CHECK(traces::open_trace(out.path).ranks.front().count(EventCategory::kKernel) == 8);
}

TEST_CASE("records of a CUPTI that keeps its own clock are put on ours", "[profile]") {
  const Out out;
  const Ended ended = out.profile("", kTraining + " steps 4", "FAKE_CUPTI_OWN_CLOCK=1");
  INFO(ended.text);
  REQUIRE(ended.code == 0);
  CHECK(ended.text.find("cuptiActivityRegisterTimestampCallback") != std::string::npos);
  const RankRecording rank = traces::open_trace(out.path).ranks.front();
  CHECK(rank.count(EventCategory::kKernel) == 16);
  // NCCL's calls bear our clock; those that launched their kernels must lie within them.
  std::size_t within = 0;
  for (EventId call = 0; call < rank.events.size(); ++call) {
    for (EventId outer = 0; outer < rank.events.size(); ++outer) {
      within += rank.events.category[call] == EventCategory::kRuntimeCall &&
                        rank.events.category[outer] == EventCategory::kUserRange &&
                        rank.events.detail[outer] >= 0 &&
                        rank.events.begin[outer] <= rank.events.begin[call] &&
                        rank.events.end(call) <= rank.events.end(outer)
                    ? 1
                    : 0;
    }
  }
  CHECK(within >= 24);
}

TEST_CASE("another tool that takes CUPTI's buffers is noticed, and when", "[profile]") {
  const Out out;
  const Ended ended = out.profile("", kTraining + " steps 12 sleep 100 taken 6");
  INFO(ended.text);
  REQUIRE(ended.code == 0);
  CHECK(ended.text.find("another tool took CUPTI's buffers") != std::string::npos);
  const RankRecording rank = traces::open_trace(out.path).ranks.front();
  CHECK(rank.metadata.count("cupti.taken") == 1);
  CHECK(rank.count(EventCategory::kKernel) < 40);  // of 48
  const Out none;
  const Ended at_once = none.profile("", kTraining + " steps 4 sleep 100 taken 0");
  INFO(at_once.text);
  CHECK((at_once.code == 3 || at_once.code == 0));  // a first buffer may have come back
  CHECK(at_once.text.find("another tool took CUPTI's buffers") != std::string::npos);
}

TEST_CASE(
    "a variable that would make torch hold CUPTI from its import on does not reach the command",
    "[profile]") {
  const Out out;
  const Ended ended =
      out.profile("", "/bin/sh -c 'test -z ${KINETO_USE_DAEMON+set} && " + kTraining + " steps 1'",
                  "KINETO_USE_DAEMON=1");
  INFO(ended.text);
  CHECK(ended.code == 0);
}

TEST_CASE("a forked child ends in peace and is no rank", "[profile]") {
  const Out out;
  const Ended ended = out.profile("", kTraining + " fork");
  INFO(ended.text);
  REQUIRE(ended.code == 0);
  const Recording r = traces::open_trace(out.path);
  CHECK(r.ranks.size() == 1);
  CHECK(r.names.find("child") == traces::kNoName);
}

TEST_CASE("a folder that holds a trace is not written over", "[profile]") {
  const Out out;
  REQUIRE(out.profile("", kTraining + " steps 1").code == 0);
  const Ended again = out.profile("", kTraining + " steps 1");
  CHECK(again.code == 2);
  CHECK(again.text.find("holds a trace already") != std::string::npos);
}

}  // namespace
}  // namespace stepcast
