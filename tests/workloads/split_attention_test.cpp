// Attention over context ranks, under windows and with latent vectors: masks counted pair by pair,
// FLOPs and bytes of whole graphs by closed forms.
#include "workloads/transformer/split_attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "core/job_split.h"
#include "tests/workloads/transformer_graphs.h"
#include "workloads/transformer/shape.h"

using namespace stepcast;
using namespace stepcast::test;
using workloads::SplitAttention;

namespace {

constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kHeads = 8;

Job job_of(std::int64_t context, ContextAlgorithm algorithm, std::int64_t sequence) {
  Job job = llama_job(4, kHidden, kHeads, 4, 96, sequence, 128);
  split(job, 1, 1, 1, 2);
  job.parallel.context = context;
  job.parallel.context_algorithm = algorithm;
  job.devices *= context;
  return job;
}

Job latent_job(std::int64_t context, ContextAlgorithm algorithm, std::int64_t sequence) {
  Job job = job_of(context, algorithm, sequence);
  transformer_of(job).kv_heads = kHeads;
  transformer_of(job).mla =
      LatentAttention{.q_rank = 24, .kv_rank = 16, .rope_dim = 4, .nope_dim = 12, .v_dim = 8};
  return job;
}

/// Keys before a query of its chunk, pair by pair. A token is as wide as its place, so of the pairs
/// at both edges of the band half is inside.
struct Mask {
  std::int64_t sequence, window;
  [[nodiscard]] bool sees(std::int64_t query, std::int64_t key) const {
    return key <= query && (window == 0 || query - key < window);
  }
  [[nodiscard]] double area(std::int64_t query, std::int64_t key) const {
    const std::int64_t apart = query - key;
    if (apart < 0 || (window > 0 && apart > window)) {
      return 0;
    }
    return apart == 0 || apart == window ? 0.5 : 1;
  }
};

/// Elements that a rank sends to others in the layers of a step, by the names of what it sends.
double sent(const ExecutionGraph& graph, std::string_view name = "layer.attention.") {
  return sum_over(graph.programs.front(), [&](const Op& op, const std::string& of) {
    if (!is_collective(op.kind) || !of.starts_with(name) || op.communicator < 0 ||
        graph.communicators[static_cast<std::size_t>(op.communicator)].name == "tensor") {
      return 0.0;
    }
    const auto members = d(static_cast<std::int64_t>(graph.members(op.communicator, 0).size()));
    return d(op.shape[0]) * (members - 1) / members;
  });
}

double attention_flops(const ExecutionGraph& graph) {
  return sum_over(graph.programs.front(), [](const Op& op, const std::string&) {
    return class_of(op.kind) == OpClass::kAttention ? op.flops.base() : 0.0;
  });
}

double product_flops(const ExecutionGraph& graph) {
  return sum_over(graph.programs.front(), [](const Op& op, const std::string&) {
    return op.kind == OpKind::kGemm ? op.flops.base() : 0.0;
  });
}

}  // namespace

