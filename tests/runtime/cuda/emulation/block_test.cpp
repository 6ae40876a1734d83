// The emulation of device blocks against what the CUDA C++ Programming Guide says of them.
#include "tests/runtime/cuda/emulation/block.h"

#include <catch2/catch.hpp>
#include <vector>

#include "core/error.h"
#include "tests/runtime/cuda/emulation/device_language.h"

namespace stepcast::emulation {
namespace {

int thread() { return static_cast<int>(threadIdx.x); }

TEST_CASE("emulation: every thread of every block runs once and knows its place",
          "[cuda][emulation]") {
  const dim3 blocks(3, 2, 2);
  const dim3 threads(5, 4, 3);
  std::vector<int> runs(3 * 2 * 2 * 5 * 4 * 3);
  run_grid("places", blocks, threads, 0, [&] {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned in_block = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    ++runs[block * 60 + in_block];
  });
  CHECK(runs == std::vector<int>(runs.size(), 1));
}

TEST_CASE("emulation: without its barriers the same sum comes out wrong", "[cuda][emulation]") {
  int sum = 0;
  run_grid("tree without barriers", dim3(1), dim3(256), 256 * sizeof(int), [&] {
    auto* values = static_cast<int*>(dynamic_shared());
    values[thread()] = thread();
    for (int step = 128; step > 0; step /= 2) {
      if (thread() < step) {
        values[thread()] += values[thread() + step];
      }
    }
    if (thread() == 0) {
      sum = values[0];
    }
  });
  CHECK(sum != 255 * 256 / 2);
}

TEST_CASE("emulation: a shared memory begins poisoned in every block", "[cuda][emulation]") {
  int fresh = 0;
  run_grid("poison", dim3(3), dim3(1), 4, [&] {
    auto* word = static_cast<unsigned*>(dynamic_shared());
    fresh += *word == 0xFFFFFFFFU ? 1 : 0;
    *word = 0;
  });
  CHECK(fresh == 3);
}

TEST_CASE("emulation: threads that have returned are not waited for", "[cuda][emulation]") {
  int passed = 0;
  run_grid("early leavers", dim3(1), dim3(70), 0, [&] {
    if (thread() % 3 == 0) {
      return;
    }
    __syncthreads();
    __syncwarp();
    ++passed;
  });
  CHECK(passed == 46);
}

TEST_CASE("emulation: shuffles stay inside their segment", "[cuda][emulation]") {
  std::vector<int> from_second(64), neighbour(64);
  run_grid("shuffles", dim3(1), dim3(64), 0, [&] {
    const int mine = 100 + thread();
    // Groups of 8 lanes come to their shuffles at different times.
    const unsigned group = 0xFFU << (thread() % 32 / 8 * 8);
    for (int i = 0; i < thread() / 8; ++i) {
      __syncwarp(group);
    }
    from_second[static_cast<std::size_t>(thread())] = __shfl_sync(group, mine, 1, 8);
    neighbour[static_cast<std::size_t>(thread())] = __shfl_xor_sync(group, mine, 1);
  });
  for (int i = 0; i < 64; ++i) {
    CHECK(from_second[static_cast<std::size_t>(i)] == 100 + i / 8 * 8 + 1);
    CHECK(neighbour[static_cast<std::size_t>(i)] == 100 + (i ^ 1));
  }
}

TEST_CASE("emulation: matching lanes find each other", "[cuda][emulation]") {
  std::vector<unsigned> same(32);
  run_grid("match", dim3(1), dim3(32), 0,
           [&] { same[threadIdx.x] = __match_any_sync(0xFFFFFFFFU, thread() % 3); });
  for (int i = 0; i < 32; ++i) {
    unsigned expected = 0;
    for (int other = i % 3; other < 32; other += 3) {
      expected |= 1U << other;
    }
    CHECK(same[static_cast<std::size_t>(i)] == expected);
  }
}

TEST_CASE("emulation: copies arrive when they are waited for, not before", "[cuda][emulation]") {
  const std::vector<int> source{1, 2, 3, 4};
  std::vector<int> before(2), after(2);
  run_grid("copies", dim3(1), dim3(1), 32, [&] {
    auto* to = static_cast<int*>(dynamic_shared());
    to[0] = to[4] = 0;
    copy_later(to, source.data(), 16, true);
    commit_copies();
    copy_later(to + 4, source.data(), 16, true);
    commit_copies();
    before = {to[0], to[4]};
    wait_for_copies(1);
    after = {to[0], to[4]};
  });
  CHECK(before == std::vector<int>{0, 0});
  CHECK(after == std::vector<int>{1, 0});
}

TEST_CASE("emulation: what no device may do is an error that names the kernel",
          "[cuda][emulation]") {
  using Catch::Matchers::Contains;
  const auto message = [](dim3 blocks, dim3 threads, std::size_t shared,
                          const std::function<void()>& kernel) {
    try {
      run_grid("culprit", blocks, threads, shared, kernel);
    } catch (const RunError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const dim3 one(1);
  CHECK_THAT(message(one, dim3(64), 0,
                     [] {
                       if (thread() == 40) {
                         __syncwarp();
                       } else {
                         __syncthreads();
                       }
                     }),
             Contains("culprit: threads wait for each other in different places"));
  CHECK_THAT(
      message(
          one, dim3(32), 0,
          [] { __shfl_sync(0xFFU << (thread() / 8 * 8), 1, thread() / 8 == 0 ? 9 : thread()); }),
      Contains("culprit: reads from lane 9, which takes no part"));
  CHECK_THAT(message(one, dim3(32), 0, [] { __syncwarp(1); }), Contains("which lacks it"));
  CHECK_THAT(message(dim3(1, 70000), dim3(32), 0, [] {}), Contains("no device takes a grid"));
  CHECK_THAT(message(one, dim3(1025), 0, [] {}), Contains("no device takes a grid"));
  CHECK_THAT(message(one, dim3(32), 164 * 1024, [] {}), Contains("no device takes a grid"));
}

}  // namespace
}  // namespace stepcast::emulation
