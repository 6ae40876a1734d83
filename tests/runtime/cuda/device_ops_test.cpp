// Every op of small models alone, on the GPU and on the CPU backend (device_op_check.h).
#include <catch2/catch.hpp>
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
  check_all_ops(test::small_transformer(activation, false, Format::kFp32));
}

TEST_CASE("every op of a transformer with a sliding window equals the CPU's",
          "[runtime][cuda][gpu]") {
  const auto compute = GENERATE(Format::kFp32, Format::kBf16);
  check_all_ops(test::small_transformer(Activation::kSwiGlu, false, compute, 7));
}

TEST_CASE("every op of experts equals the CPU's", "[runtime][cuda][gpu][short]") {
  const auto compute = GENERATE(Format::kFp32, Format::kBf16);
  check_all_ops(test::small_experts(test::even_experts(), compute));
  check_all_ops(test::small_experts(test::skewed_experts(), compute));
}

TEST_CASE("every op of listed layers equals the CPU's", "[runtime][cuda][gpu]") {
  const auto compute = GENERATE(Format::kFp32, Format::kBf16);
  for (const std::string& model : test::listed_without_attention()) {
    check_all_ops(test::listed_job(model, 1, name_of(compute)));
  }
}

TEST_CASE("every op of a transformer in narrow formats equals the CPU's",
          "[runtime][cuda][gpu][short]") {
  const auto compute = GENERATE(Format::kBf16, Format::kFp16, Format::kTf32, Format::kFp8);
  check_all_ops(test::small_transformer(Activation::kSwiGlu, false, compute));
}

TEST_CASE("attention by cuDNN equals the CPU's", "[runtime][cuda][gpu][short]") {
  const cuda::Module* module = test::device_module();
  const test::WithCudnn machine;
  if (module == nullptr || !test::has_cudnn(*module)) {
    return;
  }
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
    test::check_op(*module, job, graph, i);
  }
}

TEST_CASE("every op of listed layers with attention by cuDNN equals the CPU's",
          "[runtime][cuda][gpu]") {
  const cuda::Module* module = test::device_module();
  const test::WithCudnn machine;
  if (module != nullptr && test::has_cudnn(*module)) {
    check_all_ops(test::listed_job(test::listed_with_attention(), 1, "bf16"));
  }
}

DEVICE_TEST_CASE("fused attention that cuDNN does not have is refused with the remedy",
                 "[runtime][cuda][gpu]") {
  const auto graph_of = [](Format compute, std::int64_t window) {
    return workloads::build_graph(
        test::small_transformer(Activation::kSwiGlu, true, compute, window));
  };
#ifdef STEPCAST_CUDA_STANDIN
  CHECK_THROWS_AS(test::BothBackends(module, graph_of(Format::kBf16, 0)), EnvironmentError);
  CHECK_THROWS_WITH(test::BothBackends(module, graph_of(Format::kBf16, 0)),
                    Catch::Contains("cuDNN") && Catch::Contains("libcudnn.so.9") &&
                        Catch::Contains("--set attention=unfused"));
#endif
  const test::WithCudnn machine;
  if (test::has_cudnn(module)) {
    const auto rejected = [&](Format compute, std::int64_t window, const std::string& why) {
      CHECK_THROWS_AS(test::BothBackends(module, graph_of(compute, window)), InputError);
      CHECK_THROWS_WITH(test::BothBackends(module, graph_of(compute, window)),
                        Catch::Contains("attention: cudnn ") && Catch::Contains(why) &&
                            Catch::Contains("use unfused"));
    };
    rejected(Format::kBf16, 7, "a sliding window");
    rejected(Format::kFp32, 0, "operands in fp32");
  }
  const ExecutionGraph without =
      workloads::build_graph(test::small_transformer(Activation::kSwiGlu, false, Format::kFp32));
  CHECK(test::BothBackends(module, without).gpu->attention().empty());
}
