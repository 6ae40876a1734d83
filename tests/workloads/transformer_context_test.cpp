#include <catch2/catch.hpp>
#include <map>

#include "tests/workloads/transformer_graphs.h"
#include "workloads/transformer/shape.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

constexpr std::int64_t kSequence = 64;
constexpr std::int64_t kHidden = 64;

Job context_job(std::int64_t context, ContextAlgorithm algorithm) {
  Job job = llama_job(4, kHidden, 8, 4, 96, kSequence, 128);
  split(job, 1, 1, 1, 2);
  job.parallel.context = context;
  job.parallel.context_algorithm = algorithm;
  job.devices *= context;
  return job;
}

/// Llama 3 405B on H100 machines joined at 50 GB/s per device.
Job llama_405b(std::int64_t fresh, std::int64_t cached, std::int64_t context) {
  Job job = llama_job(126, 16384, 128, 8, 53248, fresh, 128256);
  job.system.device.peak[Format::kBf16] = FlopsPerSecond(989e12);
  job.system.fabric = {{"nvlink", 8, BytesPerSecond(450e9), seconds(2e-6), 1, true},
                       {"infiniband", 64, BytesPerSecond(50e9), seconds(5e-6), 1, false}};
  job.system.host.devices = 8;
  job.phase = JobPhase::kPrefill;
  job.cached = cached;
  split(job, 8, 1, 1, 1);
  job.parallel.context = context;
  job.devices *= context;
  return job;
}

}  // namespace

TEST_CASE("context parallelism splits the model's FLOPs evenly, whatever the algorithm",
          "[workloads][context]") {
  const auto algorithm = GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                  ContextAlgorithm::kAllToAll);
  const std::int64_t context = GENERATE(2, 4);
  const workloads::StepFlops whole = workloads::step_flops(context_job(1, algorithm));
  const workloads::StepFlops parts = workloads::step_flops(context_job(context, algorithm));
  CHECK(parts.model.base() == Approx(whole.model.base()).epsilon(1e-12));
  CHECK(parts.model_causal.base() == Approx(whole.model_causal.base()).epsilon(1e-12));
  CHECK(parts.hardware.base() == Approx(whole.hardware.base()).epsilon(1e-12));
}

TEST_CASE("context-parallel attention moves the bytes of its closed form", "[workloads][context]") {
  const std::int64_t c = GENERATE(2, 3, 4);
  const auto algorithm = GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                  ContextAlgorithm::kAllToAll);
  if (algorithm == ContextAlgorithm::kAllToAll && c == 3) {
    return;
  }
  Job job = context_job(c, algorithm);
  job.batch.sequence = 2 * 3 * 16;
  const ExecutionGraph graph = workloads::build_graph(job);
  // Elements a rank sends to others.
  const double sent = sum_over(graph.programs.front(), [&](const Op& op, const std::string& name) {
    if (!is_collective(op.kind) || !name.starts_with("layer.")) {
      return 0.0;
    }
    const auto members = static_cast<double>(graph.members(op.communicator, 0).size());
    return static_cast<double>(op.shape[0]) * (members - 1) / members;
  });
  const double tokens = static_cast<double>(job.batch.sequence) / static_cast<double>(c);
  const double block = tokens * 2 * 4 * 8;  // keys and values of 4 heads of 8
  const auto ranks = static_cast<double>(c);
  double expected = 0;
  if (algorithm == ContextAlgorithm::kAllGather) {  // two gathers, one reduce-scatter
    expected = 3 * (ranks - 1) * block;
  } else if (algorithm == ContextAlgorithm::kPassKv) {
    // c - 1 blocks each way around; gradients of blocks go home: c steps.
    expected = (2 * (ranks - 1) + ranks) * block;
  } else {  // qkv and outputs, there and back
    expected = 2 * (tokens * 16 * 8 + tokens * 8 * 8) * (ranks - 1) / ranks;
  }
  CHECK(sent == Approx(expected * 4 * 2));  // layers, micro-batches
}

TEST_CASE("activations shrink with the context, but for two blocks of keys and values",
          "[workloads][context]") {
  const std::int64_t context = GENERATE(1, 2, 4);
  const Job job = context_job(context, ContextAlgorithm::kPassKv);
  const double rows = static_cast<double>(kSequence) / static_cast<double>(context);
  // llm.md section 1.2 with s / c: s b (h (12 + 4 g) + 6 f), g = 1 / 2; log-sum-exp and norms as in
  // the test of memory.
  const double layer = rows * (kHidden * 14 + 6 * 96) + 4 * 8 * rows + 16 * rows;
  CHECK(bytes_of_a_layer(job) == layer);
}

