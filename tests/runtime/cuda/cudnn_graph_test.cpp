#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <future>
#include <iostream>

#include "runtime/cuda/cudnn_graph.h"

// The graphs of attention before the real cuDNN, where it is installed: it says of a device that is
// only described whether it has engines for a graph. What they compute is tested over the stand-in.

using namespace stepcast;
using namespace stepcast::runtime::cuda;

namespace {

/// An H100, in the terms in which cuDNN describes devices.
constexpr const char* kHopper = R"({
  "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
  "pciDeviceId": 0, "multiProcessorCount": 132, "totalGlobalMem": 85899345920,
  "l2CacheSize": 52428800, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "warpSize": 32,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
  "isTccDriver": 0, "supportCoopLaunch": 1})";

/// cuDNN and a device; nothing, and a reason that ctest knows a skipped test by, without.
struct Machine {
  std::optional<CudnnFunctions> cudnn;
  std::optional<CudnnDescriptor> device;
  bool has_driver =
      false;  ///< or the toolkit's stub of it, without which engines are not looked at

  Machine() {
    std::string missing;
    cudnn = cudnn_functions(missing);
    if (!cudnn) {
      std::cout << "skipped: " << missing << std::endl;
      return;
    }
    has_driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL) != nullptr ||
                 dlopen(CUDA_DRIVER_STUB, RTLD_LAZY | RTLD_GLOBAL) != nullptr;
    const std::string text = kHopper;
    device.emplace(*cudnn, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                static_cast<std::int64_t>(text.size()), text.data());
    device->finalize("device properties");
  }
  [[nodiscard]] CudnnTarget target() const { return {*cudnn, nullptr, &*device}; }
};

/// Query, key and value columns of one matrix, as the graph has them.
AttentionProblem problem_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t width,
                            bool causal, bool backward, Format format) {
  AttentionProblem p;
  p.shape = {.batch = 2,
             .heads = heads,
             .kv_heads = kv_heads,
             .query_length = 256,
             .kv_length = 256,
             .head_dim = width,
             .causal = causal};
  p.format = format;
  p.backward = backward;
  p.q = p.k = p.v = p.d_q = p.d_k = p.d_v = (heads + 2 * kv_heads) * width;
  p.out = p.d_out = heads * width;
  return p;
}

/// Engines that fit a graph; where they are not looked at, whether the graph was taken at all.
std::size_t engines(const Machine& machine, const CudnnGraph& graph) {
  return machine.has_driver ? engine_configurations(machine.target(), graph.graph).size() : 1;
}

}  // namespace

