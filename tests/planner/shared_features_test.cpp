// Tables of several features, of a format of their own, with weighted lookups: priced and counted.
#include <catch2/catch.hpp>
#include <random>

#include "core/graph/memory_use.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/plan_space.h"
#include "tests/planner/plain_jobs.h"
#include "tests/planner/planned_ledger.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using namespace stepcast::planner;

namespace {

Job features_job(std::mt19937& rng) {
  const auto draw = [&rng](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  const std::int64_t devices = std::int64_t{1} << draw(0, 4);
  Job job = test::dlrm_job(devices, draw(1, 8), 100, 16, 1);
  job.system =
      plain_system(static_cast<double>(draw(8, 60)) * 1e6, std::min<std::int64_t>(4, devices));
  job.parallel.data = devices;
  job.batch.global = devices * 16 * draw(1, 4);
  for (EmbeddingTable& t : test::model_of(job).tables) {
    t.rows = static_cast<std::int64_t>(std::pow(10.0, static_cast<double>(draw(5, 48)) / 10));
    t.dim = 4 << draw(0, 4);
    t.features.assign(static_cast<std::size_t>(draw(1, 4)), {"", 2});
    t.pooling = 2 * static_cast<double>(t.features.size());
    t.mode = std::vector<PoolingMode>{PoolingMode::kSum, PoolingMode::kMean,
                                      PoolingMode::kSequence}[static_cast<std::size_t>(draw(0, 2))];
    t.weighted = t.mode != PoolingMode::kSequence && draw(0, 1) == 0;
    t.format = std::vector<std::optional<Format>>{
        std::nullopt, Format::kFp16, Format::kInt8Row}[static_cast<std::size_t>(draw(0, 2))];
    t.access = std::make_shared<Access>(Access::zipf(t.rows, 1.05));
  }
  return job;
}

}  // namespace

TEST_CASE("the ledger covers what graphs of shared tables allocate",
          "[planner][ledger][features]") {
  std::mt19937 rng(7);
  int checked = 0;
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    each_device_line(features_job(rng),
                     [&](const LedgerLine& l, const MemoryUse& use, const Program&) {
                       CHECK(use.total().base() <= l.total());
                       ++checked;
                     });
  }
  CHECK(checked > 100);
}

TEST_CASE("pooled features that share a table cost what as many tables cost, but for its rows",
          "[planner][features]") {
  // Rows split over all 8 ranks; 4 features of 3 lookups, or 4 tables of 3 lookups.
  const auto job_of = [](bool shared) {
    Job job = test::dlrm_job(8, shared ? 1 : 4, 1'000'000, 64, shared ? 12 : 3);
    job.system = plain_system(8e9, 8);
    job.parallel.data = 8;
    job.batch.global = 8 * 4096;
    for (EmbeddingTable& t : test::model_of(job).tables) {
      if (shared) {
        t.features.assign(4, {"", 3});
      }
      t.access = std::make_shared<Access>(Access::uniform(t.rows));
    }
    return job;
  };
  const auto load = [&](const Job& job) {
    const models::CostModel model(job.system, job.calibration);
    const EmbeddingPrices prices(job, model);
    const PlanSpace space(job, prices, {});
    Load sum{};
    for (std::size_t t = 0; t < space.problem().tables.size(); ++t) {
      const auto& options = space.problem().tables[t].options;
      for (std::size_t o = 0; o < options.size(); ++o) {
        if (space.meaning(t, static_cast<std::int32_t>(o)).kind == ShardingKind::kRowWise) {
          for (std::size_t p = 0; p < kPhases; ++p) {
            sum[p] += options[o].load[p];
          }
        }
      }
    }
    return sum;
  };
  const Load shared = load(job_of(true));
  const Load apart = load(job_of(false));
  // Ids, lengths and partial sums are the same.
  CHECK(static_cast<double>(shared[kArrival]) ==
        Approx(static_cast<double>(apart[kArrival])).epsilon(1e-3));
  CHECK(static_cast<double>(shared[kGroupExchange]) ==
        Approx(static_cast<double>(apart[kGroupExchange])).epsilon(1e-3));
  // 393,216 lookups of one million rows against four times 98,304: repeats hit caches and are
  // updated once, so neither costs more, within the 1 % of the grid that counts distinct rows.
  CHECK(static_cast<double>(shared[kGroupLookup]) <=
        static_cast<double>(apart[kGroupLookup]) * 1.01);
  CHECK(static_cast<double>(shared[kUpdate]) <= static_cast<double>(apart[kUpdate]) * 1.01);
  // A weight of 4 B with each id of 8 B: half as much again of what grows with ids.
  Job weighted = job_of(true);
  test::model_of(weighted).tables.front().weighted = true;
  CHECK(static_cast<double>(load(weighted)[kArrival]) > static_cast<double>(shared[kArrival]));
}
