// Muon: what is orthogonalised, by whom, and what ranks keep and exchange for it.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/workloads/transformer_graphs.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

/// FLOPs of Newton-Schulz, five iterations.
double newton_schulz(double m, double n) {
  return 5 * (4 * std::min(m, n) * std::min(m, n) * std::max(m, n) +
              2 * std::min(m, n) * std::min(m, n) * std::min(m, n));
}

double flops_of(const Job& job, OpKind kind) {
  return sum_over(
      workloads::build_graph(job).programs.front(),
      [&](const Op& op, std::string_view) { return op.kind == kind ? op.flops.base() : 0; });
}

/// Elements that collectives of the optimizer move, by kind.
double moved(const Job& job, OpKind kind) {
  return sum_over(workloads::build_graph(job).programs.front(),
                  [&](const Op& op, std::string_view) {
                    return op.kind == kind && op.phase == Phase::kOptimizer ? d(op.shape[0]) : 0;
                  });
}

// Hidden 64, 4 heads of 16, 2 of keys and values, 96 wide: q 64 x 64, k and v 64 x 32, the
// projection 64 x 64, gate and up 64 x 192, fc2 96 x 64.
Job muon_job() {
  Job job = llama_job(3, 64, 4, 2, 96, 32, 128);
  job.dense_optimizer = OptimizerKind::kMuon;
  split(job, 1, 1, 1, 1);
  return job;
}
constexpr double kMatrices = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 64 * 192 + 96 * 64;  // of a layer
double layer_flops() {
  return 2 * newton_schulz(64, 64) + 2 * newton_schulz(64, 32) + newton_schulz(64, 192) +
         newton_schulz(96, 64);
}

}  // namespace

TEST_CASE("matrices of layers are orthogonalised, one state kept of them",
          "[workloads][transformer][muon][oracle]") {
  Job job = muon_job();
  CHECK(flops_of(job, OpKind::kOrthogonalize) == 3 * layer_flops());
  job.muon.iterations = 10;
  CHECK(flops_of(job, OpKind::kOrthogonalize) == 2 * 3 * layer_flops());
  // Adam keeps two moments of 4 bytes, Muon one; both a master copy.
  const double muon = use_of(job).optimizer.base();
  job.dense_optimizer = OptimizerKind::kAdam;
  CHECK(use_of(job).optimizer.base() - muon == 4 * 3 * kMatrices);
  CHECK(flops_of(job, OpKind::kOrthogonalize) == 0);
}

TEST_CASE("each expert's matrix is one of its own", "[workloads][transformer][muon][moe]") {
  Job job = muon_job();
  MixtureOfExperts& experts = transformer_of(job).moe.emplace();
  experts.experts = 4;
  experts.per_token = 2;
  experts.ffn_hidden = 96;
  // The router is a matrix of 64 x 4.
  const double layer =
      layer_flops() + 3 * (newton_schulz(64, 192) + newton_schulz(96, 64)) + newton_schulz(64, 4);
  CHECK(flops_of(job, OpKind::kOrthogonalize) == 3 * layer);
}

TEST_CASE("replicas do the same, or spread whole matrices", "[workloads][transformer][muon]") {
  Job job = muon_job();
  split(job, 1, 1, 4, 1);
  CHECK(flops_of(job, OpKind::kOrthogonalize) == 3 * layer_flops());
  CHECK(moved(job, OpKind::kAllGather) == 0);
  const MemoryUse whole = use_of(job);
  job.parallel.zero = 1;
  job.parallel.bucket = MB(1000);  // one bucket
  // By size, to the rank that has least: gate and up of three layers (12,288) on one each; q, k and
  // v (8,192) twice on the fourth, then on the first; fc2 (6,144) on the second, third and fourth,
  // which have 18,432 and 22,528; projections (4,096) on the second, third, first: 24,576.
  const double most = 24576;
  const MemoryUse spread = use_of(job);
  CHECK(spread.parameters.base() == whole.parameters.base());
  const double others = 2 * 128 * 64 + 7 * 64;  // embedding, head, norms: a quarter of two moments
  CHECK(whole.optimizer.base() == 8 * 3 * kMatrices + 12 * others);
  CHECK(spread.optimizer.base() == 8 * most + 12 * others / 4);
  const double mean = 3 * layer_flops() / 4;
  const double done = flops_of(job, OpKind::kOrthogonalize);
  CHECK(done >= mean);
  CHECK(done <= mean + newton_schulz(64, 192));  // Graham: the mean and one of the largest
  // All weights are gathered.
  CHECK(moved(job, OpKind::kAllGather) == Approx(3 * kMatrices + others).epsilon(1e-3));
}

TEST_CASE("tensor ranks gather matrices, share them or work on their parts",
          "[workloads][transformer][muon]") {
  Job job = muon_job();
  split(job, 2, 1, 1, 1);
  CHECK(flops_of(job, OpKind::kOrthogonalize) == 3 * layer_flops());  // both ranks do all
  CHECK(moved(job, OpKind::kAllGather) == 3 * kMatrices);
  job.muon.shards = MuonShards::kBlockwise;
  CHECK(flops_of(job, OpKind::kOrthogonalize) ==
        3 * (2 * newton_schulz(64, 32) + 2 * newton_schulz(64, 16) + newton_schulz(64, 96) +
             newton_schulz(48, 64)));
  CHECK(moved(job, OpKind::kAllGather) == 0);
  // Squares of the side that is not cut, summed over the ranks: 64 x 64 each.
  job.muon.shards = MuonShards::kDistributed;
  const auto part = [](double cut) { return 5 * (4 * 64 * 64 * cut + 2 * 64 * 64 * 64); };
  CHECK(flops_of(job, OpKind::kOrthogonalize) ==
        3 * (2 * part(32) + 2 * part(16) + part(96) + part(48)));
  CHECK(moved(job, OpKind::kAllReduce) == 3 * 6 * 5 * 64 * 64);
  // Each whole matrix on one of the two.
  job.muon.shards = MuonShards::kLayerSharded;
  const double done = flops_of(job, OpKind::kOrthogonalize);
  CHECK(done >= 3 * layer_flops() / 2);
  CHECK(done <= 3 * layer_flops() / 2 + newton_schulz(64, 192));
  CHECK(moved(job, OpKind::kAllToAll) == 2 * 3 * kMatrices / 2);
}

TEST_CASE("parts of a matrix, and the host, have no Muon", "[workloads][muon][malformed]") {
  using Catch::Matchers::Contains;
  Job job = muon_job();
  split(job, 1, 1, 4, 1);
  job.parallel.zero = 3;
  CHECK_THAT(message_of(job), Contains("whole matrices"));
  job.parallel.zero = 1;
  CHECK(message_of(job) == "accepted");
}
