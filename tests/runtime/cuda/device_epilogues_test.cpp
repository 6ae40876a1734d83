// Products with an epilogue, on the GPU and on the CPU backend.
#ifdef STEPCAST_CUDA_STANDIN
#include <cublasLt.h>

#include "runtime/cuda/cudnn_attention.h"
#include "tests/runtime/cuda/standin/device.h"
#endif

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "core/graph/epilogue.h"
#include "tests/runtime/cuda/device_op_check.h"
#include "tests/runtime/listed_models.h"
#include "workloads/passes/fuse_epilogues.h"

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

/// Layers with every activation between them: a product with its bias, then an op of its own.
constexpr const char* kListedGelu = R"({"kind": "graph", "name": "w", "inputs": {"dense": [13]},
  "tables": [{"name": "a", "rows": 31, "dim": 8}],
  "ops": [{"op": "linear", "width": 24, "activation": "gelu"},
          {"op": "linear", "width": 20, "bias": false, "activation": "gelu"},
          {"op": "linear", "width": 8}, {"op": "tables"}, {"op": "reshape", "shape": [1, 16]},
          {"op": "linear", "width": 1}, {"op": "binary_cross_entropy"}]})";

/// Models with products that have every epilogue of training, no more than 24 columns under a mask.
std::vector<Job> jobs_with_epilogues(Format compute) {
  Job dlrm = test::small_dlrm(InteractionKind::kDot, OptimizerKind::kSgd, compute);
  std::get<LayeredWorkload>(dlrm.workload.model).top_mlp = {24, 16, 1};
  Job gpt = test::small_transformer(Activation::kGelu, false, compute);
  std::get<TransformerWorkload>(gpt.workload.model).ffn_hidden = 100;  // rows of its input: 104
  return {dlrm, gpt, test::listed_job(kListedGelu, 1, name_of(compute))};
}

ExecutionGraph fused_graph(const Job& job) {
  ExecutionGraph graph = workloads::build_graph(job);
  workloads::fuse_epilogues(graph);
  return graph;
}

/// Takes from the stand-in's library what an epilogue needs, until the end of the scope.
class WithoutEpilogues {
 public:
  WithoutEpilogues(const char* what, int value) : what_(what) {
    setenv(what, std::to_string(value).c_str(), 1);
  }
  ~WithoutEpilogues() { unsetenv(what_); }
  WithoutEpilogues(const WithoutEpilogues&) = delete;
  WithoutEpilogues& operator=(const WithoutEpilogues&) = delete;

 private:
  const char* what_;
};

bool is_fused_product(const Op& op) { return op.as<GemmAttributes>().epilogue != Epilogue::kNone; }

}  // namespace

TEST_CASE("every product with an epilogue equals the CPU's", "[runtime][cuda][gpu][short]") {
  const auto compute = GENERATE(Format::kFp32, Format::kBf16);
  const cuda::Module* module = test::device_module();
  if (module == nullptr) {
    return;
  }
  std::set<Epilogue> seen;
  for (const Job& job : jobs_with_epilogues(compute)) {
    const ExecutionGraph graph = fused_graph(job);
    const Program& program = graph.programs.front();
    for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      if (is_fused_product(op)) {
        seen.insert(op.as<GemmAttributes>().epilogue);
        test::check_op(*module, job, graph, i);
      }
    }
  }
  CHECK(seen == std::set<Epilogue>{Epilogue::kBias, Epilogue::kBiasRelu, Epilogue::kBiasReluMask,
                                   Epilogue::kReluBackward, Epilogue::kColumnSums,
                                   Epilogue::kGeluInput, Epilogue::kBiasGeluInput,
                                   Epilogue::kGeluBackward, Epilogue::kGeluBackwardSums});
}

DEVICE_TEST_CASE("a forward with a GELU in its products equals the CPU's", "[runtime][cuda][gpu]") {
  for (Job job : jobs_with_epilogues(Format::kBf16)) {
    ExecutionGraph graph = workloads::build_graph(job);
    Program& program = graph.programs.front();
    for (Op& op : program.ops) {  // without the backward nothing is kept
      if (op.kind == OpKind::kActivationBackward) {
        op.kind = OpKind::kFill;
        op.inputs = op.outputs = 0;
      }
    }
    workloads::fuse_epilogues(graph);
    for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
      const auto epilogue = program.ops[i].as<GemmAttributes>().epilogue;
      if (is_fused_product(program.ops[i]) &&
          (epilogue == Epilogue::kGelu || epilogue == Epilogue::kBiasGelu)) {
        test::check_op(module, job, graph, i);
      }
    }
  }
}

DEVICE_TEST_CASE("a step with epilogues learns as one without", "[runtime][cuda][gpu]") {
  for (const Job& job : jobs_with_epilogues(Format::kFp32)) {
    const ExecutionGraph with = fused_graph(job);
    const ExecutionGraph without = workloads::build_graph(job);
    test::BothBackends fused(module, with);
    test::BothBackends separate(module, without);
    for (std::int64_t step = 0; step < 4; ++step) {
      const HostBatch batch = fused.batch(step);
      const double expected = separate.cpu.run_step(step, batch, -1);
      CHECK(fused.cpu.run_step(step, batch, -1) == expected);  // the same sums in the same order
      CHECK(fused.gpu->run_step(step, batch, -1) == Approx(expected).epsilon(1e-4));
    }
  }
}

