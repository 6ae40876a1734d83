// Layers of several kinds: what a graph holds, computes and keeps of mixers with a state.
#include <catch2/catch.hpp>

#include "core/job/parameter_count.h"
#include "tests/workloads/transformer_graphs.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kTokens = 32;

RecurrentMixer mixer_of(RecurrentRule rule) {
  RecurrentMixer r;
  r.rule = rule;
  r.heads = 8;
  r.key_heads = 4;
  r.key_dim = 16;
  r.value_dim = 24;
  r.chunk = 8;
  if (rule == RecurrentRule::kKimiDelta) {
    r.key_heads = 8;
    r.gate_rank = 12;
  } else if (rule == RecurrentRule::kConvolution) {
    r.heads = kHidden;
    r.value_dim = 1;
    r.key_heads = r.key_dim = 0;
    r.kernel = 3;
  }
  return r;
}

Job hybrid_job(RecurrentRule rule, std::vector<BlockKind> pattern, std::int64_t layers = 4) {
  Job job = llama_job(layers, kHidden, 4, 4, 96, kTokens, 128);
  transformer_of(job).recurrent = mixer_of(rule);
  transformer_of(job).pattern = std::move(pattern);
  split(job, 1, 1, 1, 1);
  return job;
}

const std::vector<BlockKind> kPairs{{MixerKind::kRecurrent, FeedForwardKind::kDense},
                                    {MixerKind::kAttention, FeedForwardKind::kDense}};
const std::vector<BlockKind> kSingles{{MixerKind::kRecurrent, FeedForwardKind::kNone},
                                      {MixerKind::kNone, FeedForwardKind::kDense},
                                      {MixerKind::kAttention, FeedForwardKind::kNone},
                                      {MixerKind::kNone, FeedForwardKind::kDense}};

constexpr auto kRules = {RecurrentRule::kMamba2, RecurrentRule::kGatedDelta,
                         RecurrentRule::kKimiDelta, RecurrentRule::kConvolution};

std::int64_t parameters_held(const ExecutionGraph& graph) {
  std::int64_t held = 0;
  for (const Program& program : graph.programs) {
    for (const Tensor& t : program.tensors) {
      held += t.role == TensorRole::kParameter && !t.is_view() ? t.elements() : 0;
    }
  }
  return held;
}

double flops_of(const Job& job, std::string_view name) {
  return sum_over(
      workloads::build_graph(job).programs.front(),
      [&](const Op& op, std::string_view of) { return of == name ? op.flops.base() : 0.0; });
}

}  // namespace

TEST_CASE("the graph of a hybrid holds each parameter", "[workloads][transformer][pattern]") {
  const RecurrentRule rule = GENERATE(values<RecurrentRule>(kRules));
  const bool pairs = GENERATE(true, false);
  const std::int64_t tensor = GENERATE(1, 2, 4);
  const std::int64_t pipeline = GENERATE(1, 2);
  Job job = hybrid_job(rule, pairs ? kPairs : kSingles);
  split(job, tensor, pipeline, 2, 4);
  job.parallel.sequence_parallel = tensor == 2;
  const RecurrentMixer& r = *transformer_of(job).recurrent;
  // On each tensor rank: all norms of the residual stream, the vector of the norm that all heads of
  // a delta rule share, and the first matrices of narrow gates.
  const std::int64_t norms = (pairs ? 2 * 4 : 4) + 1;
  const std::int64_t mixers = pairs ? 2 : 1;
  const bool delta = rule == RecurrentRule::kGatedDelta || rule == RecurrentRule::kKimiDelta;
  const std::int64_t replicated =
      norms * kHidden + mixers * ((delta ? r.value_dim : 0) + 2 * kHidden * r.gate_rank);
  CHECK(tensor * parameters_held(workloads::build_graph(job)) ==
        transformer_parameters(transformer_of(job), kTokens) + (tensor - 1) * replicated);
}

TEST_CASE("parameters of a mixer are a hand count", "[workloads][transformer][pattern][oracle]") {
  // Mamba-2: z and x of 8 x 24, B and C of 4 x 16, dt of 8; a convolution of 192 + 128 channels
  // with bias; A, dt bias and D by head; a norm of 192; back to 64.
  CHECK(mixer_of(RecurrentRule::kMamba2).parameters(kHidden) ==
        kHidden * (2 * 192 + 2 * 64 + 8) + 320 * (4 + 1) + 3 * 8 + 192 + 192 * kHidden);
  // Gated delta: q and k of 4 x 16, v and z of 192, beta and a of 8; no bias; A and dt bias; a norm
  // of 24 for each head.
  CHECK(mixer_of(RecurrentRule::kGatedDelta).parameters(kHidden) ==
        kHidden * (2 * 64 + 2 * 192 + 16) + 320 * 4 + 2 * 8 + 24 + 192 * kHidden);
  // Kimi delta: q and k of 8 x 16, v of 192, beta of 8; gates through 12 to 128 and to 192.
  CHECK(mixer_of(RecurrentRule::kKimiDelta).parameters(kHidden) ==
        kHidden * (2 * 128 + 192 + 8) + (2 * 128 + 192) * 4 + 12 * (2 * kHidden + 128 + 192) + 8 +
            128 + 24 + 192 * kHidden);
  // LFM2: three projections in, three taps, one projection out.
  CHECK(mixer_of(RecurrentRule::kConvolution).parameters(kHidden) ==
        3 * kHidden * kHidden + 3 * kHidden + kHidden * kHidden);
}

