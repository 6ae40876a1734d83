// Input that nobody sends by accident: nesting without end, devices and pipes for files, escape
// sequences in names. Refused with exit code 2, or harmless; never a crash.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

/// Two steps of one kernel each, named as given.
std::string kineto(const std::string& kernel) {
  std::string events;
  for (int step = 0; step < 2; ++step) {
    const std::string at = std::to_string(1000 * step), id = std::to_string(step + 1);
    events += R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#)" + id +
              R"(","pid":1,"tid":1,"ts":)" + at + R"(,"dur":900},)" +
              R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":)" +
              at + R"(.5,"dur":2,"args":{"correlation":)" + id + "}}," +
              R"({"ph":"X","cat":"kernel","name":)" + nlohmann::json(kernel).dump() +
              R"(,"pid":0,"tid":7,"ts":)" + at + R"(.7,"dur":500,"args":{"correlation":)" + id +
              R"(,"device":0,"stream":7}})" + (step == 0 ? "," : "");
  }
  return R"({"schemaVersion":1,"traceEvents":[)" + events + "]}";
}

}  // namespace

TEST_CASE("nesting without end is refused, not followed", "[cli][malformed]") {
  const TemporaryFolder folder;
  const std::string deep = folder.file("deep.json", nested(200000));
  const std::string page = folder / "page.html";
  rejected({"report", deep, "--html", page}, "deep.json: byte 256", "nests deeper than 256");
  CHECK_FALSE(fs::exists(page));
  CHECK(call({"explain", deep, deep}).code == 2);
  CHECK(call({"show", deep}).code == 2);
  CHECK(call({"replay", deep}).code == 2);
  CHECK(call({"predict", deep}).code == 2);
  // A trace of ours whose job nests: every command that reads one.
  const fs::path trace = folder.path() / "trace";
  fs::copy(fs::path(STEPCAST_SOURCE_DIR) / "traces/recorded/gpt-2", trace);
  std::string manifest = text_of(trace / "trace.json");
  const std::size_t job = manifest.find("\"job\":");
  REQUIRE(job != std::string::npos);
  manifest.insert(job + 6, nested(200000) + ",\"was\":");
  std::ofstream(trace / "trace.json") << manifest;
  for (const char* command : {"show", "replay", "compare"}) {
    const Outcome outcome = call({command, trace.string()});
    CAPTURE(command);
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.err, Contains("trace.json: byte ") && Contains("nests deeper"));
  }
  CHECK(call({"convert", trace.string(), folder / "out.json"}).code == 2);
  CHECK(call({"explain", trace.string(), trace.string()}).code == 2);
}

TEST_CASE("devices and pipes are refused or read within bounds", "[cli][malformed]") {
  const TemporaryFolder folder;
  const Outcome zero = call({"report", "/dev/zero", "--html", folder / "page.html"}, "", 10);
  CHECK(zero.code == 2);
  CHECK_THAT(zero.err, Contains("is a device"));
  const std::string pipe = folder / "pipe.json";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const char* command : {"replay", "show"}) {
    const Outcome outcome = call({command, pipe}, "", 10);
    CAPTURE(command, outcome.err);
    CHECK(outcome.code == 2);
  }
  const Outcome convert = call({"convert", pipe, folder / "out.json"}, "", 10);
  CHECK(convert.code == 2);
  CHECK_THAT(convert.err, Contains("is a pipe or a device") && Contains("write it to a file"));
  const Outcome run = call({"run", std::string(STEPCAST_SOURCE_DIR) + "/docs/examples/dlrm.json",
                            "--ranks", "1", "--steps", "1", "--data", pipe},
                           "", 20);
  CHECK(run.code == 2);
  CHECK_THAT(run.err, Contains(pipe + ": cannot be read"));
}

TEST_CASE("escape sequences of names do not reach the terminal", "[cli]") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("red.json", kineto("\x1b[31mred\x1b]0;title\x07"));
  for (const char* command : {"show", "replay"}) {
    const Outcome outcome = call({command, trace});
    CAPTURE(command, outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.out.find('\x1b') == std::string::npos);
    CHECK(outcome.out.find('\x07') == std::string::npos);
    CHECK(outcome.err.find('\x1b') == std::string::npos);
  }
  CHECK_THAT(call({"show", trace}).out, Contains("?[31mred"));
  const Outcome wrong = call({"replay", trace, "--scale", "\x1b[31mno=2"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find('\x1b') == std::string::npos);
  // Programs get names whole.
  const auto shown = nlohmann::json::parse(call({"show", trace, "--format", "json"}).out);
  CHECK_THAT(shown.dump(), Contains("\\u001b[31mred"));
}

TEST_CASE("signatures are cut for people", "[cli]") {
  const TemporaryFolder folder;
  const std::string name = "void " + std::string(1500, 'k') + "<int>(int)";
  const std::string a = folder.file("a.json", kineto(name));
  const Outcome explained = call({"explain", a, a});
  CHECK(explained.code == 0);
  CHECK(explained.out.find(std::string(100, 'k')) == std::string::npos);
}

TEST_CASE("what ends in .gz is gzip, and reads back", "[cli][convert]") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("one.json", kineto("volta_sgemm_64x64_nt"));
  for (const char* format : {"kineto", "perfetto"}) {
    const std::string out = folder / (std::string(format) + ".json.gz");
    const Outcome made = call({"convert", trace, out, "--to", format});
    CAPTURE(format, made.err);
    REQUIRE(made.code == 0);
    CHECK(text_of(out).substr(0, 2) == "\x1f\x8b");
    CHECK(call({"convert", trace, folder / "again.json.gz", "--to", format}).code == 0);
    CHECK(text_of(out) == text_of(folder / "again.json.gz"));
  }
  CHECK(call({"replay", folder / "kineto.json.gz"}).code == 0);
}