TEST_CASE("attention in fp8 works, travels and is kept at one byte an element",
          "[workloads][context]") {
  const std::int64_t context = GENERATE(1, 2);
  Job job = context_job(context, ContextAlgorithm::kAllToAll);
  job.system.device.peak = {{Format::kBf16, FlopsPerSecond(989e12)},
                            {Format::kFp8, FlopsPerSecond(1979e12)}};
  const auto program = [&job](std::int64_t layers, bool narrow) {
    transformer_of(job).layers = layers;
    job.system.framework.fp8_attention = narrow;
    return workloads::build_graph(job).programs.front();
  };
  const Program wide = program(4, false);
  const Program narrow = program(4, true);
  const auto of = [](OpClass what, auto value) {
    return [what, value](const Op& op, const std::string&) {
      return class_of(op.kind) == what ? value(op) : 0.0;
    };
  };
  const auto flops = of(OpClass::kAttention, [](const Op& op) { return op.flops.base(); });
  CHECK(sum_over(narrow, flops) == sum_over(wide, flops));
  // Log-sum-exps, four bytes a row of each of 8 heads, written and read, are as wide as before.
  const auto bytes = of(OpClass::kAttention, [](const Op& op) {
    return op.bytes_read.base() + op.bytes_written.base();
  });
  const double tokens = static_cast<double>(kSequence) / static_cast<double>(context);
  const double times = 4 * 2;  // layers, micro-batches
  const double statistics = times * 2 * 4 * 8 * tokens;
  CHECK(sum_over(narrow, bytes) - statistics ==
        Approx((sum_over(wide, bytes) - statistics) / 2).epsilon(1e-12));
  // Outputs are widened, their gradients narrowed, those of queries, keys and values widened:
  // 1 + 2 bytes an element.
  const auto casts = [](const Op& op, const std::string&) {
    return op.kind == OpKind::kCast ? op.bytes_read.base() + op.bytes_written.base() : 0.0;
  };
  const double values = 8 * 8 + 8 * 8 + (8 + 2 * 4) * 8;
  CHECK(sum_over(narrow, casts) - sum_over(wide, casts) == Approx(times * 3 * tokens * values));
  sum_over(narrow, [](const Op& op, const std::string& name) {
    CHECK(
        (op.kind != OpKind::kAllToAll || op.format == Format::kFp8 || !name.starts_with("layer.")));
    return 0.0;
  });
  const auto layer = [&](bool is_narrow) {
    return memory_use(program(5, is_narrow)).activations.base() -
           memory_use(program(4, is_narrow)).activations.base();
  };
  CHECK(layer(false) - layer(true) == tokens * (8 + 2 * 4) * 8);

  job.flash_attention = false;
  job.system.framework.fp8_attention = true;
  CHECK(message_of(job).starts_with(context > 1 ? "attention: " : "formats.attention: "));
  job.flash_attention = true;
  job.system.device.peak.erase(Format::kFp8);
  CHECK(message_of(job).starts_with("formats.attention: "));
}

TEST_CASE("gradients are summed over data and context", "[workloads][context]") {
  Job job = context_job(2, ContextAlgorithm::kAllGather);
  split(job, 2, 2, 2, 2);
  job.devices *= 2;
  const int zero = GENERATE(0, 1, 3);
  job.parallel.zero = zero;
  const ExecutionGraph graph = workloads::build_graph(job);
  // Mesh order tensor, context, pipeline, data: strides 1, 2, 4, 8.
  std::int32_t data = -1;
  for (std::size_t i = 0; i < graph.communicators.size(); ++i) {
    data = graph.communicators[i].name == "data" ? static_cast<std::int32_t>(i) : data;
  }
  CHECK(graph.members(data, 5) == std::vector<std::int32_t>{5, 7, 13, 15});
  const workloads::TransformerShape shape = workloads::transformer_shape(job);
  CHECK(shape.replicas == 4);
  CHECK(shape.shards == (zero == 0 ? 1 : 4));
}

TEST_CASE("auto leaves every legal algorithm open", "[workloads][context]") {
  using A = ContextAlgorithm;
  using Algorithms = std::vector<A>;
  // 8 heads of keys and values on 8 tensor ranks leave one, which 16 context ranks cannot share.
  CHECK(context_algorithms(llama_405b(1 << 20, 0, 16)) ==
        Algorithms{A::kAllGather, A::kPassKv, A::kPassQ});
  Job train = llama_405b(1 << 20, 0, 4);
  train.phase = JobPhase::kTrain;
  CHECK(context_algorithms(train) == Algorithms{A::kAllGather, A::kPassKv});
  train.parallel.tensor = 2;
  train.devices /= 4;
  CHECK(context_algorithms(train) == Algorithms{A::kAllGather, A::kPassKv, A::kAllToAll});
  train.parallel.context_algorithm = A::kPassKv;
  CHECK(context_algorithms(train) == Algorithms{A::kPassKv});
  Job decode = llama_405b(1, 1 << 20, 16);
  decode.phase = JobPhase::kDecode;
  decode.batch.micro = decode.batch.global = 16;
  CHECK(context_algorithms(decode) == Algorithms{A::kPassQ});
}

