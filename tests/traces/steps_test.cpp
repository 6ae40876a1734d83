// Which parts of a recording are its steps, and recordings that are odd but whole.
#include <catch2/catch.hpp>

#include "core/error.h"
#include "tests/studies/kineto_events.h"
#include "tests/traces/shared_traces.h"
#include "traces/measured_step.h"

using namespace stepcast;
using namespace stepcast::traces;
using Catch::Contains;
using studies::test::KinetoEvents;

namespace {

/// Steps of 1 ms: a range where one is named, 6 kernels of 100 us each launched by an operator.
KinetoEvents three_steps(const std::string& range = "ProfilerStep#{}", int steps = 3) {
  KinetoEvents t;
  int id = 100;
  for (int s = 0; s < steps; ++s) {
    const double at = 1'000'000 + 1000.0 * s;
    if (!range.empty()) {
      t.range(fmt::format(fmt::runtime(range), s), at, 990);
    }
    for (int k = 0; k < 6; ++k) {
      t.call("cudaLaunchKernel", at + 22 + 20 * k, 5, ++id);
      t.kernel("kernel_" + std::to_string(k), 7, at + 50 + 100 * k, 100, id);
    }
  }
  return t;
}

bool warns(const MeasuredRun& run, const std::string& of) {
  return std::any_of(run.warnings.begin(), run.warnings.end(),
                     [&of](const std::string& w) { return w.find(of) != std::string::npos; });
}

/// Launches one after the other: 5 us apart on the host, 31 us on the device.
class Launches {
 public:
  void kernel(const std::string& name) {
    events.call("cudaLaunchKernel", 1'000'000 + 5.0 * id_, 4, id_ + 1);
    events.kernel(name, 7, 1'000'000 + 31.0 * id_, 30, id_ + 1);
    ++id_;
  }
  void layers(int count, const std::string& pass) {
    for (int l = 0; l < count; ++l) {
      for (const char* name : {"norm", "qkv", "flash", "out", "norm", "up", "gelu", "down"}) {
        kernel(name + pass);
      }
    }
  }
  void training_step(int count) {
    kernel("embedding");
    layers(count, "_fwd");
    kernel("loss");
    layers(count, "_bwd");
    kernel("adam");
  }
  KinetoEvents events;

 private:
  int id_ = 0;
};

std::vector<std::int64_t> step_ends(const MeasuredRun& run) {
  return recorded_step_ends(run.chain()->ranks[0]);
}

}  // namespace

TEST_CASE("a recording of the device alone is one step", "[traces][steps]") {
  KinetoEvents t;
  for (int k = 0; k < 5; ++k) {
    t.kernel("gemm", 7, 1000 + 150 * k, 100, 1 + k);
  }
  const MeasuredRun run = measured_run(t.open());
  REQUIRE(run.step_count() == 1);
  CHECK(run.steps[0].wall == 700'000'000);  // the last begins at 600 us
  CHECK(run.steps[0].ranks[0].spans.size() == 5);
  CHECK(run.steps[0].ranks[0].stripped == 0);
  CHECK(warns(run, "nothing marks steps"));
}

TEST_CASE("marked steps that launched nothing give way to the whole recording", "[traces][steps]") {
  KinetoEvents t;
  t.step(0, 0, 10);
  t.step(1, 10, 10);
  t.call("cudaLaunchKernel", 30, 5, 1);
  t.kernel("gemm", 7, 40, 100, 1);
  const MeasuredRun run = measured_run(t.open());
  CHECK(run.step_count() == 1);
  CHECK(warns(run, "ranges 'ProfilerStep' launched no device work"));
  CHECK_THROWS_WITH(measured_run(t.open(), "ProfilerStep"),
                    Contains("no range 'ProfilerStep' launched device work"));
}

TEST_CASE("a recording without device work says what it holds", "[traces][steps]") {
  KinetoEvents t;
  t.step(0, 0, 90);
  for (int i = 0; i < 12; ++i) {
    t.add(R"("cat":"npu_events","name":"e","pid":1,"tid":2,"ts":{},"dur":1)", 10 + i);
  }
  t.call("cudaLaunchKernel", 30, 5, 1);
  CHECK_THROWS_WITH(measured_run(t.open()),
                    Contains("12 events of unknown category npu_events, 1 calls of the runtime"));
  KinetoEvents none;
  none.add(R"("name":"e","pid":1,"tid":2,"ts":1,"dur":1)");
  CHECK_THROWS_WITH(measured_run(none.open()), Contains("1 events without a category"));
  CHECK_THROWS_WITH(measured_run(KinetoEvents().open()), Contains("no device work; record"));
}