TEST_CASE("pairs of split attention are those of its mask", "[workloads][context][property]") {
  std::mt19937 rng(7);
  for (int i = 0; i < 400; ++i) {
    const auto draw = [&rng](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
    };
    const std::int64_t c = draw(2, 5);
    const std::int64_t chunk = draw(2, 9);
    const std::int64_t sequence = 2 * c * chunk;
    const std::int64_t window = draw(0, 3) == 0 ? 0 : draw(1, sequence - 1);
    CAPTURE(c, chunk, window);
    const Job job = job_of(c, ContextAlgorithm::kPassKv, sequence);
    const workloads::TransformerShape shape = workloads::transformer_shape(job);
    const SplitAttention split(shape, window);
    const Mask mask{sequence, window};
    double pairs = 0;
    std::int64_t farthest = 0;    // chunk that a query sees
    std::size_t most_chunks = 0;  // of other ranks that a rank needs
    std::int64_t most_keys = 0;   // of one chunk of a rank
    for (std::int64_t rank = 0; rank < c; ++rank) {
      std::set<std::int64_t> others;
      for (const std::int64_t own : {rank, 2 * c - 1 - rank}) {
        std::set<std::int64_t> keys;
        for (std::int64_t q = own * chunk; q < (own + 1) * chunk; ++q) {
          for (std::int64_t k = std::max<std::int64_t>(0, q - sequence); k <= q; ++k) {
            pairs += mask.area(q, k);
            if (mask.sees(q, k)) {
              keys.insert(k);
              farthest = std::max(farthest, own - k / chunk);
              if (k / chunk != rank && k / chunk != 2 * c - 1 - rank) {
                others.insert(k / chunk);
              }
            }
          }
        }
        most_keys = std::max(most_keys, static_cast<std::int64_t>(keys.size()));
      }
      most_chunks = std::max(most_chunks, others.size());
    }
    CHECK(split.whole().pairs == Approx(pairs));
    const auto of_rank = [](const SplitAttention::Part& p) { return d(p.sequences) * p.pairs; };
    CHECK(of_rank(split.gathered()) * d(c) == Approx(pairs));
    if (window > 0) {  // the last keys of the last queries, whichever their rank
      CHECK(split.gathered().keys <= std::min(most_keys + 1, chunk + window));
    }
    CHECK(split.blocks() == std::min(c - 1, farthest));
    CHECK(most_chunks <= 2 * static_cast<std::size_t>(split.blocks()));
    double sum = 0;
    for (std::int64_t step = 0; step <= split.blocks(); ++step) {
      const SplitAttention::Part part = split.block(step);
      CHECK(part.pairs >= 0);
      CHECK(part.queries <= shape.sequence);
      sum += of_rank(part);
    }
    CHECK(sum * d(c) == Approx(pairs));
  }
}

TEST_CASE("a window splits its FLOPs evenly over context ranks", "[workloads][context]") {
  const auto algorithm = GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                  ContextAlgorithm::kAllToAll);
  const std::int64_t context = GENERATE(2, 4);
  const std::int64_t window = GENERATE(1, 5, 16, 40);
  const std::int64_t every = GENERATE(0, 2);
  const auto flops = [&](std::int64_t ranks) {
    Job job = job_of(ranks, algorithm, 64);
    transformer_of(job).window = window;
    transformer_of(job).full_attention_every = every;
    return workloads::step_flops(job);
  };
  const workloads::StepFlops whole = flops(1);
  const workloads::StepFlops parts = flops(context);
  CHECK(parts.model.base() == Approx(whole.model.base()).epsilon(1e-12));
  CHECK(parts.model_causal.base() == Approx(whole.model_causal.base()).epsilon(1e-12));
  CHECK(parts.hardware.base() == Approx(whole.hardware.base()).epsilon(1e-12));
}

TEST_CASE("chunks have as many pairs as masks counted chunk by chunk",
          "[workloads][context][oracle]") {
  CHECK(workloads::window_like_chunks(64, 64) == 0);
  CHECK(workloads::window_like_chunks(16384, 8192) ==
        4799);  // 16,384 - sqrt(16,384^2 - 8,192^2 x 2)
  for (const auto& [sequence, chunk] :
       {std::pair<std::int64_t, std::int64_t>{4096, 128}, {4096, 1000}, {4096, 4095}, {5000, 7}}) {
    double pairs = 0;  // a triangle a chunk
    for (std::int64_t begin = 0; begin < sequence; begin += chunk) {
      const auto length = static_cast<double>(std::min(chunk, sequence - begin));
      pairs += length * length / 2;
    }
    CAPTURE(sequence, chunk);
    const auto window = static_cast<double>(workloads::window_like_chunks(sequence, chunk));
    // A window is a whole number of keys, each seen by all queries but the first.
    CHECK(std::abs(workloads::causal_pairs(0, static_cast<double>(sequence), window) - pairs) <=
          static_cast<double>(sequence) / 2);
  }
  Job chunks = job_of(1, ContextAlgorithm::kAuto, 64);
  transformer_of(chunks).window = 16;
  transformer_of(chunks).chunked = true;
  Job dense = chunks;
  transformer_of(dense).window = 0;
  const auto core = [](const Job& job) {
    return sum_over(workloads::build_graph(job).programs.front(),
                    [](const Op& op, std::string_view name) {
                      return name.ends_with("attention.core") ? op.flops.base() : 0;
                    });
  };
  CHECK(core(chunks) == Approx(core(dense) / 4).epsilon(0.06));  // 4 x 16^2 pairs of 64^2
}

