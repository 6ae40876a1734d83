// A recorded run against a baseline, as CI calls it.
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
  const TemporaryFolder folder;
  const std::string baseline = folder / "baseline.json";
  const std::string junit = folder / "verdict.xml";
  const std::string markdown = folder / "verdict.md";
  // Four ranks on two cores: eight steps of one run differ too much to exclude 5 %.
  const std::string noisy = folder / "noisy.json";
  REQUIRE(call({"guard", recorded("gpt-4"), "--update-baseline", noisy}).code == 0);
  const std::vector<std::string> check{"guard", recorded("gpt-4"), "--baseline", noisy, "--junit",
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
  std::vector<std::string> neutral = check;
  neutral.insert(neutral.end(), {"--cannot-judge", "pass"});
  CHECK(call(neutral).code == 0);
  CHECK_THAT(text_of(junit), Contains("failures=\"0\""));
  const std::string page = folder / "page.html";
  CHECK(call({"report", folder.file("guard.json", same.out), "--html", page}).code == 0);
  CHECK_THAT(text_of(page), Contains("guard: cannot judge") && Contains("times per step"));

  // Repeats are added to a baseline; another program begins it anew.
  const auto runs_kept = [&](const char* run) {
    const Outcome kept = call({"guard", recorded(run), "--update-baseline", baseline, "--keep", "2",
                               "--structure", "fail", "--json"});
    INFO(kept.err);
    REQUIRE(kept.code == 0);
    return nlohmann::json::parse(kept.out)["runs"].get<int>();
  };
  CHECK(runs_kept("dlrm-2") == 1);
  CHECK(runs_kept("gpt-2") == 1);
  CHECK(runs_kept("gpt-2") == 2);
  CHECK(runs_kept("gpt-2") == 2);

  const Outcome other = call({"replay", recorded("dlrm-2"), "--baseline", baseline, "--junit",
                              junit, "--markdown", markdown});
  CHECK(other.code == 1);
  CHECK_THAT(other.out, Contains("new op") && Contains("op is gone"));
  CHECK(call({"replay", recorded("dlrm-2"), "--baseline", baseline, "--structure", "often"}).code ==
        2);
  CHECK_THAT(text_of(junit), Contains("<failure message=\"new op: 0 before"));
  CHECK_THAT(text_of(markdown), Contains("| new op | bucket.0.all\\_reduce |"));

  CHECK(call({"replay", recorded("gpt-2"), "--baseline", recorded("gpt-2") + "/trace.json"}).code ==
        2);
  CHECK(call({"replay", recorded("gpt-2"), "--junit", junit}).code == 2);
}

TEST_CASE("a cut trace exits with 2 and names file and byte", "[cli][guard]") {
  const TemporaryFolder folder;
  const std::string cut =
      folder.file("cut.json", R"({"schemaVersion": 1, "traceEvents": [{"ph": )");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"replay", cut},
        std::vector<std::string>{"convert", cut, folder / "out"},
        std::vector<std::string>{"replay", cut, "--baseline", folder / "none.json"}}) {
    const Outcome outcome = call(arguments);
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.err, Contains("cut.json: byte "));
    CHECK(outcome.out.empty());
  }
}
