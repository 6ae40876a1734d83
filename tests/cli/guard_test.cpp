// A recorded run against a baseline, as CI calls it.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

std::string recorded(const char* name) {
  return std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/" + name;
}

}  // namespace

TEST_CASE("replay --baseline exits with 1 and says what moved", "[cli][guard]") {
  const Folder folder;
  const std::string baseline = folder / "baseline.json";
  const std::string junit = folder / "verdict.xml";
  const std::string markdown = folder / "verdict.md";
  // Four ranks on two cores: eight steps of one run differ too much to exclude 5 %.
  const std::string noisy = folder / "noisy.json";
  succeeded({"guard", recorded("gpt-4"), "--update-baseline", noisy});
  const Words check{"guard", recorded("gpt-4"), "--baseline", noisy,   "--junit",
                    junit,   "--markdown",      markdown,     "--json"};
  const Outcome same = call(check);
  INFO(same.err);
  CHECK(same.code == 5);
  const auto verdict = nlohmann::json::parse(same.out)["guard"];
  CHECK(verdict["verdict"] == "cannot judge");
  CHECK(verdict["pass"] == false);
  CHECK(verdict["at_most"] > 0.05);
  CHECK_THAT(text_of(junit), Contains("failures=\"1\"") && Contains("name=\"power\""));
  CHECK_THAT(text_of(markdown), Contains("cannot judge") && !Contains("no regression"));
  succeeded(check + "--cannot-judge pass");
  CHECK_THAT(text_of(junit), Contains("failures=\"0\""));
  const std::string page = folder / "page.html";
  succeeded({"report", folder.file("guard.json", same.out), "--html", page});
  CHECK_THAT(text_of(page), Contains("guard: cannot judge") && Contains("times per step"));

  // Repeats are added to a baseline; another program begins it anew.
  const auto runs_kept = [&](const char* run) {
    const Words keep{"guard", recorded(run), "--update-baseline", baseline};
    return answer(keep + "--keep 2 --structure fail")["runs"].get<int>();
  };
  CHECK(runs_kept("dlrm-2") == 1);
  CHECK(runs_kept("gpt-2") == 1);
  CHECK(runs_kept("gpt-2") == 2);
  CHECK(runs_kept("gpt-2") == 2);

  const Outcome other = call({"replay", recorded("dlrm-2"), "--baseline", baseline, "--junit",
                              junit, "--markdown", markdown});
  CHECK(other.code == 1);
  CHECK_THAT(other.out, Contains("new op") && Contains("op is gone"));
  rejected({"replay", recorded("dlrm-2"), "--baseline", baseline, "--structure", "often"});
  CHECK_THAT(text_of(junit), Contains("<failure message=\"new op: 0 before"));
  CHECK_THAT(text_of(markdown), Contains("| new op | bucket.0.all\\_reduce |"));

  rejected({"replay", recorded("gpt-2"), "--baseline", recorded("gpt-2") + "/trace.json"});
  rejected({"replay", recorded("gpt-2"), "--junit", junit});
}

TEST_CASE("steps that are guessed are said to be, unless they are named", "[cli][guard]") {
  std::string events;
  for (int s = 0; s < 5; ++s) {
    const int at = 1000 * s;
    events += fmt::format(
        R"({}{{"ph":"X","cat":"user_annotation","name":"execute_{}_context","pid":1,"tid":1,"ts":{},"dur":990}})",
        s == 0 ? "" : ",", s, at);
    for (int i = 1; i <= 2; ++i) {
      events += fmt::format(
          R"(,{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{0},"dur":5,"args":{{"correlation":{1}}}}})"
          R"(,{{"ph":"X","cat":"kernel","name":"k{2}","pid":0,"tid":7,"ts":{3},"dur":300,"args":{{"stream":7,"device":0,"correlation":{1}}}}})",
          at + 10 * i, 2 * s + i, i, at + 300 * i);
    }
  }
  const Folder folder;
  const std::string run = folder.file("run.json", R"({"traceEvents":[)" + events + "]}");
  const std::string baseline = folder / "baseline.json";
  for (const Words& arguments : {Words{"guard", run, "--baseline", run},
                                 {"guard", run, "--update-baseline", baseline},
                                 {"diff", run, run},
                                 {"replay", run},
                                 {"show", run},
                                 {"show", run, "--by", "kind"}}) {
    CAPTURE(arguments);
    const Outcome guessed = succeeded(arguments);
    CHECK_THAT(guessed.out + guessed.err, Contains("guessed"));
    const Outcome told = succeeded(arguments + "--mark execute_*");
    CHECK_THAT(told.out + told.err, !Contains("guessed"));
  }
  rejected("diff llama3-8b llama3-8b --mark x", "--mark", "recorded");
}

TEST_CASE("a snapshot of memory is shown", "[cli]") {
  const std::string snapshot =
      std::string(STEPCAST_SOURCE_DIR) + "/tests/traces/corpus_memory/out_of_memory.pickle";
  const Outcome shown = succeeded({"show", snapshot});
  CHECK_THAT(shown.out, Contains("78.0 MiB") && Contains("forward model.py:12"));
  CHECK(call({snapshot}).out == shown.out);
}

TEST_CASE("a cut trace exits with 2 and names file and byte", "[cli][guard]") {
  const Folder folder;
  const std::string cut =
      folder.file("cut.json", R"({"schemaVersion": 1, "traceEvents": [{"ph": )");
  rejected({"replay", cut}, "cut.json: byte ");
  rejected({"convert", cut, folder / "out"}, "cut.json: byte ");
  rejected({"replay", cut, "--baseline", folder / "none.json"}, "cut.json: byte ");
}
