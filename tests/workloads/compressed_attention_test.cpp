// Attention to compressed keys and several residual streams (DeepSeek-V4), against hand counts.
#include <catch2/catch.hpp>
#include <map>

#include "core/job/parameter_count.h"
#include "tests/workloads/transformer_graphs.h"
#include "workloads/transformer/shape.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

// 4 heads of 16 columns in 2 groups of 12 each; 8 of 64 keys of 4 tokens, or all of 16; an indexer
// of 2 heads of 8.
Job compressed_job(std::vector<MixerKind> mixers, std::int64_t streams = 1) {
  Job job = llama_job(static_cast<std::int64_t>(mixers.size()), 64, 4, 1, 96, 256, 128);
  TransformerWorkload& m = transformer_of(job);
  m.compressed = CompressedAttention{
      .q_rank = 24, .rope_dim = 8, .groups = 2, .output_rank = 12, .ratio = 4, .heavy_ratio = 16};
  m.sparse = SparseAttention{.top_k = 8, .index_heads = 2, .index_head_dim = 8};
  m.window = 16;
  m.residual_streams = streams;
  for (const MixerKind mixer : mixers) {
    m.pattern.push_back({mixer, FeedForwardKind::kDense});
  }
  split(job, 1, 1, 1, 1);
  return job;
}

constexpr MixerKind kCsa = MixerKind::kCompressedSparse;
constexpr MixerKind kHca = MixerKind::kHeavilyCompressed;

std::map<std::string, double> flops_by_name(const Job& job) {
  std::map<std::string, double> flops;
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  each_executed(program, [&](const Op& op, const Call&) {
    flops[std::string(program.name(op))] += op.flops.base();
  });
  return flops;
}

}  // namespace

TEST_CASE("a query sees its window and keys of several tokens",
          "[workloads][transformer][compressed][oracle]") {
  const workloads::TransformerShape shape =
      workloads::transformer_shape(compressed_job({MixerKind::kWindow, kCsa, kHca}));
  // Area of the mask over 256 tokens: a window of 16 leaves 16 (256 - 8) = 3,968. Keys of 4 tokens,
  // at most 8 of a query: 8 from token 32 on, t / 4 before: 8 (256 - 16) = 1,920. All keys of 16
  // tokens: 256^2 / 32 = 2,048.
  CHECK(shape.compressed_pairs(0) == 3968);
  CHECK(shape.compressed_pairs(1) == 3968 + 1920);
  CHECK(shape.compressed_pairs(2) == 3968 + 2048);
}

TEST_CASE("products of compressed attention are as wide as they say",
          "[workloads][transformer][compressed][oracle]") {
  auto flops = flops_by_name(compressed_job({kCsa}));
  const double n = 256;
  // Both products of 4 heads of 16 columns, over whole keys of a window.
  CHECK(flops["layer.attention.core"] == Approx(5888 * 4 * 2 * 2.0 * 16).epsilon(0.01));
  CHECK(flops["layer.attention.query_up"] == n * 2 * 24 * 64);
  CHECK(flops["layer.attention.latent_down"] == n * 2 * 64 * (16 + 4 * 16));
  CHECK(flops["layer.attention.output_groups"] == n * 2 * 12 * 32 * 2);
  CHECK(flops["layer.attention.output_groups_input_gradient"] == n * 2 * 12 * 32 * 2);
  CHECK(flops["layer.attention.output_groups_weight_gradient"] == n * 2 * 12 * 32 * 2);
  CHECK(flops["layer.attention.projection"] == n * 2 * 24 * 64);
  // All 256^2 / 8 pairs with a key of 4 tokens are scored, 1,920 chosen.
  CHECK(flops["layer.attention.index_scores"] == 8192 * 2.0 * 2 * 8);
  CHECK(flops["layer.attention.index_scores_gradient"] == 3 * 1920 * 2.0 * 2 * 8);
  CHECK(flops["layer.attention.index_down"] == n * 2 * 64 * (2 + 4 * 8));
  auto heavy = flops_by_name(compressed_job({kHca}));
  CHECK(heavy["layer.attention.latent_down"] == n * 2 * 64 * (16 + 2 * 16));
  CHECK(heavy.count("layer.attention.index_scores") == 0);
}

