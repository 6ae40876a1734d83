#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <set>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;

namespace {

/// Widths of the bars of a page in order, by the colour of a single-part chart.
std::vector<double> widths_of(const std::string& page, const std::string& colour) {
  std::vector<double> widths;
  const std::regex bar("width=\"([0-9.]+)%\" height=\"14.0\" fill=\"" + colour + "\"");
  for (std::sregex_iterator it(page.begin(), page.end(), bar), end; it != end; ++it) {
    widths.push_back(std::stod((*it)[1]));
  }
  return widths;
}

}  // namespace

TEST_CASE("a report shows what other commands printed, without scripts or links", "[cli]") {
  const Folder folder;
  const auto document = [&](const std::string& name, const Words& arguments) {
    return folder.file(name, succeeded(arguments + "--format json").out);
  };
  const Words job = "gpt-22b --set system=dgx-a100-80gb -n 16 --gbs 16";
  const std::string one = document("one.json", job + "--allow-oom --tp 8");
  const std::string two = document("two.json", job + "--allow-oom --tp 4");
  const std::string points = document("sweep.json", "sweep" + job + "--tp 2,4,8,3");
  const std::string parallel =
      document("plan.json", "plan" + job + "--tp 8 --front --same-devices");
  const std::string embedding = document("tables.json", "plan rm1 -n 8 --compare");
  const std::string replayed =
      document("replay.json", {"replay", STEPCAST_SOURCE_DIR "/traces/recorded/dlrm-2"});

  const std::string html = folder / "report.html";
  succeeded({"report", one, two, points, parallel, embedding, replayed, "--html", html, "--title",
             "a < b & \"c\""});
  const std::string page = text_of(html);
  CHECK_THAT(page, Contains("a &lt; b &amp; &quot;c&quot;") && !Contains("<script"));
  CHECK(std::regex_search(page, std::regex("href|src=|@import|url\\(")) == false);
  for (const char* expected :
       {"side by side", "time of the critical path", "longest ops", "memory of the fullest GPU",
        "step time against memory", "front of step time", "bytes by rank and tier", "round_robin",
        "dlrm-2, measured", "kernels take no time", "90 % interval", "<main>", "stepcast 0."}) {
    INFO(expected);
    CHECK_THAT(page, Contains(expected));
  }
  // 16 devices and 64 heads do not split by 3: said, not drawn.
  CHECK_THAT(page, Contains("not predicted") && Contains("tensor=3"));
  // Every picture that is opened is closed.
  const auto times = [&](const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) {
      ++n;
    }
    return n;
  };
  CHECK(times("<svg ") == times("</svg>"));
  CHECK(times("<svg ") >= 10);
  // The page's colours, each that is used.
  std::set<std::string> used;
  const std::regex colour("var\\((--[a-z0-9_-]+)[,)]");
  for (std::sregex_iterator it(page.begin(), page.end(), colour), end; it != end; ++it) {
    used.insert((*it)[1]);
  }
  CHECK(used.size() > 8);
  for (const std::string& name : used) {
    INFO(name);
    CHECK(times(name + ":") == 1);
  }
}

TEST_CASE("a report draws a waterfall to scale", "[cli]") {
  const Folder folder;
  const std::string doc = folder.file("explain.json", R"({
    "summary": [{"side": "A", "step_s": 1.0}, {"side": "B", "step_s": 1.5}],
    "changes": [{"change": "more <work>", "delta_s": 1.0}, {"change": "less", "delta_s": -0.5}]})");
  const std::string html = folder / "report.html";
  succeeded({"report", doc, "--html", html});
  const std::string page = text_of(html);
  CHECK_THAT(page, Contains("more &lt;work&gt;"));
  // The axis ends at the highest point, 2 s: A is half of it, the first change the other half; the
  // second goes back a quarter; B is three quarters.
  CHECK(widths_of(page, "var\\(--c1\\)") == std::vector<double>{50, 50, 75});
  CHECK(widths_of(page, "var\\(--c3\\)") == std::vector<double>{25});
}

TEST_CASE("a report names the document it cannot read and what is wrong in it", "[cli]") {
  const Folder folder;
  const std::string html = folder / "report.html";
  struct Case {
    const char* text;
    const char* message;
  };
  const std::vector<Case> cases{
      {"{not json", "is not JSON"},
      {R"({"answer": 42})", "is no document that a report knows"},
      {"[1, 2]", "is no document that a report knows"},
      {R"({"suites": 3})", "suites: found 3, expected a list"},
      {R"({"suites": [{"name": "x"}]})", "suites[0].pass: is missing"},
      {R"({"replays": [{"trace": "t", "measured_step_s": "1"}]})",
       "replays[0].measured_step_s: found \"1\", expected a number"},
      {R"({"summary": [{"side": "A", "step_s": 1}], "changes": []})", "summary: found"},
  };
  for (const Case& c : cases) {
    const std::string file = folder.file("bad.json", c.text);
    const Outcome outcome = call({"report", file, "--html", html});
    INFO(c.text << "\n" << outcome.err);
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.err, Contains("bad.json") && Contains(c.message));
    CHECK_FALSE(std::filesystem::exists(html));
  }
  rejected({"report", folder / "none.json", "--html", html}, "none.json", "cannot be read");
}
