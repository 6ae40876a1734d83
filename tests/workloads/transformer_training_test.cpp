#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>

#include "core/job/job_rules.h"
#include "simulator/reports/memory_ledger.h"
#include "tests/workloads/transformer_graphs.h"

// Forms of training: dropout, the ways to make a loss, adapters, optimizer formats, modules
// that are recomputed.
using namespace stepcast;
using namespace stepcast::test;

namespace training_test {

constexpr std::int64_t kSequence = 64;
constexpr std::int64_t kHidden = 128;
constexpr std::int64_t kHeads = 8;
constexpr std::int64_t kFfn = 352;

Job llama() {
  Job job = llama_job(4, kHidden, kHeads, 4, kFfn, kSequence, 256);
  job.batch.micro = 2;
  split(job, 1, 1, 1, 1);
  return job;
}

Job adapted(Job job, double dropout = 0) {
  job.lora = Lora{.rank = 4, .alpha = 8, .dropout = dropout};
  return job;
}

/// FLOPs and count of executed products whose name begins so.
double flops_of(const Job& job, std::string_view name) {
  const ExecutionGraph graph = workloads::build_graph(job);
  return sum_over(graph.programs.front(), [&](const Op& op, const std::string& own) {
    return op.kind == OpKind::kGemm && own.starts_with(name) ? op.flops.base() : 0.0;
  });
}

}  // namespace training_test

using namespace training_test;

TEST_CASE("dropout keeps masks, and what it leaves of the scores of unfused attention",
          "[workloads][training]") {
  // Korthikanti et al., arXiv 2205.05198, equation 2: s b h (34 + 5 a s / h) a layer, split over
  // tensor ranks as in table 2. Two fp32 numbers a row and norm are ours.
  const std::int64_t t = GENERATE(1, 2);
  const bool sequence_parallel = GENERATE(false, true);
  Job job = gpt_job(4, kHidden, kHeads, kSequence, 256);
  job.batch.micro = 2;
  split(job, t, 1, 1, 1);
  job.parallel.sequence_parallel = sequence_parallel;
  job.flash_attention = false;
  transformer_of(job).dropout = true;
  const double sbh = d(kSequence * 2 * kHidden);
  const double whole = sequence_parallel ? 10 / d(t) : 10;
  const double rows = d(kSequence * 2) / (sequence_parallel ? d(t) : 1);
  const double scores = 5 * d(kHeads * kSequence * kSequence * 2) / d(t);
  CHECK(bytes_of_a_layer(job) == sbh * (whole + 24 / d(t)) + scores + 16 * rows);
  // Fused attention draws its mask again: none of the scores, the log-sum-exp in fp32.
  job.flash_attention = true;
  CHECK(bytes_of_a_layer(job) ==
        sbh * (whole + 24 / d(t)) + 4 * d(kHeads * kSequence * 2 / t) + 16 * rows);
}

TEST_CASE("layers without biases drop values by kernels of their own", "[workloads][training]") {
  Job job = llama();
  const double plain = bytes_of_a_layer(job);
  transformer_of(job).dropout = true;
  CHECK(bytes_of_a_layer(job) == plain + 2 * d(kSequence * 2 * kHidden));
}

TEST_CASE("bytes of a logit follow from the way the loss is made", "[workloads][training]") {
  const std::int64_t vocabulary = 65536;  // far more than all other temporaries
  Job job = llama();
  transformer_of(job).vocabulary = vocabulary;
  const double logits = d(kSequence * 2 * vocabulary);
  const auto bytes = [&](LossKind kind) {
    job.loss.kind = kind;
    return use_of(job).activations.base() / logits;
  };
  // Beside them layers, and temporaries of the pass that has more.
  const double in_place = bytes(LossKind::kInPlace);
  CHECK(in_place == Approx(4).margin(0.4));
  CHECK(bytes(LossKind::kCopied) == Approx(in_place + 2).margin(0.06));
  CHECK(bytes(LossKind::kCompiled) == Approx(in_place + 6).margin(0.06));
  CHECK(bytes(LossKind::kEager) == Approx(in_place + 8).margin(0.06));
  CHECK(bytes(LossKind::kFused) == Approx(in_place - 2).margin(0.06));
}

