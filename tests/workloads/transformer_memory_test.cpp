#include <catch2/catch.hpp>

#include "simulator/reports/memory_ledger.h"
#include "tests/workloads/transformer_graphs.h"

using namespace stepcast;
using namespace stepcast::test;

TEST_CASE("activation bytes of a layer are those of the closed forms", "[workloads][transformer]") {
  // llm.md section 1.2, general dense layer with fused attention and no dropout, w = 4 (GELU) or 6
  // (SwiGLU):
  //   all but tensor-parallel: s b h (12 + 4 g + w f / h); TP: s b h (8 + (4 + 4 g + w f / h) / t);
  //   TP + SP: all / t.
  // Our op set adds what that form leaves out: the fp32 log-sum-exp, 4 a s b / t, and two fp32
  // numbers per row and norm, 16 s b.
  const bool gpt = GENERATE(true, false);
  const std::int64_t t = GENERATE(1, 2, 4);
  const bool sequence_parallel = GENERATE(false, true);
  const std::int64_t b = GENERATE(1, 2);
  const std::int64_t s = 64;
  Job job = gpt ? gpt_job(4, 128, 8, s, 256) : llama_job(4, 128, 8, 4, 352, s, 256);
  job.batch.micro = b;
  split(job, t, 1, 1, 1);
  job.parallel.sequence_parallel = sequence_parallel;
  const TransformerWorkload m = *job.workload.transformer();
  const double h = 128;
  const double g = d(m.kv_heads) / d(m.heads);
  const double w = gpt ? 4 : 6;
  const double split_part = 4 + 4 * g + w * d(m.ffn_hidden) / h;
  const bool rows_split = sequence_parallel && t > 1;
  const double whole_part = 8;
  const double rows = d(s * b) / (rows_split ? d(t) : 1);
  const double form = rows * h * whole_part + d(s * b) * h * split_part / d(t);
  CHECK(bytes_of_a_layer(job) == form + 4 * d(m.heads * s * b / t) + 16 * rows);
}

TEST_CASE("unfused attention keeps its score matrix, selective recomputation drops it",
          "[workloads][transformer]") {
  const std::int64_t s = 64;
  const double h = 128;
  Job job = gpt_job(4, 128, 8, s, 256);
  job.batch.micro = 2;
  split(job, 1, 1, 1, 1);
  job.flash_attention = false;
  const double sb = d(s) * 2;
  // Without dropout 34 -> 32 and 5 a s^2 b -> 2 a s^2 b; plus the norms' 16 s b.
  CHECK(bytes_of_a_layer(job) == sb * h * 32 + 2 * 8 * d(s * s) * 2 + 16 * sb);
  job.parallel.recompute.kind = RecomputeKind::kSelective;
  CHECK(bytes_of_a_layer(job) == sb * h * 32 + 16 * sb);
  job.parallel.recompute.kind = RecomputeKind::kFull;  // the layer's input only
  CHECK(bytes_of_a_layer(job) == sb * h * 2);
}

TEST_CASE("recomputation op by op keeps attention and every second product",
          "[workloads][transformer]") {
  const std::int64_t s = 64;
  const double h = 128;
  const double f = 352;
  const double keys = 64;  // 4 heads of 16
  Job job = llama_job(4, 128, 8, 4, 352, s, 256);
  job.batch.micro = 2;
  job.parallel.recompute.kind = RecomputeKind::kSelective;
  job.system.framework.selective_per_op = true;
  const double n = d(s) * 2;
  split(job, 1, 1, 1, 1);
  // Input, query, value, attention and its fp32 log-sum-exp, gate, second product.
  CHECK(bytes_of_a_layer(job) == n * 2 * (h + h + keys + h + f + h) + 4 * 8 * n);
  split(job, 2, 1, 1, 1);
  job.parallel.sequence_parallel = true;
  // Columns are halved, the second product is a partial sum of all columns; both sums over tensor
  // ranks are kept where rows are split, as is the input.
  CHECK(bytes_of_a_layer(job) ==
        n * 2 * ((h + keys + h + f) / 2 + h) + 3 * n / 2 * 2 * h + 4 * 8 * n / 2);
  // Recomputed: keys, projection, fc1 beside its gate.
  split(job, 1, 1, 1, 1);
  const double again = workloads::step_flops(job).hardware.base();
  job.parallel.recompute.kind = RecomputeKind::kNone;
  const double microbatches = d(job.batch.global) / 2;
  CHECK(again - workloads::step_flops(job).hardware.base() ==
        Approx(4 * microbatches * 2 * n * h * (keys + h + f)).epsilon(1e-9));
  job.workload.model = gpt_job(4, 128, 8, s, 256).workload.model;
  job.parallel.recompute.kind = RecomputeKind::kSelective;
  CHECK_THROWS_WITH(workloads::build_graph(job), Catch::Contains("layers with biases"));
}

