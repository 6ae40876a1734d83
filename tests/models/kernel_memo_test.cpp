#include "core/graph/program.h"
#include "models/kernels/kernel_memo.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "models/kernels/kernel_form.h"

namespace {
std::atomic<std::size_t> allocations{0};
}  // namespace

// Counts every allocation of this executable; the tests compare differences. Not inlined: the
// compiler would take a delete for a bare free.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace stepcast::models {
namespace {

System gpu() {
  System s;
  s.device.name = "gpu";
  s.device.bandwidth = GBps(1000);
  s.device.l2 = MB(40);
  s.device.multiprocessors = 100;
  s.device.launch = microseconds(2);
  s.device.peak = {{Format::kBf16, teraflops(300)}, {Format::kFp32, teraflops(20)}};
  FittedModel gemm;
  gemm.form = "gemm.tile_wave";
  gemm.constants = {{"half_tile", 30}, {"residual_scale", 1}, {"residual_noise", 1e-4}};
  gemm.points = {{{6, 6, 6, 0, 0}, 0.1}};
  s.device.fitted["gemm"] = gemm;
  return s;
}

Op gemm(std::int64_t m, Format format = Format::kBf16) {
  Op op;
  op.kind = OpKind::kGemm;
  op.format = format;
  op.shape = {m, 512, 512, 1, 0, 0};
  fill_work(op);
  return op;
}

}  // namespace

TEST_CASE("kept answers are the model's own", "[models][memo]") {
  const CostModel cost(gpu(), {});
  KernelMemo memo(cost, 4);  // grows past its first size
  const Program program;
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t m = 1; m <= 100; ++m) {
      for (const Format format : {Format::kBf16, Format::kFp32}) {
        Op op = gemm(m, format);
        CHECK(memo.kernel(program, op).time == cost.kernel(program, op).time);
        op.flags = op_flags::kTransposeB;
        CHECK(memo.kernel(program, op).time == cost.kernel(program, op).time);
      }
    }
  }
  CHECK(memo.shapes() == 400);  // 100 sizes, 2 formats, 2 layouts
}

TEST_CASE("answers that depend on the program are not kept", "[models][memo]") {
  System core = gpu();
  FittedModel levels;
  levels.form = "memory.levels";
  levels.constants = {{"start", 1e-6}};
  core.device.fitted["add"] = levels;
  const CostModel cost(core, {});
  KernelMemo memo(cost);
  Op op;
  op.kind = OpKind::kAdd;
  op.shape = {10, 10, 0, 0, 0, 0};
  fill_work(op);
  CHECK(memo.kernel(Program{}, op).time == cost.kernel(Program{}, op).time);
  CHECK(memo.shapes() == 0);
}

TEST_CASE("asking again allocates nothing", "[models][memo]") {
  const CostModel cost(gpu(), {});
  KernelMemo memo(cost);
  const Program program;
  std::vector<Op> ops;
  for (std::int64_t m = 1; m <= 1000; ++m) {
    ops.push_back(gemm(m));
    (void)memo.kernel(program, ops.back());
  }
  const std::size_t before = allocations;
  double sum = 0;
  for (const Op& op : ops) {
    sum += memo.kernel(program, op).time.base();
  }
  const std::size_t after = allocations;
  CHECK(after == before);
  CHECK(sum > 0);
  // The counter works: the model itself allocates.
  sum += cost.kernel(program, ops.front()).time.base();
  CHECK(allocations > after);
}

}  // namespace stepcast::models