TEST_CASE("a ring passes the blocks that a window reaches, others all", "[workloads][context]") {
  const std::int64_t c = GENERATE(4, 5);
  const std::int64_t chunk = 8;
  const std::int64_t window = GENERATE(1, 2, 9, 10, 17, 25, 60);
  const auto algorithm = GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                  ContextAlgorithm::kAllToAll);
  if (algorithm == ContextAlgorithm::kAllToAll && c == 5) {
    return;
  }
  Job job = job_of(c, algorithm, 2 * c * chunk);
  transformer_of(job).window = window;
  transformer_of(job).full_attention_every = 2;
  const double tokens = 2.0 * chunk;
  const double block = tokens * 2 * 4 * 8;      // keys and values of 4 heads of 8
  const auto ring = [&](std::int64_t blocks) {  // there, there again, and gradients home
    return blocks == 0 ? 0 : (2 * d(blocks) + d(blocks + 1)) * block;
  };
  const std::int64_t reached = std::min(c - 1, (window - 1 + chunk - 1) / chunk);
  const double ranks = d(c);
  const double expected = algorithm == ContextAlgorithm::kAllGather ? 2 * 3 * (ranks - 1) * block
                          : algorithm == ContextAlgorithm::kPassKv
                              ? ring(c - 1) + ring(reached)
                              : 2 * 2 * (tokens * 16 * 8 + tokens * 8 * 8) * (ranks - 1) / ranks;
  // Two layers of either kind, two micro-batches.
  CHECK(sent(workloads::build_graph(job)) == Approx(expected * 2 * 2));
}

TEST_CASE("latent attention passes keys and values of all heads", "[workloads][context]") {
  const std::int64_t c = GENERATE(1, 2, 4);
  const std::int64_t tensor = GENERATE(1, 2);
  const auto algorithm = GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                  ContextAlgorithm::kAllToAll);
  constexpr std::int64_t kSequence = 64;
  Job job = latent_job(c, algorithm, kSequence);
  job.parallel.tensor = tensor;
  job.parallel.sequence_parallel = tensor > 1;
  job.devices *= tensor;
  const ExecutionGraph graph = workloads::build_graph(job);
  const double ranks = d(c);
  const double tokens = d(kSequence) / ranks;
  const double heads = d(kHeads) / d(tensor);
  const double block = tokens * heads * (16 + 8);  // keys of 12 + 4 columns, values of 8
  const double expected = algorithm == ContextAlgorithm::kAllGather ? 3 * (ranks - 1) * block
                          : algorithm == ContextAlgorithm::kPassKv
                              ? (c == 1 ? 0 : (2 * (ranks - 1) + ranks) * block)
                              : 2 * tokens * heads * (16 + 16 + 8 + 8) * (ranks - 1) / ranks;
  CHECK(sent(graph) == Approx(expected * 4 * 2));
  const workloads::StepFlops whole = workloads::step_flops(latent_job(1, algorithm, kSequence));
  const workloads::StepFlops parts = workloads::step_flops(job);
  CHECK(parts.model.base() == Approx(whole.model.base()).epsilon(1e-12));
  CHECK(parts.model_causal.base() == Approx(whole.model_causal.base()).epsilon(1e-12));
  CHECK(parts.hardware.base() == Approx(whole.hardware.base()).epsilon(1e-12));
  // Every rank keeps the values of its own tokens only.
  Job alone = latent_job(1, algorithm, kSequence);
  alone.parallel.tensor = alone.devices = tensor;
  alone.parallel.sequence_parallel = tensor > 1;
  CHECK(bytes_of_a_layer(job) * ranks == bytes_of_a_layer(alone));
  // Up projections that are made again are made of a rank's own tokens.
  job.parallel.recompute = {.kind = RecomputeKind::kSelective,
                            .modules = {.attention_core = false, .latent_up = true}};
  const double columns = 24 * kHeads * 16 + 16 * kHeads * (12 + 8);
  CHECK(workloads::step_flops(job).hardware.base() - parts.hardware.base() ==
        Approx(4 * 2 * 2 * d(kSequence) * columns));
}