TEST_CASE("events of MTIA are kernels and calls", "[traces][steps]") {
  KinetoEvents t;
  t.add(
      R"("cat":"mtia_runtime","name":"launchKernel","pid":1,"tid":2,"ts":1,"dur":1,"args":{{"correlation":3}})");
  t.add(
      R"("cat":"mtia_ccp_events","name":"fc","pid":0,"tid":7,"ts":5,"dur":10,"args":{{"correlation":3,"stream":7}})");
  const Recording r = t.open();
  CHECK(r.ranks[0].count(EventCategory::kKernel) == 1);
  CHECK(r.ranks[0].oddities[ParseWarning::kOrphan].count == 0);
}

TEST_CASE("steps whose numbers begin anew are numbered by order; doubled events count once",
          "[traces][steps]") {
  KinetoEvents again = three_steps("ProfilerStep#{}", 2);
  for (int s = 0; s < 2; ++s) {
    const double at = 1'002'000 + 1000.0 * s;
    again.step(s, at, 990);
    again.call("cudaLaunchKernel", at + 22, 5, 500 + s);
    again.kernel("gemm", 7, at + 50, 100, 500 + s);
  }
  CHECK(measured_run(again.open()).step_count() == 4);

  const test::Folder folder;
  three_steps().write(folder.path() / "once.json");
  const std::string once = test::text_of(folder.path() / "once.json");
  const std::size_t list = once.find('[') + 1;
  const std::string events = once.substr(list, once.rfind(']') - list);
  const Recording twice =
      open_trace(folder.file("twice.json", once.substr(0, list) + events + "," + events + "]}"));
  CHECK(twice.ranks[0].oddities[ParseWarning::kRepeated].count == 3 * 13);
  const MeasuredRun run = measured_run(twice);
  CHECK(run.step_count() == 3);
  CHECK(step_ends(run) == step_ends(measured_run(three_steps().open())));
  CHECK(warns(run, "records stand there twice"));
}

TEST_CASE("events that begin and end apart are ranges", "[traces][steps]") {
  const test::Folder folder;
  const Recording r = open_trace(folder.file("be.json", R"({"traceEvents": [
{"ph": "B", "cat": "cpu_op", "name": "outer", "pid": 1, "tid": 1, "ts": 10},
{"ph": "B", "cat": "cpu_op", "name": "inner", "pid": 1, "tid": 1, "ts": 12, "args": {"External id": 4}},
{"ph": "E", "pid": 1, "tid": 1, "ts": 15}, {"ph": "E", "pid": 1, "tid": 1, "ts": 30},
{"ph": "B", "cat": "cpu_op", "name": "open", "pid": 1, "tid": 1, "ts": 40}, {"ph": "E", "pid": 1, "tid": 2, "ts": 41}]})"));
  const Events& e = r.ranks[0].events;
  REQUIRE(e.size() == 2);
  CHECK(e.duration[0].count() == 20000);
  CHECK(e.duration[1].count() == 3000);
  CHECK(e.external[1] == 4);
  CHECK(r.ranks[0].oddities[ParseWarning::kNoTime].count == 2);
}

TEST_CASE("a duration that runs over what follows on its stream is cut there and told",
          "[traces][steps]") {
  KinetoEvents t = three_steps();
  t.call("cudaLaunchKernel", 1'000'030, 5, 900);
  t.kernel("endless", 7, 1'000'050.5, 1'600'000, 900);  // between the first and the second
  const Recording r = t.open();
  CHECK(r.ranks[0].oddities[ParseWarning::kOverrun].count == 1);
  const MeasuredRun run = measured_run(r);
  REQUIRE(run.step_count() == 3);
  CHECK(step_ends(run)[2] == step_ends(measured_run(three_steps().open()))[2]);
  CHECK(step_ends(run)[3] == step_ends(measured_run(three_steps().open()))[3]);
  CHECK(warns(run, "cut there"));
  // Branches of a graph are one launch, and a stream where all overlap is no queue.
  KinetoEvents graph;
  graph.call("cudaGraphLaunch", 0, 5, 1);
  KinetoEvents merged;
  for (int k = 0; k < 12; ++k) {
    graph.kernel("k", 7, 10 + k, k == 0 ? 100 : 1, 1);
    merged.kernel("k", 7, 10 + k, 100, 1 + k);
  }
  CHECK(graph.open().ranks[0].oddities[ParseWarning::kOverrun].count == 0);
  CHECK(merged.open().ranks[0].oddities[ParseWarning::kOverrun].count == 0);
}