TEST_CASE("a loss in chunks holds the logits of one, and makes the same products",
          "[workloads][training]") {
  const std::int64_t vocabulary = 65536;
  Job job = llama();
  job.loss.kind = LossKind::kFused;
  transformer_of(job).vocabulary = vocabulary;
  const double whole = use_of(job).activations.base();
  const double flops = flops_of(job, "head.");
  job.loss.chunks = 8;
  const double n = d(kSequence * 2);
  // Seven eighths of the logits are gone; the gradients of the head's input and weights wait. Of
  // temporaries, which the logits are now, the pass with more counts.
  CHECK(
      whole - use_of(job).activations.base() ==
      Approx(2 * (n * d(vocabulary) * 7 / 8 - n * kHidden - d(vocabulary) * kHidden)).margin(5e5));
  CHECK(flops_of(job, "head.") == flops);
  job.loss.chunks = 7;
  CHECK(broken_rule(job)->key == "loss.chunks");
}

TEST_CASE("adapters are all that is trained", "[workloads][training]") {
  const Job full = llama();
  const Job job = adapted(full);
  // Per layer rank 4 beside query, key and value (h x 2 h) and the projection (h x h).
  const double adapters = 4 * 4 * d(kHidden + 2 * kHidden + kHidden + kHidden);
  const MemoryUse use = use_of(job);
  CHECK(use.gradients.base() == 4 * adapters);        // fp32
  CHECK(use.optimizer.base() == (8 + 4) * adapters);  // two moments, a copy in fp32
  CHECK(use.parameters.base() == use_of(full).parameters.base() + 2 * adapters);
  CHECK(flops_of(job, "layer.mlp.fc1_weight_gradient") == 0);
  CHECK(flops_of(job, "head.weight_gradient") == 0);
  CHECK(flops_of(job, "layer.") == Approx(2.0 / 3 * flops_of(full, "layer.")));
  // x A and (x A) B forward, each with two products of as many FLOPs backward.
  const double n = d(kSequence * 2);
  CHECK(flops_of(job, "lora.") == Approx(3 * 2 * n * adapters));
}

TEST_CASE("a layer with adapters keeps what their gradients read and no input of other products",
          "[workloads][training]") {
  const double n = d(kSequence * 2);
  const double full = bytes_of_a_layer(llama());
  // The second norm's output and what the activation made are for weight gradients alone; two
  // inputs of second matrices, rank 4, are new.
  const double plain = full - 2 * n * (kHidden + kFfn) + 2 * 2 * n * 4;
  CHECK(bytes_of_a_layer(adapted(llama())) == plain);
  // With dropout the dropped inputs stand for the first norm's output; each has a mask.
  CHECK(bytes_of_a_layer(adapted(llama(), 0.1)) ==
        plain - 2 * n * kHidden + (2 + 1) * n * (kHidden + kHidden));
}

TEST_CASE("adapters of tensor ranks sum what each saw of the input", "[workloads][training]") {
  Job job = adapted(llama());
  split(job, 2, 1, 1, 1);
  job.parallel.sequence_parallel = GENERATE(false, true);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  double low = 0;  // elements of x A of the projection, summed over the ranks once a layer
  for (const Op& op : program.ops) {
    low += program.name(op) == "lora.projection.reduce" ? d(op.shape[0]) : 0;
  }
  CHECK(low == 4 * d(kSequence * 2) * 4);
  job.parallel.schedule = ScheduleKind::kZbH1;
  CHECK(broken_rule(job)->key == "lora");
  job.parallel.schedule = ScheduleKind::kOneFOneB;
  split(job, 1, 2, 1, 2);
  job.parallel.pipeline_split.layers = {0, 4};
  CHECK(broken_rule(job)->key == "parallel.pipeline_split");
}

TEST_CASE("the backward pass of an adapter with dropout reads what it kept, not the norm",
          "[workloads][training]") {
  Job job = adapted(llama(), GENERATE(0.0, 0.1));
  split(job, 2, 1, 1, 1);
  job.parallel.sequence_parallel = true;
  const ExecutionGraph graph = workloads::build_graph(job);
  const double gathers = sum_over(graph.programs.front(), [](const Op&, const std::string& name) {
    return name == "layer.attention.gather" ? 1.0 : 0.0;
  });
  CHECK(gathers == (job.lora->dropout > 0 ? 1 : 2) * 4);  // of four layers: forward, and backward
}

