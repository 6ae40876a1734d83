#include <catch2/catch.hpp>

#include "core/access/access.h"
#include "core/graph/memory_use.h"
#include "core/job/layers.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/embedding_plan/embedding_tiers.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

/// The benchmark script of arXiv 1906.00091: 8 tables x 1 M rows x 64, 100 lookups, batch 2048,
/// 512-512-64, 1024-1024-1024-1, dot.
Job published_job(std::int64_t devices) {
  Job job = dlrm_job(devices, 8, 1'000'000, 64, 100);
  model_of(job).dense_features = 512;
  model_of(job).bottom_mlp = {512, 64};
  model_of(job).top_mlp = {1024, 1024, 1024, 1};
  model_of(job).interaction.kind = InteractionKind::kDot;
  job.batch.global = 2048;
  return job;
}

double gemm_flops(const Program& program, Phase phase) {
  double flops = 0;
  for (const Op* op : ops_of_kind(program, OpKind::kGemm)) {
    flops += op->phase == phase ? op->flops.base() : 0;
  }
  return flops;
}

double product_flops(const ExecutionGraph& graph) {
  double flops = 0;
  for (const RankClass& c : graph.classes) {
    for (const Op& op : graph.programs[static_cast<std::size_t>(c.program)].ops) {
      const bool product = op.kind == OpKind::kGemm || op.kind == OpKind::kDotInteractionForward ||
                           op.kind == OpKind::kDotInteractionBackward;
      flops += product ? op.flops.base() * static_cast<double>(c.ranks.size()) : 0;
    }
  }
  return flops;
}

}  // namespace

TEST_CASE("the published DLRM has 4.99e6 MLP FLOPs per sample and reads 419.4 MB",
          "[workloads][dlrm]") {
  const Job job = published_job(1);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  // 2 (512 512 + 512 64 + (64 + 36) 1024 + 1024^2 + 1024^2 + 1024), 36 = 9 * 8 / 2 dots of the 8
  // tables and the dense vector.
  CHECK(forward_flops(layers_of(*job.workload.layered())) == 4'990'976 + 36 * 2 * 64);
  CHECK(gemm_flops(program, Phase::kForward) == 2048.0 * 4'990'976);
  const Op& lookup = op_named(program, "embedding.local.forward");
  // Rows 2048 * 8 * 100 * 64 * 4 B; beside them 8 B per id and 4 B per bag. Output 2048 * 8 * 64 *
  // 4 B.
  CHECK(lookup.bytes_read.base() - 2048 * 8 * 100 * 8.0 - 2048 * 8 * 4.0 == 419'430'400);
  CHECK(lookup.bytes_written.base() == 2048 * 8 * 64 * 4.0);
}

TEST_CASE("FLOPs of a step are those of its products, however it is split", "[workloads][dlrm]") {
  const auto interaction =
      GENERATE(InteractionKind::kDot, InteractionKind::kCat, InteractionKind::kDcnV2);
  const auto devices = GENERATE(1, 2, 8);
  Job job = published_job(devices);
  model_of(job).interaction = {interaction, 3, 16};
  const workloads::StepFlops flops = workloads::layered_flops(job);
  CHECK(product_flops(workloads::build_graph(job)) == flops.model.base());
  CHECK(flops.hardware.base() == flops.model.base());
  // Forward, weight gradient, input gradient; the first layer (512 x 512) has no input gradient.
  const double forward = forward_flops(layers_of(*job.workload.layered()));
  CHECK(flops.model.base() == 2048 * (3 * forward - 2.0 * 512 * 512));
}

