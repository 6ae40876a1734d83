// stepcast fit and stepcast validate kernels, as a user calls them.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;

namespace {

/// Adds of [B, H] fp32 on a T4: 5 us and 80 % of 320 GB/s.
std::string adds() {
  std::string text = "op,device,B,H,latency_ms\n";
  for (int i = 0; i < 40; ++i) {
    const int rows = 4096 + 512 * (i % 5);
    const int width = 512 + 128 * i;
    const double ms = 0.005 + 1e3 * 12.0 * rows * width / (0.8 * 320e9);
    text += "add,Tesla T4," + std::to_string(rows) + "," + std::to_string(width) + "," +
            std::to_string(ms) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("fit writes a device file that commands read, the same bytes twice", "[cli][fit]") {
  const TemporaryFolder folder;
  const std::string rows = folder.file("rows.csv", adds());
  const auto fit = [&](const std::string& out) {
    return call({"fit", rows, "--device", "t4", "--date", "2026-01-02", "--out", out});
  };
  const Outcome first = fit(folder / "a.json");
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK_THAT(first.out, Contains("add"));
  CHECK_THAT(first.err, Contains("a.json written"));
  REQUIRE(fit(folder / "b.json").code == 0);
  const std::string text = text_of(folder / "a.json");
  CHECK(text == text_of(folder / "b.json"));
  const auto device = nlohmann::json::parse(text);
  const auto& add = device.at("fitted").at("add");
  CHECK(add.at("samples") == 40);
  CHECK(add.at("error").at("median").get<double>() < 0.02);
  CHECK_THAT(add.at("source").get<std::string>(),
             Contains("rows.csv (sha256 ") && Contains("2026-01-02"));
  const Outcome again = call(
      {"fit", rows, "--device", folder / "a.json", "--out", folder / "c.json", "--format", "json"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(nlohmann::json::parse(again.out).at("device") == "t4");
}

TEST_CASE("fit refuses what it cannot use", "[cli][fit][malformed]") {
  const TemporaryFolder folder;
  const std::string rows = folder.file("rows.csv", adds());
  const auto refused = [](const Outcome& outcome, const std::string& place,
                          const std::string& found) {
    INFO(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains(place) && Contains(found));
  };
  const std::string out = folder / "out.json";
  refused(call({"fit", rows, "--out", out}), "--device", "is needed");
  refused(call({"fit", rows, "--device", "t5", "--out", out}), "t5", "t4");
  refused(call({"fit", rows, "--device", "l40s", "--out", out}), "--device", "t4");
  refused(call({"fit", folder.file("bad.csv", "op,device,B,H\nadd,Tesla T4,1,1\n"), "--device",
                "t4", "--out", out}),
          "bad.csv:1", "latency_ms");
  refused(call({"fit", folder / "none.csv", "--device", "t4", "--out", out}), "none.csv",
          "no such");
  CHECK(text_of(out).empty());  // nothing half-written
}

TEST_CASE("validate kernels prints one JSON document and pictures", "[cli][validate]") {
  const TemporaryFolder folder;
  const std::string rows = folder.file("rows.csv", adds());
  const Outcome outcome = call({"validate", "kernels", "--data", rows, "--format", "json",
                                "--pictures", folder / "pictures"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const auto suite = nlohmann::json::parse(outcome.out).at("suites").at(0);
  CHECK(suite.at("name") == "kernels");
  CHECK(suite.at("pass") == true);
  CHECK(suite.at("groups").at(0).at("n") == 40);
  CHECK(suite.at("rows").size() == 40);
  CHECK_THAT(text_of(folder.path() / "pictures" / "kernels-add.svg"), Contains("<svg"));
  CHECK(call({"validate", "kernels"}).code == 2);
  const Outcome beside = call({"validate", "kernels", "runtime", "--data", rows});
  CHECK(beside.code == 2);
  CHECK_THAT(beside.err, Contains("runs alone"));
  CHECK_THAT(call({"validate", "kernel"}).err, Contains("kernels,collectives"));
  CHECK(call({"validate", "kernels", "--data", rows, "--holdout", "ranks"}).code == 2);
  CHECK(call({"validate", "collectives", "--data", rows}).code == 2);
}