TEST_CASE("parameters of compressed attention and streams are those of the graph",
          "[workloads][transformer][compressed][oracle]") {
  for (const std::int64_t streams : {1, 4}) {
    for (const std::int64_t tensor : {1, 2}) {
      Job job = compressed_job({MixerKind::kWindow, kCsa, kHca}, streams);
      split(job, tensor, 1, 1, 1);
      // A layer has projections of queries, keys and outputs, their norms and 4 sinks.
      const std::int64_t attention = 64 * 24 + 24 + 24 * 64 + 64 * 16 + 16 + 4 + 64 * 12 + 24 * 64;
      const std::int64_t csa = 2 * 64 * 32 + 4 * 32 + 16;
      const std::int64_t index = 2 * 64 * 16 + 4 * 16 + 8 + 24 * 16 + 64 * 2;
      const std::int64_t hca = 2 * 64 * 16 + 16 * 16 + 16;
      const std::int64_t rest = 3 * (3 * 64 * 96 + 2 * 64) + 2 * 128 * 64 + 64;
      // 24 mappings of 4 streams, their biases and three scales around both blocks; 4 and one scale
      // before the head.
      const std::int64_t mappings =
          streams == 1 ? 0 : 6 * (24 * 4 * 64 + 24 + 3) + 4 * 4 * 64 + 4 + 1;
      const std::int64_t all = 3 * attention + csa + index + hca + rest + mappings;
      CHECK(transformer_parameters(*job.workload.transformer(), 256) == all);
      // Tensor ranks share the heads' projections, sinks and groups, feed-forward, embedding, head.
      const std::int64_t shared =
          3 * (24 * 64 + 4 + 64 * 12 + 24 * 64 + 3 * 64 * 96) + 2 * 128 * 64;
      const std::int64_t own = all - shared + shared / tensor;
      CHECK(use_of(job).parameters.base() == 2.0 * static_cast<double>(own));
    }
  }
}

TEST_CASE("a layer keeps its streams and the outputs of its blocks",
          "[workloads][transformer][compressed][oracle]") {
  const auto layer = [](std::int64_t streams) {
    const auto activations = [streams](std::size_t layers) {
      return use_of(compressed_job(std::vector<MixerKind>(layers, kCsa), streams))
          .activations.base();
    };
    return activations(5) - activations(4);
  };
  // A token in bf16: 24 compressed columns and their norm, 80 of keys and what they are summed of,
  // 16 of the key, a quarter of 16 of its group; queries of 64 and a key, outputs of 64 and 24; 16
  // + 34 of the indexer; both norms, fc1 of 192 and 96 activated. 4 bytes each of 8 chosen keys, 4
  // log-sum-exps, four norms with two statistics.
  const double bf16 = 2 * 24 + 80 + 16 + 4 + 80 + 64 + 24 + 16 + 34 + 2 * 64 + 192 + 96;
  const double fp32 = 8 + 4 + 4 * 2;
  // With one stream the input and what is between the blocks; with 4 the input and both outputs.
  CHECK(layer(1) == 256 * (2 * (bf16 + 2 * 64) + 4 * fp32));
  CHECK(layer(4) == 256 * (2 * (bf16 + 4 * 64 + 2 * 64) + 4 * fp32));
}

TEST_CASE("streams travel between stages and are made again",
          "[workloads][transformer][compressed]") {
  const auto sent = [](std::int64_t streams) {
    Job job = compressed_job({kCsa, kHca, kCsa, kHca}, streams);
    split(job, 1, 2, 1, 4);
    const ExecutionGraph graph = workloads::build_graph(job);
    return sum_over(graph.programs.front(), [](const Op& op, std::string_view) {
      return op.kind == OpKind::kSend ? d(op.shape[0]) : 0.0;
    });
  };
  CHECK(sent(1) == 4 * 256 * 64);
  CHECK(sent(4) == 4 * sent(1));
  const ExecutionGraph graph = workloads::build_graph(compressed_job({kCsa}, 4));
  const auto bytes = [&](std::string_view name) {
    return sum_over(graph.programs.front(), [&](const Op& op, std::string_view of) {
      return of == name ? (op.bytes_read + op.bytes_written).base() : 0.0;
    });
  };
  // Vectors of 64 columns in 16 bits: into two blocks 2 x 4 + 1, in the backward pass again; out of
  // them 4 + 1 + 4, of the first again.
  CHECK(bytes("layer.streams.enter") == 4 * 256 * 128 * 9 + 256 * 128 * 9);  // and the head's
  CHECK(bytes("layer.streams.leave") == 3 * 256 * 128 * 9);
  CHECK(bytes("layer.streams.leave_gradient") == 2 * 256 * 128 * 10);
  CHECK(bytes("layer.streams.enter_gradient") == 2 * 256 * 128 * 13);
}

