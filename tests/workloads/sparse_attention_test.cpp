// Sparse attention: pairs, products and what is kept, against a hand count.
#include <catch2/catch.hpp>

#include "core/job/parameter_count.h"
#include "tests/workloads/transformer_graphs.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

// 4 heads of 16 + 8 columns and 16 of values, latent vectors of 32 + 8; 2 index heads of 8 over 24
// compressed columns of queries.
Job sparse_job(std::int64_t sequence, std::int64_t top_k) {
  Job job = llama_job(2, 64, 4, 4, 96, sequence, 128);
  TransformerWorkload& m = transformer_of(job);
  m.mla = LatentAttention{.q_rank = 24, .kv_rank = 32, .rope_dim = 8, .nope_dim = 16, .v_dim = 16};
  m.head_dim = m.mla->query_dim();
  m.sparse = SparseAttention{.top_k = top_k, .index_heads = 2, .index_head_dim = 8};
  split(job, 1, 1, 1, 1);
  return job;
}

double flops_of(const Job& job, std::string_view name) {
  return sum_over(
      workloads::build_graph(job).programs.front(),
      [&](const Op& op, std::string_view of) { return of == name ? op.flops.base() : 0; });
}

double all_flops(const Job& job) {
  return sum_over(workloads::build_graph(job).programs.front(),
                  [](const Op& op, std::string_view) { return op.flops.base(); });
}

}  // namespace

TEST_CASE("queries see top_k keys, the indexer all", "[workloads][transformer][sparse][oracle]") {
  const Job job = sparse_job(64, 16);
  // Area of the mask, in which a token is one wide: min(x, 16) for x up to 64 is 16 (64 - 8) = 896;
  // of the whole triangle 64 x 64 / 2 = 2,048. Two layers.
  CHECK(flops_of(job, "layer.attention.core") == Approx(2 * 896 * 4 * 2.0 * (2 * 32 + 8)));
  CHECK(flops_of(job, "layer.attention.index_scores") == 2 * 2048 * 2.0 * 2 * 8);
  CHECK(flops_of(job, "layer.attention.index_scores_gradient") == 2 * 3 * 896 * 2.0 * 2 * 8);
  CHECK(flops_of(job, "layer.attention.index_query") == 2 * 64 * 2.0 * 24 * 16);
  CHECK(flops_of(job, "layer.attention.index_down") == 2 * 64 * 2.0 * 64 * (2 + 8));
  for (const char* gradient :
       {"layer.attention.index_query_weight_gradient", "layer.attention.index_query"}) {
    CHECK(flops_of(job, gradient) == 2 * 64 * 2.0 * 24 * 16);
  }
  // Projections onto latent vectors and back: 4 heads of 16 x 32 each, twice that backward.
  CHECK(flops_of(job, "layer.attention.query_absorb") == 2 * 64 * 2.0 * 4 * 16 * 32);
  CHECK(flops_of(job, "layer.attention.value_up") == 2 * 64 * 2.0 * 4 * 16 * 32);
  for (const char* gradient :
       {"layer.attention.query_absorb_input_gradient",
        "layer.attention.query_absorb_weight_gradient", "layer.attention.value_up_input_gradient",
        "layer.attention.value_up_weight_gradient"}) {
    CHECK(flops_of(job, gradient) == 2 * 64 * 2.0 * 4 * 16 * 32);
  }
}

TEST_CASE("a layer keeps latent queries and the chosen keys",
          "[workloads][transformer][sparse][oracle]") {
  // bf16 of a token: the layer's input, both norms, fc1 of 192 and 96 activated, the middle; 24
  // compressed columns and their norm, 40 latent and theirs; queries of 96; latent queries of 160
  // and one key of 40; outputs of 128 and 64; 16 + 10 of the indexer. 4 bytes each of 16 chosen
  // keys, 4 log-sum-exps, four norms with two statistics.
  const double bf16 = 4 * 64 + 192 + 96 + 2 * 24 + 2 * 40 + 96 + 160 + 40 + 128 + 64 + 16 + 10;
  CHECK(bytes_of_a_layer(sparse_job(64, 16)) == 64 * (2 * bf16 + 4 * (16 + 4 + 4 * 2)));
}

TEST_CASE("a sequence of top_k tokens has dense attention", "[workloads][transformer][sparse]") {
  Job sparse = sparse_job(64, 64);
  Job dense = sparse;
  transformer_of(dense).sparse.reset();
  CHECK(all_flops(sparse) == all_flops(dense));
  CHECK(use_of(sparse).total() == use_of(dense).total());
  transformer_of(sparse).sparse->top_k = 63;
  CHECK(all_flops(sparse) > all_flops(dense));
}

TEST_CASE("the indexer's matrices are parameters", "[workloads][transformer][sparse]") {
  const Job job = sparse_job(64, 16);
  Job dense = job;
  transformer_of(dense).sparse.reset();
  CHECK(transformer_parameters(*job.workload.transformer(), 64) -
            transformer_parameters(*dense.workload.transformer(), 64) ==
        2 * (24 * 16 + 64 * 10));
  CHECK(use_of(job).parameters.base() - use_of(dense).parameters.base() ==
        2 * 2 * (24 * 16 + 64 * 10));
}

TEST_CASE("sparse attention over context ranks is rejected", "[workloads][sparse][malformed]") {
  Job job = sparse_job(64, 16);
  job.parallel.context = job.devices = 2;
  CHECK_THAT(message_of(job), Catch::Matchers::Contains("whole sequences"));
}
