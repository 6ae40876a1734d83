// stepcast fit and stepcast validate kernels, as a user calls them.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command_line.h"
#include "tests/studies/kineto_events.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;

namespace {

/// Adds of [B, H] fp32 on a T4: 5 us and 80 % of 320 GB/s.
std::string adds() {
  std::string text = "kind,s0,s1,seconds,configuration,device,source\n";
  for (int i = 0; i < 40; ++i) {
    const int rows = 4096 + 512 * (i % 5);
    const int width = 512 + 128 * i;
    const double us = 5 + 1e6 * 12.0 * rows * width / (0.8 * 320e9);
    text += "add," + std::to_string(rows) + "," + std::to_string(width) + "," + std::to_string(us) +
            "e-6,add " + std::to_string(width) + ",t4,adds of 2021\n";
  }
  return text;
}

}  // namespace

TEST_CASE("fit writes a device file that commands read, the same bytes twice", "[cli][fit]") {
  const Folder folder;
  const std::string rows = folder.file("rows.csv", adds());
  const auto fit = [&](const std::string& out) {
    return succeeded({"fit", rows, "--device", "t4", "--date", "2026-01-02", "--out", out});
  };
  const Outcome first = fit(folder / "a.json");
  CHECK_THAT(first.out, Contains("add"));
  CHECK_THAT(first.err, Contains("a.json written"));
  fit(folder / "b.json");
  const std::string text = text_of(folder / "a.json");
  CHECK(text == text_of(folder / "b.json"));
  const auto device = nlohmann::json::parse(text);
  const auto& add = device.at("fitted").at("add");
  CHECK(add.at("samples") == 40);
  CHECK(add.at("error").at("median").get<double>() < 0.02);
  CHECK_THAT(add.at("source").get<std::string>(),
             Contains("40 rows of adds of 2021, ") && Contains("2026-01-02"));
  CHECK(answer({"fit", rows, "--device", folder / "a.json", "--out", folder / "c.json"})
            .at("device") == "t4");
}

TEST_CASE("fit and compare take the device that a trace names", "[cli][fit]") {
  stepcast::studies::test::KinetoEvents k;
  int id = 0;
  for (int step = 0; step < 2; ++step) {
    k.step(step, 10000 * step, 9000);
    for (int i = 0; i < 12; ++i) {
      const int at = 10000 * step + 100 + 700 * i, rows = 512 * (1 + i);
      k.op("aten::mm", at, "[[" + std::to_string(rows) + ",1024],[1024,4096]]",
           R"("float","float")");
      k.call("cudaLaunchKernel", at + 2, 2, ++id);
      k.kernel("sgemm", 7, at + 20, 50 + 8e-9 * rows * 1024 * 4096, id);
    }
  }
  const Folder folder;
  const std::string named = folder / "named.json", silent = folder / "silent.json";
  k.write(named, R"("deviceProperties":[{"id":0,"name":"NVIDIA H100 80GB HBM3"}],)");
  k.write(silent);
  CHECK(answer({"fit", named, "--out", folder / "own.json"}).at("device") == "h100-sxm-80gb");
  CHECK_THAT(succeeded({"compare", named}).out, Contains("models of dgx-h100"));
  const char* why = "the trace does not say what it was recorded on";
  rejected({"fit", silent, "--out", folder / "x.json"}, why);
  rejected({"compare", silent}, why);
}

TEST_CASE("one transfer makes a device and its system", "[cli][fit]") {
  const Folder folder;
  const std::string facts = folder.file(
      "own.json",
      R"({"name": "own-8", "device": {"name": "own", "memory": "96 GB", "bandwidth": "4 TB/s", "l2": "60 MB",
          "multiprocessors": 100, "launch": "2 us", "watts": 500,
          "peak": {"fp32": "50 TFLOP/s", "bf16": "700 TFLOP/s", "fp16": "700 TFLOP/s"},
          "source": "a data sheet nobody wrote"},
          "fabric": [{"name": "links", "size": 8, "bandwidth": "400 GB/s", "latency": "2 us"}],
          "tiers": [{"name": "hbm"}], "host": {"devices": 8, "cores": 64}})");
  const std::string out = folder / "out.json";
  const Outcome done =
      succeeded({"fit", "--transfer", "dgx-h100", "--system", facts, "--out", out});
  const auto system = nlohmann::json::parse(text_of(out));
  CHECK(system.at("fitted").contains("all_reduce"));
  const auto& kernels = system.at("device").at("fitted");
  CHECK_THAT(kernels.at("gemm.bf16").at("source").get<std::string>(),
             Contains("transferred from h100-sxm-80gb"));
  CHECK_FALSE(kernels.contains("gemm.fp8"));  // the device has no such rate
  CHECK_THAT(done.out, Contains("all_reduce") && Contains("gemm.bf16"));
  // Values that the device has of its own are kept.
  const std::string again = folder / "again.json";
  succeeded({"fit", "--transfer", "dgx-a100-80gb", "--system", out, "--out", again});
  CHECK(nlohmann::json::parse(text_of(again)).at("device").at("fitted") == kernels);
}

TEST_CASE("fit refuses what it cannot use", "[cli][fit][malformed]") {
  const Folder folder;
  const std::string rows = folder.file("rows.csv", adds());
  const std::string out = folder / "out.json";
  rejected({"fit", rows, "--out", out}, "--device", "is needed");
  rejected({"fit", rows, "--device", "t5", "--out", out}, "t5", "t4");
  rejected({"fit", rows, "--device", "l40s", "--out", out}, "--device", "t4");
  rejected({"fit", folder.file("bad.csv", "op,device,B,H,latency_ms\nadd,Tesla T4,1,1,1\n"),
            "--device", "t4", "--out", out},
           "bad.csv:1", "scripts/data/convert");
  rejected({"fit", folder / "none.csv", "--device", "t4", "--out", out}, "none.csv", "no such");
  CHECK(text_of(out).empty());  // nothing half-written
}

TEST_CASE("validate prints no table where there are no rows", "[cli][validate]") {
  const Folder folder;
  for (const char* suite : {"traces", "published", "memory", "dlrm", "kernels"}) {
    const Outcome none = call({"validate", suite, "--data", folder.file("none.csv", "")});
    INFO(suite << ": " << none.err);
    CHECK((none.code == 1 || none.code == 2));
  }
}

TEST_CASE("validate kernels prints one JSON document", "[cli][validate]") {
  const Folder folder;
  const std::string rows = folder.file("rows.csv", adds());
  const auto suite = answer({"validate", "kernels", "--data", rows}).at("suites").at(0);
  CHECK(suite.at("name") == "kernels");
  CHECK(suite.at("pass") == true);
  CHECK(suite.at("groups").at(0).at("n") == 40);
  CHECK(suite.at("rows").size() == 40);
  CHECK(call("validate kernels").code == 2);
  rejected({"validate", "kernels", "runtime", "--data", rows}, "runs alone");
  CHECK_THAT(call("validate kernel").err, Contains("kernels,collectives"));
  CHECK(call({"validate", "kernels", "--data", rows, "--holdout", "ranks"}).code == 2);
  CHECK(call({"validate", "collectives", "--data", rows}).code == 2);
}
