#pragma once
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <vector>

#include "core/access/access.h"
#include "core/job/job.h"
#include "runtime/cpu/executor.h"
#include "runtime/cuda/backend.h"
#include "runtime/data/batch_source.h"
#include "workloads/build_graph.h"
#ifdef STEPCAST_CUDA_STANDIN
#include "tests/runtime/cuda/standin/module.h"
#endif

namespace stepcast::runtime::test {

/// The module where this machine has a device; else null, with the reason printed in the words by
/// which ctest knows a skipped test.
inline const cuda::Module* device_module() {
#ifdef STEPCAST_CUDA_STANDIN
  const cuda::Module& module = standin::module();
#else
  const cuda::Module& module = cuda::loaded_module(
      cuda::module_of(std::filesystem::read_symlink("/proc/self/exe")));  // also in a bundle
#endif
  const cuda::Probe probe = module.probe();
  if (probe.devices == 0) {
    std::cout << "skipped: " << probe.missing << std::endl;
    return nullptr;
  }
  return &module;
}

/// A test case that gets the module, skipped where there is no device.
#define DEVICE_TEST_CASE(...) \
  DEVICE_TEST_CASE_OF(INTERNAL_CATCH_UNIQUE_NAME(on_device), __VA_ARGS__)
#define DEVICE_TEST_CASE_OF(body, ...)                                                      \
  static void body(const ::stepcast::runtime::cuda::Module& module);                        \
  TEST_CASE(__VA_ARGS__) {                                                                  \
    if (const auto* found = ::stepcast::runtime::test::device_module(); found != nullptr) { \
      body(*found);                                                                         \
    }                                                                                       \
  }                                                                                         \
  static void body([[maybe_unused]] const ::stepcast::runtime::cuda::Module& module)

inline Job small_dlrm(InteractionKind interaction, OptimizerKind embedding, Format compute) {
  LayeredWorkload w;
  w.dense_features = 5;
  w.bottom_mlp = {24, 16};
  w.top_mlp = {32, 1};
  w.interaction = {interaction, 2, 8};
  for (int t = 0; t < 5; ++t) {
    EmbeddingTable table;
    table.name = fmt::format("t{}", t);
    table.rows = 31 + 500 * t;
    table.dim = 16;
    table.pooling = t == 1 ? 4 : 2.5;  // exact and Poisson bags
    table.access = std::make_shared<const Access>(Access::uniform(table.rows));
    table.mode = t == 3 ? PoolingMode::kMean : PoolingMode::kSum;
    w.tables.push_back(table);
  }
  Job job;
  job.workload.name = "small";
  job.workload.model = w;
  job.batch.global = 64;
  job.formats.compute = compute;
  job.dense_optimizer = OptimizerKind::kSgd;
  job.embedding_optimizer = embedding;
  job.embedding_choice = "table_wise";
  return job;
}

inline Job small_transformer(Activation activation, bool flash, Format compute,
                             std::int64_t window = 0) {
  TransformerWorkload m;
  m.window = window;
  m.layers = 1;
  m.hidden = 128;
  m.heads = 2;
  m.kv_heads = activation == Activation::kGelu ? 2 : 1;
  m.head_dim = 64;
  m.ffn_hidden = 96;
  m.activation = activation;
  m.vocabulary = 128;
  Job job;
  job.workload.name = "small";
  job.workload.model = m;
  job.batch = {4, 2, 32};
  job.formats.compute = compute;
  job.flash_attention = flash;
  job.dense_optimizer = OptimizerKind::kAdam;
  return job;
}

/// Eight experts, two a token: as many copies for each.
inline MixtureOfExperts even_experts() {
  MixtureOfExperts moe;
  moe.experts = 8;
  moe.per_token = 2;
  moe.ffn_hidden = 48;
  return moe;
}

/// Six experts, three a token, one for all; the popular ones drop copies, the others get few.
inline MixtureOfExperts skewed_experts() {
  MixtureOfExperts moe;
  moe.experts = 6;
  moe.per_token = 3;
  moe.shared = 1;
  moe.ffn_hidden = 40;
  moe.capacity_factor = 0.75;
  moe.routing = std::make_shared<const Access>(Access::zipf(6, 1.2, 3));
  return moe;
}

inline Job small_experts(const MixtureOfExperts& moe, Format compute) {
  Job job = small_transformer(Activation::kSwiGlu, false, compute);
  std::get<TransformerWorkload>(job.workload.model).moe = moe;
  return job;
}

/// How far results in a compute format may stand from fp32's, relative to the largest value.
inline double tolerance_of(Format compute) {
  switch (compute) {
    case Format::kFp32:
      return 2e-5;
    case Format::kTf32:
    case Format::kFp16:
      return 4e-3;  // 10 bits of mantissa, a few roundings
    case Format::kFp8:
      return 8e-2;  // 3 bits forward, 2 bits of gradients; sums over 64 or more
    default:
      return 3e-2;  // bf16: 7 bits
  }
}

/// Over the stand-in: whether its machine has cuDNN, until the end of the scope. Nothing on a GPU.
class WithCudnn {
 public:
  WithCudnn() { setenv("STANDIN_CUDNN", "1", 1); }
  ~WithCudnn() { unsetenv("STANDIN_CUDNN"); }
  WithCudnn(const WithCudnn&) = delete;
  WithCudnn& operator=(const WithCudnn&) = delete;
};

/// Whether fused attention has its library; else the reason is printed as ctest knows it.
inline bool has_cudnn(const cuda::Module& module) {
  const ExecutionGraph graph =
      workloads::build_graph(small_transformer(Activation::kSwiGlu, true, Format::kBf16));
  try {
    return module.executor(graph, cuda::Ranks{}, {}, nullptr) != nullptr;
  } catch (const EnvironmentError& missing) {
    std::cout << "skipped: " << missing.what() << std::endl;
    return false;
  }
}

/// A one-rank job on both backends.
class BothBackends {
 public:
  BothBackends(const cuda::Module& module, const ExecutionGraph& graph, cuda::Options options = {},
               Observer* observer = nullptr)
      : cpu(graph, 0, {}, {}),
        gpu(module.executor(graph, cuda::Ranks{}, options, observer)),
        source_(make_batch_source(graph.inputs, graph.mesh, 0, 1)) {}

  [[nodiscard]] HostBatch batch(std::int64_t step) {
    HostBatch b;
    source_->draw(step, b);
    return b;
  }

  cpu::Executor cpu;
  std::unique_ptr<cuda::DeviceExecutor> gpu;

 private:
  std::unique_ptr<BatchSource> source_;
};

}  // namespace stepcast::runtime::test
