// Layer types beyond GPT and Llama: latent attention, sliding windows, parallel blocks, shared key
// and value heads.
#include <catch2/catch.hpp>
#include <string>

#include "core/graph/op_attributes.h"
#include "tests/workloads/transformer_graphs.h"
#include "workloads/transformer/shape.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kSequence = 32;

Job small(bool gpt = false) {
  return gpt ? gpt_job(4, kHidden, 8, kSequence, 128)
             : llama_job(4, kHidden, 8, 2, 96, kSequence, 128);
}

Job latent(std::int64_t q_rank) {
  Job job = small();
  TransformerWorkload& m = transformer_of(job);
  m.kv_heads = 8;
  m.mla = LatentAttention{q_rank, 16, 4, 12, 8};
  return job;
}

Job split_over(Job job, std::int64_t tensor, bool sequence_parallel, std::int64_t data = 2) {
  split(job, tensor, 1, data, 4);
  job.parallel.sequence_parallel = sequence_parallel;
  return job;
}

/// Parameters held by all ranks, those that several ranks hold alike once. `copies(name)`: ranks of
/// one data replica with the same numbers.
template <typename Copies>
double held(const Job& job, Copies&& copies) {
  double sum = 0;
  for (const Program& program : workloads::build_graph(job).programs) {
    for (const Tensor& t : program.tensors) {
      if (t.role == TensorRole::kParameter && !t.pieces.empty()) {
        sum += d(t.elements()) * d(job.parallel.tensor) / copies(t.name);
      }
    }
  }
  return sum;
}

bool contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("DeepSeek-V3 has 671 B parameters, 37 B of them active", "[workloads][layers][oracle]") {
  // arXiv 2412.19437, section 4.2.
  Job job = llama_job(61, 7168, 128, 128, 18432, 4096, 129280);
  TransformerWorkload& m = transformer_of(job);
  m.mla = LatentAttention{1536, 512, 64, 128, 128};
  MixtureOfExperts moe;
  moe.experts = 256;
  moe.per_token = 8;
  moe.shared = 1;
  moe.ffn_hidden = 2048;
  moe.first_dense_layers = 3;
  m.moe = moe;
  // Attention: 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168 =
  // 187,105,280, norms 1536 + 512 + 2 * 7168; 3 dense layers of 3 * 7168 * 18432; 58 with a router
  // 7168 * 256 and 257 experts of 3 * 7168 * 2048; two matrices of the vocabulary; one norm.
  const std::int64_t attention = 187'105'280 + 1536 + 512 + 2 * 7168;
  const std::int64_t expert = 3LL * 7168 * 2048;
  const std::int64_t rest =
      61 * attention + 3 * 3LL * 7168 * 18432 + 58 * (7168 * 256) + 2LL * 129280 * 7168 + 7168;
  CHECK(workloads::transformer_parameters(m, 4096) == rest + 58 * 257 * expert);
  CHECK(workloads::transformer_active_parameters(m, 4096) == rest + 58 * 9 * expert);
  CHECK(d(workloads::transformer_parameters(m, 4096)) == Approx(671e9).epsilon(0.001));
  // The published 37 B leave the input embedding out.
  CHECK(d(workloads::transformer_active_parameters(m, 4096) - 129280LL * 7168) ==
        Approx(37e9).epsilon(0.015));
}

TEST_CASE("the graph holds the matrices of latent attention", "[workloads][layers]") {
  const std::int64_t q_rank = GENERATE(0, 24);
  const std::int64_t t = GENERATE(1, 2, 4);
  const bool sequence_parallel = GENERATE(false, true);
  const Job job = split_over(latent(q_rank), t, sequence_parallel);
  const double sum = held(job, [&](const std::string& name) {
    return contains(name, "norm") || contains(name, "_down.") ? d(t) : 1.0;
  });
  CHECK(sum == d(workloads::transformer_parameters(*job.workload.transformer(), kSequence)));
}

