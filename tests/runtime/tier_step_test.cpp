#include <catch2/catch.hpp>

#include "core/access/access.h"
#include "runtime/data/batch_source.h"
#include "studies/run/executable.h"
#include "tests/runtime/thread_ranks.h"
#include "tests/runtime/tiered_plans.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/embedding_tiers.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;

namespace {

/// Skewed tables of every pooling mode, on nodes of two ranks with two slower tiers.
Job skewed_job(OptimizerKind optimizer, std::int64_t global, std::int64_t rows) {
  LayeredWorkload w;
  w.dense_features = 4;
  w.bottom_mlp = {16};
  w.top_mlp = {16, 1};
  w.interaction.kind = InteractionKind::kCat;
  const std::vector<PoolingMode> modes{PoolingMode::kSum, PoolingMode::kMean,
                                       PoolingMode::kSequence, PoolingMode::kSum};
  for (std::size_t t = 0; t < modes.size(); ++t) {
    EmbeddingTable table;
    table.name = "t" + std::to_string(t);
    table.rows = rows + 101 * static_cast<std::int64_t>(t);
    table.dim = t % 2 == 0 ? 8 : 16;
    table.pooling = t == 3 ? 4.5 : 6;
    table.mode = modes[t];
    table.access = std::make_shared<const Access>(Access::zipf(table.rows, 0.9, t));
    w.tables.push_back(table);
  }
  Job job;
  job.workload = {"skewed", w, {}};
  job.system.host.devices = 2;
  job.system.tiers = {{"hbm", {}, {}, 1}, {"ddr", GB(10), GBps(1), 2}, {"ssd", GB(99), GBps(1), 2}};
  job.devices = job.parallel.data = 4;
  job.batch.global = global;
  job.formats.compute = Format::kFp32;
  job.dense_optimizer = OptimizerKind::kSgd;
  job.embedding_optimizer = optimizer;
  return job;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, RowTraffic> moved;  ///< mean of the steps from `first` on
  double fullest = 0;                       ///< bytes in ranks' own memory
};

Trained train(const Job& job, int steps, int first = 0) {
  const ExecutionGraph graph = workloads::build_graph(job);
  runtime::test::ThreadRanks ranks(graph);
  const auto count = static_cast<std::size_t>(job.devices);
  std::vector<std::unique_ptr<runtime::BatchSource>> sources;
  for (std::size_t r = 0; r < count; ++r) {
    sources.push_back(
        runtime::make_batch_source(graph.inputs, graph.mesh, static_cast<std::int32_t>(r), 1, ""));
  }
  const auto draw = [&](int step) {
    std::vector<runtime::HostBatch> batches(count);
    for (std::size_t r = 0; r < count; ++r) {
      sources[r]->draw(step, batches[r]);
    }
    return batches;
  };
  const auto moved = [&] {
    std::map<std::string, RowTraffic> sum;
    for (std::size_t r = 0; r < count; ++r) {
      const auto& tiers = graph.program_of(static_cast<std::int32_t>(r)).tiers;
      const auto own = ranks.executor(r).tier_traffic();
      for (std::size_t t = 0; t < tiers.size(); ++t) {
        sum[tiers[t]] += own[t];
      }
    }
    return sum;
  };
  Trained result;
  auto now = draw(0);
  const bool pipelined = ranks.executor(0).pipelined();
  if (pipelined) {
    ranks.fill_pipeline(now);
  }
  std::map<std::string, RowTraffic> before;
  for (int s = 0; s < steps; ++s) {
    if (s == first) {
      before = moved();
    }
    const auto next = draw(s + 1);
    result.losses.push_back(ranks.step(s, now, pipelined ? &next : nullptr));
    now = next;
  }
  result.moved = moved();
  for (auto& [tier, sum] : result.moved) {
    sum += (before[tier] *= -1);
    sum *= 1.0 / (steps - first);
  }
  for (std::size_t r = 0; r < count; ++r) {
    result.fullest = std::max(result.fullest, ranks.executor(r).allocated().base());
  }
  return result;
}

EmbeddingPlan in_hbm(EmbeddingPlan plan) {
  for (PlanTable& table : plan.tables) {
    for (PlanShard& s : table.shards) {
      s.tier = "hbm";
      s.cache_bytes = 0;
    }
  }
  return plan;
}

}  // namespace

TEST_CASE("rows in slower tiers train to the same bits as in device memory", "[runtime][tiers]") {
  // Every route, cache and pipeline; what a row becomes depends on its own lookups alone.
  const auto optimizer = GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                                  OptimizerKind::kAdam, OptimizerKind::kAdagrad);
  Job job = skewed_job(optimizer, 32, 90);
  constexpr int kSteps = 6;
  for (unsigned seed = 0; seed < 16; ++seed) {
    job.devices = job.parallel.data = seed % 5 == 0 ? 1 : seed % 3 == 0 ? 2 : 4;
    job.parallel.dlrm_pipeline = static_cast<DlrmPipeline>(seed % 4);
    job.parallel.overlap.input_all_to_all = seed % 2 == 0;
    job.parallel.overlap.output_all_to_all = seed / 2 % 2 == 0;
    CAPTURE(static_cast<int>(optimizer), seed, job.devices);
    EmbeddingPlan plan = job.devices > 1 ? runtime::test::random_tiered_plan(job, seed)
                                         : workloads::make_embedding_plan(job, "table_wise");
    runtime::test::move_to_slow_tiers(plan, seed);
    job.embedding_plan = in_hbm(plan);
    const Trained fast = train(job, kSteps);
    job.embedding_plan = plan;
    const Trained slow = train(job, kSteps);
    CHECK(slow.losses == fast.losses);
    CHECK(fast.moved.empty());
  }
}