TEST_CASE("decoding works on latent vectors", "[workloads][context]") {
  const std::int64_t context = GENERATE(1, 4);
  const std::int64_t tensor = GENERATE(1, 2);
  constexpr std::int64_t kCached = 1024;
  constexpr double kSequences = 16;
  Job job = latent_job(context, ContextAlgorithm::kAuto, 1);
  job.phase = JobPhase::kDecode;
  job.batch = {16, 8, 1};
  job.cached = kCached;
  job.parallel.tensor = tensor;
  job.devices *= tensor;
  const ExecutionGraph graph = workloads::build_graph(job);
  const double ranks = d(context * tensor);
  // 2 (2 kv_rank + rope_dim) a head and pair; 4 layers.
  CHECK(attention_flops(graph) * ranks ==
        Approx(2 * (2 * 16 + 4) * kHeads * (kCached + 0.5) * 4 * kSequences));
  // Vectors of 16 + 4 columns, of which all heads of a rank read each once.
  const double read = sum_over(graph.programs.front(), [](const Op& op, const std::string&) {
    return op.kind == OpKind::kAttentionForward ? op.bytes_read.base() : 0.0;
  });
  const double queries = kHeads / d(tensor) * 18;  // (16 + 4 + 16) / 2: as much of its outputs
  CHECK(read * d(context) ==
        Approx(2 * 4 * kSequences * ((kCached + 1) * 20 + d(context) * queries)).epsilon(0.01));
  CHECK(use_of(job).buffers.base() * d(context) ==
        Approx(2 * 4 * 20 * kSequences * (kCached + d(context))));
  // Absorbed products have the parameters of the up projection: two FLOPs a token and parameter.
  const double h = kHidden;
  const double layer = h * 24 + 24 * kHeads * 16 + h * 20 + 16 * kHeads * 20 + kHeads * 8 * h;
  const double repeated = h * 24 + h * 20;  // on every tensor rank
  CHECK(product_flops(graph) * ranks ==
        Approx(2 * kSequences * (4 * (layer + 3 * h * 96 + (d(tensor) - 1) * repeated) + h * 128)));
  if (context > 1) {  // queries to the others, outputs back; a log-sum-exp is small
    const double tokens = kSequences / d(context);
    CHECK(sent(graph) == Approx(4 * tokens * kHeads / d(tensor) * (20 + 16) * (d(context) - 1)));
  }
}

TEST_CASE("a token of DeepSeek-V3 takes 70 KB of cache", "[workloads][context][oracle]") {
  // arXiv 2505.09343, table 1: 70.272 KB a token in bf16: 61 layers of 512 + 64 columns.
  Job job = llama_job(61, 7168, 128, 128, 18432, 1, 129280);
  transformer_of(job).mla = LatentAttention{1536, 512, 64, 128, 128};
  job.phase = JobPhase::kDecode;
  job.batch = {4, 4, 1};
  job.cached = 4095;
  CHECK(use_of(job).buffers.base() == 70272.0 * 4 * 4096);
  // 2 (512 + 64 + 512) FLOPs a head and pair (FlashMLA's count).
  CHECK(attention_flops(workloads::build_graph(job)) == Approx(61 * 4 * 128 * 2 * 1088 * 4095.5));
}

