// Faults planted in small kernels, each of which the detector must name, beside the same kernels
// without them.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <iostream>

#include "core/error.h"
#include "runtime/cuda/kernels/norm.h"
#include "tests/runtime/cuda/emulation/device_language.h"
#include "tests/runtime/cuda/races/race_detector.h"
#include "tests/runtime/cuda/standin/device.h"
#include "tests/runtime/cuda/standin/device_memory.h"

namespace stepcast::test {
namespace {

using Catch::Matchers::Contains;

/// Device memory of a test.
class Words {
 public:
  explicit Words(std::size_t count)
      : first_(static_cast<int*>(standin::take_device_memory(count * sizeof(int)))) {}
  ~Words() { standin::give_back(first_); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  [[nodiscard]] int* data() const { return first_; }

 private:
  int* first_;
};

template <class Kernel>
std::string races_of(unsigned blocks, unsigned threads, Kernel kernel) {
  RaceDetector::watch();
  const standin::OnDevice device;
  try {
    emulation::run_grid("planted", dim3(blocks), dim3(threads), 0, kernel);
  } catch (const RunError& e) {
    return e.what();
  }
  return "no race";
}

enum class Between { kNothing, kShuffle, kWarp, kHalfWarp, kBlock };

/// Each thread leaves its number and reads that of thread ^ far.
template <Between B>
void exchange(int* out, unsigned far) {
  __shared__ unsigned numbers[128];
  numbers[threadIdx.x] = threadIdx.x;
  if constexpr (B == Between::kShuffle) {
    __shfl_xor_sync(0xffffffffU, 1, 1);
  } else if constexpr (B == Between::kWarp) {
    __syncwarp();
  } else if constexpr (B == Between::kHalfWarp) {
    __syncwarp(threadIdx.x % 32 < 16 ? 0xffffU : 0xffff0000U);
  } else if constexpr (B == Between::kBlock) {
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<int>(numbers[threadIdx.x ^ far]);
}

TEST_CASE("races: a missing barrier is found", "[planted]") {
  const Words out(128);
  const auto run = [&]<Between B>(unsigned far) {
    return races_of(2, 64, [&] { exchange<B>(out.data(), far); });
  };
  const std::string found = run.operator()<Between::kNothing>(32);
  CHECK_THAT(found, Contains("planted") && Contains("shared memory") && Contains("of one block"));
  CHECK_THAT(found, Contains("write at race_test.cpp:51") && Contains("read at race_test.cpp:61"));
  // That of a warp orders nothing between two warps.
  CHECK_THAT(run.operator()<Between::kWarp>(32), Contains("race_test.cpp:51"));
  CHECK(run.operator()<Between::kBlock>(32) == "no race");
}

TEST_CASE("races: a missing barrier of a warp is found", "[planted]") {
  const Words out(128);
  const auto run = [&]<Between B>(unsigned far) {
    return races_of(2, 64, [&] { exchange<B>(out.data(), far); });
  };
  CHECK_THAT(run.operator()<Between::kNothing>(1), Contains("race_test.cpp:51"));
  // A shuffle makes lanes wait and orders no memory.
  CHECK_THAT(run.operator()<Between::kShuffle>(1), Contains("race_test.cpp:51"));
  CHECK(run.operator()<Between::kWarp>(1) == "no race");
  CHECK(run.operator()<Between::kHalfWarp>(1) == "no race");
  CHECK_THAT(run.operator()<Between::kHalfWarp>(16), Contains("race_test.cpp:51"));
}

TEST_CASE("races: blocks that touch each other's device memory are found", "[planted]") {
  const Words out(128);
  const auto written = races_of(3, 32, [&] {
    if (threadIdx.x == 0) {
      out.data()[0] = static_cast<int>(blockIdx.x);
    }
  });
  CHECK_THAT(written, Contains("of two blocks") && Contains("device memory"));
  const auto read = races_of(3, 32, [&] {
    out.data()[blockIdx.x * 32 + threadIdx.x] = 1;
    __syncthreads();  // of its own block alone
    if (threadIdx.x == 0 && blockIdx.x > 0) {
      out.data()[96] += out.data()[blockIdx.x * 32 - 1];
    }
  });
  CHECK_THAT(read, Contains("of two blocks"));
  CHECK(races_of(3, 32, [&] { atomicAdd(out.data(), 1); }) == "no race");
  CHECK(races_of(3, 32, [&] { out.data()[blockIdx.x * 32 + threadIdx.x] = 1; }) == "no race");
}

TEST_CASE("races: an atomic and a plain access race", "[planted]") {
  const Words out(1);
  CHECK_THAT(races_of(1, 32,
                      [&] {
                        if (threadIdx.x == 3) {
                          out.data()[0] = 0;
                        }
                        atomicAdd(out.data(), 1);
                      }),
             Contains("atomic at"));
}

/// Passes on all but, if wanted, the barriers of blocks.
class Deaf final : public emulation::Observer {
 public:
  explicit Deaf(bool to_blocks) : to_blocks_(to_blocks) {}
  void launch_begins(const char* kernel) override { heard().launch_begins(kernel); }
  void launch_ends() override { heard().launch_ends(); }
  void block_begins(std::size_t threads, const void* shared, std::size_t bytes) override {
    heard().block_begins(threads, shared, bytes);
  }
  void barrier_opens() override {
    if (!to_blocks_) {
      heard().barrier_opens();
    }
  }
  void warp_barrier_opens(unsigned warp, std::uint32_t lanes) override {
    heard().warp_barrier_opens(warp, lanes);
  }

 private:
  static RaceDetector& heard() { return RaceDetector::current(); }
  bool to_blocks_;
};

TEST_CASE("races: without its barriers a real kernel races", "[planted]") {
  constexpr std::int64_t kRows = 3, kWidth = 2048;
  const Words x(kRows * kWidth), y(kRows * kWidth), weight(kWidth), statistics(2 * kRows);
  using namespace runtime::cuda::kernels;
  const auto run = [&](bool deaf) {
    Deaf observer(deaf);
    emulation::set_observer(&observer);
    std::string found = "no race";
    try {
      norm_forward(Norm::kRmsNorm, {x.data(), Format::kFp32, kRows, kWidth, kWidth},
                   {weight.data(), Format::kFp32}, {}, 1e-5F,
                   {y.data(), Format::kFp32, kRows, kWidth, kWidth},
                   reinterpret_cast<float*>(statistics.data()), nullptr);
    } catch (const RunError& e) {
      found = e.what();
    }
    RaceDetector::watch();
    return found;
  };
  CHECK(run(false) == "no race");
  CHECK_THAT(run(true), Contains("reduce.cuh") && Contains("shared memory"));
}

/// All launches of the program are watched, and what was seen is told at the end.
struct Listener : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override { RaceDetector::watch(); }
  void testRunEnded(const Catch::TestRunStats&) override {
    const RaceDetector& d = RaceDetector::current();
    stream << d.launches() << " launches, " << d.accesses() << " accesses\n";
  }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace
}  // namespace stepcast::test
