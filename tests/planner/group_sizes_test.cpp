// Plans whose groups of ranks have several sizes: machines, racks, pods.
#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "core/graph/memory_use.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/ledger.h"
#include "tests/planner/plain_jobs.h"
#include "tests/planner/problems.h"
#include "tests/runtime/tiered_plans.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using namespace stepcast::planner;

TEST_CASE("machines, racks and all ranks in one plan: equal to brute force",
          "[planner][row_tiers]") {
  // Two racks of two machines of two ranks; links slower the farther they reach.
  Job job = sequence_job(8, 2, 400'000, 1.1, 2048, 2);
  job.system.fabric = {{"machine", 2, GBps(400), microseconds(2), 1, false},
                       {"rack", 2, GBps(200), microseconds(3), 1, false},
                       {"network", 2, GBps(4), microseconds(5), 1, false}};
  job.system.device.memory = MiB(400);
  CHECK(workloads::nested_units(job) == std::vector<std::int64_t>{2, 4});
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPrices prices(job, model);
  const auto best_of = [&](const std::vector<std::int64_t>& sizes) {
    // Without blocks on single ranks: with them brute force has too many placements to try.
    const PlanSpace space(job, prices,
                          {.group_sizes = sizes, .row_tiers = true, .form = {.row_blocks = false}});
    const SearchResult found =
        search(space.problem(), SearchOptions{.effort = SearchEffort::kThorough});
    const Femtoseconds least = testing::brute_force(space.problem());
    CAPTURE(sizes.size(), found.bound.value, least);
    REQUIRE_FALSE(found.best.empty());
    CHECK(found.best.front().first == least);
    CHECK(found.bound.value <= least);
    return std::pair(least, space.plan(job, found.best.front().second));
  };
  const auto [machines, with_machines] = best_of({2});
  const auto [racks, with_racks] = best_of({4});
  const auto [nested, plan] = best_of({2, 4});
  // The space holds both; its cuts are fixed points, not exact ones.
  CHECK(load_seconds(nested) <= load_seconds(std::min(machines, racks)) * (1 + 1e-5));
  // The whole planner finds it, its ledger covers the graph, and the graph is built.
  const EmbeddingPlanning found = plan_embeddings(job, model);
  CHECK(found.candidates.front().objective <= load_seconds(nested) * (1 + 1e-12));
  CHECK_FALSE(excess_of(job, plan, ledger_of(job, plan)));
  job.embedding_plan = plan;
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto ledger = ledger_of(job, plan);
  for (const LedgerLine& line : ledger) {
    if (line.tier == "hbm") {
      CHECK(line.total() >= memory_use(graph.program_of(line.rank)).total().base());
    }
  }
}

TEST_CASE("machines that are not full and pods larger than machines", "[planner]") {
  // One and a half machines of eight; two pods of 72 that are 18 machines of four each.
  struct Case {
    const char* system;
    int devices;
    std::vector<std::int64_t> units;
  };
  for (const Case& c :
       {Case{"dgx-h100", 12, {4}}, Case{"dgx-h100", 24, {8}}, Case{"gb200-nvl72", 144, {4, 72}}}) {
    CAPTURE(c.system, c.devices);
    Job job = config::load_job(
        config::text_source("{}", "test"),
        {"workload=rm3", std::string("system=") + c.system, "devices=" + std::to_string(c.devices),
         "batch.global=" + std::to_string(256 * c.devices)},
        {STEPCAST_SOURCE_DIR});
    CHECK(workloads::nested_units(job) == c.units);
    for (const std::int64_t size : group_sizes(job)) {
      CHECK(c.devices % size == 0);
    }
    CHECK(group_sizes(job, {.machine_groups = true}) == std::vector{c.units.front()});
    const models::CostModel model(job.system, job.calibration);
    const EmbeddingPlanning found = plan_embeddings(job, model);
    REQUIRE(found.best() != nullptr);
    CHECK(found.bound <= found.best()->objective);
    for (const PlannedCandidate& candidate : found.candidates) {
      CHECK_FALSE(excess_of(job, candidate.plan, candidate.plan.ledger));
      job.embedding_plan = candidate.plan;
      CHECK_NOTHROW(workloads::build_graph(job));
      job.embedding_plan.reset();
    }
    // A table over one unit of each size is a plan too, in one graph.
    EmbeddingPlan plan = workloads::make_embedding_plan(job, "table_wise");
    for (std::size_t i = 0; i < c.units.size(); ++i) {
      PlanShard& s = plan.tables[i].shards.front();
      s.sharding = ShardingKind::kTableRowWise;
      s.groups = {runtime::test::rank_groups(c.devices, c.units[i]).back()};
    }
    job.embedding_plan = plan;
    CHECK_NOTHROW(workloads::build_graph(job));
    CHECK(objective_of_plan(job, model, plan).has_value());
  }
}