TEST_CASE("a prompt is worked on as in training, on cached vectors projected up",
          "[workloads][context]") {
  const std::int64_t cached = GENERATE(0, 96);
  const auto algorithm =
      GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv, ContextAlgorithm::kPassQ);
  const std::int64_t context = GENERATE(1, 2, 4);
  constexpr std::int64_t kSequence = 64;
  Job job = latent_job(context, algorithm, kSequence);
  job.phase = JobPhase::kPrefill;
  job.cached = cached;
  const ExecutionGraph graph = workloads::build_graph(job);
  const double ranks = d(context);
  const double p = d(cached);
  const double s = d(kSequence);
  CHECK(attention_flops(graph) * ranks ==
        Approx(2 * (16 + 8) * kHeads * (s * p + s * s / 2) * 4 * 2));
  const double h = kHidden;
  const double layer = h * 24 + 24 * kHeads * 16 + h * 20 + 16 * kHeads * 20 + kHeads * 8 * h;
  // Logits of the last token, which every context rank makes of its own part.
  CHECK(product_flops(graph) * ranks ==
        Approx(2 * 2 * (4 * (s * (layer + 3 * h * 96) + p * 16 * kHeads * 20) + ranks * h * 128)));
  CHECK(use_of(job).buffers.base() * ranks == 2 * 4 * 20 * 2 * (s + p));
  const double rows = (s + p) / ranks;
  const double moved = algorithm == ContextAlgorithm::kPassQ
                           ? s / ranks * kHeads * (16 + 8)  // outputs return
                           : rows * kHeads * (16 + 8);
  CHECK(sent(graph) == Approx(4 * 2 * moved * (ranks - 1)));
}

TEST_CASE("a window limits the cache and what of it is read", "[workloads][context]") {
  const std::int64_t context = GENERATE(1, 4);
  const std::int64_t every = GENERATE(0, 2);
  constexpr std::int64_t kCached = 1024;
  constexpr std::int64_t kWindow = 128;
  Job job = job_of(context, ContextAlgorithm::kAuto, 1);
  transformer_of(job).window = kWindow;
  transformer_of(job).full_attention_every = every;
  job.phase = JobPhase::kDecode;
  job.batch = {16, 8, 1};
  job.cached = kCached;
  const double full = every == 0 ? 0 : 2;
  const double keys = full * (kCached + 0.5) + (4 - full) * kWindow;
  CHECK(attention_flops(workloads::build_graph(job)) * d(context) ==
        Approx(4 * kHeads * 8 * 16 * keys));
  CHECK(use_of(job).buffers.base() * d(context) ==
        Approx(2 * 2 * 4 * 8 * 16 * (full * (kCached + d(context)) + (4 - full) * kWindow)));
  // A prompt after cached tokens: queries see a window before them.
  job.phase = JobPhase::kPrefill;
  job.batch = {2, 1, 256};
  const double seen = full * (256 * kCached + 256 * 128.0) + (4 - full) * 256 * kWindow;
  job.parallel.context_algorithm = GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                            ContextAlgorithm::kPassQ, ContextAlgorithm::kAllToAll);
  CHECK(attention_flops(workloads::build_graph(job)) * d(context) ==
        Approx(4 * kHeads * 8 * 2 * seen));
}

TEST_CASE("windows and latent vectors that ranks cannot share say so", "[workloads][context]") {
  Job job = latent_job(2, ContextAlgorithm::kAllToAll, 64);
  CHECK(message_of(job) == "accepted");
  job.phase = JobPhase::kPrefill;
  CHECK(message_of(job) == "accepted");
  job.cached = 64;
  CHECK_THAT(message_of(job), Catch::Contains("the same cached latent vectors"));
  job = job_of(2, ContextAlgorithm::kAuto, 64);
  transformer_of(job).window = 8;
  // Frameworks pass no keys and values around under a window.
  CHECK(context_algorithms(job) ==
        std::vector{ContextAlgorithm::kAllGather, ContextAlgorithm::kAllToAll});
}