TEST_CASE("a pipeline stage keeps what its schedule has in flight", "[workloads][transformer]") {
  const std::int64_t s = 64;
  Job job = gpt_job(32, 128, 8, s, 256);
  split(job, 1, 4, 1, 16);
  const auto activations = [&job](std::size_t stage) {
    return memory_use(workloads::build_graph(job).programs[stage]).activations.base();
  };
  // Middle stages differ by one micro-batch in flight: 8 layers, and the received input is the
  // first layer's own.
  const double layer = d(s) * 128 * 32 + 4 * 8 * d(s) + 16 * d(s);
  const double microbatch = 8 * layer;
  CHECK(activations(1) - activations(2) == microbatch);
  job.parallel.schedule = ScheduleKind::kGpipe;
  CHECK(activations(1) == activations(2));
  const double gpipe = activations(1);
  job.parallel.schedule = ScheduleKind::kOneFOneB;
  // GPipe holds 16, 1F1B 3 on stage 1; the chunk's output lives for its own call only.
  CHECK(gpipe - activations(1) == 13 * microbatch);
  job.parallel.virtual_stages = 2;
  // Interleaved, stage 1: (v - 1) p + 2 (p - 1) - 1 = 9 chunks of 4 layers are 4.5 micro-batches,
  // plain 3.
  const double interleaved = activations(1);
  job.parallel.virtual_stages = 1;
  CHECK(interleaved - activations(1) == 1.5 * microbatch);
}

TEST_CASE("model state is 18 bytes a parameter, with ZeRO 6 + 12 / d", "[workloads][transformer]") {
  Job job = gpt_job(4, 128, 8, 64, 256);
  split(job, 2, 1, 4, 1);
  MemoryUse use = use_of(job);
  const double n = use.parameters.base() / 2;  // bf16
  CHECK(use.gradients.base() == 4 * n);
  CHECK(use.optimizer.base() == 12 * n);
  job.parallel.zero = 1;
  use = use_of(job);
  CHECK(use.parameters.base() == 2 * n);  // every bucket divides by 4 here
  CHECK(use.gradients.base() == 4 * n);
  CHECK(use.optimizer.base() == 12 * n / 4);
  job.parallel.zero = 2;
  use = use_of(job);
  CHECK(use.parameters.base() == 2 * n);
  CHECK(use.gradients.base() == 4 * n / 4);
  CHECK(use.optimizer.base() == 12 * n / 4);
  job.parallel.zero = 3;
  use = use_of(job);
  CHECK(use.parameters.base() == 2 * n / 4);
  CHECK(use.gradients.base() == 4 * n / 4);
  job.parallel.zero = 1;
  job.formats.compute = Format::kFp32;  // no second copy of the weights
  job.parallel.zero = 0;
  CHECK(use_of(job).optimizer.base() == 8 * n);
}

TEST_CASE("FSDP holds the weights and gradients of one unit, two with prefetch",
          "[workloads][transformer]") {
  // llm.md section 1.2: gathered weights 2 P_unit (1 + prefetched), gradients 4 P_unit per unit in
  // flight; the ends (embedding, head) share one unit's buffers of their own.
  const bool overlap = GENERATE(false, true);
  const std::int64_t microbatches = GENERATE(1, 2);
  Job job = llama_job(4, 128, 8, 4, 352, 64, 256);
  split(job, 1, 1, 4, microbatches);
  job.parallel.overlap.data = overlap;
  const auto buffers = [&job] { return use_of(job).buffers.base(); };
  const double plain = buffers();
  // Layer: qkv h (h + 2 h / 2), projection h^2, gate, up and down 3 h f, two norms; ends: h V each,
  // the head with its norm.
  const double layer = 128.0 * 256 + 128 * 128 + 3 * 128 * 352 + 2 * 128;
  const double ends = 128.0 * 256 + 128;
  const double units = overlap ? 2 : 1;
  const double fresh = microbatches > 1 ? 4 * (units * layer + ends) / 4 : 0;  // a shard to add
  job.parallel.zero = 3;
  CHECK(buffers() - plain == 6 * (units * layer + ends) + fresh);
  job.parallel.zero = 2;
  CHECK(buffers() - plain == 4 * (units * layer + ends) + fresh);
  job.parallel.zero = 3;
  job.parallel.zero_reshard = false;  // the stage's weights and gradients stay whole
  CHECK(buffers() == plain);
  const MemoryUse use = use_of(job);
  CHECK(use.parameters.base() == 2 * (4 * layer + ends + 128 * 256));
}

