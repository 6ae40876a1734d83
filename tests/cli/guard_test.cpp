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
  const Outcome made = call({"replay", recorded("gpt-2"), "--update-baseline", baseline});
  INFO(made.err);
  REQUIRE(made.code == 0);

  const Outcome same = call({"replay", recorded("gpt-2"), "--baseline", baseline, "--junit", junit,
                             "--markdown", markdown, "--format", "json"});
  INFO(same.err);
  // Eight steps of one run: nothing regressed, and nothing as small as 5 % would have been seen.
  CHECK(same.code == 5);
  const auto verdict = nlohmann::json::parse(same.out)["guard"];
  CHECK(verdict["verdict"] == "cannot judge");
  CHECK(verdict["pass"] == false);
  CHECK(verdict["power"]["all_ops_together"] > 0.05);
  CHECK_THAT(text_of(junit), Contains("failures=\"1\"") && Contains("name=\"power\""));
  CHECK_THAT(text_of(markdown), Contains("cannot judge") && !Contains("no regression"));
  const std::string page = folder / "page.html";
  CHECK(call({"report", folder.file("guard.json", same.out), "--html", page}).code == 0);
  CHECK_THAT(text_of(page), Contains("guard: cannot judge") && Contains("times per step"));

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