TEST_CASE("a prefill is the forward pass over new tokens, seeing the cached ones",
          "[workloads][context]") {
  const std::int64_t cached = GENERATE(0, 192);
  const auto algorithm = GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                  ContextAlgorithm::kPassQ, ContextAlgorithm::kAllToAll);
  const std::int64_t context = GENERATE(1, 2, 4);
  Job job = context_job(context, algorithm);
  job.phase = JobPhase::kPrefill;
  job.cached = cached;
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  const double scores = sum_over(program, [](const Op& op, const std::string&) {
    CHECK(op.kind != OpKind::kAttentionBackward);
    CHECK(op.kind != OpKind::kOptimizer);
    return op.kind == OpKind::kAttentionForward ? op.flops.base() : 0.0;
  });
  // 4 d per score: T P + T^2 / 2 of each of 8 heads, 4 layers, 2 sequences.
  const auto p = static_cast<double>(cached);
  CHECK(scores * static_cast<double>(context) ==
        Approx(4 * 8 * (kSequence * p + kSequence * kSequence / 2.0) * 8 * 4 * 2));
  const MemoryUse use = memory_use(program);
  CHECK(use.gradients.base() == 0);
  CHECK(use.optimizer.base() == 0);
  // The cache: 2 (K, V) 2 B * 4 heads * 8 per token and layer, both sequences.
  const double cache = 4 * 4 * 8 * 4 * 2 * (kSequence + p) / static_cast<double>(context);
  CHECK(use.buffers.base() == cache);
}

TEST_CASE("the cache of a million tokens of Llama 3 405B is half a terabyte",
          "[workloads][context]") {
  const Job job = llama_405b(1'000'000 / 32 * 32, 0, 16);
  const ExecutionGraph graph = workloads::build_graph(job);
  const MemoryUse use = memory_use(graph.programs.front());
  CHECK(use.buffers.base() * 128 == Approx(0.516e12).epsilon(0.01));
  // 2 * 405e9 * 1e6 + 4 T^2 16384 126 / 2 = 4.94e18 FLOP (llm.md section 2.1).
  CHECK(workloads::step_flops(job).model_causal.base() == Approx(4.94e18).epsilon(0.01));
}

TEST_CASE("a decoding step reads the whole cache for one token", "[workloads][context]") {
  const std::int64_t context = GENERATE(1, 4);
  Job job = context_job(context, ContextAlgorithm::kAuto);
  job.phase = JobPhase::kDecode;
  job.batch = {16, 8, 1};
  job.cached = 1024;
  const ExecutionGraph graph = workloads::build_graph(job);
  const double scores = sum_over(graph.programs.front(), [](const Op& op, const std::string&) {
    return op.kind == OpKind::kAttentionForward ? op.flops.base() : 0.0;
  });
  // 16 sequences, 8 heads of 8, 4 layers, about 1,024 keys each.
  CHECK(scores * static_cast<double>(context) == Approx(4.0 * 8 * 8 * 4 * 16 * 1024).epsilon(0.01));
  CHECK(memory_use(graph.programs.front()).buffers.base() * static_cast<double>(context) ==
        Approx(4.0 * 4 * 8 * 4 * 16 * 1024).epsilon(0.01));
}

TEST_CASE("contexts that do not fit say what would", "[workloads][context]") {
  using Catch::Contains;
  Job job = context_job(3, ContextAlgorithm::kAuto);
  CHECK(
      message_of(job) ==
      "batch.sequence: 64 tokens cannot be split into 2 * context = 6 equal chunks; use 60 or 66");
  job = context_job(4, ContextAlgorithm::kPassQ);
  CHECK_THAT(message_of(job), Contains("pass_q has no backward pass"));
  job = context_job(8, ContextAlgorithm::kAllToAll);
  CHECK_THAT(message_of(job), Contains("the 4 key and value heads"));
  job = context_job(2, ContextAlgorithm::kAuto);
  job.flash_attention = false;
  CHECK_THAT(message_of(job), Catch::StartsWith("attention: "));
  job = context_job(2, ContextAlgorithm::kAuto);
  job.phase = JobPhase::kPrefill;
  job.parallel.zero = 1;
  CHECK_THAT(message_of(job), Catch::StartsWith("parallel.zero: inference"));
}