TEST_CASE("what is trained of a layer and what is frozen are gathered together",
          "[workloads][training]") {
  Job job = adapted(llama());
  split(job, 1, 1, 4, 2);
  job.parallel.zero = 3;
  job.formats.frozen = GENERATE(std::optional<Format>{}, std::optional(Format::kNf4));
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  std::map<std::int64_t, int> gathers;  // by bytes
  for (const Op& op : program.ops) {
    if (program.name(op) == "weights.gather") {
      ++gathers[std::llround(format_bytes(op.format, 1, op.shape[0]).base())];
    }
  }
  // Query, key and value h x 2 h, projection h x h, three matrices h x f, two norms; rank 4.
  const double matrices = d(kHidden * (3 * kHidden + 3 * kFfn));
  const double frozen = matrices * (job.formats.frozen ? 4.125 : 16) / 8;
  const double all = frozen + 2 * d(2 * kHidden + 4 * 5 * kHidden);
  CHECK(gathers[std::llround(all)] == 2 * 4);  // forward and backward of four layers
  CHECK(std::accumulate(gathers.begin(), gathers.end(), 0,
                        [](int n, const auto& of) { return n + of.second; }) <= 2 * 4 + 3);
}

TEST_CASE("frozen weights may be kept narrower, and are made wide where they are read",
          "[workloads][training]") {
  Job job = adapted(llama());
  const double wide = use_of(job).parameters.base();
  job.formats.frozen = Format::kNf4;
  // Query, key and value h x 2 h, projection h x h, three matrices h x f; 4.125 bits for 16.
  const double matrices = 4 * d(kHidden * (3 * kHidden + 3 * kFfn));
  CHECK(wide - use_of(job).parameters.base() == Approx(matrices * (16 - 4.125) / 8));
  const ExecutionGraph graph = workloads::build_graph(job);
  const double read = sum_over(graph.programs.front(), [](const Op& op, const std::string& name) {
    return name == "weights.dequantise" ? op.bytes_read.base() : 0.0;
  });
  CHECK(read == Approx(2 * matrices * 4.125 / 8));  // forward and backward
  job.lora.reset();
  CHECK(broken_rule(job)->key == "formats.frozen");
}

TEST_CASE("inputs of activations may be kept in fp8, and are as they were where they are read",
          "[workloads][training]") {
  Job job = GENERATE(llama(), adapted(llama()));
  if (!job.lora && GENERATE(false, true)) {
    MixtureOfExperts moe;
    moe.experts = 8;
    moe.per_token = 2;
    moe.ffn_hidden = kFfn;
    transformer_of(job).moe = moe;
  }
  const double kept = bytes_of_a_layer(job);
  const auto casts = [&] {
    const ExecutionGraph graph = workloads::build_graph(job);
    return sum_over(graph.programs.front(), [](const Op& op, const std::string&) {
      return op.kind == OpKind::kCast ? (op.bytes_read + op.bytes_written).base() : 0.0;
    });
  };
  const double before = casts();
  job.formats.activation = Format::kFp8;
  const double saved = kept - bytes_of_a_layer(job);  // one of two bytes of gate and fc1
  const double copies = transformer_of(job).moe ? d(transformer_of(job).moe->per_token) : 1;
  CHECK(saved == Approx(d(kSequence * 2) * copies * 2 * kFfn).epsilon(1e-3));
  CHECK(casts() - before == Approx(4 * 2 * 3 * saved));  // 2 + 1 bytes each way, four layers
  job.lora.reset();
  job.phase = JobPhase::kPrefill;
  CHECK(broken_rule(job)->key == "formats.activation");
}

TEST_CASE("moments and master weights have formats of their own", "[workloads][training]") {
  Job job = llama();
  const double parameters = use_of(job).parameters.base() / 2;
  CHECK(use_of(job).optimizer.base() == 12 * parameters);
  job.formats.moments = Format::kInt8;
  CHECK(use_of(job).optimizer.base() == (2 + 4) * parameters);
  job.formats.moments = Format::kBf16;
  job.formats.master = Format::kFp16;
  CHECK(use_of(job).optimizer.base() == (4 + 2) * parameters);
}

