#include "runtime/calibration/core_probe.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <thread>
#include <vector>

#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/gemm.h"

namespace stepcast::runtime::calibration {
namespace {

constexpr int kBlocks = 24;

/// Median over blocks of `work`, the first block left out.
template <typename Work>
Seconds median_block(Work&& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> blocks;
  for (int b = 0; b <= kBlocks; ++b) {
    const auto begin = Clock::now();
    work();
    if (b > 0) {
      blocks.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  std::nth_element(blocks.begin(), blocks.begin() + kBlocks / 2, blocks.end());
  return Seconds(blocks[kBlocks / 2]);
}

/// One huge page where the system has them: pages scattered over memory collide in the cache, some
/// more than others, and a probe on them tells where they lie. Mapped anew, because memory that was
/// in use before stays in the pages it has.
class Page {
 public:
  Page()
      : mapped_(
            mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (mapped_ == MAP_FAILED) {
      throw std::bad_alloc();
    }
    void* begin = mapped_;
    std::size_t space = 2 * kBytes;
    std::align(kBytes, kBytes, begin, space);
    madvise(begin, kBytes, MADV_HUGEPAGE);
    memory_ = static_cast<float*>(begin);
    std::fill_n(memory_, kBytes / sizeof(float), 1.0F);
  }
  ~Page() { munmap(mapped_, 2 * kBytes); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  [[nodiscard]] float* at(std::size_t element) const { return memory_ + element; }

 private:
  static constexpr std::size_t kBytes = std::size_t{2} << 20;
  void* mapped_;
  float* memory_ = nullptr;
};

Seconds probe() {
  constexpr kernels::Index kSide = 128;
  constexpr kernels::Index kLength = 65536;
  const Page page;
  float *a = page.at(0), *b = page.at(kLength), *out = page.at(2 * kLength);
  kernels::use_one_thread();
  const kernels::Gemm product{.m = kSide, .n = kSide, .k = kSide};
  const Seconds multiply = median_block([&] { kernels::gemm(product, a, b, out); });
  const Seconds stream = median_block([&] {
    for (int round = 0; round < 4; ++round) {
      kernels::add(a, b, out, kLength);
    }
  });
  return Seconds(std::sqrt(multiply.base() * stream.base()));
}

}  // namespace

Seconds probe_core(int core) {
  kernels::products_library();  // what is missing is told here: the thread could only end the process
  Seconds result;
  std::thread on_core([&] {
    if (core >= 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<std::size_t>(core), &set);
      pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
    result = probe();
  });
  on_core.join();
  return result;
}

}  // namespace stepcast::runtime::calibration
