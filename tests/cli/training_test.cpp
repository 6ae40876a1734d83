// Real training through the executable: `stepcast run` starts its own ranks.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <regex>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// The examples name the machine calibrate writes; any system serves where no time is predicted.
const Words kAnySystem = "--set system=dgx-h100 --set formats.compute=fp32";

Words run(const std::string& job, const Words& more) {
  return Words{"run", job, "--ranks", "2"} + kAnySystem + more;
}

std::string example(const std::string& name) {
  return std::string(STEPCAST_SOURCE_DIR) + "/docs/examples/" + name;
}

}  // namespace

TEST_CASE("the example of experts trains on four ranks and counts what it predicted",
          "[cli][mpi]") {
  const Outcome outcome = call(Words{"run", example("experts.json")} +
                               "--ranks 4 --steps 8 --warmup 0 --format json" + kAnySystem);
  const std::vector<double> losses = losses_of(outcome);
  CHECK(losses.back() < losses.front());
  const json sent = json::parse(outcome.out)["traffic"];
  INFO(sent.dump());
  // 3 layers with experts, 4 exchanges each, of 2 * 256 tokens * 2 copies * 256 numbers of 4 bytes,
  // three quarters to other ranks, of 4 ranks.
  const double expected = 3 * 4 * 2 * 256 * 2 * 256 * 4 * 0.75 * 4;
  double counted = 0;
  double predicted = 0;
  for (const json& row : sent) {
    if (row["kind"] == "experts") {
      counted += row["counted_bytes"].get<double>();
      predicted += row["predicted_bytes"].get<double>();
    }
  }
  CHECK(counted == Approx(expected));
  CHECK(predicted == Approx(expected));
}

TEST_CASE("the example of cached tables trains as the same rows in device memory", "[cli][mpi]") {
  const Folder folder;
  const std::string cached = example("cached-tables.plan.json");
  const std::string text = text_of(cached);
  std::string plan = std::regex_replace(text, std::regex(", \"cache\": \\{[^}]*\\}"), "");
  plan = std::regex_replace(plan, std::regex("\"ddr\""), "\"hbm\"");
  REQUIRE(plan != text);
  const auto losses = [](const std::string& file) {
    const Words run{"run", example("tiered-sequence.json"), "--set", "embedding.plan=" + file};
    return losses_of(call(run + "--ranks 4 --steps 3 --warmup 0 --format json"));
  };
  CHECK(losses(cached) == losses(folder.file("same.plan.json", plan)));
}

TEST_CASE("a job on standard input trains as the same job in a file", "[cli][mpi]") {
  const Folder folder;
  const auto losses = [](const std::string& job, const std::string& input) {
    return losses_of(call(run(job, "--steps 3 --warmup 0 --format json"), input));
  };
  CHECK(losses("-", kTinyJob) == losses(folder.file("tiny.json", kTinyJob), ""));
  // Ranks have a terminal of mpirun's, the answer goes to a file.
  CHECK(call(run("-", "--steps 3 --warmup 0"), kTinyJob).out.find('\x1b') == std::string::npos);
  rejected(call(run("-", "--steps 3"), " \n"), "standard input", "is empty");
}

TEST_CASE("a run is recorded, converted whole and in part, and shown", "[cli][mpi]") {
  const Folder folder;
  const std::string job = folder.file("tiny.json", kTinyJob);
  const std::string trace = folder / "trace";
  const Outcome recorded = succeeded(run(job, {"--steps", "4", "--warmup", "1", "--trace", trace}));
  CHECK_THAT(recorded.out, Contains("tiny on 2 ranks"));
  for (const char* file : {"trace.json", "rank-0.csv", "rank-1.csv"}) {
    CHECK(fs::exists(fs::path(trace) / file));
  }

  const auto events = [&folder, &trace](const std::string& name, const Words& more) {
    CHECK(succeeded(Words{"convert", trace, folder / name, "--to", "perfetto"} + more).out.empty());
    std::size_t spans = 0;
    const json timeline = json::parse(text_of(folder / name));
    for (const json& event : timeline["traceEvents"]) {
      spans += event["ph"] == "X" ? 1U : 0U;
    }
    return spans;
  };
  const std::size_t all = events("all.json", {});
  const std::size_t half = events("half.json", {"--steps", "0:2"});
  CHECK(half > 0);
  CHECK(all > half);
  // Native again: the same folder, readable as before.
  const std::string copy = folder / "copy";
  succeeded({"convert", trace, copy, "--to", "native"});
  succeeded({"convert", copy, folder / "again.json", "--to", "perfetto"});
  // A step that was not recorded is an error, not an empty file.
  rejected({"convert", trace, folder / "none.json", "--steps", "90:99"}, "90:99");
  CHECK_FALSE(fs::exists(folder / "none.json"));
  // A rank's file that was cut off makes the trace unreadable, with its name.
  const std::string rank = text_of(fs::path(trace) / "rank-1.csv");
  folder.file("trace/rank-1.csv", rank.substr(0, rank.size() / 2));
  rejected({"convert", trace, folder / "cut.json"}, "rank-1.csv");
  CHECK_FALSE(fs::exists(folder / "cut.json"));
}

TEST_CASE("a trace's folder is looked at before ranks start, and replaces an older run",
          "[cli][mpi]") {
  const Folder folder;
  const std::string job = folder.file("tiny.json", kTinyJob);
  const std::string below = job + "/deep/trace";  // below a file
  rejected(run(job, {"--steps", "1", "--trace", below}), below, "cannot be written");
  // A job that is wrong leaves no folder behind, parents included.
  rejected(run(job, {"--set", "batch.global=63", "--trace", folder / "a/b/c"}));
  CHECK_FALSE(fs::exists(folder / "a"));

  const std::string trace = folder / "deep/trace";
  succeeded(run(job, {"--steps", "2", "--trace", trace}));
  folder.file("deep/trace/rank-2.csv", "of an older run on three ranks");
  succeeded(run(job, {"--steps", "3", "--trace", trace}));
  CHECK_FALSE(fs::exists(fs::path(trace) / "rank-2.csv"));
  CHECK_THAT(text_of(fs::path(trace) / "rank-1.csv"), Contains("step,2,"));
}

TEST_CASE("a job that cannot run says so once, before ranks start", "[cli][mpi]") {
  const Folder folder;
  const std::string job = folder.file("tiny.json", kTinyJob);
  const Outcome odd = call(run(job, "--set batch.global=63"));
  rejected(odd, "63");
  CHECK(odd.err.find("batch.global") == odd.err.rfind("batch.global"));
  rejected({"run", job, "--ranks", "3"}, "64");
}

TEST_CASE("models fitted to one trace of a family predict another job, which then runs",
          "[cli][mpi]") {
  const Folder folder;
  const Outcome outcome =
      call("validate runtime --from-traces 1 --count 2 --seed 99 --format json" +
           Words{"--predictions", folder / "predictions.csv"});
  INFO(outcome.err);
  REQUIRE((outcome.code == 0 || outcome.code == 1));  // in bounds or not: either is an answer
  const json rows = json::parse(outcome.out)["suites"][0]["rows"];
  REQUIRE(rows.size() == 2);
  for (const json& row : rows) {
    CHECK(row["measured"].get<double>() > 0);
    CHECK(row["predicted"].get<double>() > 0);
  }
}
