// Every op of small models alone, on the GPU and on the CPU backend (device_op_check.h).
#include <catch2/catch.hpp>
#include <iostream>
#include <tuple>

#include "tests/runtime/cuda/device_op_check.h"
#include "tests/runtime/listed_models.h"

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

void check_all_ops(const Job& job) {
  const cuda::Module* module = test::device_module();
  if (module == nullptr) {
    return;
  }
  const ExecutionGraph graph = workloads::build_graph(job);
  for (std::uint32_t i = 0; i < graph.programs.front().ops.size(); ++i) {
    test::check_op(*module, job, graph, i);
  }
}

}  // namespace

TEST_CASE("every op of a DLRM equals the CPU's", "[runtime][cuda][gpu]") {
  const auto interaction =
      GENERATE(InteractionKind::kDot, InteractionKind::kCat, InteractionKind::kDcnV2);
  const auto optimizer = GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                                  OptimizerKind::kAdagrad, OptimizerKind::kAdam);
  check_all_ops(test::small_dlrm(interaction, optimizer, Format::kFp32));
}

TEST_CASE("every op of a DLRM in bf16 equals the CPU's", "[runtime][cuda][gpu][short]") {
  check_all_ops(
      test::small_dlrm(InteractionKind::kDcnV2, OptimizerKind::kRowwiseAdagrad, Format::kBf16));
}

TEST_CASE("every op of a data-parallel DLRM equals the CPU's", "[runtime][cuda][gpu]") {
  Job job = test::small_dlrm(InteractionKind::kDot, OptimizerKind::kAdam, Format::kFp32);
  job.embedding_choice = "data_parallel";
  check_all_ops(job);
}

TEST_CASE("every op of a transformer equals the CPU's", "[runtime][cuda][gpu]") {
  const auto activation = GENERATE(Activation::kGelu, Activation::kSwiGlu, Activation::kSquaredRelu,
                                   Activation::kGeGlu);
  const bool flash = GENERATE(true, false);
  check_all_ops(test::small_transformer(activation, flash, Format::kFp32));
}

TEST_CASE("every op of a transformer with a sliding window equals the CPU's",
          "[runtime][cuda][gpu]") {
  const auto compute = GENERATE(Format::kFp32, Format::kBf16);
  const bool flash = GENERATE(true, false);
  check_all_ops(test::small_transformer(Activation::kSwiGlu, flash, compute, 7));
}

TEST_CASE("every op of experts equals the CPU's", "[runtime][cuda][gpu][short]") {
  const auto compute = GENERATE(Format::kFp32, Format::kBf16);
  check_all_ops(test::small_experts(test::even_experts(), compute));
  check_all_ops(test::small_experts(test::skewed_experts(), compute));
}

TEST_CASE("every op of listed layers equals the CPU's", "[runtime][cuda][gpu]") {
  const auto compute = GENERATE(Format::kFp32, Format::kBf16);
  const std::string& model = test::listed_models()[GENERATE(0U, 1U, 2U)];
  check_all_ops(test::listed_job(model, 1, name_of(compute)));
}

TEST_CASE("every op of a transformer in narrow formats equals the CPU's",
          "[runtime][cuda][gpu][short]") {
  const auto compute = GENERATE(Format::kBf16, Format::kFp16, Format::kTf32, Format::kFp8);
  const bool flash = GENERATE(true, false);
  check_all_ops(test::small_transformer(Activation::kSwiGlu, flash, compute));
}

TEST_CASE("attention by cuDNN equals the CPU's", "[runtime][cuda][gpu][short]") {
  const cuda::Module* module = test::device_module();
  if (module == nullptr) {
    return;
  }
  const test::WithCudnn machine;
  const auto compute = GENERATE(Format::kBf16, Format::kFp16);
  const bool causal = GENERATE(true, false);
  const auto [heads, kv_heads, width] =
      GENERATE(std::tuple(2, 2, 64), std::tuple(4, 2, 64), std::tuple(3, 1, 128));
  Job job = test::small_transformer(Activation::kSwiGlu, true, compute);
  auto& model = std::get<TransformerWorkload>(job.workload.model);
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = width;
  ExecutionGraph graph = workloads::build_graph(job);
  for (std::uint32_t i = 0; i < graph.programs.front().ops.size(); ++i) {
    Op& op = graph.programs.front().ops[i];
    if (op.kind != OpKind::kAttentionForward && op.kind != OpKind::kAttentionBackward) {
      continue;
    }
    if (!causal) {
      op.flags &= static_cast<std::uint8_t>(~op_flags::kCausal);
    }
    cuda::Options options;
    const KernelUse found =
        test::BothBackends(*module, test::only(graph, i), options).gpu->attention();
    if (found.kernels == "own") {
      std::cout << "skipped: " << found.reason << std::endl;
      return;
    }
    CHECK(found.reason.empty());
    options.attention = cuda::AttentionKernels::kCudnn;
    test::check_op(*module, job, graph, i, options);
    options.attention = cuda::AttentionKernels::kOwn;
    const KernelUse own =
        test::BothBackends(*module, test::only(graph, i), options).gpu->attention();
    CHECK(own.kernels == "own");
    CHECK(own.reason == "--attention own");
  }
}

TEST_CASE("attention that cuDNN does not have stays with the backend's own kernels",
          "[runtime][cuda][gpu]") {
  const cuda::Module* module = test::device_module();
  if (module == nullptr) {
    return;
  }
  const test::WithCudnn machine;
  const auto refused = [&](const Job& job, const std::string& why) {
    const ExecutionGraph graph = workloads::build_graph(job);
    cuda::Options options;
    const KernelUse use = test::BothBackends(*module, graph, options).gpu->attention();
    CHECK(use.kernels == "own");
    CHECK_THAT(use.reason, Catch::Contains(why));
    options.attention = cuda::AttentionKernels::kCudnn;
    CHECK_THROWS_WITH(test::BothBackends(*module, graph, options), Catch::Contains(why));
  };
#if defined(STEPCAST_CUDA_STANDIN) && defined(STEPCAST_HAVE_CUDNN)
  refused(test::small_transformer(Activation::kSwiGlu, true, Format::kBf16, 7), "a sliding window");
  refused(test::small_transformer(Activation::kSwiGlu, true, Format::kFp32), "operands in fp32");
  unsetenv("STANDIN_CUDNN");
#endif
  const Job job = test::small_transformer(Activation::kSwiGlu, true, Format::kFp32);
  refused(job, "");
  const ExecutionGraph graph = workloads::build_graph(
      test::small_dlrm(InteractionKind::kDot, OptimizerKind::kSgd, Format::kFp32));
  CHECK(test::BothBackends(*module, graph).gpu->attention().kernels.empty());
}
