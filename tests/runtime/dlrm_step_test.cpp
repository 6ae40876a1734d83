#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>

#include "core/access/access.h"
#include "core/error.h"
#include "core/job/plan.h"
#include "runtime/op_operands.h"
#include "tests/runtime/small_dlrm.h"
#include "tests/runtime/thread_ranks.h"
#include "tests/runtime/tiered_plans.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_layout.h"

using namespace stepcast;
using namespace stepcast::runtime::test;

namespace {

std::vector<double> curve_of_one_rank(Job job, int steps) {
  job.devices = 1;
  job.embedding_choice = "table_wise";
  return loss_curve(job, steps);
}

void check_same(const std::vector<double>& curve, const std::vector<double>& alone) {
  REQUIRE(curve.size() == alone.size());
  for (std::size_t s = 0; s < curve.size(); ++s) {
    CAPTURE(s);
    CHECK(curve[s] == Approx(alone[s]).epsilon(2e-5));
  }
}

const std::vector<std::string> kEveryPlan{"table_wise",     "row_wise",      "column_wise",
                                          "table_row_wise", "data_parallel", "auto"};

/// Rows of each table looked up by popularity.
Job skewed_job(OptimizerKind optimizer) {
  Job job = small_job(InteractionKind::kCat, optimizer);
  for (EmbeddingTable& t : std::get<LayeredWorkload>(job.workload.model).tables) {
    t.access = std::make_shared<const Access>(Access::zipf(t.rows, 1.1, 7));
  }
  return job;
}

}  // namespace

TEST_CASE("every embedding plan trains the same DLRM", "[runtime][dlrm]") {
  const auto interaction =
      GENERATE(InteractionKind::kDot, InteractionKind::kCat, InteractionKind::kDcnV2);
  Job job = small_job(interaction);
  const std::vector<double> alone = curve_of_one_rank(job, 6);
  for (const std::int64_t devices : {1, 2, 4}) {
    for (const std::string& plan : kEveryPlan) {
      CAPTURE(devices, plan);
      job.devices = devices;
      job.embedding_choice = plan;
      check_same(loss_curve(job, 6), alone);
    }
  }
}

TEST_CASE("rows by popularity at several replication levels train the same DLRM",
          "[runtime][dlrm][tiers]") {
  // Every kind of range, remapped and not, pooled, mean and unpooled, under every optimizer; what
  // differs from one rank is the order of sums.
  const auto optimizer = GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                                  OptimizerKind::kAdam, OptimizerKind::kAdagrad);
  Job job = skewed_job(optimizer);
  constexpr int kSteps = 5;
  const std::vector<double> alone = curve_of_one_rank(job, kSteps);
  for (unsigned seed = 0; seed < 24; ++seed) {
    job.devices = seed % 4 == 0 ? 2 : 4;
    job.parallel.overlap.input_all_to_all = seed % 3 == 0;
    job.parallel.overlap.output_all_to_all = seed % 2 == 0;
    job.parallel.overlap.dense_all_reduce = seed % 5 == 0;
    job.parallel.dlrm_pipeline = static_cast<DlrmPipeline>(seed / 3 % 4);
    job.embedding_plan = runtime::test::random_tiered_plan(job, seed);
    CAPTURE(seed, job.devices, static_cast<int>(optimizer));
    check_same(loss_curve(job, kSteps), alone);
  }
}

TEST_CASE("copies in groups of several sizes train the same DLRM, in one table too",
          "[runtime][dlrm][tiers]") {
  const auto optimizer = GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                                  OptimizerKind::kAdam, OptimizerKind::kAdagrad);
  Job job = skewed_job(optimizer);
  const std::vector<double> alone = curve_of_one_rank(job, 4);
  job.devices = 8;
  for (unsigned seed = 0; seed < 7; ++seed) {
    CAPTURE(seed);
    // Seed 0: all, one in four, one in two, one copy, in every table.
    job.embedding_plan =
        seed == 0 ? nested_plan(job, {1, 2, 4, 8}) : random_tiered_plan(job, seed, {2, 4});
    job.embedding_dedup = seed % 2 == 1;
    check_same(loss_curve(job, 4), alone);
  }
}