TEST_CASE("ids without a row take one from another", "[workloads][dlrm]") {
  // 1,000 ids alike and 100 rows of 16 fp32 columns with a row-wise state, 3 x 128 lookups.
  Job job = dlrm_job(2, 1, 100, 16, 3);
  EmbeddingTable& table = model_of(job).tables[0];
  const auto ids = std::make_shared<const Access>(Access::uniform(1000));
  const auto kind = GENERATE(RowRemap::kLru, RowRemap::kLfu);
  table.remapped = Remapping{1000, ids, kind, true};
  table.access = std::make_shared<const Access>(ids->remapped(100, kind));
  // Distinct ids of 384 lookups: 1,000 (1 - 0.999^384). Whoever has a row, 90 % of them have none.
  const double distinct = 1000 * (1 - std::pow(0.999, 384));
  const workloads::KeyedRows keyed = workloads::keyed_rows(job, table);
  CHECK(keyed.admitted == Approx(0.9 * distinct).epsilon(1e-3));
  table.remapped->admitted = 0.25;
  CHECK(workloads::keyed_rows(job, table).admitted == Approx(0.25 * keyed.admitted));
  table.remapped->admitted = 1;

  job.embedding_choice = GENERATE("table_wise", "row_wise");
  const ExecutionGraph graph = workloads::build_graph(job);
  double read = 0;
  double written = 0;
  double memory = 0;
  for (const RankClass& c : graph.classes) {
    const Program& p = graph.programs[static_cast<std::size_t>(c.program)];
    const double ranks = static_cast<double>(c.ranks.size());
    for (const Op& op : p.ops) {
      read += p.name(op) == "ids.find_rows" ? ranks * op.bytes_read.base() : 0;
      written += p.name(op) == "ids.find_rows" ? ranks * op.bytes_written.base() : 0;
    }
    memory += ranks * memory_use(p).embeddings.base();
  }
  CHECK(read == Approx(384 * 32));
  CHECK(written == Approx(384 * 32 + keyed.admitted * (16 * 4 + 4)));
  CHECK(memory == 100 * (16 * 4 + 16));
  job.embedding_choice = "data_parallel";
  CHECK_THROWS_WITH(workloads::build_graph(job), Catch::Contains("take rows of others"));
}

TEST_CASE("backward updates every distinct row once", "[workloads][dlrm]") {
  Job job = published_job(1);
  model_of(job).interaction.kind = InteractionKind::kCat;
  for (EmbeddingTable& t : model_of(job).tables) {
    t.access = std::make_shared<Access>(Access::uniform(t.rows));
  }
  const double lookups = 2048 * 100;
  const double unique = 1e6 * -std::expm1(lookups * std::log1p(-1e-6));  // 1e6 (1 - (1 - 1e-6)^n)
  job.embedding_optimizer = OptimizerKind::kRowwiseAdagrad;
  const ExecutionGraph graph = workloads::build_graph(job);
  const Op& update = op_named(graph.programs.front(), "embedding.local.backward");
  // Each distinct row: 256 B of weights and one fp32 state, read and written; a 256 B gradient and
  // an 8 B id per lookup.
  CHECK(update.bytes_written.base() == Approx(8 * unique * 260).epsilon(1e-3));
  CHECK(update.bytes_read.base() == Approx(8 * (unique * 260 + lookups * 264)).epsilon(1e-3));
}

TEST_CASE("memory: a sharded table is stored once, a replicated one everywhere",
          "[workloads][dlrm]") {
  const std::string plan =
      GENERATE("table_wise", "row_wise", "column_wise", "table_row_wise", "data_parallel");
  CAPTURE(plan);
  Job job = dlrm_job(8, 6, 1003, 32, 2);
  job.embedding_choice = plan;
  job.embedding_optimizer = OptimizerKind::kAdam;
  job.dense_optimizer = OptimizerKind::kSgd;
  const ExecutionGraph graph = workloads::build_graph(job);
  double weights = 0;
  double states = 0;
  for (std::int32_t r = 0; r < 8; ++r) {
    weights += memory_use(graph.program_of(r)).embeddings.base();
    states += memory_use(graph.program_of(r)).optimizer.base();
  }
  const double once = 6.0 * 1003 * 32 * 4;
  const double copies = plan == "data_parallel" ? 8 : 1;
  CHECK(weights == copies * once);
  CHECK(states == copies * 2 * once);
}

TEST_CASE("shapes that do not fit are the user's error", "[workloads][dlrm]") {
  Job job = dlrm_job(3, 4, 100, 16, 1);
  job.batch.global = 64;
  CHECK_THROWS_WITH(workloads::build_graph(job),
                    Catch::Contains("batch.global") &&
                        Catch::Contains("64 samples do not divide over 3 devices"));
  job = dlrm_job(2, 4, 100, 16, 1);
  model_of(job).interaction.kind = InteractionKind::kDot;
  model_of(job).tables[2].dim = 8;
  CHECK_THROWS_WITH(workloads::build_graph(job),
                    Catch::Contains("dot needs equal widths") && Catch::Contains("'t2'"));
  job = dlrm_job(2, 4, 100, 16, 1);
  model_of(job).top_mlp.back() = 2;
  CHECK_THROWS_WITH(workloads::build_graph(job), Catch::Contains("top_mlp"));
}