TEST_CASE("FLOPs of latent attention are those of its matrices", "[workloads][layers]") {
  const std::int64_t q_rank = GENERATE(0, 24);
  const std::int64_t t = GENERATE(1, 2, 4);
  const bool sequence_parallel = GENERATE(false, true);
  const Job job = split_over(latent(q_rank), t, sequence_parallel);
  const double h = kHidden;
  // 8 heads of 12 + 4 query columns and 8 of values, kv_rank 16.
  const double query = q_rank > 0 ? h * d(q_rank) + d(q_rank) * 8 * 16 : h * 8 * 16;
  const double products = query + h * 20 + 16 * 8 * 20 + 8 * 8 * h;
  const double scores = 2.0 * kSequence * 8 * (16 + 8);  // per token, no mask
  const double token = 4 * (2 * products + scores + 6 * h * 96) + 2 * h * 128;
  CHECK(workloads::step_flops(job).model.base() ==
        Approx(3 * token * d(job.batch.global) * kSequence).epsilon(1e-12));
}

TEST_CASE("latent attention gathers its narrow vectors", "[workloads][layers]") {
  const Job job = split_over(latent(24), 2, true, 1);
  const ExecutionGraph graph = workloads::build_graph(job);
  double gathered = 0;
  for (const Op& op : graph.programs[0].ops_of(graph.programs[0].segments[1])) {
    if (op.kind == OpKind::kAllGather &&
        graph.programs[0].name(op).starts_with("layer.attention.gather")) {
      gathered += d(op.shape[0]);
    }
  }
  CHECK(gathered == 4.0 * kSequence * (24 + 16 + 4));  // in place of 64 columns
}

TEST_CASE("a window limits what attention computes", "[workloads][layers]") {
  const bool flash = GENERATE(true, false);
  Job job = split_over(small(), 1, false, 1);
  job.flash_attention = flash;
  const auto whole = workloads::step_flops(job);
  transformer_of(job).window = kSequence;  // all there is
  CHECK(workloads::step_flops(job).model == whole.model);
  transformer_of(job).window = 8;
  const auto limited = workloads::step_flops(job);
  // Scores of a layer, forward: 4 s h per token over all keys, 4 w h over a window; three times
  // that with the backward pass. Causal: s / 2, and w (1 - w / 2 s).
  const double tokens = d(job.batch.global) * kSequence;
  const double per_key = 3 * 4 * 4.0 * kHidden * tokens;
  CHECK((whole.model - limited.model).base() == Approx(per_key * (kSequence - 8)));
  CHECK((whole.model_causal - limited.model_causal).base() ==
        Approx(per_key * (kSequence / 2.0 - 8 * (1 - 8.0 / 64))));
  const ExecutionGraph graph = workloads::build_graph(job);
  for (const Op& op : graph.programs[0].ops) {
    if (op.kind == OpKind::kAttentionForward || op.kind == OpKind::kAttentionBackward) {
      CHECK(op.as<AttentionAttributes>().window == 8);
    }
  }
}

TEST_CASE("layers with a window and layers that see all keys take turns", "[workloads][layers]") {
  Job job = split_over(small(), 1, false, 1);
  transformer_of(job).window = 8;
  transformer_of(job).full_attention_every = 3;
  std::vector<std::int32_t> forward;
  std::vector<std::int32_t> backward;
  const ExecutionGraph graph = workloads::build_graph(job);
  for (const Op& op : graph.programs[0].ops) {
    if (op.kind == OpKind::kAttentionForward) {
      forward.push_back(op.as<AttentionAttributes>().window);
    } else if (op.kind == OpKind::kAttentionBackward) {
      backward.push_back(op.as<AttentionAttributes>().window);
    }
  }
  CHECK(forward == std::vector<std::int32_t>{8, 8, 0, 8});
  CHECK(backward == std::vector<std::int32_t>{8, 0, 8, 8});
  // Causal scores, forward and backward: 3 * 4 h a token over s / 2 keys, or w (1 - w / 2 s).
  Job none = job;
  transformer_of(none).window = 0;
  const double tokens = d(job.batch.global) * kSequence;
  CHECK(
      (workloads::step_flops(none).model_causal - workloads::step_flops(job).model_causal).base() ==
      Approx(3 * 3 * 4.0 * kHidden * tokens * (kSequence / 2.0 - 8 * (1 - 8.0 / 64))));
}

