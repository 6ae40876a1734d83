#include "runtime/calibration/core_probe.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

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

CoreProbe probe() {
  constexpr kernels::Index kSide = 128;
  constexpr kernels::Index kLength = 65536;
  std::vector<float> a(kLength, 1.0F), b(kLength, 0.5F), out(kLength);
  kernels::use_one_thread();
  const kernels::Gemm product{.m = kSide, .n = kSide, .k = kSide};
  return {median_block([&] { kernels::gemm(product, a.data(), b.data(), out.data()); }),
          median_block([&] {
            for (int round = 0; round < 4; ++round) {
              kernels::add(a.data(), b.data(), out.data(), kLength);
            }
          })};
}

}  // namespace

CoreProbe probe_core(int core) {
  CoreProbe result;
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