TEST_CASE("an optimizer without a master copy updates the weights", "[workloads][training]") {
  // None, or one in the weights' own format, which would be a second copy of the same numbers.
  const std::optional<Format> master = GENERATE(std::optional<Format>{}, Format::kBf16);
  const int zero = GENERATE(0, 1, 2, 3);
  Job job = llama();
  split(job, 1, 1, 4, 2);
  job.parallel.zero = zero;
  job.formats.moments = Format::kBf16;
  const double kept = use_of(job).optimizer.base() / (4 + 4);  // weights of a shard
  job.formats.master = master;
  CHECK(use_of(job).optimizer.base() == 4 * kept);
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto sum = [&](Bytes Op::*bytes) {
    return sum_over(graph.programs.front(), [bytes](const Op& op, const std::string& name) {
      return name == "optimizer" ? (op.*bytes).base() : 0.0;
    });
  };
  CHECK(sum(&Op::bytes_read) == (4 + 2 * 2 + 2) * kept);  // fp32 gradient, moments, weight
  CHECK(sum(&Op::bytes_written) == (2 * 2 + 2) * kept);
}

TEST_CASE("recomputed modules are not kept", "[workloads][training]") {
  const double n = d(kSequence * 2);
  Job job = llama();
  const double none = bytes_of_a_layer(job);
  const double flops = workloads::step_flops(job).hardware.base();
  job.parallel.recompute.kind = RecomputeKind::kSelective;
  RecomputeModules& modules = job.parallel.recompute.modules;
  modules = {.attention_core = false, .norms = true};
  CHECK(none - bytes_of_a_layer(job) == 2 * 2 * n * kHidden);
  modules = {.attention_core = false, .feed_forward = true};
  // Norm, its statistics, gate and fc1, what the activation made.
  CHECK(none - bytes_of_a_layer(job) == 2 * n * (kHidden + 3 * kFfn) + 8 * n);
  CHECK(workloads::step_flops(job).hardware.base() - flops ==
        Approx(4 * 2 * n * 3 * kHidden * kFfn));  // three products of four layers once more
  modules.expert_activation = true;
  CHECK(broken_rule(job)->key == "parallel.recompute.modules");
}

TEST_CASE("what latent attention makes of compressed vectors is recomputed",
          "[workloads][training]") {
  const std::int64_t q_rank = GENERATE(24, 0);
  CAPTURE(q_rank);
  const double n = d(kSequence * 2);
  Job job = llama();
  transformer_of(job).kv_heads = kHeads;
  transformer_of(job).mla =
      LatentAttention{.q_rank = q_rank, .kv_rank = 16, .rope_dim = 4, .nope_dim = 12, .v_dim = 8};
  const double none = bytes_of_a_layer(job);
  const double flops = workloads::step_flops(job).hardware.base();
  job.parallel.recompute = {.kind = RecomputeKind::kSelective,
                            .modules = {.attention_core = false, .latent_up = true}};
  // Queries and keys of 12 + 4 columns a head, values of 8.
  CHECK(none - bytes_of_a_layer(job) == 2 * n * kHeads * (16 + 16 + 8));
  // Each of four layers makes queries from their compressed vectors, or from the hidden state; keys
  // without rotary columns and values.
  const double columns = d(q_rank > 0 ? q_rank : kHidden) * kHeads * 16 + 16 * kHeads * (12 + 8);
  CHECK(workloads::step_flops(job).hardware.base() - flops == Approx(4 * 2 * n * columns));
  job.parallel.recompute.modules.norms = true;  // the queries read one
  CHECK(none - bytes_of_a_layer(job) == 2 * n * (kHeads * 40 + 2 * kHidden));
  transformer_of(job).mla.reset();
  CHECK(broken_rule(job)->key == "parallel.recompute.modules");
}

TEST_CASE("tokens of packed documents attend to their own document", "[workloads][training]") {
  Job job = llama();
  const auto causal = [](const Job& j) { return workloads::step_flops(j).model_causal.base(); };
  Job longer = job;
  longer.batch = {.global = 1, .micro = 1, .sequence = 2 * kSequence};  // as many tokens, once more
  const double products = 2 * causal(job) - causal(longer);             // linear in the length
  const double attention = causal(job) - products;
  // Documents of 16 and 48 tokens, as often: mean 32, deviation 16; an average token lies in one of
  // (16^2 + 48^2) / 64 = 40 tokens.
  job.sequence_lengths = SequenceLengths{.mean = 32, .mean_square = 32 * 32 + 16 * 16};
  CHECK(job.sequence_lengths->length_of_a_token() == 40);
  CHECK(causal(job) - products == Approx(attention * 40 / kSequence));
  job.sequence_lengths->attend_within = false;
  CHECK(causal(job) - products == Approx(attention));
  job.sequence_lengths->attend_within = true;
  job.parallel.context = 2;
  job.devices = 2;
  CHECK(broken_rule(job)->key == "sequence_lengths.attention");
}