TEST_CASE("a parallel block has one norm, one gather and one sum", "[workloads][layers]") {
  const bool gpt = GENERATE(true, false);
  const bool sequence_parallel = GENERATE(false, true);
  Job job = split_over(small(gpt), 2, sequence_parallel, 1);
  const auto serial = workloads::step_flops(job);
  transformer_of(job).parallel_block = true;
  CHECK(workloads::step_flops(job).model == serial.model);
  const double sum = held(job, [&](const std::string& name) {
    const bool whole =
        contains(name, "norm") || contains(name, "projection.bias") || contains(name, "fc2.bias");
    return whole ? 2.0 : 1.0;
  });
  CHECK(sum == d(workloads::transformer_parameters(*job.workload.transformer(), kSequence)));
  // In units of b s h (t - 1) / t: two of the serial layer's 8 sums, half of its 4 gathers and 4
  // scatters; the input is gathered again for its weight gradients.
  const ExecutionGraph graph = workloads::build_graph(job);
  double units = 0;
  each_executed(graph.programs[0], [&](const Op& op, const Call&) {
    const std::string& name = graph.programs[0].name(op);
    if (name.starts_with("layer.") && is_collective(op.kind)) {
      units += (op.kind == OpKind::kAllReduce ? 2 : 1) * d(op.shape[0]) /
               (kSequence * kHidden * 4.0 * 4.0);  // of 4 layers and 4 micro-batches
    }
  });
  CHECK(units == (sequence_parallel ? 5 : 4));
}

TEST_CASE("more tensor ranks than key heads share them", "[workloads][layers]") {
  const bool gpt = GENERATE(true, false);
  Job job = split_over(small(gpt), 8, true, 1);
  transformer_of(job).kv_heads = 2;
  const auto shape = workloads::transformer_shape(job);
  CHECK(shape.kv_heads == 1);
  CHECK(shape.kv_copies == 4);
  Job whole = split_over(small(gpt), 1, false, 1);
  transformer_of(whole).kv_heads = 2;
  CHECK(workloads::step_flops(job).model.base() ==
        Approx(workloads::step_flops(whole).model.base()).epsilon(1e-12));
  const ExecutionGraph graph = workloads::build_graph(job);
  int sums = 0;
  for (const Op& op : graph.programs[0].ops) {
    if (graph.programs[0].name(op) == "gradients.key_value_sum") {
      ++sums;
      CHECK(graph.members(op.communicator, 5) == std::vector<std::int32_t>{4, 5, 6, 7});
      // Keys and values of one head of 8 columns, 64 rows (and a bias) in each of 4 layers.
      CHECK(op.shape[0] == 4 * (kHidden + (gpt ? 1 : 0)) * 16);
    }
  }
  CHECK(sums == 1);
  // Ranks 0..3 hold columns of head 0, ranks 4..7 of head 1.
  for (const Tensor& t : graph.programs[0].tensors) {
    if (t.name == "layer.0.attention.qkv.weight") {
      REQUIRE(t.pieces.size() == 3);
      CHECK(t.pieces[0].tensor_column_ranks == 1);
      CHECK(t.pieces[1].tensor_column_ranks == 4);
      CHECK(t.pieces[2].tensor_column_step == 8);
    }
  }
}

TEST_CASE("layer types that do not go together say so", "[workloads][layers]") {
  Job job = split_over(latent(24), 1, false);
  transformer_of(job).activation = Activation::kGelu;
  CHECK_THAT(message_of(job), Catch::StartsWith("workload.mla: "));
  job = split_over(latent(24), 1, false);
  transformer_of(job).parallel_block = true;
  CHECK_THAT(message_of(job), Catch::StartsWith("workload.parallel_block: "));
}