TEST_CASE("cuDNN has engines for attention on an H100", "[runtime][cuda]") {
  const Machine machine;
  if (!machine.cudnn) {
    return;
  }
  if (!machine.has_driver) {
    std::cout << "without a driver or its stub cuDNN names no engine: only the graphs are tested\n";
  }
  for (const Format format : {Format::kBf16, Format::kFp16}) {
    for (const std::int64_t width : {64, 128}) {
      for (const std::int64_t kv_heads : {8, 2, 1}) {
        for (const bool causal : {true, false}) {
          for (const bool backward : {false, true}) {
            const AttentionProblem p = problem_of(8, kv_heads, width, causal, backward, format);
            INFO(name_of(format) << ", " << kv_heads << " of 8 heads, " << width << " wide, "
                                 << (causal ? "causal, " : "")
                                 << (backward ? "backward" : "forward"));
            CHECK(not_for_cudnn(p).empty());
            CHECK(engines(machine, attention_op_by_op(machine.target(), p)) > 0);
            if (!causal && !backward) {
              CHECK(engines(machine, attention_as_one_op(machine.target(), p)) > 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cuDNN's backward needs memory linear in the sequence", "[runtime][cuda]") {
  const Machine machine;
  if (!machine.cudnn || !machine.has_driver) {
    std::cout << "skipped: no driver or stub of it" << std::endl;
    return;
  }
  struct Case {
    std::int64_t batch, heads, kv_heads, length, width;
  };
  // The last: 128 k tokens, whose scores alone would take 34 GB a head.
  for (const Case& c : std::vector<Case>{{8, 16, 16, 1024, 64},
                                         {2, 16, 16, 2048, 128},
                                         {1, 32, 32, 4096, 128},
                                         {8, 32, 8, 2048, 128},
                                         {1, 32, 8, 8192, 128},
                                         {1, 32, 8, 131072, 128}}) {
    AttentionProblem p = problem_of(c.heads, c.kv_heads, c.width, true, true, Format::kBf16);
    p.shape.batch = c.batch;
    p.shape.query_length = p.shape.kv_length = c.length;
    const CudnnGraph graph = attention_op_by_op(machine.target(), p);
    const auto configurations = engine_configurations(machine.target(), graph.graph);
    REQUIRE_FALSE(configurations.empty());
    const CudnnDescriptor plan = execution_plan(machine.target(), configurations.front());
    const double plan_bytes =
        static_cast<double>(plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    const double all = plan_bytes + static_cast<double>(scratch_bytes(graph, p));
    const double elements = static_cast<double>(c.batch * c.heads * c.length * c.width);
    INFO(c.batch << " x " << c.heads << "/" << c.kv_heads << " x " << c.length << " x " << c.width
                 << ": plan " << plan_bytes / 1e6 << " MB, in all " << all / 1e6 << " MB");
    CHECK(all <= 8 * elements * (1 + 1.0 / static_cast<double>(c.width)));
  }
}

TEST_CASE("cuDNN's plans made on threads are those made in turn", "[runtime][cuda]") {
  const Machine machine;
  if (!machine.cudnn || !machine.has_driver) {
    std::cout << "skipped: no driver or stub of it" << std::endl;
    return;
  }
  std::vector<AttentionProblem> problems;
  for (const std::int64_t heads : {2, 4, 8}) {
    for (const bool backward : {false, true}) {
      problems.push_back(problem_of(heads, heads, 64, true, backward, Format::kBf16));
    }
  }
  const auto workspace = [&](const AttentionProblem& p) {
    const CudnnGraph graph = attention_op_by_op(machine.target(), p);
    const auto configurations = engine_configurations(machine.target(), graph.graph);
    return execution_plan(machine.target(), configurations.at(0))
        .number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  };
  std::vector<std::future<std::int64_t>> made;
  for (const AttentionProblem& p : problems) {
    made.push_back(std::async(std::launch::async, workspace, p));
  }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    CHECK(made[i].get() == workspace(problems[i]));
  }
}

TEST_CASE("cuDNN is asked, and may say no", "[runtime][cuda]") {
  const Machine machine;
  if (!machine.cudnn || !machine.has_driver) {
    return;
  }
  // 300 is a multiple of 4, not of the 8 that its engines load at once.
  const AttentionProblem odd = problem_of(4, 4, 300, true, false, Format::kBf16);
  CHECK(engines(machine, attention_op_by_op(machine.target(), odd)) == 0);
  // A descriptor with an attribute missing: the words are the library's.
  CudnnDescriptor tensor(*machine.cudnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  CHECK_THROWS_WITH(tensor.finalize("tensor"),
                    Catch::Contains("cudnnBackendFinalize of the tensor") &&
                        Catch::Contains("CUDNN_STATUS_BAD_PARAM"));
}

TEST_CASE("What the graphs do not express is not asked of cuDNN", "[runtime][cuda]") {
  const AttentionProblem good = problem_of(8, 2, 64, true, true, Format::kBf16);
  const auto rejected = [&](const auto& change, const char* why) {
    AttentionProblem p = good;
    change(p);
    CHECK_THAT(not_for_cudnn(p), Catch::Contains(why));
  };
  CHECK(not_for_cudnn(good).empty());
  rejected([](auto& p) { p.format = Format::kFp32; }, "fp32");
  rejected([](auto& p) { p.shape.window = 7; }, "window");
  rejected([](auto& p) { p.shape.head_dim = 60; }, "60");
  rejected([](auto& p) { p.shape.kv_length = 512; }, "unequal");
  rejected([](auto& p) { p.aligned = false; }, "16 bytes");
}