TEST_CASE("ids that travel once train the same DLRM", "[runtime][dlrm][dedup]") {
  // Batches repeat row 0 often. Gradients of one row are summed on each rank first.
  const auto optimizer = GENERATE(OptimizerKind::kSgd, OptimizerKind::kAdam);
  Job job = skewed_job(optimizer);
  for (EmbeddingTable& t : std::get<LayeredWorkload>(job.workload.model).tables) {
    t.mode = t.mode == PoolingMode::kMean ? PoolingMode::kSequence : t.mode;
  }
  constexpr int kSteps = 5;
  const std::vector<double> alone = curve_of_one_rank(job, kSteps);
  job.embedding_dedup = true;
  for (unsigned seed = 0; seed < 24; ++seed) {
    job.devices = seed % 4 == 0 ? 2 : 4;
    job.parallel.overlap.output_all_to_all = seed % 2 == 0;
    job.parallel.dlrm_pipeline = static_cast<DlrmPipeline>(seed / 3 % 4);
    job.embedding_plan = runtime::test::random_tiered_plan(job, seed);
    if (seed % 2 == 0) {
      runtime::test::move_to_slow_tiers(*job.embedding_plan, seed);
    }
    CAPTURE(seed, job.devices, static_cast<int>(optimizer));
    check_same(loss_curve(job, kSteps), alone);
  }
}

TEST_CASE("lists that are pooled once train the same DLRM", "[runtime][dlrm][dedup]") {
  // Two of five lists of a rank's four samples are distinct.
  const auto optimizer = GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                                  OptimizerKind::kAdam, OptimizerKind::kAdagrad);
  Job job = skewed_job(optimizer);
  for (EmbeddingTable& t : std::get<LayeredWorkload>(job.workload.model).tables) {
    t.session = Session{4, 0.8};
  }
  constexpr int kSteps = 5;
  const std::vector<double> alone = curve_of_one_rank(job, kSteps);
  job.embedding_dedup = true;
  unsigned seed = 0;
  for (const std::int64_t devices : {1, 2, 4}) {
    for (const std::string& plan : kEveryPlan) {
      if (plan == "column_wise" && optimizer == OptimizerKind::kRowwiseAdagrad) {
        continue;  // keeps a sum for each row of the columns held: trains differently
      }
      job.devices = devices;
      job.embedding_choice = plan;
      job.parallel.overlap.output_all_to_all = ++seed % 2 == 0;
      job.parallel.dlrm_pipeline = static_cast<DlrmPipeline>(seed % 4);
      CAPTURE(seed, devices, plan, static_cast<int>(optimizer));
      const EmbeddingPlacement layout = workloads::embedding_layout(job);
      for (const EmbeddingSlice& s : layout.slices) {
        const PoolingMode mode =
            job.workload.layered()->tables[static_cast<std::size_t>(s.table)].mode;
        CHECK(s.pools_lists_once() == (mode != PoolingMode::kSequence));
      }
      check_same(loss_curve(job, kSteps), alone);
    }
  }
}

TEST_CASE("a pipeline over batches trains on the same rows as one step after the other",
          "[runtime][dlrm]") {
  // Losses are those of the same batches, step by step: a lookup before the update by the batch in
  // between would show from the second step on.
  Job job = small_job(InteractionKind::kDot, OptimizerKind::kAdagrad);
  const std::vector<double> alone = curve_of_one_rank(job, 6);
  const auto pipeline =
      GENERATE(DlrmPipeline::kSparseDist, DlrmPipeline::kPrefetch, DlrmPipeline::kFused);
  const bool overlap = GENERATE(false, true);
  job.parallel.dlrm_pipeline = pipeline;
  job.parallel.overlap.output_all_to_all = overlap;
  job.parallel.overlap.dense_all_reduce = overlap;
  for (const std::int64_t devices : {1, 2, 4}) {
    for (const std::string& plan : kEveryPlan) {
      CAPTURE(static_cast<int>(pipeline), overlap, devices, plan);
      job.devices = devices;
      job.embedding_choice = plan;
      check_same(loss_curve(job, 6), alone);
    }
  }
}