TEST_CASE("blocks between streams keep what waits for them, and are made again once",
          "[workloads][transformer][compressed]") {
  const auto passes = [](RecomputeKind kind, const char* name) {
    Job job = compressed_job({kCsa, kHca, MixerKind::kWindow}, 4);
    job.parallel.recompute.kind = kind;
    return sum_over(workloads::build_graph(job).programs.front(),
                    [&](const Op&, std::string_view of) { return of == name ? 1.0 : 0.0; });
  };
  // Both blocks of three layers, forward and in the backward pass, and once before the head.
  for (const RecomputeKind kind : {RecomputeKind::kNone, RecomputeKind::kFull}) {
    CHECK(passes(kind, "layer.streams.enter") == 3 * 2 * 2 + 1);
  }
  CHECK(passes(RecomputeKind::kNone, "layer.streams.leave") == 3 * (2 + 1));
  // Full recomputation makes the second block's output again, which its mappings' gradients read.
  CHECK(passes(RecomputeKind::kFull, "layer.streams.leave") == 3 * (2 + 2));
  // Products that wait read a gradient of their own block: 64 columns more of each.
  Job waits = compressed_job({kCsa, kHca}, 4);
  split(waits, 1, 2, 1, 4);
  waits.parallel.schedule = ScheduleKind::kZbH1;
  const Program program = workloads::build_graph(waits).programs.front();
  const auto kept =
      std::count_if(program.tensors.begin(), program.tensors.end(), [](const auto& t) {
        return t.per_microbatch && t.name.find("gradient.streams.") != std::string::npos;
      });
  CHECK(kept == 2);  // of the one layer of the stage
}

TEST_CASE("compressed keys and streams are split in every way there is",
          "[workloads][transformer][compressed]") {
  for (const std::int64_t streams : {1, 4}) {
    for (const bool sequence : {false, true}) {
      for (const int zero : {0, 1, 3}) {
        for (const bool fp8 : {false, true}) {
          Job job = compressed_job({kCsa, kHca, MixerKind::kWindow, kCsa}, streams);
          MixtureOfExperts& experts = transformer_of(job).moe.emplace();
          experts.experts = 4;
          experts.per_token = 2;
          experts.shared = 1;
          experts.ffn_hidden = 32;
          transformer_of(job).pattern[1].feed_forward = FeedForwardKind::kExperts;
          transformer_of(job).pattern[2].feed_forward = FeedForwardKind::kNone;
          split(job, 2, 2, 2, 4);
          job.parallel.expert = 2;
          job.parallel.sequence_parallel = sequence;
          job.parallel.zero = zero;
          job.formats.compute = fp8 ? Format::kFp8 : Format::kBf16;
          CAPTURE(streams, sequence, zero, fp8);
          CHECK(message_of(job) == "accepted");
        }
      }
    }
  }
}

TEST_CASE("what is not modelled of compressed keys and streams is rejected",
          "[workloads][compressed][malformed]") {
  Job job = compressed_job({kCsa}, 4);
  job.parallel.context = job.devices = 2;
  CHECK_THAT(message_of(job), Catch::Matchers::Contains("workload.compressed"));
  job = compressed_job({kCsa});
  split(job, 4, 1, 1, 1);
  CHECK_THAT(message_of(job), Catch::Matchers::Contains("workload.compressed.groups = 2"));
  job = compressed_job({kCsa}, 4);
  job.lora.emplace();
  CHECK_THAT(message_of(job), Catch::Matchers::Contains("workload.compressed"));
  transformer_of(job).compressed.reset();
  CHECK_THAT(message_of(job), Catch::Matchers::Contains("workload.residual_streams"));
  job = compressed_job({kCsa});
  transformer_of(job).sparse.reset();
  CHECK_THAT(message_of(job), Catch::Matchers::Contains("indexer"));
}
