// The PTX machine against the PTX ISA: small programs whose results and counts are worked out
// beside them, and every error it promises.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "models/ptx/machine.h"
#include "models/ptx/numbers.h"

namespace stepcast::models::ptx {
namespace {

class Vector final : public GlobalMemory {
 public:
  explicit Vector(std::size_t count) : words(count) {}
  [[nodiscard]] Piece piece_of(std::uint64_t) const override {
    const auto begin = reinterpret_cast<std::uint64_t>(words.data());
    return {begin, begin + 4 * words.size()};
  }
  alignas(32) std::vector<std::uint32_t> words;
};

/// A kernel `k` with one parameter, the address of the words; %r0 is the thread, %rd0 the address.
std::string program(const std::string& body) {
  return ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
         ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<19>; .reg .f32 %f<19>; .reg .b64 "
         "%rd<9>;\n"
         ".shared .align 16 .b8 s[512];\n"
         "mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p]; cvta.to.global.u64 %rd0, %rd0;\n"
         "mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;\n" +
         body + "\nret;\n}\n";
}

Counts run_program(const std::string& body, Vector& memory, std::uint32_t threads = 32,
                   std::uint32_t blocks = 1) {
  const Module module(program(body), "k.ptx");
  Launch launch;
  launch.grid = {blocks, 1, 1};
  launch.block = {threads, 1, 1};
  const void* const first = memory.words.data();
  launch.parameters.resize(sizeof(first));
  std::memcpy(launch.parameters.data(), &first, sizeof(first));
  return run(module.kernel("k"), launch, memory);
}

std::string error_of(const std::string& body, std::uint32_t threads = 32) {
  Vector memory(64);
  try {
    run_program(body, memory, threads);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

TEST_CASE("ptx: lanes that part at a branch meet behind it", "[ptx]") {
  // Odd lanes count down from their number, even ones skip it; then all are there at once.
  Vector memory(32);
  const Counts c = run_program(
      "mov.u32 %r1, 0; mov.u32 %r2, %r0; and.b32 %r3, %r0, 1; setp.eq.s32 %p1, %r3, 0;\n"
      "@%p1 bra $after;\n"
      "$loop:\nadd.s32 %r1, %r1, 1; sub.s32 %r2, %r2, 1; setp.gt.s32 %p2, %r2, 0;\n"
      "@%p2 bra $loop;\n"
      "$after:\nactivemask.b32 %r4; setp.eq.b32 %p3, %r4, -1;\n"
      "@%p3 add.s32 %r1, %r1, 100; st.global.u32 [%rd1], %r1;",
      memory);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    CHECK(memory.words[lane] == 100 + (lane % 2 == 0 ? 0 : lane));
  }
  // The first branch parts them; the loop's is met 31 times, and in turn n = 1, 3, ..., 29 lane n
  // leaves while others stay.
  CHECK(c.divergent == 1 + 15);
  CHECK(c.branches == 1 + 31);
  // 128 bytes by 32 lanes: 4 sectors, once.
  CHECK(c.stores.bytes == 128);
  CHECK(c.stores.sectors == 4);
  CHECK(c.stores.distinct == 128);
}

TEST_CASE("ptx: sectors follow from the addresses of a warp", "[ptx]") {
  // Every eighth word: a sector for each lane, of which an eighth is asked for.
  Vector memory(8 * 32);
  const Counts c = run_program(
      "mul.wide.u32 %rd2, %r0, 32; add.s64 %rd2, %rd0, %rd2;\n"
      "ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;",
      memory);
  CHECK(c.loads.sectors == 32);
  CHECK(c.loads.bytes == 128);
  CHECK(c.loads.distinct == 32 * 32);
}

TEST_CASE("ptx: banks of shared memory serve one word a cycle", "[ptx]") {
  std::array<std::uint64_t, 32> addresses{};
  const auto passes = [&](std::uint64_t stride, int bytes) {
    for (std::uint64_t lane = 0; lane < 32; ++lane) {
      addresses[lane] = lane * stride;
    }
    return bank_passes(addresses, 0xffffffffU, bytes);
  };
  CHECK(passes(4, 4).needed == 1);
  CHECK(passes(0, 4).needed == 1);     // all read one word
  CHECK(passes(8, 4).needed == 2);     // banks 0, 2, ...: two words each
  CHECK(passes(128, 4).needed == 32);  // one bank
  CHECK(passes(16, 16).needed == 4);   // 512 bytes in quarters of a warp
  CHECK(passes(16, 16).least == 4);
  CHECK(passes(144, 16).needed == 4);  // the pitch of tiles of 64 16-bit numbers
  CHECK(passes(128, 16).needed == 32);
}

TEST_CASE("ptx: barriers, shuffles and votes join lanes", "[ptx]") {
  Vector memory(64);
  // Thread t leaves t in shared memory and reads what thread 63 - t left; then the sum of its warp.
  run_program(
      "mul.lo.s32 %r1, %r0, 4; st.shared.u32 [%r1], %r0; bar.sync 0; sub.s32 %r2, 252, %r1;\n"
      "ld.shared.u32 %r3, [%r2];\n"
      "mov.u32 %r4, 16;\n$loop:\n"
      "shfl.sync.bfly.b32 %r5|%p1, %r3, %r4, 31, -1; add.s32 %r3, %r3, %r5; shr.u32 %r4, %r4, 1;\n"
      "setp.ne.s32 %p2, %r4, 0; @%p2 bra $loop;\n"
      "setp.lt.u32 %p3, %r0, 5; vote.sync.ballot.b32 %r6, %p3, -1; add.s32 %r3, %r3, %r6;\n"
      "st.global.u32 [%rd1], %r3;",
      memory, 64);
  // Warp 0 reads 63 ... 32, whose sum is 1520, and 5 of its lanes vote (31); warp 1 31 ... 0: 496.
  CHECK(memory.words[0] == 1520 + 31);
  CHECK(memory.words[63] == 496);
}

TEST_CASE("ptx: an asynchronous copy has not arrived until it is waited for", "[ptx]") {
  const std::string copy =
      "mul.lo.s32 %r1, %r0, 4; cp.async.ca.shared.global [%r1], [%rd1], 4; "
      "cp.async.commit_group;\n";
  const std::string use = "ld.shared.u32 %r2, [%r1]; st.global.u32 [%rd1+128], %r2;";
  Vector memory(64);
  std::iota(memory.words.begin(), memory.words.begin() + 32, 7U);
  run_program(copy + "cp.async.wait_group 0;\n" + use, memory);
  CHECK(memory.words[32 + 5] == 12);
  CHECK_THAT(error_of(copy + use), Catch::Matchers::Contains("an undefined value is stored"));
}

TEST_CASE("ptx: small floats round to nearest even", "[ptx]") {
  CHECK(to_small(kBfloat16, 1.0) == 0x3f80);
  CHECK(to_small(kBfloat16, 1.00390625) == 0x3f80);  // 1 + 2^-8: a tie, to even
  CHECK(to_small(kBfloat16, 1.01171875) == 0x3f82);  // 1 + 3 * 2^-8: a tie, to even
  CHECK(to_small(kHalf, 65504.0) == 0x7bff);
  CHECK(to_small(kHalf, 65520.0) == 0x7c00);          // a tie above the largest: infinity
  CHECK(to_small(kHalf, std::ldexp(1.0, -24)) == 1);  // the least subnormal
  CHECK(to_small(kHalf, std::ldexp(1.0, -25)) == 0);  // a tie with zero
  CHECK(to_small(kE4m3, 448.0) == 0x7e);
  CHECK(to_small(kE4m3, 1000.0, true) == 0x7e);
  CHECK(to_small(kE5m2, 57344.0) == 0x7b);
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    REQUIRE(to_small(kHalf, from_small(kHalf, bits)) == bits);
  }
}

TEST_CASE("ptx: what no device may do is an error that names line and thread", "[ptx]") {
  using Catch::Matchers::Contains;
  CHECK_THAT(error_of("ld.global.u32 %r1, [%rd1+256];"), Contains("k.ptx:10") &&
                                                             Contains("thread (0, 0, 0)") &&
                                                             Contains("outside of global memory"));
  CHECK_THAT(error_of("ld.global.u32 %r1, [%rd1+2];"), Contains("not aligned"));
  CHECK_THAT(error_of("ld.shared.u32 %r1, [s+512];"), Contains("outside of shared memory"));
  CHECK_THAT(error_of("st.global.u32 [%rd1], %r5;"), Contains("an undefined value is stored"));
  CHECK_THAT(error_of("setp.eq.s32 %p1, %r5, 0; @%p1 bra $x; add.s32 %r1, %r0, 1;\n$x:\n"),
             Contains("an undefined value decides"));
  CHECK_THAT(error_of("ld.shared.u32 %r1, [s]; cvt.u64.u32 %rd2, %r1; ld.global.u32 %r2, [%rd2];"),
             Contains("an undefined value is an address"));
  CHECK_THAT(error_of("setp.lt.u32 %p1, %r0, 7; @%p1 bra $x; bar.sync 0;\n$x:\n"),
             Contains("does not reach the barrier"));
  CHECK_THAT(error_of("setp.lt.u32 %p1, %r0, 7; @%p1 bra $x; bar.warp.sync -1;\n$x:\n"),
             Contains("are elsewhere"));
  CHECK_THAT(error_of("shfl.sync.idx.b32 %r1, %r0, 31, 31, -1;", 20), Contains("takes no part"));
  CHECK_THAT(error_of("frobnicate.b32 %r1, %r0;"), Contains("k.ptx:10: opcode 'frobnicate.b32'"));
  CHECK_THAT(error_of("add.cc.s32 %r1, %r0, 1;"), Contains("'.cc' of 'add' is not known"));
  CHECK_THAT(error_of("add.s32 %r1, %r0;"), Contains("has 2 operands; expected 3"));
  CHECK_THAT(error_of("add.s32 %r1, %r99, 1;"), Contains("'%r99' is no register"));
  CHECK_THAT(error_of("bra $nowhere;"), Contains("no label '$nowhere'"));
  CHECK_THAT(error_of("", 1025), Contains("1025 threads a block"));
  CHECK_THAT(
      [] {
        try {
          const Module m("int main() {}", "main.c");
        } catch (const InputError& e) {
          return std::string(e.what());
        }
        return std::string();
      }(),
      Contains("main.c:1"));
}

}  // namespace
}  // namespace stepcast::models::ptx