TEST_CASE("a pipelined step wants its pipeline filled, and the next batch", "[runtime][dlrm]") {
  Job job = small_job(InteractionKind::kDot);
  job.devices = 1;
  job.parallel.dlrm_pipeline = DlrmPipeline::kSparseDist;
  const ExecutionGraph graph = workloads::build_graph(job);
  runtime::cpu::Executor executor(graph, 0, std::vector<runtime::Collectives*>(3), {});
  REQUIRE(executor.pipelined());
  const runtime::HostBatch first = batch_of(job, 0, 0, kGlobal);
  CHECK_THROWS_AS(executor.run_step(0, first, -1, &first), InternalError);
  executor.fill_pipeline(first);
  CHECK_THROWS_AS(executor.fill_pipeline(first), InternalError);
  CHECK_THROWS_AS(executor.run_step(0, first, -1), InternalError);
  CHECK(executor.run_step(0, first, -1, &first) > 0);
}

namespace {

/// Loss of the first step when element `i` of a tensor is moved by `by`.
double perturbed_loss(const Job& job, const ExecutionGraph& graph, TensorId id, std::int64_t i,
                      float by) {
  runtime::test::ThreadRanks ranks(graph);
  ranks.executor(0).tensor(id).data[i] += by;
  return ranks.step(0, batches_of(job, 0));
}

}  // namespace

TEST_CASE("gradients are those of the loss", "[runtime][dlrm]") {
  const auto interaction =
      GENERATE(InteractionKind::kDot, InteractionKind::kCat, InteractionKind::kDcnV2);
  Job job = small_job(interaction);
  job.devices = 1;
  job.embedding_choice = "table_wise";
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  std::vector<std::string> names{
      "bottom.0.weight", "bottom.1.weight", "bottom.1.bias",  "top.0.weight",   "top.0.bias",
      "top.1.weight",    "top.1.bias",      "embedding.t0.0", "embedding.t1.0", "embedding.t2.0"};
  if (interaction == InteractionKind::kDcnV2) {
    names.insert(names.end(), {"cross.0.down", "cross.0.up", "cross.0.bias", "cross.1.down",
                               "cross.1.up", "cross.1.bias"});
  }
  for (const std::string& name : names) {
    const TensorId id = tensor_named(program, name);
    runtime::test::ThreadRanks ranks(graph);
    const runtime::cpu::Matrix weights = ranks.executor(0).tensor(id);
    const std::vector<float> before(weights.data, weights.data + weights.elements());
    ranks.step(0, batches_of(job, 0));
    for (const std::int64_t i : {std::int64_t{0}, weights.elements() / 2, weights.elements() - 1}) {
      CAPTURE(name, i);
      // SGD: w' = w - lr g. The differences to either side are equal but for fp32 noise (1e-7 / h)
      // and where a ReLU has its kink: there the gradient is one of the two slopes.
      const double rate = runtime::learning_rate(OptimizerKind::kSgd);
      const double analytic =
          static_cast<double>(before[static_cast<std::size_t>(i)] - weights.data[i]) / rate;
      constexpr float kStep = 5e-4F;
      const double here = perturbed_loss(job, graph, id, i, 0);
      const double right =
          (perturbed_loss(job, graph, id, i, kStep) - here) / static_cast<double>(kStep);
      const double left =
          (here - perturbed_loss(job, graph, id, i, -kStep)) / static_cast<double>(kStep);
      const double margin = 5e-4 + 0.01 * std::abs(analytic);
      CHECK(analytic > std::min(left, right) - margin);
      CHECK(analytic < std::max(left, right) + margin);
    }
  }
}