TEST_CASE("rows the runtime fetches and writes are those the graph expects", "[runtime][tiers]") {
  const bool ahead = GENERATE(false, true);
  const double share = GENERATE(0.0, 0.05, 0.3);  // of the rows
  const std::string kind = GENERATE("row_wise", "table_wise");
  CAPTURE(ahead, share, kind);
  Job job = skewed_job(OptimizerKind::kRowwiseAdagrad, 512, 6'000);
  job.parallel.dlrm_pipeline = ahead ? DlrmPipeline::kPrefetch : DlrmPipeline::kNone;
  EmbeddingPlan plan = workloads::make_embedding_plan(job, kind);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    for (PlanShard& s : plan.tables[t].shards) {
      s.tier = t % 2 == 0 ? "ddr" : "ssd";
      const double held =
          static_cast<double>(s.rows[1] - s.rows[0]) / static_cast<double>(s.groups.front().size());
      s.cache_bytes = share * held *
                      workloads::cached_row_bytes(job, job.workload.layered()->tables[t],
                                                  s.columns[1] - s.columns[0]);
    }
  }
  job.embedding_plan = plan;
  constexpr int kSteps = 12;
  constexpr int kFirst = 4;
  const Trained run = train(job, kSteps, kFirst);
  // A pipeline fetches the rows of the next step.
  const auto expected = workloads::expected_tier_traffic(
      job, workloads::build_graph(job), kFirst + (ahead ? 1 : 0), kSteps - kFirst, 4);
  REQUIRE(expected.size() == 2);
  for (const auto& [tier, e] : expected) {
    CAPTURE(tier, e.fetched, e.written);
    const RowTraffic& real = run.moved.at(tier);
    CHECK(real.lookups == Approx(e.lookups).epsilon(0.01));
    CHECK(real.touched == Approx(e.touched).epsilon(0.02));
    CHECK(real.fetched == Approx(e.fetched).epsilon(0.02));
    CHECK(real.written == Approx(e.written).epsilon(0.03));
    CHECK(real.fetched_bytes == Approx(e.fetched_bytes).epsilon(0.02));
  }
}

TEST_CASE("a cache that counts fetches what lies beyond the hottest rows", "[runtime][tiers]") {
  const bool ahead = GENERATE(false, true);
  CAPTURE(ahead);
  Job job = skewed_job(OptimizerKind::kRowwiseAdagrad, 512, 6'000);
  job.parallel.dlrm_pipeline = ahead ? DlrmPipeline::kPrefetch : DlrmPipeline::kNone;
  const auto moved = [&](RowCachePolicy policy) {
    EmbeddingPlan plan = workloads::make_embedding_plan(job, "row_wise");
    for (PlanTable& t : plan.tables) {
      PlanShard& s = t.shards.front();
      s.tier = "ddr";
      s.cache_policy = policy;
      const double held = static_cast<double>(s.rows[1]) / static_cast<double>(job.devices);
      s.cache_bytes =
          0.2 * held *
          workloads::cached_row_bytes(job, job.workload.layered()->tables.front(), s.columns[1]);
    }
    job.embedding_plan = plan;
    return train(job, 40, 30).moved.at("ddr");
  };
  const RowTraffic counts = moved(RowCachePolicy::kLfu);
  const RowTraffic expected =
      workloads::expected_tier_traffic(job, workloads::build_graph(job), -1, 1, 4).at("ddr");
  CHECK(counts.touched == Approx(expected.touched).epsilon(0.02));
  // Thirty batches have not told rows of nearly equal popularity apart.
  CHECK(counts.fetched == Approx(expected.fetched).epsilon(0.05));
  CHECK(counts.fetched_bytes == Approx(expected.fetched_bytes).epsilon(0.05));
  CHECK(counts.fetched < moved(RowCachePolicy::kLru).fetched);
}

TEST_CASE("a cache spares the slower tier and costs its bytes", "[runtime][tiers]") {
  Job job = skewed_job(OptimizerKind::kAdagrad, 128, 4'000);
  const auto with = [&job](double cache_bytes) {
    job.embedding_plan = workloads::make_embedding_plan(job, "row_wise");
    for (PlanTable& table : job.embedding_plan->tables) {
      table.shards.front().tier = "ddr";
      table.shards.front().cache_bytes = cache_bytes;
    }
    return train(job, 8, 4);
  };
  const Trained none = with(0);
  const Trained some = with(30e3);
  const Trained more = with(90e3);
  CHECK(some.moved.at("ddr").fetched < 0.9 * none.moved.at("ddr").fetched);
  CHECK(more.moved.at("ddr").fetched < some.moved.at("ddr").fetched);
  CHECK(some.fullest > none.fullest);
  CHECK(more.fullest <= some.fullest + 4 * 60e3);
  CHECK(some.losses == none.losses);
}

TEST_CASE("the CUDA backend refuses rows in files in words", "[runtime][tiers]") {
  Job job = skewed_job(OptimizerKind::kSgd, 32, 90);
  job.embedding_plan = workloads::make_embedding_plan(job, "row_wise");
  job.embedding_plan->tables[0].shards[0].tier = "ddr";
  CHECK_NOTHROW(studies::require_executable(job, true));
  job.embedding_plan->tables[0].shards[0].tier = "ssd";
  CHECK_NOTHROW(studies::require_executable(job, false));
  CHECK_THROWS_WITH(studies::require_executable(job, true),
                    Catch::Contains("embedding.plan") && Catch::Contains("tier ssd"));
}