TEST_CASE("a scan computes what its chunks have", "[workloads][transformer][pattern][oracle]") {
  Job mamba = hybrid_job(RecurrentRule::kMamba2, kPairs, 2);
  // 32 tokens in chunks of 8: for each token 8 scores of 16 columns in 4 groups; 8 heads with 8
  // values of 24 columns, and a state of 16 x 24 written and read. Two FLOPs each.
  const double forward = 32 * 2.0 * (4 * 8 * 16 + 8 * (8 * 24 + 2 * 16 * 24));
  CHECK(flops_of(mamba, "layer.recurrent.scan") == forward);
  // Scores and states again, then two products for each.
  CHECK(flops_of(mamba, "layer.recurrent.scan_gradient") ==
        2 * forward + 32 * 2.0 * (4 * 8 * 16 + 8 * 16 * 24));
  Job delta = hybrid_job(RecurrentRule::kGatedDelta, kPairs, 2);
  CHECK(flops_of(delta, "layer.recurrent.scan") ==
        32 * 2.0 * 8 * (3 * 8 * 16 + 2 * 8 * 24 + 3 * 16 * 24));
  // Tensor ranks have some heads each.
  const double whole = flops_of(delta, "layer.recurrent.scan_gradient");
  split(delta, 4, 1, 1, 1);
  CHECK(flops_of(delta, "layer.recurrent.scan_gradient") == whole / 4);
}

TEST_CASE("a layer keeps what its kernels save", "[workloads][transformer][pattern][oracle]") {
  const auto kept = [](RecurrentRule rule) {
    return bytes_of_a_layer(hybrid_job(rule, {{MixerKind::kRecurrent, FeedForwardKind::kNone}}, 5));
  };
  // Each token leaves in bf16 the norm's output and its two statistics in fp32, the layer's output.
  const double frame = 2 * kHidden + 2 * 4 + 2 * kHidden;
  // Mamba-2: the projection in, the scan's output, its statistic by head, what goes into the
  // projection out.
  CHECK(kept(RecurrentRule::kMamba2) == kTokens * (frame + 2 * 520 + 2 * 192 + 4 * 8 + 2 * 192));
  // Gated delta: the convolution's output and the inverse of each chunk in addition.
  CHECK(kept(RecurrentRule::kGatedDelta) ==
        kTokens * (frame + 2 * 528 + 2 * 320 + 2 * 192 + 4 * 8 + 2 * 8 * 8 + 2 * 192));
  // A convolution: its output and the gated one.
  CHECK(kept(RecurrentRule::kConvolution) ==
        kTokens * (frame + 2 * 3 * kHidden + 2 * kHidden + 2 * kHidden));
}

TEST_CASE("a gate of attention is one product more", "[workloads][transformer][pattern]") {
  Job job = llama_job(2, kHidden, 4, 2, 96, kTokens, 128);
  split(job, 1, 1, 1, 1);
  const std::int64_t plain = transformer_parameters(transformer_of(job), kTokens);
  transformer_of(job).output_gate = true;
  CHECK(transformer_parameters(transformer_of(job), kTokens) == plain + 2 * kHidden * kHidden);
  CHECK(parameters_held(workloads::build_graph(job)) ==
        transformer_parameters(transformer_of(job), kTokens));
  for (const char* name : {"layer.attention.gate", "layer.attention.gate_input_gradient",
                           "layer.attention.gate_weight_gradient"}) {
    CHECK(flops_of(job, name) == 2 * 2.0 * kTokens * kHidden * kHidden);  // two layers
  }
}

TEST_CASE("splits that hybrids cannot have are rejected", "[workloads][pattern][malformed]") {
  Job job = hybrid_job(RecurrentRule::kGatedDelta, kPairs);
  using Catch::Matchers::Contains;
  job.phase = JobPhase::kPrefill;
  CHECK_THAT(message_of(job), Contains("training only"));
  job.phase = JobPhase::kTrain;
  split(job, 4, 1, 1, 1);
  CHECK(message_of(job) == "accepted");
  transformer_of(job).recurrent->key_heads = 2;
  CHECK_THAT(message_of(job),
             Contains("2 heads of keys and 8 of values") && Contains("use 1 or 2"));
}
