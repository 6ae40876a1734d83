#ifdef STEPCAST_CUDA_STANDIN
#include <cublasLt.h>
#endif

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "core/graph/epilogue.h"
#include "runtime/op_operands.h"
#include "tests/runtime/cuda/device_fixture.h"
#include "tests/runtime/listed_models.h"
#include "workloads/passes/fuse_epilogues.h"

// Every op of small models alone, on the GPU and on the CPU backend: random inputs, outputs that
// the op must overwrite poisoned with NaN.

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

/// The program cut down to what loads the batch and one op of it.
ExecutionGraph only(const ExecutionGraph& graph, std::uint32_t op) {
  ExecutionGraph cut = graph;
  Program& program = cut.programs.front();
  program.segments.clear();
  program.calls.clear();
  const auto add = [&program](std::uint32_t index) {
    program.segments.push_back({"one", index, 1});
    program.calls.push_back({static_cast<std::uint32_t>(program.segments.size() - 1), 0});
  };
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind == OpKind::kLoadBatch && i != op) {
      add(i);
    }
  }
  add(op);
  return cut;
}

template <class Ids>
bool contains(const Ids& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Whether the op reads what stood in an output before.
bool adds_to(const Program& program, const Op& op, TensorId id) {
  const bool gradient = program.tensors[id].role == TensorRole::kGradient;
  const bool product = op.kind == OpKind::kGemm && id == program.outputs(op)[0];
  const bool by_group =  // a row of the output gets the gradients of several rows
      op.kind == OpKind::kModulateBackward || op.kind == OpKind::kGateBackward;
  return (op.flags & op_flags::kAccumulate) != 0 || (by_group && id != program.outputs(op)[0]) ||
         (gradient && !product && op.kind != OpKind::kFill) || op.kind == OpKind::kOptimizer ||
         contains(program.inputs(op), id);
}

/// Multiples of 1/64 in [-1, 1]: exact in every format. Sums of exponentials and squares, which an
/// op divides by or takes the root of, are positive.
std::vector<float> random_values(const Program& program, TensorId id, std::mt19937& random) {
  const Tensor& t = program.tensors[id];
  const bool positive = t.role == TensorRole::kOptimizerState || t.name == "loss.sums";
  std::vector<float> values(static_cast<std::size_t>(t.elements()));
  for (float& v : values) {
    const int step = static_cast<int>(random() % 129);
    v = static_cast<float>(positive ? step + 1 : step - 64) / 64.0F;
  }
  return values;
}

void write_both(test::BothBackends& both, const Program& program, TensorId id,
                const std::vector<float>& values) {
  both.gpu->write(id, 0, values);
  if (const std::int32_t master = program.tensors[id].master;
      master >= 0) {  // the CPU has no narrow weights
    both.gpu->write(static_cast<TensorId>(master), 0, values);
  }
  std::copy(values.begin(), values.end(), both.cpu.tensor(id, 0).data);
}

/// `room`: an op on routed copies leaves rows that no copy has as they were, poisoned.
void check_equal(test::BothBackends& both, const Program& program, TensorId id, double tolerance,
                 bool room = false) {
  const auto here = both.cpu.tensor(id, 0);
  const std::vector<float> there = both.gpu->read(id, 0);
  double largest = 1e-3;
  const auto untouched = [&](std::size_t i) {
    return room && std::isnan(here.data[i]) && std::isnan(there[i]);
  };
  for (std::size_t i = 0; i < there.size(); ++i) {
    largest = untouched(i) ? largest : std::max(largest, std::abs(double{here.data[i]}));
  }
  double worst = 0;
  std::size_t bad = 0;
  for (std::size_t i = 0; i < there.size(); ++i) {
    if (untouched(i)) {
      continue;
    }
    const double error = std::abs(double{there[i]} - double{here.data[i]});
    bad += std::isfinite(error) && std::isfinite(here.data[i]) ? 0U : 1U;
    worst = std::max(worst, error);
  }
  INFO(program.tensors[id].name << ": worst " << worst << ", largest value " << largest << ", "
                                << bad << " of " << there.size() << " not finite");
  CHECK(bad == 0);
  CHECK(worst <= tolerance * largest);
}

/// Which numbers are positive, a bit each, as core/graph/epilogue.h has it. At most 24 columns:
/// then the words are exact as floats.
std::vector<float> mask_of(const Tensor& of, const std::vector<float>& values) {
  REQUIRE(of.columns <= 24);
  std::vector<float> words(static_cast<std::size_t>(of.rows * mask_words(of.columns)), 0.0F);
  for (std::int64_t i = 0; i < of.rows; ++i) {
    std::uint32_t word = 0;
    for (std::int64_t j = 0; j < of.columns; ++j) {
      const bool positive = values[static_cast<std::size_t>(i * of.columns + j)] > 0;
      word |= positive ? std::uint32_t{1} << j : 0U;
    }
    words[static_cast<std::size_t>(i * mask_words(of.columns))] = static_cast<float>(word);
  }
  return words;
}

void check_op(const cuda::Module& module, const Job& job, const ExecutionGraph& graph,
              std::uint32_t index, const cuda::Options& options = {}) {
  const ExecutionGraph cut = only(graph, index);
  const Program& program = cut.programs.front();
  const Op& op = program.ops[index];
  INFO(name_of(op.kind) << " '" << program.name(op) << "', " << name_of(job.formats.compute));
  test::BothBackends both(module, cut, options);
  std::mt19937 random(index);
  for (const TensorId id : program.inputs(op)) {
    write_both(both, program, id, random_values(program, id, random));
  }
  for (const TensorId id : program.outputs(op)) {
    if (program.tensors[id].format ==
        Format::kInt32) {  // a mask: padding bits may stay as they are
      const auto words = static_cast<std::size_t>(program.tensors[id].elements());
      both.gpu->write(id, 0, std::vector<float>(words, 0.0F));
    } else if (!contains(program.inputs(op), id)) {
      const auto values = random_values(program, id, random);
      write_both(both, program, id,
                 adds_to(program, op, id)
                     ? values
                     : std::vector<float>(values.size(), std::numeric_limits<float>::quiet_NaN()));
    }
  }
  std::vector<TensorId> tables;  // an embedding's backward names them by its group
  if (op.kind == OpKind::kEmbeddingBackward) {
    for (const EmbeddingShard& shard : program.group_of(op)->shards) {
      tables.push_back(shard.weights);
      if (shard.has_state) {
        tables.push_back(shard.state);
      }
    }
  }
  // From a state of zero an optimizer that divides by its root would turn the rounding of a
  // gradient that cancels into a whole step.
  for (const TensorId id : tables) {
    write_both(both, program, id, random_values(program, id, random));
  }
  const bool reads_mask = op.as<GemmAttributes>().epilogue == Epilogue::kReluBackward;
  if (reads_mask) {
    const TensorId y = program.inputs(op)[2];
    both.gpu->write(program.inputs(op)[3], 0, mask_of(program.tensors[y], both.gpu->read(y, 0)));
  }
  const HostBatch batch = both.batch(0);
  const double expected = both.cpu.run_step(0, batch, -1);
  const double loss = both.gpu->run_step(0, batch, -1);
  const double tolerance = test::tolerance_of(job.formats.compute);
  CHECK(loss == Approx(expected).epsilon(tolerance));
  for (const TensorId id : program.outputs(op)) {
    if (program.tensors[id].format == Format::kInt32) {  // the CPU looks at y itself
      const TensorId y = program.outputs(op)[0];
      CHECK(both.gpu->read(id, 0) == mask_of(program.tensors[y], both.gpu->read(y, 0)));
      continue;
    }
    // Between the rows of a GELU's input nothing is written.
    const bool gaps = op.kind == OpKind::kGemm && id == program.outputs(op).back() &&
                      keeps_gelu_input(op.as<GemmAttributes>().epilogue);
    check_equal(both, program, id, tolerance, op.routing >= 0 || gaps);
  }
  for (const TensorId id : tables) {
    check_equal(both, program, id, tolerance);
  }
}

void check_all_ops(const Job& job) {
  const cuda::Module* module = test::device_module();
  if (module == nullptr) {
    return;
  }
  const ExecutionGraph graph = workloads::build_graph(job);
  for (std::uint32_t i = 0; i < graph.programs.front().ops.size(); ++i) {
    check_op(*module, job, graph, i);
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
    const KernelUse found = test::BothBackends(*module, only(graph, i), options).gpu->attention();
    if (found.kernels == "own") {
      std::cout << "skipped: " << found.reason << std::endl;
      return;
    }
    CHECK(found.reason.empty());
    options.attention = cuda::AttentionKernels::kCudnn;
    check_op(*module, job, graph, i, options);
    options.attention = cuda::AttentionKernels::kOwn;
    const KernelUse own = test::BothBackends(*module, only(graph, i), options).gpu->attention();
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
  Job gpt = test::small_transformer(Activation::kGelu, true, compute);
  std::get<TransformerWorkload>(gpt.workload.model).ffn_hidden = 100;  // rows of its input: 104
  return {dlrm, gpt, test::listed_job(kListedGelu, 1, name_of(compute))};
}

ExecutionGraph fused_graph(const Job& job) {
  ExecutionGraph graph = workloads::build_graph(job);
  workloads::fuse_epilogues(graph);
  return graph;
}

/// What an epilogue needs that the stand-in's library lacks, until the end of the scope.
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
        check_op(*module, job, graph, i);
      }
    }
  }
  CHECK(seen == std::set<Epilogue>{Epilogue::kBias, Epilogue::kBiasRelu, Epilogue::kBiasReluMask,
                                   Epilogue::kReluBackward, Epilogue::kColumnSums,
                                   Epilogue::kGeluInput, Epilogue::kBiasGeluInput,
                                   Epilogue::kGeluBackward, Epilogue::kGeluBackwardSums});
}

