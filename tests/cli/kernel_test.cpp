// `stepcast kernel` on a PTX file, as a user calls it.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

// y[i] += a * x[i] for i < n, one element a thread.
const std::string kSaxpy = R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{
  .reg .pred %p<2>; .reg .b32 %r<5>; .reg .f32 %f<5>; .reg .b64 %rd<7>;
  ld.param.u32 %r1, [n];
  ld.param.f32 %f1, [a];
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra $end;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  ld.global.f32 %f3, [%rd5];
  fma.rn.f32 %f4, %f1, %f2, %f3;
  st.global.f32 [%rd5], %f4;
$end:
  ret;
}
)";

}  // namespace

TEST_CASE("kernel counts what PTX moves and bounds its time by the device", "[cli][kernel]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("saxpy.ptx", kSaxpy);
  // 1000 elements in 4 blocks of 256: 31 warps whole, one of 8 lanes, the last branch divergent.
  const Outcome r =
      call({"kernel", file, "--grid", "4", "--block", "256", "--args", "u32:1000", "f32:2",
            "mem:4000:f32", "mem:4000:f32", "--device", "h100-sxm-80gb", "--format", "json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto j = json::parse(r.out);
  CHECK(j["counts"]["load_bytes"] == 8000);
  CHECK(j["counts"]["load_sectors"] == 2 * 125);
  CHECK(j["counts"]["store_bytes"] == 4000);
  CHECK(j["counts"]["flops"] == 2000);
  CHECK(j["counts"]["divergent_branches"] == 1);
  // 12,000 bytes at 3.35 TB/s; nothing else takes longer but issuing: 32 warps of 17 to 22
  // instructions on 4 of 132 multiprocessors.
  CHECK(j["time"][0]["time_s"].get<double>() == Approx(12000 / 3.35e12));
  CHECK(j["time"][1]["amount"] == 2000);
}

TEST_CASE("kernel runs a share of the blocks and scales", "[cli][kernel]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("saxpy.ptx", kSaxpy);
  // 2^22 elements: 3 * 2^24 bytes, each once.
  const Outcome r = call({"kernel", file, "--grid", "16384", "--block", "256", "--blocks", "64",
                          "--args", "u32:4194304", "f32:2", "mem:16777216", "mem:16777216",
                          "--device", "h100-sxm-80gb", "--format", "json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto j = json::parse(r.out);
  CHECK(j["counts"]["load_bytes"] == 64 * 256 * 8);
  CHECK(j["time"][0]["amount"] == 3 * 16777216);
  CHECK(j["time"].back()["unit"] == "memory");
}

TEST_CASE("kernel runs blocks of all kinds where a power of two parts them", "[cli][kernel]") {
  const TemporaryFolder folder;
  std::string text = kSaxpy;
  // Only blocks of even number do anything.
  const std::string guard = "  setp.ge.u32 %p1, %r2, %r1;\n";
  text.replace(text.find(guard), guard.size(),
               "  mov.u32 %r3, %ctaid.x;\n  and.b32 %r3, %r3, 1;\n  setp.ne.u32 %p1, %r3, 0;\n");
  const Outcome r = call({"kernel", folder.file("even.ptx", text), "--grid", "16384", "--block",
                          "256", "--blocks", "64", "--args", "u32:4194304", "f32:2", "mem:16777216",
                          "mem:16777216", "--format", "json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto blocks = json::parse(r.out)["counts"]["load_bytes"].get<double>() / (256 * 8);
  CHECK(blocks >= 24);
  CHECK(blocks <= 40);
}

TEST_CASE("kernel counts memory that blocks share once", "[cli][kernel]") {
  const TemporaryFolder folder;
  std::string text = kSaxpy;
  // x by the thread alone: all blocks read the same kilobyte.
  text.insert(text.find("  add.s64 %rd4"), "  mul.wide.u32 %rd3, %r4, 4;\n");
  const std::string own = "  add.s64 %rd5, %rd2, %rd3;\n";
  text.replace(text.find(own), own.size(), "  mul.wide.u32 %rd3, %r2, 4;\n" + own);
  const std::string file = folder.file("shared.ptx", text);
  const Outcome r = call({"kernel", file, "--grid", "16384", "--block", "256", "--blocks", "64",
                          "--args", "u32:4194304", "f32:2", "mem:1024:f32", "mem:16777216",
                          "--device", "h100-sxm-80gb", "--format", "json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto j = json::parse(r.out);
  CHECK(j["counts"]["distinct_load_bytes"] == 1024 + 64 * 1024);
  CHECK(j["time"][0]["amount"] == 1024 + 2 * 16777216);
}

TEST_CASE("kernel says what is wrong with a launch", "[cli][kernel]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("saxpy.ptx", kSaxpy);
  const auto error = [&](std::vector<std::string> arguments) {
    std::vector<std::string> all{"kernel", file, "--grid", "4", "--block", "256", "--args"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome r = call(all);
    CHECK(r.code != 0);
    return r.err;
  };
  CHECK_THAT(error({"u32:1000", "f32:2", "mem:4000", "mem:3996"}),
             Contains("saxpy.ptx:19") && Contains("outside of global memory") &&
                 Contains("block (3, 0, 0), thread (231, 0, 0)"));
  CHECK_THAT(error({"u32:1000"}), Contains("found 4 bytes; expected 24"));
  CHECK_THAT(error({"u32:-1", "f32:2", "mem:4", "mem:4"}), Contains("--args: found 'u32:-1'"));
  CHECK_THAT(error({"u32:1", "f32:2", "mem:0", "mem:4"}), Contains("expected 1 to"));
  CHECK_THAT(error({"u32:1", "f32:2", "mem:4", "mem:4", "--entry", "gemm"}),
             Contains("--entry: found 'gemm'") && Contains("saxpy"));
}
