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
  const Folder folder;
  const std::string deep = folder.file("deep.json", nested(200000));
  const std::string page = folder / "page.html";
  rejected({"report", deep, "--html", page}, "deep.json: byte 256", "nests deeper than 256");
  CHECK_FALSE(fs::exists(page));
  rejected({"explain", deep, deep});
  for (const char* command : {"show", "replay", "predict"}) {
    rejected({command, deep});
  }
  // A trace of ours whose job nests: every command that reads one.
  const fs::path trace = folder.path() / "trace";
  fs::copy(fs::path(STEPCAST_SOURCE_DIR) / "traces/recorded/gpt-2", trace);
  std::string manifest = text_of(trace / "trace.json");
  const std::size_t job = manifest.find("\"job\":");
  REQUIRE(job != std::string::npos);
  manifest.insert(job + 6, nested(200000) + ",\"was\":");
  std::ofstream(trace / "trace.json") << manifest;
  for (const char* command : {"show", "replay", "compare"}) {
    rejected({command, trace.string()}, "trace.json: byte ", "nests deeper");
  }
  rejected({"convert", trace.string(), folder / "out.json"});
  rejected({"explain", trace.string(), trace.string()});
}

TEST_CASE("devices and pipes are refused or read within bounds", "[cli][malformed]") {
  const Folder folder;
  rejected(call({"report", "/dev/zero", "--html", folder / "page.html"}, "", 10), "is a device");
  const std::string pipe = folder / "pipe.json";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const char* command : {"replay", "show"}) {
    rejected(call({command, pipe}, "", 10));
  }
  rejected(call({"convert", pipe, folder / "out.json"}, "", 10), "is a pipe or a device",
           "write it to a file");
  rejected(call({"run", STEPCAST_SOURCE_DIR "/docs/examples/dlrm.json", "--ranks", "1", "--steps",
                 "1", "--data", pipe},
                "", 20),
           pipe + ": cannot be read");
}

TEST_CASE("escape sequences of names do not reach the terminal", "[cli]") {
  const Folder folder;
  const std::string trace = folder.file("red.json", kineto("\x1b[31mred\x1b]0;title\x07"));
  for (const char* command : {"show", "replay"}) {
    const Outcome outcome = succeeded({command, trace});
    CAPTURE(command, outcome.err);
    CHECK(outcome.out.find('\x1b') == std::string::npos);
    CHECK(outcome.out.find('\x07') == std::string::npos);
    CHECK(outcome.err.find('\x1b') == std::string::npos);
  }
  CHECK_THAT(call({"show", trace}).out, Contains("?[31mred"));
  const Outcome wrong = call({"replay", trace, "--scale", "\x1b[31mno=2"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find('\x1b') == std::string::npos);
  // Programs get names whole.
  CHECK_THAT(answer({"show", trace}).dump(), Contains("\\u001b[31mred"));
}

TEST_CASE("signatures are cut for people", "[cli]") {
  const Folder folder;
  const std::string name = "void " + std::string(1500, 'k') + "<int>(int)";
  const std::string a = folder.file("a.json", kineto(name));
  CHECK(succeeded({"explain", a, a}).out.find(std::string(100, 'k')) == std::string::npos);
}

TEST_CASE("what ends in .gz is gzip, and reads back", "[cli][convert]") {
  const Folder folder;
  const std::string trace = folder.file("one.json", kineto("volta_sgemm_64x64_nt"));
  for (const char* format : {"kineto", "perfetto"}) {
    const std::string out = folder / (std::string(format) + ".json.gz");
    CAPTURE(format);
    succeeded({"convert", trace, out, "--to", format});
    CHECK(text_of(out).substr(0, 2) == "\x1f\x8b");
    succeeded({"convert", trace, folder / "again.json.gz", "--to", format});
    CHECK(text_of(out) == text_of(folder / "again.json.gz"));
  }
  succeeded({"replay", folder / "kineto.json.gz"});
}
