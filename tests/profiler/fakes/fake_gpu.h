#pragma once
#include <cstdint>

/// Requests of the program under test to the fake libcupti, which plays device and driver: each
/// call makes the records CUPTI would make of it. All times are real; a kernel's are its place in
/// the queue of its stream.
struct FakeGpu {
  void (*launch)(const char* kernel, std::uint32_t stream, std::uint64_t microseconds);
  void (*record_event)(std::uint32_t event, std::uint32_t stream);
  void (*wait_event)(std::uint32_t event, std::uint32_t stream);
  void (*synchronize)();
  void (*push)(const char* range);
  void (*pop)();
  /// A node joins a CUDA graph under construction, or is cloned into an executable one; its id.
  std::uint64_t (*node_created)();
  std::uint64_t (*node_cloned)(std::uint64_t original);
  void (*launch_graph)(const std::uint64_t* nodes, std::uint32_t count, std::uint32_t stream,
                       std::uint64_t microseconds_each);
  void (*driver_call)();
  /// Another tool registers buffers of its own, as torch.profiler does without asking.
  void (*take_buffers)();
};
/// `extern "C" const FakeGpu* fake_gpu()` of the fake libcupti.
using FakeGpuEntry = const FakeGpu*();
