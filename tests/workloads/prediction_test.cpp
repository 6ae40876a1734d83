// Multi-token prediction: parameters, work and memory against hand counts.
#include <catch2/catch.hpp>

#include "core/job/parameter_count.h"
#include "tests/workloads/transformer_graphs.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kFeedForward = 96;
constexpr std::int64_t kTokens = 32;
constexpr std::int64_t kVocabulary = 128;

Job job_with(std::int64_t predictions) {
  Job job = llama_job(4, kHidden, 4, 4, kFeedForward, kTokens, kVocabulary);
  transformer_of(job).predict_further(predictions);
  split(job, 1, 1, 1, 1);
  return job;
}

double flops(const Job& job, std::string_view name) {
  double all = 0;
  for (const Program& program : workloads::build_graph(job).programs) {
    all += sum_over(program, [&](const Op& op, std::string_view of) {
      return of == name ? op.flops.base() : 0.0;
    });
  }
  return all;
}

std::int64_t held(const Job& job) {
  std::int64_t all = 0;
  for (const Program& program : workloads::build_graph(job).programs) {
    for (const Tensor& t : program.tensors) {
      all += t.role == TensorRole::kParameter && !t.is_view() ? t.elements() : 0;
    }
  }
  return all;
}

// Projections of attention, three matrices of the feed-forward block and two norms.
constexpr std::int64_t kLayer = 4 * kHidden * kHidden + 3 * kHidden * kFeedForward + 2 * kHidden;
// Two vectors to one, and a norm of each.
constexpr std::int64_t kProjection = 2 * kHidden * kHidden + 2 * kHidden;

}  // namespace

TEST_CASE("a prediction has a layer, a projection and no head of its own",
          "[workloads][transformer][mtp][oracle]") {
  const std::int64_t n = GENERATE(1, 2);
  const auto counted = [](const Job& job) {
    return transformer_parameters(*job.workload.transformer(), kTokens);
  };
  CHECK(counted(job_with(n)) - counted(job_with(0)) == n * (kLayer + kProjection));
  CHECK(held(job_with(n)) - held(job_with(0)) == n * (kLayer + kProjection));
}

TEST_CASE("a last stage apart looks tokens up in a copy", "[workloads][transformer][mtp][oracle]") {
  const bool tied = GENERATE(true, false);
  const auto in_stages = [tied](std::int64_t predictions) {
    Job job = job_with(predictions);
    transformer_of(job).tied_embeddings = tied;
    split(job, 1, 2, 1, 4);
    return job;
  };
  // A head tied to the embedding is the copy that is there anyway.
  CHECK(held(in_stages(1)) - held(in_stages(0)) ==
        kLayer + kProjection + (tied ? 0 : kVocabulary * kHidden));
}

TEST_CASE("the head works on the rows of all predictions",
          "[workloads][transformer][mtp][oracle]") {
  const std::int64_t n = GENERATE(1, 2);
  const Job with = job_with(n), without = job_with(0);
  for (const char* op : {"head.logits", "head.input_gradient", "head.weight_gradient"}) {
    INFO(op);
    CHECK(flops(with, op) == Approx((1 + n) * 2.0 * kTokens * kVocabulary * kHidden));
    CHECK(flops(without, op) == Approx(2.0 * kTokens * kVocabulary * kHidden));
  }
  // Both products of a projection; as much again for the gradients of what they read.
  CHECK(flops(with, "prediction.hidden") == Approx(n * 2.0 * kTokens * kHidden * kHidden));
  for (const char* op :
       {"prediction.hidden_input_gradient", "prediction.embedded_input_gradient"}) {
    CHECK(flops(with, op) == Approx(n * 2.0 * kTokens * kHidden * kHidden));
  }
  const auto lookups = [](const Job& job) {
    return sum_over(workloads::build_graph(job).programs.front(),
                    [](const Op& op, std::string_view) {
                      return op.kind == OpKind::kTokenEmbeddingForward ? 1.0 : 0.0;
                    });
  };
  CHECK(lookups(with) == 1 + n);
}

TEST_CASE("inference makes no further predictions", "[workloads][transformer][mtp]") {
  Job with = job_with(1), without = job_with(0);
  with.phase = without.phase = JobPhase::kPrefill;
  CHECK(held(with) == held(without));
}

TEST_CASE("experts of latent vectors read and make narrow rows",
          "[workloads][transformer][latent_experts][oracle]") {
  constexpr std::int64_t kLatent = 16;
  const bool sequence_parallel = GENERATE(true, false);
  const auto job_of = [&](std::int64_t latent) {
    Job job = llama_job(2, kHidden, 4, 4, kFeedForward, kTokens, kVocabulary);
    MixtureOfExperts moe;
    moe.experts = 4;
    moe.per_token = 2;
    moe.shared = 1;
    moe.ffn_hidden = kFeedForward;
    moe.latent = latent;
    transformer_of(job).moe = moe;
    split(job, 2, 1, 2, 2);
    job.parallel.expert = 2;
    job.parallel.sequence_parallel = sequence_parallel;
    return job;
  };
  const Job narrow = job_of(kLatent), wide = job_of(0);
  // In each layer: 4 experts of three matrices less, two projections more.
  const auto counted = [](const Job& job) {
    return transformer_parameters(*job.workload.transformer(), kTokens);
  };
  CHECK(counted(wide) - counted(narrow) ==
        2 * (4 * 3 * (kHidden - kLatent) * kFeedForward - 2 * kHidden * kLatent));
  // Products of experts are as much smaller as their rows, router and shared experts stay.
  for (const char* op : {"layer.moe.fc1", "layer.moe.fc2", "layer.moe.fc1_weight_gradient"}) {
    INFO(op);
    CHECK(flops(narrow, op) == Approx(flops(wide, op) * kLatent / kHidden));
  }
  for (const char* op : {"layer.moe.router", "layer.moe.shared.fc1"}) {
    INFO(op);
    CHECK(flops(narrow, op) == Approx(flops(wide, op)));
  }
  // A projection reads the rows that the router does, to kLatent columns for 4.
  CHECK(flops(narrow, "layer.moe.latent_down") ==
        Approx(flops(narrow, "layer.moe.router") * kLatent / 4));
  // Rows on their way to the experts are as much narrower.
  const auto sent = [](const Job& job) {
    return sum_over(workloads::build_graph(job).programs.front(),
                    [](const Op& op, std::string_view) {
                      return op.kind == OpKind::kAllToAll ? static_cast<double>(op.shape[0]) : 0.0;
                    });
  };
  CHECK(sent(narrow) == Approx(sent(wide) * kLatent / kHidden));
}