TEST_CASE("a forward with a GELU in its products equals the CPU's", "[runtime][cuda][gpu]") {
  const cuda::Module* module = test::device_module();
  if (module == nullptr) {
    return;
  }
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
        check_op(*module, job, graph, i);
      }
    }
  }
}

TEST_CASE("a step with epilogues learns as one without", "[runtime][cuda][gpu]") {
  const cuda::Module* module = test::device_module();
  if (module == nullptr) {
    return;
  }
  for (const Job& job : jobs_with_epilogues(Format::kFp32)) {
    const ExecutionGraph with = fused_graph(job);
    const ExecutionGraph without = workloads::build_graph(job);
    test::BothBackends fused(*module, with);
    test::BothBackends separate(*module, without);
    for (std::int64_t step = 0; step < 4; ++step) {
      const HostBatch batch = fused.batch(step);
      const double expected = separate.cpu.run_step(step, batch, -1);
      CHECK(fused.cpu.run_step(step, batch, -1) == expected);  // the same sums in the same order
      CHECK(fused.gpu->run_step(step, batch, -1) == Approx(expected).epsilon(1e-4));
    }
  }
}

#if defined(STEPCAST_CUDA_STANDIN) && defined(STEPCAST_HAVE_CUDNN)
TEST_CASE("a plan of cuDNN that fails gives way to own kernels, unless it is insisted on",
          "[runtime][cuda]") {
  const cuda::Module& module = *test::device_module();
  const test::WithCudnn machine;
  const WithoutEpilogues broken("STANDIN_CUDNN_FAILS", 1);
  const Job job = test::small_transformer(Activation::kSwiGlu, true, Format::kBf16);
  const ExecutionGraph graph = workloads::build_graph(job);
  cuda::Options options;
  test::BothBackends both(module, graph, options);
  for (std::int64_t step = 0; step < 2; ++step) {
    const HostBatch batch = both.batch(step);
    CHECK(both.gpu->run_step(step, batch, -1) ==
          Approx(both.cpu.run_step(step, batch, -1)).epsilon(2e-2));
  }
  CHECK(both.gpu->attention().kernels == "own");
  CHECK_THAT(both.gpu->attention().reason, Catch::Contains("cudnnBackendExecute"));
  options.attention = cuda::AttentionKernels::kCudnn;
  test::BothBackends insisting(module, graph, options);
  CHECK_THROWS_WITH(insisting.gpu->run_step(0, insisting.batch(0), -1),
                    Catch::Contains("cudnnBackendExecute"));
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
        check_op(module, job, fused, i);
      }
    }
  }
}
#endif