TEST_CASE("products in fp8 quantise what they read, the rest stays wide", "[workloads][layers]") {
  Job job = split_over(small(), 2, true, 1);
  const auto wide = workloads::step_flops(job);
  const MemoryUse before = use_of(job);
  job.formats.compute = Format::kFp8;
  CHECK(workloads::step_flops(job).model == wide.model);
  const MemoryUse after = use_of(job);
  CHECK(after.parameters == before.parameters);  // bf16
  CHECK(after.optimizer == before.optimizer);
  // Two copies of the layers' matrices, one byte an element: 4 layers of (64 * 48 + 32 * 64 + 3 *
  // 64 * 48) on a rank.
  CHECK((after.buffers - before.buffers).base() == 2 * 4 * (64 * 48 + 32 * 64 + 3 * 64 * 48));
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  int narrow = 0;
  int casts = 0;
  for (const Op& op : program.ops_of(program.segments[1])) {
    const std::string& name = program.name(op);
    narrow += op.kind == OpKind::kGemm && op.format == Format::kFp8 ? 1 : 0;
    casts += op.kind == OpKind::kCast ? 1 : 0;
    if (name == "head.logits" || op.kind == OpKind::kAttentionForward) {
      CHECK(op.format == Format::kBf16);
    }
    if (name == "layer.mlp.fc1") {  // 32 x 64 and 64 x 96 of a byte in, 32 x 96 of two out
      CHECK(op.bytes_read.base() == 32 * 64 + 64 * 96);
      CHECK(op.bytes_written.base() == 2 * 32 * 96);
    }
    if (name == "layer.mlp.fc1.quantise") {  // two bytes in; one, and one transposed, out
      CHECK(op.bytes_read.base() == 2 * 32 * 64);
      CHECK(op.bytes_written.base() == 2 * 32 * 64);
    }
  }
  CHECK(narrow == 4 * 4);
  CHECK(casts == 4 * 4);  // each product's input; weights once a step
}

TEST_CASE("a stack that quantises in norms gathers narrow rows", "[workloads][layers]") {
  Job job = split_over(small(), 2, true, 1);
  job.formats.compute = Format::kFp8;
  const ExecutionGraph plain = workloads::build_graph(job);
  job.system.framework.fused_quantise = true;
  const ExecutionGraph fused = workloads::build_graph(job);
  const auto named = [](const ExecutionGraph& graph, const std::string& name) {
    std::vector<Op> found;
    const Program& program = graph.programs.front();
    for (const Op& op : program.ops) {
      if (program.name(op) == name) {
        found.push_back(op);
      }
    }
    return found;
  };
  const auto written = [&](const ExecutionGraph& graph, const std::string& name) {
    return named(graph, name).at(0).bytes_written.base();
  };
  // A rank's 16 rows of 64: two bytes an element, or one.
  CHECK(written(plain, "layer.norm1") - written(fused, "layer.norm1") == 16 * 64);
  for (const char* gather : {"layer.attention.gather", "layer.mlp.gather",
                             "layer.attention.gather_gradient", "layer.mlp.gather_gradient"}) {
    INFO(gather);
    CHECK(named(plain, gather).at(0).format == Format::kBf16);
    CHECK(named(fused, gather).size() == named(plain, gather).size());
    for (const Op& op : named(fused, gather)) {
      CHECK(op.format == Format::kFp8);
    }
  }
  CHECK(named(fused, "head.gather").at(0).format == Format::kBf16);
  CHECK(named(fused, "layer.mlp.fc1.quantise").empty());
  CHECK(named(plain, "layer.mlp.fc2_input_gradient.quantise").size() == 4);
  CHECK(named(fused, "layer.mlp.fc2_input_gradient.quantise").empty());
  const Op own = named(fused, "layer.mlp.gather_gradient.quantise").at(0);  // one copy of own rows
  CHECK(own.bytes_read.base() == 2 * 16 * 64);
  CHECK(own.bytes_written.base() == 16 * 64);
  const Op turned = named(fused, "layer.mlp.fc1_weight_gradient.transpose").at(0);
  CHECK(turned.bytes_read.base() == 32 * 64);
  CHECK(turned.bytes_written.base() == 32 * 64);
  // Tensors that no norm wrote and no rank gathered are quantised as without the trait.
  CHECK(named(fused, "layer.mlp.fc2.quantise").size() == 4);
  CHECK(named(fused, "layer.mlp.fc1_input_gradient.quantise").size() == 4);
}

TEST_CASE("the trait changes nothing where products are as wide as activations",
          "[workloads][layers]") {
  Job job = split_over(small(), 2, true, 1);
  const ExecutionGraph plain = workloads::build_graph(job);
  job.system.framework.fused_quantise = true;
  const ExecutionGraph fused = workloads::build_graph(job);
  REQUIRE(plain.programs.front().ops.size() == fused.programs.front().ops.size());
  for (std::size_t i = 0; i < plain.programs.front().ops.size(); ++i) {
    const Op& a = plain.programs.front().ops[i];
    const Op& b = fused.programs.front().ops[i];
    CHECK((a.kind == b.kind && a.format == b.format && a.bytes_written == b.bytes_written));
  }
}