TEST_CASE("layers of one step are not steps; steps that repeat are, and are told to be guessed",
          "[traces][steps]") {
  Launches one;
  one.training_step(48);
  const MeasuredRun whole = measured_run(one.events.open());
  CHECK(whole.step_count() == 1);
  CHECK(whole.marked_by.empty());

  Launches six;
  for (int s = 0; s < 6; ++s) {
    six.training_step(12);
  }
  const MeasuredRun run = measured_run(six.events.open());
  CHECK(run.step_count() == 6);
  CHECK(run.marked_by == "a sequence of 195 launches that repeats (guessed)");
  CHECK(warns(run, "steps are guessed from a sequence of 195 launches"));

  // Layers alone look like steps, but for a range that holds them all.
  Launches forward;
  forward.layers(20, "");
  CHECK(measured_run(forward.events.open()).step_count() == 20);
  forward.events.range("denoise", 999'990, 10'000);
  CHECK(measured_run(forward.events.open()).step_count() == 1);
}

TEST_CASE("ranges are steps by families of names, unless they hold a kernel or part of a round",
          "[traces][steps]") {
  const std::string vllm = "execute_16_context_0(sq0sk0)_generation_{}";
  const MeasuredRun run = measured_run(three_steps(vllm).open());
  CHECK(run.step_count() == 3);
  CHECK(run.marked_by == "ranges 'execute_*_context_*(sq*sk*)_generation' (guessed)");
  CHECK(measured_run(three_steps(vllm).open(), "execute_*").step_count() == 3);
  CHECK_THROWS_WITH(measured_run(three_steps(vllm).open(), "run_*"),
                    Contains("its ranges are execute_*_context"));

  // Thunks: one range for each kernel. Programs: two of other contents make up a step.
  KinetoEvents thunks = three_steps("");
  for (int k = 0; k < 18; ++k) {
    thunks.range("loop_fusion", 1'000'000 + 1000 * (k / 6) + 21 + 20 * (k % 6), 8);
  }
  CHECK(measured_run(thunks.open()).marked_by == "a sequence of 6 launches that repeats (guessed)");
  KinetoEvents programs = three_steps("");
  for (int s = 0; s < 3; ++s) {
    programs.range("ExecuteThunks", 1'000'000 + 1000 * s + 20, 49);   // two launches
    programs.range("ExecuteThunks", 1'000'000 + 1000 * s + 71, 800);  // the four others
  }
  CHECK(measured_run(programs.open()).step_count() == 3);
}

TEST_CASE("files of a folder that share nothing are not one run", "[traces][steps]") {
  const test::Folder folder;
  three_steps().write(folder.path() / "a.json");
  KinetoEvents other;
  other.kernel("gemm", 7, 5'000'000'000, 100, 1);
  other.write(folder.path() / "b.json");
  CHECK_THROWS_WITH(
      open_trace(folder.path()),
      Contains("b.json: shares no time, collective or run with") && Contains("a.json"));
  // Collectives of one kind on both: clocks may be hours apart.
  KinetoEvents first = three_steps();
  first.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", 9, 1'000'100, 10, 0);
  first.write(folder.path() / "a.json");
  other.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", 9, 5'000'000'200, 10, 0);
  other.write(folder.path() / "b.json");
  CHECK(open_trace(folder.path()).ranks.size() == 2);
}

TEST_CASE("a mark of the byte order is no part of a trace", "[traces][steps]") {
  const test::Folder folder;
  three_steps().write(folder.path() / "plain.json");
  const auto marked =
      folder.file("marked.json", "\xef\xbb\xbf" + test::text_of(folder.path() / "plain.json"));
  CHECK(open_trace(marked).ranks[0].events.size() == 39);
}