#if defined(STEPCAST_CUDA_STANDIN) && defined(STEPCAST_HAVE_CUDNN)
TEST_CASE("a plan of cuDNN that fails ends the step", "[runtime][cuda]") {
  const cuda::Module& module = *test::device_module();
  const test::WithCudnn machine;
  const WithoutEpilogues broken("STANDIN_CUDNN_FAILS", 1);
  const Job job = test::small_transformer(Activation::kSwiGlu, true, Format::kBf16);
  const ExecutionGraph graph = workloads::build_graph(job);
  test::BothBackends both(module, graph);
  CHECK(both.gpu->attention() == "cudnn 9.19.0");
  CHECK_THROWS_WITH(both.gpu->run_step(0, both.batch(0), -1),
                    Catch::Contains("cudnnBackendExecute"));
}

TEST_CASE("plans of cuDNN are made on a rank's share of the cores, with a handle each",
          "[runtime][cuda]") {
  const test::WithCudnn machine;
  cuda::CudnnAttention& attention = cuda::CudnnAttention::open();
  const auto plan = [&attention](std::int64_t length, int ranks) {
    std::vector<cuda::AttentionProblem> problems(100);
    for (cuda::AttentionProblem& p : problems) {
      p.shape.query_length = p.shape.kv_length = length++;
    }
    attention.plan_all(problems, ranks);
    return standin::cudnn_handles.load();
  };
  const int handles = standin::cudnn_handles;
  CHECK(handles >= 1);
  CHECK(plan(1000, 1 << 20) == handles);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  CHECK(plan(2000, 1) == std::max(handles, cores));
}
#endif

#ifdef STEPCAST_CUDA_STANDIN
TEST_CASE("products whose epilogue cuBLASLt does not have are products and then the rest",
          "[runtime][cuda]") {
  const cuda::Module& module = *test::device_module();
  const std::map<Epilogue, int> in_library{
      {Epilogue::kBiasReluMask, CUBLASLT_EPILOGUE_RELU_AUX_BIAS},
      {Epilogue::kColumnSums, CUBLASLT_EPILOGUE_BGRADA},
      {Epilogue::kGeluInput, CUBLASLT_EPILOGUE_GELU_AUX},
      {Epilogue::kBiasGeluInput, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
      {Epilogue::kGeluBackward, CUBLASLT_EPILOGUE_DGELU},
      {Epilogue::kGeluBackwardSums, CUBLASLT_EPILOGUE_DGELU_BGRAD}};
  constexpr std::int64_t kSteps = 2;
  for (const Job& job : jobs_with_epilogues(Format::kFp32)) {
    const ExecutionGraph graph = fused_graph(job);
    std::vector<double> expected;
    {
      const ExecutionGraph without = workloads::build_graph(job);
      test::BothBackends separate(module, without);
      for (std::int64_t step = 0; step < kSteps; ++step) {
        expected.push_back(separate.cpu.run_step(step, separate.batch(step), -1));
      }
    }
    const auto learns_as_separate = [&] {
      test::BothBackends fused(module, graph);
      for (std::int64_t step = 0; step < kSteps; ++step) {
        CHECK(fused.gpu->run_step(step, fused.batch(step), -1) ==
              Approx(expected[static_cast<std::size_t>(step)]).epsilon(1e-4));
      }
      return fused.gpu->epilogues();
    };
    const KernelUse all = learns_as_separate();
    CHECK(all.kernels == "cublasLt 13.0.0");
    CHECK(all.reason.empty());
    {
      const WithoutEpilogues none("STANDIN_EPILOGUE_WIDTH", 1000);
      const KernelUse own = learns_as_separate();
      CHECK(own.kernels == "own");
      CHECK_THAT(own.reason, Catch::Contains("no algorithm for a product of"));
    }
    {
      const WithoutEpilogues broken("STANDIN_EPILOGUE_FAILS", 1);  // named, and then fails
      const KernelUse own = learns_as_separate();
      CHECK(own.kernels == "own");
      CHECK_THAT(own.reason, Catch::Contains("cublasLtMatmul"));
    }
    // One kind at a time: a backward does without the mask that its forward could not write.
    std::set<Epilogue> kinds;
    for (const Op& op : graph.programs.front().ops) {
      if (is_fused_product(op)) {
        kinds.insert(op.as<GemmAttributes>().epilogue);
      }
    }
    for (const auto& [kind, name] : in_library) {
      if (kinds.contains(kind)) {
        const WithoutEpilogues one("STANDIN_NO_EPILOGUE", name);
        const KernelUse use = learns_as_separate();
        CHECK(use.kernels == "cublasLt 13.0.0 and own");
        CHECK_THAT(use.reason, Catch::Contains(std::string(name_of(kind))));
      }
    }
  }
  // Before the first step, and each product alone.
  const WithoutEpilogues narrow("STANDIN_EPILOGUE_WIDTH", 16);
  const Job dlrm = jobs_with_epilogues(Format::kBf16).front();
  const ExecutionGraph graph = fused_graph(dlrm);
  const KernelUse use = test::BothBackends(module, graph).gpu->epilogues();
  CHECK(use.kernels == "cublasLt 13.0.0 and own");
  CHECK_THAT(use.reason, Catch::Contains("64 x 1 x 16 (bf16 operands, bf16 result, epilogue bias"));
  const WithoutEpilogues none("STANDIN_EPILOGUE_WIDTH", 1000);
  for (const Job& job : jobs_with_epilogues(Format::kBf16)) {
    const ExecutionGraph fused = fused_graph(job);
    const Program& program = fused.programs.front();
    for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
      if (is_fused_product(program.ops[i]) &&
          program.ops[i].as<GemmAttributes>().epilogue != Epilogue::kBiasReluMask) {
        test::check_op(module, job, fused, i);
      }
    }
  }
}
#endif