TEST_CASE(
    "ZB-H1 keeps the operands of weight gradients, and no more micro-batches than 1F1B's first",
    "[workloads][transformer]") {
  const std::int64_t s = 64;
  const double h = 128;
  const std::int64_t t = GENERATE(1, 2);
  Job job = gpt_job(16, 128, 8, s, 256);
  split(job, t, 4, 1, 16);
  job.parallel.sequence_parallel = t > 1;
  const auto activations = [&job](std::size_t stage) {
    return memory_use(workloads::build_graph(job).programs[stage]).activations.base();
  };
  const double plain = activations(0);
  job.parallel.schedule = ScheduleKind::kZbH1;
  // On stage 0 weight gradients follow at once: 4 micro-batches as in 1F1B. What one of them keeps
  // on top between its two passes, in each of 4 layers: gradients of the outputs of fc2, fc1,
  // projection and qkv, s (h + 4 h + h + 3 h) bf16 over t ranks. The first two are no temporaries
  // any more, which had most of them where they lived together.
  const double column = d(s) * h * 2 / d(t);
  CHECK(activations(0) - plain == column * (4 * 9 - 5));
  CHECK(activations(1) > plain / 2);  // and so on every stage
  // The last stage has 4 micro-batches between their two passes: inputs of weight gradients
  // (h + h + h + 4 h) and these gradients, as much as 1F1B's 16 h of a micro-batch; and logits.
  const double logits = d(s) * 256 * 4 * 2;
  CHECK(activations(3) < plain * 1.1 + logits);
}

TEST_CASE("recomputed values that weight gradients made later read are kept from the backward pass",
          "[workloads][transformer]") {
  const std::int64_t s = 64;
  const double h = 128;
  Job job = gpt_job(16, 128, 8, s, 256);
  split(job, GENERATE(1, 2), 4, 1, 16);
  job.parallel.sequence_parallel = job.parallel.tensor > 1;
  job.parallel.schedule = ScheduleKind::kZbH1;
  const auto activations = [&job](std::size_t stage) {
    return memory_use(workloads::build_graph(job).programs[stage]).activations.base();
  };
  const double first = activations(0);
  const double last = activations(3);
  job.parallel.recompute = {.kind = RecomputeKind::kSelective,
                            .modules = {.attention_core = false, .norms = true}};
  // Outputs of two norms of four layers: of the 4 micro-batches of stage 0 only the one between its
  // passes keeps them, of those of stage 3 all do.
  const double norms = 4 * 2 * 2 * d(s) * h / d(job.parallel.tensor);
  CHECK(first - activations(0) == Approx(3 * norms).margin(norms / 2));
  CHECK(last - activations(3) == Approx(0).margin(norms / 2));
}

TEST_CASE("the memory ledger tells the parts of a stage's memory apart",
          "[workloads][transformer]") {
  const std::int64_t s = 64;
  Job job = llama_job(8, 128, 8, 4, 352, s, 256);
  split(job, 2, 4, 2, 8);
  job.parallel.zero = 3;
  const ExecutionGraph graph = workloads::build_graph(job);
  Device device;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const simulator::MemoryLedger l = simulator::memory_ledger(graph, stage, device);
    const MemoryUse use = memory_use(graph.programs[stage]);
    CHECK(l.total() == use.total());
    CHECK(l.in_flight + l.logits + l.temporaries == use.activations);
    CHECK(l.gather_buffers + l.buffers == use.buffers);
    // fp32 logits of one micro-batch, on the last stage only (llm.md section 1.2): 4 s b V / t.
    CHECK(l.logits.base() == (stage == 3 ? 4 * d(s) * 256 / 2 : 0));
  }
  // Constants of the device: context once, buffers per communicator the rank talks on (tensor,
  // pipeline, data), a share of the activations.
  device.fitted["memory"].constants = {
      {"reserve", 1e9}, {"communicator", 1e6}, {"fragmentation", 0.1}};
  const simulator::MemoryLedger l = simulator::memory_ledger(graph, 1, device);
  const MemoryUse use = memory_use(graph.programs[1]);
  CHECK(l.context.base() == 1e9);
  CHECK(l.communicators.base() == 3e6);
  device.fitted["memory"].constants["communicator_pair"] = 4e5;  // tensor 2, data 2; pipeline 4
  CHECK(simulator::memory_ledger(graph, 1, device).communicators.base() == 1e6 + 2 * 4e5);
  CHECK(l.fragmentation.base() == Approx(0.1 * use.activations.base()));
  CHECK(l.total() == use.total() + l.context + l.communicators + l.fragmentation);
  // Early stages have more in flight: the first, though it holds the embedding too, not the last.
  CHECK(simulator::fullest_ledger(graph, device).rank == 0);
}

TEST_CASE("products of experts have four workspaces of their own", "[workloads][transformer]") {
  Job job = llama_job(2, 128, 8, 4, 352, 64, 256);
  job.system.device.fitted["memory"].constants = {{"blas_workspace", 1e6},
                                                  {"engine_workspace", 1e5}};
  const auto workspaces = [&job] {
    return simulator::memory_ledger(workloads::build_graph(job), 0, job.system.device)
        .workspaces.base();
  };
  CHECK(workspaces() == 2.1e6);
  MixtureOfExperts moe;
  moe.experts = 4;
  moe.per_token = 2;
  moe.ffn_hidden = 64;
  transformer_of(job).moe = moe;
  CHECK(workspaces() == 2.5e6);
}
