#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/ledger.h"
#include "studies/predict/predict.h"
#include "tests/planner/plain_jobs.h"
#include "tests/runtime/tiered_plans.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_layout.h"

#include "core/numbers.h"

using namespace stepcast;
using namespace stepcast::planner;

namespace {

/// Tables, machines and memories by chance; libraries take their share of the device.
Job tight_job(std::mt19937& rng) {
  const auto draw = [&rng](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  const std::int64_t devices =
      std::vector<std::int64_t>{1, 2, 4, 6, 8, 16}[static_cast<std::size_t>(draw(0, 5))];
  Job job = test::dlrm_job(devices, draw(1, 8), 100, 16, 1);
  job.system =
      plain_system(static_cast<double>(draw(20, 300)) * 1e5, std::min<std::int64_t>(4, devices));
  job.system.tiers[1].capacity = MB(static_cast<double>(draw(1, 20)));
  job.system.device.fitted["memory"].constants = {{"reserve", 2e5},
                                                  {"communicator", 1e5 * real(draw(0, 8))},
                                                  {"communicator_pair", 5e4},
                                                  {"fragmentation", 0.01 * real(draw(0, 30))}};
  job.parallel.data = devices;
  job.batch.global = devices * 16 * draw(1, 4);
  job.embedding_optimizer = static_cast<OptimizerKind>(draw(0, 3));
  job.dense_optimizer = static_cast<OptimizerKind>(draw(0, 3));
  for (EmbeddingTable& t : test::model_of(job).tables) {
    t.rows = static_cast<std::int64_t>(std::pow(10.0, static_cast<double>(draw(20, 48)) / 10));
    t.dim = 4 << draw(0, 4);
    t.pooling = static_cast<double>(draw(1, 20)) / 2;
    t.mode = static_cast<PoolingMode>(draw(0, 2));
    t.access = std::make_shared<Access>(Access::zipf(t.rows, 1.05));
  }
  return job;
}

}  // namespace

TEST_CASE("every plan that the planner accepts fits for the prediction too",
          "[studies][plan][property]") {
  std::mt19937 rng(20);
  PlannerOptions options;
  options.search.effort = planner::SearchEffort::kQuick;
  int accepted = 0;
  int tight = 0;
  int spilled = 0;
  int rejected = 0;
  for (int i = 0; i < 300; ++i) {
    Job job = tight_job(rng);
    const models::CostModel model(job.system, job.calibration);
    const EmbeddingPlanning found = plan_embeddings(job, model, options);
    if (found.candidates.empty()) {
      REQUIRE(found.shortage);
      CHECK(found.shortage->missing() > 0);
      ++rejected;
      continue;
    }
    for (const PlannedCandidate& c : found.candidates) {
      REQUIRE_FALSE(excess_of(job, c.plan, c.plan.ledger));
      job.embedding_plan = c.plan;
      const studies::StepPrediction p = studies::predict(job);
      CAPTURE(i, p.warnings);
      REQUIRE(p.fits);
      ++accepted;
      for (const LedgerLine& l : c.plan.ledger) {
        tight += l.tier == "hbm" && l.total() > 0.95 * l.capacity ? 1 : 0;
        spilled += l.tier != "hbm" && l.total() > 0 ? 1 : 0;
      }
    }
  }
  CHECK(accepted > 150);
  CHECK(tight > 10);
  CHECK(spilled > 2);
  CHECK(rejected > 10);
}

TEST_CASE("a plan's communicators are those that its graph uses", "[studies][plan][oracle]") {
  // For all ranks together: one that holds no rows of a copy has no gradients to sum.
  const auto of_graph = [](const Job& j) {
    const ExecutionGraph graph = workloads::build_graph(j);
    std::map<std::int32_t, std::size_t> used;
    for (const RankClass& c : graph.classes) {
      for (const Op& op : graph.program_of(c.ranks.front()).ops) {
        if (op.communicator >= 0) {
          used[op.communicator] = graph.members(op.communicator, c.ranks.front()).size();
        }
      }
    }
    std::vector<std::size_t> sizes;
    for (const auto& [communicator, ranks] : used) {
      sizes.push_back(ranks);
    }
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  };
  const std::int64_t devices = GENERATE(1, 8);
  for (unsigned seed = 0; seed < 90; ++seed) {
    Job job = test::dlrm_job(devices, 3, 5000, 16, 6);
    job.parallel.data = devices;
    job.system = plain_system(16e9, 4);
    auto& tables = test::model_of(job).tables;
    tables[1].mode = PoolingMode::kSequence;
    job.sptt = devices > 1 && seed % 3 == 1;  // columns of whole tables travel by way of towers
    job.embedding_dedup = seed % 3 == 2;
    if (job.embedding_dedup) {
      tables[0].session = tables[2].session = Session{16, 0.9};
    }
    const std::vector<std::string> named{"table_wise", "row_wise", "table_row_wise",
                                         "data_parallel", "tiered"};
    const unsigned choice = seed / 3;
    job.embedding_plan = choice < named.size() || devices == 1
                             ? workloads::make_embedding_plan(job, named[choice % named.size()])
                             : runtime::test::random_tiered_plan(job, seed, {2, 4});
    auto sizes = communicator_sizes(workloads::embedding_layout(job), job.sptt);
    std::sort(sizes.begin(), sizes.end());
    CAPTURE(devices, seed);
    CHECK(sizes == of_graph(job));
  }
}
